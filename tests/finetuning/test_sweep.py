"""--seeds and --grid: every run once, the best one kept, mean and deviation told."""

import csv
import dataclasses
import json
import math
import shutil
import statistics
from pathlib import Path

import pytest
import tensorflow as tf
from test_fit import CONFIG
from tiny_runs import Interruption, read_results, sentence_options

from bert_tf.finetuning import sweep
from bert_tf.finetuning.classification import run_classifier
from bert_tf.finetuning.classification_options import ClassifierOptions
from bert_tf.finetuning.sweep_plan import plan
from bert_tf.model_files import model_files, write_files
from bert_tf.report.best_run import best_of_runs
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.training.checkpoints import latest_checkpoint


@pytest.fixture
def options(pretrained, mood_tables, tmp_path):
    """Two seeds, each of a few steps."""
    return sentence_options(
        pretrained, mood_tables, tmp_path / "output", num_train_epochs=2.0, seeds=2, seed=7
    )


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_seeds_and_grid_need_training_and_evaluation(options):
    with pytest.raises(ValueError, match=r"seeds.* and .*grid.* train several models"):
        dataclasses.replace(options, do_eval=False, eval_file=None)


def test_several_processes_make_no_series(options, monkeypatch):
    """A strategy of several processes must be made before anything is computed, so one stands in."""
    monkeypatch.setattr(sweep, "is_multi_worker", lambda devices: True)
    with pytest.raises(ValueError, match=r"TF_CONFIG .*Start each run separately, with `seed`"):
        run_classifier(options)
    assert not Path(options.output_dir).exists()


def test_an_interrupted_series_goes_on_and_ends_with_the_best_model(options, monkeypatch):
    output = Path(options.output_dir)
    with monkeypatch.context() as patch, pytest.raises(Interruption):
        keep = sweep._keep_if_best

        def interrupt_after_first(run, results, output_dir):
            keep(run, results, output_dir)
            raise Interruption

        patch.setattr(sweep, "_keep_if_best", interrupt_after_first)
        run_classifier(options)
    assert latest_checkpoint(str(output))
    first = (output / "runs/seed-7/result.json").stat().st_mtime_ns

    results = run_classifier(options)
    assert (output / "runs/seed-7/result.json").stat().st_mtime_ns == first  # was not made again

    notes = {
        name: json.loads((output / f"runs/{name}/result.json").read_text())["results"]
        for name in ("seed-7", "seed-8")
    }
    accuracies = [note["eval_accuracy"] for note in notes.values()]
    best = json.loads((output / "runs/best.json").read_text())["name"]
    assert notes[best]["eval_accuracy"] == max(accuracies)
    # The model in the folder is that one, and lies there alone.
    assert results == pytest.approx(notes[best], rel=1e-5)
    assert read_results(output) == results
    assert len(list(output.rglob("model.ckpt-*.index"))) == 1
    assert (output / "test_results.tsv").exists()
    assert "2 runs" in (output / "report.html").read_text()

    table = rows_of(output / "runs.tsv")
    assert [row["seed"] for row in table] == ["7", "8"]
    assert [float(row["eval_accuracy"]) for row in table] == accuracies
    (summary,) = (
        row for row in rows_of(output / "runs_summary.tsv") if row["metric"] == "eval_accuracy"
    )
    assert float(summary["mean"]) == pytest.approx(statistics.fmean(accuracies))
    assert float(summary["std"]) == pytest.approx(statistics.stdev(accuracies))
    assert (float(summary["min"]), float(summary["max"])) == (min(accuracies), max(accuracies))

    # The card and the report say so, and the report has the command as it was given.
    mean, std = statistics.fmean(accuracies), statistics.stdev(accuracies)
    for name in ("README.md", "report.html"):
        text = (output / name).read_text()
        assert f"{best}, the best of 2 runs by eval_accuracy" in text
        assert f"eval_accuracy {mean:.4g} ± {std:.2g}" in text
    report = (output / "report.html").read_text()
    assert "--seeds=2" in report and f"--output_dir={output}" in report
    assert f"--init_checkpoint={options.init_checkpoint}" in report

    # The records were made once, and other flags are not mixed with these runs.
    assert len(list((output / "runs/features").glob("train-*.tf_record"))) == 1
    with pytest.raises(ValueError, match=r"other flags: .*learning_rate.* was 0\.005, is 0\.1"):
        run_classifier(dataclasses.replace(options, learning_rate=0.1))


def test_a_model_that_was_trained_on_is_no_longer_called_the_best_of_several(tmp_path):
    note = {"name": "seed-7", "runs": 2, "metric": "eval_f1", "step": 40}
    note |= {"seeds": 2, "mean_std": {"eval_f1": [0.5, 0.01]}}
    assert best_of_runs(str(tmp_path), 40) == ""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/best.json").write_text(json.dumps(note))
    assert "best of 2 runs by eval_f1" in best_of_runs(str(tmp_path), 40)
    assert "eval_f1 0.5 ± 0.01" in best_of_runs(str(tmp_path), 40)
    assert best_of_runs(str(tmp_path), 60) == ""
    (tmp_path / "runs/best.json").write_text(json.dumps({**note, "seeds": 1}))  # of --grid
    assert "±" not in best_of_runs(str(tmp_path), 40)


def test_the_model_of_a_single_run_is_not_replaced(sentence_model, options):
    with pytest.raises(ValueError, match="contains a model of a single run"):
        run_classifier(dataclasses.replace(options, output_dir=str(sentence_model)))


def test_evaluations_on_the_way_keep_the_best_of_each_run_beside_it(options):
    output = Path(options.output_dir)
    results = run_classifier(dataclasses.replace(options, evaluate_steps=5))
    assert results["eval_accuracy"] > 0
    assert latest_checkpoint(str(output))
    kept = sorted(str(path.relative_to(output)) for path in output.rglob("best/*.index"))
    assert [name.split("/best/")[0] for name in kept] == ["runs/seed-7", "runs/seed-8"]


def moved(tmp_path, best_metric=None):
    """A finished run of two checkpoints in a folder of its own, and the folder of the series."""
    output = tmp_path / "output"
    options = ClassifierOptions(
        output_dir=str(output), train_file="t.tsv", eval_file="d.tsv", do_train=True, do_eval=True,
        seeds=2, evaluate_steps=1, best_metric=best_metric,
    )  # fmt: skip
    runs = plan(options)
    folder = Path(runs[0].options.output_dir)
    folder.mkdir(parents=True)
    for step in (1, 2):
        for name in (f"model.ckpt-{step}.index", f"model.ckpt-{step}.data-00000-of-00001"):
            (folder / name).write_text(str(step))
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-2"')
    task = ClassificationTask(["a", "b"], max_seq_length=8)
    write_files(str(folder), model_files(CONFIG, task))
    Path(runs[0].result_file).write_text("{}")
    return options, runs, folder, output


def test_a_kill_while_a_folder_is_emptied_keeps_the_newest_weights(tmp_path, monkeypatch):
    _, runs, folder, output = moved(tmp_path)
    remove, removed = tf.io.gfile.remove, []

    def killed(path):
        if len(removed) == 2:
            raise Interruption
        removed.append(path)
        remove(path)

    monkeypatch.setattr(tf.io.gfile, "remove", killed)
    results = {"eval_accuracy": 0.5, "global_step": 2}
    with pytest.raises(Interruption):
        sweep._keep_if_best(runs[0], results, str(output))
    monkeypatch.undo()
    sweep._keep_if_best(runs[0], results, str(output))
    assert latest_checkpoint(str(output)).endswith("model.ckpt-2")
    assert (output / "model.ckpt-2.index").read_text() == "2"
    assert not list(folder.glob("model.ckpt-*"))


def test_a_kill_while_the_first_model_is_moved_can_be_resumed(tmp_path):
    options, runs, folder, output = moved(tmp_path)
    for path in folder.glob("*"):
        if path.name.startswith(("model", "checkpoint")):
            (output / path.name).write_text(path.read_text())
    sweep._check_no_other_model(options, runs)
    Path(runs[0].result_file).unlink()
    with pytest.raises(ValueError, match="a model of a single run"):
        sweep._check_no_other_model(options, runs)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"flags": {}, "results": 1}', "[" * 100_000])
def test_a_damaged_note_of_a_run_is_named(tmp_path, content):
    _, runs, _, _ = moved(tmp_path)
    Path(runs[0].result_file).write_text(content)
    with pytest.raises(ValueError, match=r"result\.json") as caught:
        sweep._completed(runs[0])
    assert runs[0].result_file in str(caught.value)


def test_the_best_run_is_that_of_the_chosen_metric(tmp_path):
    _, runs, _, output = moved(tmp_path, best_metric="eval_loss")
    sweep._keep_if_best(runs[0], {"eval_accuracy": 0.5, "eval_loss": 0.25}, str(output))
    assert sweep.read_best_run(str(output))["score"] == -0.25


def test_a_plan_without_the_best_run_of_its_folder_is_refused_before_the_first_run(tmp_path):
    options, runs, _, output = moved(tmp_path)
    sweep._keep_if_best(runs[0], {"eval_accuracy": 0.5}, str(output))
    shifted = dataclasses.replace(options, seed=options.seed + 1)
    with pytest.raises(ValueError, match=rf"model of {runs[0].name}, .*with that run"):
        sweep.run_all(shifted, tf.distribute.get_strategy(), lambda *args: pytest.fail("a run"))


def test_a_run_that_diverges_has_failed_and_the_others_are_made(tmp_path, caplog):
    options, runs, _, output = moved(tmp_path)
    Path(runs[0].result_file).unlink()
    shutil.copytree(runs[0].options.output_dir, runs[1].options.output_dir)
    made = []

    def run_once(options, devices, *others):
        made.append(options.output_dir)
        if options.output_dir == runs[0].options.output_dir:
            raise FloatingPointError("The loss is nan at step 2.")
        return {"eval_accuracy": 0.5, "global_step": 2}

    strategy = tf.distribute.get_strategy()
    for _ in range(2):  # the second time, no run is made again
        assert sweep.run_all(options, strategy, run_once)["eval_accuracy"] == 0.5
    folders = [run.options.output_dir for run in runs]
    assert made == [*folders, str(output), str(output)]
    assert f"{runs[0].name} has failed" in caplog.text
    assert "The loss is nan at step 2." in caplog.text
    failed, best = rows_of(output / "runs.tsv")
    assert (failed["eval_accuracy"], failed[""]) == ("nan", "failed")
    assert (best["eval_accuracy"], best[""]) == ("0.5", "best")


def test_the_best_student_is_evaluated_without_its_teacher(tmp_path):
    options, runs, _, _ = moved(tmp_path)
    taught = {"teacher": "big", "temperature": 3.0, "unlabelled_file": "more.tsv"}
    options = dataclasses.replace(options, **taught)
    Path(runs[0].result_file).unlink()
    shutil.copytree(runs[0].options.output_dir, runs[1].options.output_dir)
    teachers = []

    def run_once(options, *others):
        teachers.append(options.teacher)
        return {"eval_accuracy": 0.5, "global_step": 2}

    sweep.run_all(options, tf.distribute.get_strategy(), run_once)
    assert teachers == ["big", "big", None]


def test_a_run_whose_metric_is_nan_is_never_the_best(tmp_path, caplog):
    _, runs, _, output = moved(tmp_path)
    sweep._keep_if_best(runs[0], {"eval_accuracy": math.nan}, str(output))
    assert sweep.read_best_run(str(output)) == {}
    assert "cannot be the best run: its eval_accuracy is nan" in caplog.text


def test_without_a_finite_metric_no_run_is_chosen(tmp_path):
    options, _, _, output = moved(tmp_path)
    results = {"eval_accuracy": math.nan, "global_step": 2}
    for run in (runs := plan(options)):
        Path(run.options.output_dir).mkdir(exist_ok=True)
        Path(run.result_file).unlink(missing_ok=True)
    with pytest.raises(ValueError, match=r"None of the 2 runs .*lower learning_rate"):
        sweep.run_all(options, tf.distribute.get_strategy(), lambda *args: dict(results))
    assert len(rows_of(output / "runs.tsv")) == len(runs)


def test_a_note_from_before_a_flag_existed_has_its_default(tmp_path):
    options, (run, *_), _, _ = moved(tmp_path)
    results = {"eval_accuracy": 0.5}
    flags = sweep._flags(run.options)
    assert flags.pop("lr_batch_scaling") == "linear"
    Path(run.result_file).write_text(json.dumps({"results": results, "flags": flags}))
    assert sweep._completed(run) == results
    changed = dataclasses.replace(options, lr_batch_size=8, lr_batch_scaling="sqrt")
    with pytest.raises(ValueError, match=r"`lr_batch_scaling` was linear, is sqrt"):
        sweep._completed(plan(changed)[0])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_metric_that_is_not_finite_is_summarised_as_nan(tmp_path, value):
    _, runs, _, _ = moved(tmp_path)
    results = {
        runs[0].name: {"eval_accuracy": 0.5, "eval_loss": 1.0},
        runs[1].name: {"eval_accuracy": 0.5, "eval_loss": value},
    }
    _, (accuracy, loss) = sweep._summary(runs, results)
    assert accuracy == ["eval_accuracy", 2, 0.5, 0.0, 0.5, 0.5]
    assert loss[:2] == ["eval_loss", 2]
    assert all(map(math.isnan, loss[2:]))


def test_a_series_may_start_from_the_moments_of_another_run(sentence_model, options):
    changes = {"init_optimizer": True, "init_checkpoint": str(sentence_model)}
    with pytest.raises(ValueError, match=r"continues at step \d+ of .* only \d+ steps in all"):
        run_classifier(dataclasses.replace(options, **changes))
    series = dataclasses.replace(options, seeds=1, grid="num_train_epochs=13", **changes)
    assert run_classifier(series)["global_step"] > 0
