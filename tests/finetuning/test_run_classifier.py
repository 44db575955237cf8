"""run_classifier: fine-tune, evaluate, predict, and the files it promises."""

import dataclasses
import json
import logging
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from pages import figures_of
from tiny_runs import (
    checkpoint_arrays,
    classifier_options,
    moods,
    pairs,
    read_results,
    sentence_options,
    write_mrpc,
    write_table,
)

from bert_tf.data.record_checks import count_records
from bert_tf.finetuning.classification import run_classifier, warn_of_collapse
from bert_tf.finetuning.classification_data import read_data
from bert_tf.finetuning.classification_options import ClassifierOptions
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.training.checkpoints import latest_checkpoint

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


def test_the_report_has_the_number_of_examples_and_the_accuracy_of_one_answer_for_all(pair_model):
    report = (pair_model / "report.html").read_text()
    figures = figures_of(report)
    assert figures["examples"] == count_records([str(pair_model / "eval.tf_record")])
    assert 0.5 <= figures["accuracy_of_largest_class"] <= figures["accuracy"]
    assert "python -m bert_tf run_classifier" in report
    assert f"{pair_model}/model.ckpt-60" in report


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


@pytest.mark.parametrize(
    "labels, problem_type, logits, label_ids, warned",
    [
        (
            MOODS,
            "single_label",
            [[0, 1]] * 3,
            [0, 1, 1],
            "'good', but there are 2 different labels",
        ),
        (MOODS, "single_label", [[0, 1], [1, 0], [0, 1]], [0, 1, 1], None),
        (MOODS, "single_label", [[0, 1]] * 3, [1, 1, 1], None),
        ((), "regression", [[1.0]] * 3, [1.0, 2.0, 1.0], "1.0, but there are 2 different numbers"),
        ((), "regression", [[1.0], [1.0], [1.1]], [1.0, 2.0, 1.0], None),
        (
            ("bad", "barn", "good"),
            "multi_label",
            [[-1.0] * 3] * 3,
            [[1, 0, 0], [0, 1, 0], [1, 0, 0]],
            "no label at all, but there are 2 different sets of labels",
        ),
    ],
)
def test_a_model_that_always_gives_the_same_answer_is_warned_of(
    labels, problem_type, logits, label_ids, warned, caplog
):
    task = ClassificationTask(labels, max_seq_length=8, problem_type=problem_type)
    warn_of_collapse(task, {"logits": np.array(logits), "label_ids": np.array(label_ids)})
    assert ("All 3 predictions are" in caplog.text) is (warned is not None)
    assert warned is None or f"All 3 predictions are {warned}" in caplog.text


@pytest.mark.parametrize(
    ("labels", "problem_type", "label_ids", "name"),
    [
        (MOODS, "single_label", [1, 1], "'good'"),
        ((), "regression", [2.5, 2.5], "2.5"),
        (("bad", "barn", "good"), "multi_label", [[1, 0, 1], [1, 0, 1]], "bad, good"),
    ],
)
def test_a_dev_set_with_one_label_is_warned_of(labels, problem_type, label_ids, name, caplog):
    task = ClassificationTask(labels, max_seq_length=8, problem_type=problem_type)
    logits = np.ones((2, len(labels) or 1)) * [[1], [2]]
    warn_of_collapse(task, {"logits": logits, "label_ids": np.array(label_ids)})
    assert f"All 2 labels are {name}, so the metrics say little" in caplog.text


def test_predictions_are_a_line_per_example_and_a_column_per_label_without_a_header(sentence_model):
    found = probabilities(sentence_model)
    assert found.shape == (7, 2)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)


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


@pytest.mark.usefixtures("steps_without_training")
def test_the_encoder_comes_from_pre_training_and_the_output_layer_is_named_as_new(
    training, pretrained, caplog
):
    options = dataclasses.replace(training, num_train_epochs=0.2)  # one step
    with caplog.at_level("INFO"):
        run_classifier(options)
    assert "new, with random values: output_weights, output_bias" in caplog.text
    before = checkpoint_arrays(latest_checkpoint(str(pretrained)))
    after = checkpoint_arrays(latest_checkpoint(options.output_dir))
    word = "bert/embeddings/word_embeddings"
    np.testing.assert_array_equal(after[word], before[word])
    assert not any(name.startswith("cls/") for name in after)


def test_evaluation_afterwards_needs_only_the_data_and_the_folder(
    sentence_model, mood_tables, copied
):
    folder = copied(sentence_model, without=("eval_results.txt",))
    results = run_classifier(evaluation(folder, eval_file=mood_tables.dev, **COLUMNS))
    assert results == pytest.approx(read_results(sentence_model), rel=1e-6)
    assert read_results(folder) == results


def test_evaluation_of_a_glue_task_afterwards_needs_only_the_data_and_the_folder(
    pair_model, mrpc_folder, copied
):
    folder = copied(pair_model)
    results = run_classifier(evaluation(folder, task_name="mrpc", data_dir=str(mrpc_folder)))
    assert results == pytest.approx(read_results(pair_model), rel=1e-6)


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


@pytest.mark.usefixtures("steps_without_training")
def test_the_longest_input_is_what_the_model_has_positions_for_unless_it_is_said(training):
    run_classifier(dataclasses.replace(training, max_seq_length=None, num_train_epochs=0.2))
    task = json.loads((Path(training.output_dir) / "task.json").read_text())
    assert task["max_seq_length"] == 31


# ------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"train_batch_size": 91, "num_train_epochs": 1.0}, "90 examples make no step"),
        ({"max_seq_length": 0}, r"max_seq_length is 0, .* 1 to 31"),
        ({"max_seq_length": 32}, r"max_seq_length is 32, .* 31"),
        ({"max_seq_length": 2, "text_b_column": "mood"}, r"max_seq_length is 2, .* 3 to 31"),
        ({"label_column": "mod"}, r"train.tsv:2: .*'mod'.*label_column"),
        ({"train_file": "/nowhere/train.tsv"}, "/nowhere/train.tsv"),
        ({"init_checkpoint": "/nowhere/bert_model.ckpt"}, "There is no checkpoint /nowhere"),
        ({"init_checkpoint": None}, "Give .*init_checkpoint .* or .*bert_config_file"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(training, changes, message):
    with pytest.raises((ValueError, OSError), match=message):
        run_classifier(dataclasses.replace(training, **changes))
    assert not Path(training.output_dir).exists()


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"do_train": False},
            "Nothing to do: give at least one of .*do_train.*do_eval.*do_pred",
        ),
        ({"do_eval": True}, "do_eval.* needs .*eval_file"),
        ({"do_predict": True}, "do_predict.* needs .*predict_file"),
        ({"task_name": "MRPC", "data_dir": "x"}, "either .*task_name with .*data_dir, .* or"),
        ({"train_file": None}, "either .*task_name with .*data_dir, .* or"),
        ({"train_file": None, "task_name": "MRPC"}, "task_name needs .*data_dir"),
        (
            {"train_file": None, "predict_file": "x.tsv", "do_predict": True},
            "do_train.* needs .*train_file",
        ),
    ],
)
def test_options_are_checked_when_made(training, changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(training, **changes)


def test_an_unknown_task_is_refused_with_those_there_are(training):
    with pytest.raises(ValueError, match=r"task_name is 'MRCP', .* cola, sst-2, mrpc, .*mnli"):
        run_classifier(dataclasses.replace(training, task_name="MRCP", data_dir="x", **NO_TABLE))


def test_a_table_without_rows_is_refused(training, tmp_path):
    file = write_table(tmp_path / "empty.tsv", [])
    with pytest.raises(ValueError, match=f"{file}: the dev set"):
        run_classifier(dataclasses.replace(training, do_eval=True, eval_file=file))


def test_a_label_that_training_did_not_have_is_refused_by_file_and_line(
    sentence_model, copied, tmp_path
):
    rows = [*moods(2, seed=12), ("the odd cat", "odd")]
    file = write_table(tmp_path / "odd.tsv", rows)
    message = r"odd.tsv:4: the label is 'odd', but the labels of this task are 'bad', 'good'"
    with pytest.raises(ValueError, match=message):
        run_classifier(evaluation(copied(sentence_model), eval_file=file, **COLUMNS))


def test_a_vocabulary_of_another_language_is_warned_about_once(
    sentence_model, copied, tmp_path, caplog
):
    table = write_table(tmp_path / "korean.tsv", [("한국어는 아름답다", "good")] * 9)
    run_classifier(evaluation(copied(sentence_model), eval_file=table, **COLUMNS))
    assert caplog.text.count("100% of the words are [UNK]") == 1


def test_a_run_goes_on_only_with_the_labels_it_began_with(sentence_model, tmp_path):
    rows = [(text, label.upper()) for text, label in moods(20, seed=13)]
    options = classifier_options(
        sentence_model,
        train_file=write_table(tmp_path / "other.tsv", rows),
        do_train=True,
        **COLUMNS,
    )
    with pytest.raises(ValueError, match=r"labels of the data are BAD, GOOD, but .* bad, good"):
        run_classifier(options)


def test_a_model_of_pairs_is_not_evaluated_on_single_sentences(pair_model, tmp_path):
    file = write_table(tmp_path / "single.tsv", [("the cat", "0"), ("the dog", "1")])
    message = "The data are single sentences, but the model was trained on pairs .*text_b_column"
    with pytest.raises(ValueError, match=message):
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


def test_labels_that_nobody_wrote_down_are_asked_for(without_task, mood_tables, tmp_path):
    options = evaluation(
        tmp_path, eval_file=mood_tables.dev, init_checkpoint=without_task, **COLUMNS
    )
    with pytest.raises(ValueError, match="`labels`"):
        run_classifier(options)


def test_evaluation_without_any_weights_is_refused(mood_tables, tmp_path):
    with pytest.raises(ValueError, match=r"There is no checkpoint in .*output_dir"):
        run_classifier(evaluation(tmp_path, eval_file=mood_tables.dev, **COLUMNS))


def test_a_vocabulary_of_another_model_is_refused(training, tmp_path):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"t{i}" for i in range(200))]
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    options = dataclasses.replace(training, vocab_file=str(tmp_path / "vocab.txt"))
    with pytest.raises(ValueError, match=r"ids up to 204, but `vocab_size` .* is 190"):
        run_classifier(options)


def test_a_glue_file_with_missing_columns_is_named_with_its_line(training, tmp_path):
    folder = write_mrpc(tmp_path / "MRPC", {"train": pairs(3, seed=14)})
    (folder / "train.tsv").open("a").write("1\t7\t8\tonly one sentence\n")
    given = {"task_name": "MRPC", "data_dir": str(folder), **NO_TABLE}
    with pytest.raises(ValueError, match=r"train.tsv:5: mrpc needs 5 columns .* this row has 4"):
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


def test_a_shorter_training_in_a_finished_folder_is_warned_of_and_keeps_its_card(
    sentence_model, pretrained, mood_tables, tmp_path, caplog
):
    folder = shutil.copytree(sentence_model, tmp_path / "model")
    card = (folder / "README.md").read_text()
    other = write_table(tmp_path / "other.tsv", moods(16, seed=1))
    given = {"train_file": other, "do_eval": False, "do_predict": False}
    run_classifier(sentence_options(pretrained, mood_tables, folder, **given))
    warnings = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert any(
        re.match(r"The run resumes with a change: \d+ steps there, 12 now", w) for w in warnings
    )
    assert any(re.match(r"Nothing to train: .* ends at 12$", w) for w in warnings)
    assert (folder / "README.md").read_text() == card
