"""run_classifier on several labels, on numbers, on long documents, and on all of GLUE's layouts."""

import dataclasses
import json
import logging
import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_runs import (
    BAD,
    GOOD,
    PLACES,
    Interruption,
    classifier_options,
    pairs,
    read_results,
    write_mrpc,
)

from bert_tf.finetuning import loop
from bert_tf.finetuning.classification import read_data, run_classifier
from bert_tf.finetuning.setup import trained_task

pytestmark = pytest.mark.night

NLI = ("contradiction", "entailment", "neutral")


def rows_of(path):
    return [[float(cell) for cell in line.split("\t")] for line in path.read_text().splitlines()]


def scenes(num_rows, seed):
    """Texts, their labels ("good" or "bad", and "barn" where that is the place), and a number."""
    rng = random.Random(seed)
    rows = []
    for _ in range(num_rows):
        word, place = rng.choice(GOOD + BAD), rng.choice(PLACES[:1] * 2 + PLACES)
        labels = ["good" if word in GOOD else "bad"] + ["barn"] * (place == PLACES[0])
        rows.append((f"the {word} dog in the {place}", labels, 3.0 if word in GOOD else -1.0))
    return rows


def write_scenes(path, num_rows, seed, kind):
    with open(path, "w") as file:
        for text, labels, number in scenes(num_rows, seed):
            label = labels if kind == "multi_label" else number
            file.write(json.dumps({"text": text, "label": label}) + "\n")
    return str(path)


def kind_options(folder, pretrained, kind, **changes):
    values = {
        "train_file": write_scenes(folder / "train.jsonl", 120, 1, kind),
        "eval_file": write_scenes(folder / "dev.jsonl", 31, 2, kind),
        "predict_file": write_scenes(folder / "test.jsonl", 9, 3, kind),
        "text_a_column": "text",
        "problem_type": kind,
        "init_checkpoint": str(pretrained),
        "do_train": True,
        "do_eval": True,
        "do_predict": True,
        "num_train_epochs": 20.0,
        "learning_rate": 2e-3,  # at the 5e-3 of the other toy runs some seeds do not learn
    }
    return classifier_options(folder / "output", **{**values, **changes})


@pytest.fixture(scope="module")
def kinds(pretrained, tmp_path_factory):
    """Options of two runs that have ended: `multi_label` and `regression`."""
    made = {}
    for kind in ("multi_label", "regression"):
        options = kind_options(tmp_path_factory.mktemp(kind), pretrained, kind)
        run_classifier(options)
        made[kind] = options
    return SimpleNamespace(**made)


def folder_of(options):

    return Path(options.output_dir)


# ---------------------------------------------------------------------------------- several labels


def test_several_labels_that_can_be_learned_are_learned(kinds):
    results = read_results(folder_of(kinds.multi_label))
    assert sorted(results) == [
        "eval_accuracy",
        "eval_f1_macro",
        "eval_f1_micro",
        "eval_loss",
        "global_step",
        "loss",
    ]
    assert results["eval_f1_micro"] > 0.9
    assert (folder_of(kinds.multi_label) / "labels.txt").read_text() == "bad\nbarn\ngood\n"


def test_predictions_of_several_labels_are_a_probability_for_each(kinds):
    found = np.array(rows_of(folder_of(kinds.multi_label) / "test_results.tsv"))
    expected = [
        [label in labels for label in ("bad", "barn", "good")] for _, labels, _ in scenes(9, 3)
    ]
    assert ((found > 0.5) == expected).mean() > 0.9


def test_a_number_that_can_be_learned_is_learned(kinds):
    results = read_results(folder_of(kinds.regression))
    assert results["eval_pearson"] > 0.9
    assert not (folder_of(kinds.regression) / "labels.txt").exists()
    found = np.array(rows_of(folder_of(kinds.regression) / "test_results.tsv"))
    assert found.shape == (9, 1)
    np.testing.assert_allclose(found[:, 0], [number for *_, number in scenes(9, 3)], atol=1.5)


@pytest.mark.parametrize("kind", ["multi_label", "regression"])
def test_evaluation_afterwards_knows_the_problem_type(kinds, kind):
    options = getattr(kinds, kind)
    before = read_results(folder_of(options))
    again = dataclasses.replace(options, do_train=False, do_predict=False, problem_type=None)
    assert run_classifier(again) == pytest.approx(before, rel=1e-5)


def test_a_model_of_another_problem_type_is_refused(kinds):
    options = dataclasses.replace(kinds.regression, do_train=False, do_predict=False)
    options = dataclasses.replace(
        options, problem_type="multi_label", eval_file=kinds.multi_label.eval_file
    )
    with pytest.raises(ValueError, match="problem_type: multi_label"):
        read_data(options, trained_task(options, "classification", None, 128))


# ----------------------------------------------------------------------------------- long documents


# ------------------------------------------------------------------------------------------- GLUE


def write_mnli(folder, with_mismatched=True):
    header = "\t".join(["index", *(f"c{n}" for n in range(1, 10))])
    files = {"train": 24, "dev_matched": 6, "test_matched": 5}
    if with_mismatched:
        files |= {"dev_mismatched": 7, "test_mismatched": 4}
    for seed, (name, size) in enumerate(files.items()):
        is_test = name.startswith("test")
        lines = [header + ("" if is_test else "\tgold_label")]
        for number, (text_a, text_b, label) in enumerate(pairs(size, seed=20 + seed)):
            row = [str(number), *"bcdefgh", text_a, text_b]
            lines.append("\t".join(row if is_test else [*row, NLI[int(label)]]))
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    return str(folder)


@pytest.fixture(scope="module")
def mnli(pretrained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mnli")
    options = classifier_options(
        folder / "output",
        task_name="MNLI",
        data_dir=write_mnli(folder),
        init_checkpoint=str(pretrained),
        do_train=True,
        do_eval=True,
        do_predict=True,
        num_train_epochs=1.0,
    )
    run_classifier(options)
    return folder / "output"


def test_mnli_is_evaluated_and_predicted_on_both_sets(mnli):
    results = read_results(mnli)
    assert {"eval_accuracy", "eval_loss", "loss"} < set(results)
    assert {"eval_accuracy_mismatched", "eval_loss_mismatched"} < set(results)
    assert len(rows_of(mnli / "test_results.tsv")) == 5
    assert len(rows_of(mnli / "test_results_mismatched.tsv")) == 4
    for name, size in (("MNLI-m.tsv", 5), ("MNLI-mm.tsv", 4)):
        lines = (mnli / name).read_text().splitlines()
        assert lines[0] == "index\tprediction"
        assert [line.split("\t")[0] for line in lines[1:]] == [str(n) for n in range(size)]
        assert {line.split("\t")[1] for line in lines[1:]} <= set(NLI)
    assert "Confusion matrix (mismatched)" in (mnli / "report.html").read_text()


# ------------------------------------------------------------------------------- records and lengths


def test_records_are_made_once(pair_model, mrpc_folder, tmp_path, caplog):
    shutil.copytree(pair_model, tmp_path / "out")
    data = {"task_name": "MRPC", "data_dir": str(mrpc_folder)}
    options = classifier_options(tmp_path / "out", **data, do_eval=True)
    for file in (tmp_path / "out").glob("eval.tf_record*"):
        file.unlink()
    caplog.set_level(logging.INFO)
    results = [run_classifier(options) for _ in range(2)]
    assert caplog.text.count("Wrote 21 records") == caplog.text.count("Using the 21 records") == 1
    assert results[0] == results[1] == pytest.approx(read_results(pair_model), rel=1e-5)
    (mrpc_folder.parent / "other").mkdir()
    folder = write_mrpc(mrpc_folder.parent / "other" / "MRPC", {"dev": pairs(9, seed=1)})
    run_classifier(dataclasses.replace(options, data_dir=str(folder)))
    assert "Wrote 9 records" in caplog.text


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({"evaluate_steps": 11}, [11, 22]),
        ({"evaluate_steps": 9}, [9, 18, 22]),
        ({"evaluate_steps": 4, "early_stopping": 1, "learning_rate": 1e-30}, [4, 8]),
    ],
)
def test_the_weights_of_a_step_are_evaluated_once(
    pretrained, tmp_path, monkeypatch, changes, steps
):
    run_model, evaluated = loop.run_model, []

    def noted(trainer, *args, label, **kwargs):
        evaluated.append(trainer.step)
        return run_model(trainer, *args, label=label, **kwargs)

    monkeypatch.setattr(loop, "run_model", noted)
    flags = {"num_train_epochs": 3.0, "do_predict": False}
    options = kind_options(tmp_path, pretrained, "regression", **flags, **changes)
    results = run_classifier(options)
    assert evaluated == steps
    assert results["global_step"] == steps[-1]
    assert run_classifier(options) == results  # the run is over
    assert evaluated == [*steps, steps[-1]]
    alone = dataclasses.replace(options, do_train=False, evaluate_steps=0, early_stopping=0)
    found = run_classifier(dataclasses.replace(alone, init_checkpoint=None))
    assert found == pytest.approx(results, rel=1e-6)


def test_an_evaluation_that_an_interruption_has_prevented_is_made_when_the_run_resumes(
    pretrained, tmp_path, monkeypatch
):
    """The checkpoint of its step exists; early stopping and the best weights need the evaluation."""
    flags = {"num_train_epochs": 3.0, "do_predict": False}
    flags |= {"evaluate_steps": 8, "save_checkpoints_steps": 8}
    options = kind_options(tmp_path, pretrained, "regression", **flags)
    run_model = loop.run_model

    due = [8, 22]

    def interrupted(trainer, *args, **kwargs):
        if trainer.step == due[0]:
            del due[0]
            raise Interruption
        return run_model(trainer, *args, **kwargs)

    monkeypatch.setattr(loop, "run_model", interrupted)
    while due:
        with pytest.raises(Interruption):
            run_classifier(options)
    due.append(-1)
    results = run_classifier(options)
    lines = [
        json.loads(line) for line in (tmp_path / "output/metrics.jsonl").read_text().splitlines()
    ]
    evaluated = [line for line in lines if line["kind"] == "eval"]
    assert [line["step"] for line in evaluated] == [8, 16, 22]
    assert "Dev set during training" in (tmp_path / "output/report.html").read_text()
    assert evaluated[-1]["eval_loss"] == pytest.approx(results["eval_loss"], rel=1e-6)
    run_classifier(options)
    assert (tmp_path / "output/metrics.jsonl").read_text().count('"eval"') == 3
