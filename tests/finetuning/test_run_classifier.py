"""run_classifier: fine-tune, evaluate, predict, and the files it promises."""

import dataclasses
import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_runs import (
    classifier_options,
    moods,
    pairs,
    read_results,
    sentence_options,
    write_mrpc,
    write_table,
)

from bert_tf import cli
from bert_tf.finetuning.classification import ClassifierOptions, read_data, run_classifier

MOODS = ("bad", "good")
COLUMNS = {"text_a_column": "sentence", "label_column": "mood"}
NO_TABLE = {"train_file": None, "text_a_column": "text_a", "label_column": "label"}


def probabilities(folder):
    """`test_results.tsv` as an array."""
    lines = (Path(folder) / "test_results.tsv").read_text().splitlines()
    return np.array([[float(cell) for cell in line.split("\t")] for line in lines])


def evaluation(folder, **changes):
    """Options that evaluate the model in `folder`, and say nothing else about it."""
    return ClassifierOptions(output_dir=str(folder), do_eval=True, **changes)


@pytest.fixture
def training(pretrained, mood_tables, tmp_path):
    """Options of the training that made `sentence_model`, into another folder."""
    changes = {"do_eval": False, "do_predict": False, "eval_file": None, "predict_file": None}
    return sentence_options(pretrained, mood_tables, tmp_path / "output", **changes)


@pytest.fixture
def copied(tmp_path):
    """Copies a folder, so that a test may change it."""

    def copy(folder, without=()):
        (tmp_path / "copy").mkdir()
        for path in folder.iterdir():
            if path.name not in without:
                (tmp_path / "copy" / path.name).write_bytes(path.read_bytes())
        return tmp_path / "copy"

    return copy


# ------------------------------------------------------------------------------------ what it leaves


def test_it_leaves_records_checkpoint_results_predictions_and_all_that_the_model_needs(pair_model):
    assert sorted(path.name for path in pair_model.iterdir()) == [
        "MRPC.tsv",
        "README.md",
        "bert_config.json",
        "checkpoint",
        "eval.tf_record",
        "eval.tf_record.json",
        "eval_results.txt",
        "labels.txt",
        "metrics.jsonl",
        "model.ckpt-60.data-00000-of-00001",
        "model.ckpt-60.index",
        "model_card_facts.json",
        "predict.tf_record",
        "predict.tf_record.json",
        "report.html",
        "task.json",
        "test_results.tsv",
        "tokenizer_config.json",
        "train.tf_record",
        "train.tf_record.json",
        "training.json",
        "vocab.txt",
    ]


def test_mrpc_is_evaluated_by_f1_and_accuracy_beside_the_keys_of_the_reference(pair_model):
    results = read_results(pair_model)
    assert list(results) == ["eval_accuracy", "eval_f1", "eval_loss", "global_step", "loss"]
    assert results["global_step"] == 60
    assert results["loss"] == results["eval_loss"]


def test_a_pair_task_that_can_be_learned_is_learned(pair_model):
    results = read_results(pair_model)
    assert results["eval_accuracy"] > 0.9
    assert results["eval_f1"] > 0.9


def test_a_table_of_single_sentences_that_can_be_learned_is_learned(sentence_model):
    results = read_results(sentence_model)
    assert {"eval_accuracy", "eval_f1", "eval_loss", "global_step", "loss"} <= set(results)
    assert results["eval_accuracy"] > 0.9
    assert results["global_step"] == int(90 / 16 * 12)


def test_the_labels_of_a_table_are_sorted_and_written_down(sentence_model):
    assert (sentence_model / "labels.txt").read_text() == "bad\ngood\n"
    task = json.loads((sentence_model / "task.json").read_text())
    assert task == {
        "task": "classification",
        "max_seq_length": 19,
        "labels": ["bad", "good"],
        "metric_names": ["accuracy", "f1", "f1_macro", "matthews_correlation"],
        "is_pair": False,
        "problem_type": "single_label",
    }


def test_the_columns_of_the_predictions_are_in_the_order_of_the_labels(sentence_model, pair_model):
    moods_of_test = [label for _, label in moods(7, seed=5)]
    found = probabilities(sentence_model).argmax(axis=1)
    assert [("bad", "good")[column] for column in found] == moods_of_test
    labels = [label for _, _, label in pairs(5, seed=8)]
    assert [str(column) for column in probabilities(pair_model).argmax(axis=1)] == labels


# -------------------------------------------------------------------------------------- other tables


@pytest.mark.usefixtures("steps_without_training")
def test_cola_has_no_header_in_train_and_dev_and_is_evaluated_by_matthews_correlation(
    pretrained, tmp_path
):
    rows = [
        f"gj04\t{int(label == 'good')}\t\t{text}" for text, label in moods(33, seed=9)
    ]  # source, label, the author's mark, sentence
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_text("\n".join(rows) + "\n")
    options = classifier_options(
        tmp_path / "output",
        task_name="CoLA",
        data_dir=str(tmp_path),
        init_checkpoint=str(pretrained),
        do_train=True,
        do_eval=True,
        num_train_epochs=1.0,
    )
    results = run_classifier(options)
    assert sorted(results) == [
        "eval_accuracy",
        "eval_loss",
        "eval_matthews_correlation",
        "global_step",
        "loss",
    ]
    _, splits = read_data(options)
    assert len(splits["dev"]) == 33
    assert (splits["dev"][0].text_a, splits["dev"][0].label) == (rows[0].split("\t")[3], rows[0][5])


def test_sst_2_predicts_the_second_column_of_its_test_file_by_any_spelling_of_its_name(
    sentence_model, copied, tmp_path
):
    folder = copied(sentence_model)
    task = json.loads((folder / "task.json").read_text())
    (folder / "task.json").write_text(json.dumps(task | {"labels": ["0", "1"]}))
    rows = moods(6, seed=10)
    (tmp_path / "test.tsv").write_text(
        "index\tsentence\n" + "".join(f"{i}\t{text}\n" for i, (text, _) in enumerate(rows))
    )
    run_classifier(
        ClassifierOptions(
            output_dir=str(folder), task_name="SST2", data_dir=str(tmp_path), do_predict=True
        )
    )
    found = probabilities(folder).argmax(axis=1)
    assert [("bad", "good")[column] for column in found] == [label for _, label in rows]


# -------------------------------------------------------------------------- start, stop and afterwards


def test_evaluation_afterwards_needs_only_the_data_and_the_folder(
    sentence_model, mood_tables, copied
):
    folder = copied(sentence_model, without=("eval_results.txt",))
    results = run_classifier(evaluation(folder, eval_file=mood_tables.dev, **COLUMNS))
    assert results == pytest.approx(read_results(sentence_model), rel=1e-6)
    assert read_results(folder) == results


def test_a_trained_classifier_predicts_elsewhere_with_the_columns_in_the_order_of_a_flag(
    sentence_model, mood_tables, tmp_path, caplog
):
    caplog.set_level(logging.INFO)
    options = ClassifierOptions(
        output_dir=str(tmp_path),
        init_checkpoint=str(sentence_model),
        predict_file=mood_tables.test,
        do_predict=True,
        predict_batch_size=3,
        labels="good,bad",
        **COLUMNS,
    )
    run_classifier(options)
    expected = probabilities(sentence_model)[:, ::-1]
    np.testing.assert_allclose(probabilities(tmp_path), expected, atol=1e-6)
    assert "columns of test_results.tsv: good, bad" in caplog.text


def test_the_labels_are_those_of_the_training_even_where_the_data_have_fewer(
    sentence_model, copied, tmp_path
):
    good = [row for row in moods(40, seed=11) if row[1] == "good"]
    file = write_table(tmp_path / "good.tsv", good)
    results = run_classifier(evaluation(copied(sentence_model), eval_file=file, **COLUMNS))
    assert results["eval_accuracy"] > 0.9


# ------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"train_batch_size": 91, "num_train_epochs": 1.0}, "train_batch_size"),
        ({"max_seq_length": 0}, "max_seq_length"),
        ({"max_seq_length": 32}, "max_seq_length"),
        ({"max_seq_length": 2, "text_b_column": "mood"}, "max_seq_length"),
        ({"label_column": "mod"}, r"train.tsv:2: .*'mod'.*label_column"),
        ({"train_file": "/nowhere/train.tsv"}, "/nowhere/train.tsv"),
        ({"init_checkpoint": "/nowhere/bert_model.ckpt"}, "/nowhere"),
        ({"init_checkpoint": None}, "init_checkpoint"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(training, changes, message):
    with pytest.raises((ValueError, OSError), match=message):
        run_classifier(dataclasses.replace(training, **changes))
    assert not Path(training.output_dir).exists()


def test_a_label_that_training_did_not_have_is_refused_by_file_and_line(
    sentence_model, copied, tmp_path
):
    rows = [*moods(2, seed=12), ("the odd cat", "odd")]
    file = write_table(tmp_path / "odd.tsv", rows)
    message = r"odd.tsv:4: the label is 'odd', but the labels of this task are 'bad', 'good'"
    with pytest.raises(ValueError, match=message):
        run_classifier(evaluation(copied(sentence_model), eval_file=file, **COLUMNS))


def test_a_run_goes_on_only_with_the_labels_it_began_with(sentence_model, tmp_path):
    rows = [(text, label.upper()) for text, label in moods(20, seed=13)]
    options = classifier_options(
        sentence_model,
        train_file=write_table(tmp_path / "other.tsv", rows),
        do_train=True,
        **COLUMNS,
    )
    with pytest.raises(ValueError, match="BAD"):
        run_classifier(options)


def test_a_model_of_pairs_is_not_evaluated_on_single_sentences(pair_model, tmp_path):
    file = write_table(tmp_path / "single.tsv", [("the cat", "0"), ("the dog", "1")])
    with pytest.raises(ValueError, match="is_pair"):
        run_classifier(evaluation(pair_model, eval_file=file, **COLUMNS))


@pytest.fixture
def without_task(pretrained, tmp_path):
    """A pre-trained model as others give it away: nothing says what it was trained for."""
    folder = tmp_path / "pretrained"
    shutil.copytree(pretrained, folder, ignore=shutil.ignore_patterns("task.json"))
    return str(folder)


def test_a_pre_trained_model_is_not_evaluated_as_a_classifier(
    pretrained, without_task, mrpc_folder, tmp_path
):
    flags = {"task_name": "MRPC", "data_dir": str(mrpc_folder)}
    with pytest.raises(ValueError, match=r"has no output_weights, output_bias, .* Train first"):
        run_classifier(evaluation(tmp_path, init_checkpoint=without_task, **flags))
    message = r"a model for pretraining, but this program is for classification. Use .*do_train"
    with pytest.raises(ValueError, match=message):
        run_classifier(evaluation(tmp_path, init_checkpoint=str(pretrained), **flags))


def test_a_glue_file_with_missing_columns_is_named_with_its_line(training, tmp_path):
    folder = write_mrpc(tmp_path / "MRPC", {"train": pairs(3, seed=14)})
    (folder / "train.tsv").open("a").write("1\t7\t8\tonly one sentence\n")
    given = {"task_name": "MRPC", "data_dir": str(folder), **NO_TABLE}
    with pytest.raises(ValueError, match=r"train.tsv:5: mrpc needs 5"):
        run_classifier(dataclasses.replace(training, **given))


@pytest.mark.usefixtures("steps_without_training")
def test_training_keeps_the_order_of_the_labels_of_the_model_that_it_begins_with(
    sentence_model, mood_tables, tmp_path, caplog
):
    first = tmp_path / "first"
    shutil.copytree(sentence_model, first)
    task = json.loads((first / "task.json").read_text())
    assert task["labels"] == ["bad", "good"]
    (first / "task.json").write_text(json.dumps(task | {"labels": ["GOOD", "BAD"]}))
    given = {"do_eval": False, "do_predict": False, "num_train_epochs": 0.2}
    run_classifier(sentence_options(first, mood_tables, tmp_path / "second", **given))
    assert (tmp_path / "second" / "labels.txt").read_text().split() == ["good", "bad"]
    run_classifier(  # a resumed run too
        sentence_options(
            first, mood_tables, tmp_path / "second", **given | {"num_train_epochs": 0.4}
        )
    )
    (first / "task.json").write_text(json.dumps(task | {"labels": ["wet", "dry"]}))
    with caplog.at_level(logging.INFO):
        run_classifier(sentence_options(first, mood_tables, tmp_path / "third", **given))
    assert (tmp_path / "third" / "labels.txt").read_text().split() == ["bad", "good"]
    assert "The checkpoint's head is for 2 other labels." in caplog.text
    assert "has no head" not in caplog.text


@pytest.mark.usefixtures("steps_without_training")
def test_given_flags_that_a_training_does_not_read_are_known(pretrained, mood_tables, tmp_path):
    options = sentence_options(pretrained, mood_tables, tmp_path, language="en", tpu_zone="z")
    unread = {"language", "tpu_zone", "learning_rate", "label_column"}
    run_classifier(cli.recorded(options, unread))
    assert unread == {"language", "tpu_zone"}
