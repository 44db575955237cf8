"""--probe_file of run_pretraining: its tables, its features, and its metrics in a run."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from pages import data_of
from tiny_runs import (
    Interruption,
    interrupt_at,
    moods,
    pairs,
    pretraining_options,
    read_results,
)

from bert_tf.model_folder import load_model
from bert_tf.modeling.pooling import sentence_embedding
from bert_tf.programs.pretraining_probe import Probe
from bert_tf.programs.run_pretraining import run_pretraining
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.batch_trainer import BatchTrainer
from bert_tf.training.strategy import make_strategy


def table(path, header, rows):
    path.write_text("\n".join("\t".join(row) for row in (header, *rows)) + "\n")
    return str(path)


@pytest.fixture
def mood_table(tmp_path):
    return table(tmp_path / "moods.tsv", ("text", "label"), moods(60, seed=11))


@pytest.fixture
def tokenizer(toy_text):
    return FullTokenizer((toy_text / "vocab.txt").read_text().splitlines())


@pytest.fixture
def options(records, toy_text, tmp_path):
    return pretraining_options(records, toy_text, tmp_path / "output")


def evaluated(options, pretrained, **changes):
    """Results of an evaluation of `pretrained`."""
    values = {"do_train": False, "bert_config_file": None, "init_checkpoint": str(pretrained)}
    return run_pretraining(dataclasses.replace(options, **{**values, **changes}))


# ---- Tables -------------------------------------------------------------------------------------


def test_its_columns_and_parts_are_logged_with_the_accuracy_of_the_largest_label(
    tokenizer, tmp_path, caplog, monkeypatch
):
    monkeypatch.setattr("bert_tf.programs.pretraining_probe._MOST_ROWS", 50)
    rows = [
        (f"{n} {a}", b, "yes" if n % 4 else "no") for n, (a, b, *_) in enumerate(pairs(80, seed=1))
    ]
    path = table(tmp_path / "t.tsv", ("sentence1", "sentence2", "label"), rows)
    with caplog.at_level("INFO"):
        Probe(path, tokenizer, 16)
    assert f"Probe on {path}: 50 of 80 rows, of which 10 are held out; " in caplog.text
    assert "texts in sentence1 and sentence2, truncated to 16 tokens; 2 labels" in caplog.text
    assert "probe_majority_accuracy 0." in caplog.text


def test_a_text_is_not_in_both_parts(tokenizer, tmp_path, caplog):
    rows = [(f"the {n} cats", "ab"[n % 2]) for n in range(20)]
    path = table(tmp_path / "t.tsv", ("sentence", "label"), rows + rows)
    with caplog.at_level("INFO"):
        probe = Probe(path, tokenizer, 16)
    assert f"{path}: 20 rows repeat a text and are not used" in caplog.text
    assert len(probe._labels) == 20


def test_each_label_has_a_fifth_of_its_rows_held_out_and_every_process_the_same(
    tokenizer, tmp_path
):
    rows = [(f"the {n} cats", "abb"[n % 3]) for n in range(60)]
    path = table(tmp_path / "t.tsv", ("sentence", "label"), rows)
    first, second = (Probe(path, tokenizer, 16) for _ in range(2))
    labels = first._labels[first._is_held_out]
    assert np.bincount(labels).tolist() == [4, 8]
    for name in ("_labels", "_is_held_out"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


DIFFERENT = [(f"a {n}", "x") for n in range(12)]


def test_a_table_with_semicolons_is_read_as_the_error_proposes(tokenizer, tmp_path):
    path = tmp_path / "t.csv"
    rows = "".join(
        f"{text} {number};{label}\n" for number, (text, label) in enumerate(moods(60, seed=11))
    )
    path.write_text(f"text;label\n{rows}")
    with pytest.raises(ValueError, match="write the line sep=; above it"):
        Probe(path, tokenizer, 16)
    path.write_text(f"sep=;\ntext;label\n{rows}")
    Probe(path, tokenizer, 16)


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        (("text", "kind"), DIFFERENT, r"columns are text, kind, but .* 'label' .*Rename"),
        (
            ("words", "label"),
            DIFFERENT,
            r"columns are words, label, but .* a text \(anchor",
        ),
        (("text", "label"), [], "has no rows, but a probe needs 10 or more"),
        (("text", "label"), DIFFERENT[:8], "has 8 rows, but a probe needs 10"),
        (("text", "label"), DIFFERENT[:8] * 2, "has 8 rows, but a probe needs 10"),
        (("text", "label"), DIFFERENT, "trains on has the label 'x', .* other labels"),
        (("text", "label"), [*DIFFERENT, ("a", " ")], r"t.tsv:14: column 'label' contains"),
        (("text", "label"), [(" ", "x")] * 12, r"t.tsv:2: column 'text' contains ' ', but must"),
        (
            ("text", "label"),
            [(f"a {n}", f"{n / 7:.2f}") for n in range(12)],
            r"12 rows have 12 different labels \(0.00, 0.14, 0.29 ...\), .* a column of classes",
        ),
    ],
)
def test_a_table_that_no_probe_can_learn_from_is_refused(
    tokenizer, tmp_path, header, rows, message
):
    path = table(tmp_path / "t.tsv", header, rows)
    with pytest.raises(ValueError, match=message):
        Probe(path, tokenizer, 16)


def test_it_is_refused_before_anything_is_written(options, tmp_path, records, toy_text):
    with pytest.raises(ValueError, match=r"probe_file=p.tsv has no effect without `do_eval`"):
        dataclasses.replace(options, probe_file="p.tsv", do_eval=False)
    path = table(tmp_path / "t.tsv", ("text", "label"), DIFFERENT)
    with pytest.raises(ValueError, match="has the label 'x'"):
        run_pretraining(dataclasses.replace(options, probe_file=path))
    alone = tmp_path / "bert_config.json"
    alone.write_text((toy_text / "bert_config.json").read_text())
    with pytest.raises(ValueError, match=r"t.tsv needs the vocabulary .*Give .*vocab_file"):
        run_pretraining(dataclasses.replace(options, probe_file=path, bert_config_file=str(alone)))
    assert not Path(options.output_dir).exists()


# ---- Features -----------------------------------------------------------------------------------


def test_features_are_means_of_the_last_layer_on_one_device_and_on_two(
    pretrained, tokenizer, mood_table
):
    trained = load_model(str(pretrained))
    probe = Probe(mood_table, tokenizer, 16)
    alone = [
        sentence_embedding(
            trained.model.bert({n: v[None, :] for n, v in row.items()}),
            row["input_mask"][None],
            "mean",
        )[0]
        for row in ({n: v[i] for n, v in probe._inputs.items()} for i in (0, 7, 40))
    ]
    for name in ("auto", "mirrored"):
        strategy = make_strategy(name)
        with strategy.scope():
            model = trained.task.build_model(trained.model.config)
        for variable, value in zip(model.weights, trained.model.weights, strict=True):
            variable.assign(value)
        trainer = BatchTrainer(model, (), strategy=strategy, input_names=())
        found = Probe(mood_table, tokenizer, 16)._features(trainer, batch_size=7)
        assert found.shape == (len(probe._labels), 16)
        np.testing.assert_allclose(found[[0, 7, 40]], alone, atol=1e-5)


# ---- Runs ---------------------------------------------------------------------------------------


def test_an_evaluation_has_the_accuracy_of_the_probe_and_of_the_largest_label(
    options, pretrained, mood_table
):
    results = evaluated(options, pretrained, probe_file=mood_table)
    assert results["probe_accuracy"] == 1.0  # each mood has words of its own
    labels = [label for _, label in moods(60, seed=11)]
    assert results["probe_majority_accuracy"] == pytest.approx(
        max(map(labels.count, ("bad", "good"))) / 60, abs=0.1
    )
    assert read_results(Path(options.output_dir)) == pytest.approx(results)
    figures = dict(data_of((Path(options.output_dir) / "report.html").read_text())["figures"])
    assert figures["probe_accuracy"] == 1.0


def test_a_best_metric_of_the_probe_needs_a_probe(options):
    options = dataclasses.replace(options, evaluate_steps=2, best_metric="probe_accuracy")
    with pytest.raises(ValueError, match="best_metric is probe_accuracy, but must be one of loss"):
        run_pretraining(options)
    assert not Path(f"{options.output_dir}/metrics.jsonl").exists()


@pytest.mark.slow
def test_an_interrupted_run_has_the_probes_of_an_uninterrupted_one_and_its_best_weights(
    options, mood_table, monkeypatch
):
    def lines(run):
        with open(f"{run.output_dir}/metrics.jsonl") as file:
            found = [json.loads(line) for line in file]
        return {line["step"]: line for line in found if line["kind"] == "eval"}

    def best(run):
        return json.loads(Path(f"{run.output_dir}/best/best.json").read_text())

    options = dataclasses.replace(
        options,
        probe_file=mood_table,
        num_train_steps=8,
        num_warmup_steps=0,
        save_checkpoints_steps=2,
        evaluate_steps=2,
        best_metric="probe_accuracy",
    )
    whole = dataclasses.replace(options, output_dir=f"{options.output_dir}-whole")
    expected = run_pretraining(whole)
    with monkeypatch.context() as patch:
        interrupt_at(patch, 5)
        with pytest.raises(Interruption):
            run_pretraining(options)
    assert run_pretraining(options) == expected
    assert lines(options) == lines(whole)
    assert sorted(lines(whole)) == [2, 4, 6, 8]
    assert "probe_accuracy" in lines(whole)[2]
    assert best(options) == best(whole)
    assert best(whole)["metric"] == "probe_accuracy"
