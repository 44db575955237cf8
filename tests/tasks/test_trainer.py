"""bert_tf.Trainer: the training loop from Python, on record files and on datasets."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_bit_equal, checkpoint_arrays, read_json_lines, refused
from tiny_config import tiny_config

import bert_tf
from bert_tf.checkpoints.write import model_files, write_files
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.training.checkpoints import save_checkpoint

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "cat", "dog"]
CONFIG = tiny_config(vocab_size=len(TOKENS), intermediate_size=16, max_position_embeddings=8)
TOKENIZER = bert_tf.FullTokenizer(TOKENS)
TEXTS = ["good cat", "bad cat", "good dog", "bad dog"] * 4
LABELS = [1, 0, 1, 0] * 4
SETTINGS = {
    "config": CONFIG,
    "tokenizer": TOKENIZER,
    "learning_rate": 0.02,
    "train_batch_size": 8,
    "jit_compile": "false",
}


def task(labels=("bad", "good"), length=8, **settings):
    return bert_tf.ClassificationTask(labels, max_seq_length=length, **settings)


def trainer_of(folder, num_train_steps=2, own=None, **settings):
    values = SETTINGS | {"output_dir": folder, "num_train_steps": num_train_steps} | settings
    return bert_tf.Trainer(own or task(), **values)


def features():
    batch = TOKENIZER(TEXTS, max_length=8, pad_to_max_length=True)
    labels, ones = np.array(LABELS, np.int32), np.ones(len(TEXTS), np.int32)
    return {**batch, "label_ids": labels, "is_real_example": ones}


def batches(size, **changes):
    return tf.data.Dataset.from_tensor_slices({**features(), **changes}).batch(size)


@pytest.fixture
def record_file(tmp_path):
    path, rows = str(tmp_path / "train.tf_record"), features()
    with bert_tf.RecordWriter(path, task().features) as writer:
        for index in range(len(TEXTS)):
            writer.write({name: values[index].tolist() for name, values in rows.items()})
    return path


def weights(trainer):
    return [np.asarray(variable) for variable in trainer.model.weights]


@pytest.mark.night
def test_it_learns_from_record_files_and_leaves_a_folder_that_can_be_asked(record_file, tmp_path):
    folder, record_file = tmp_path / "out", Path(record_file)
    results = trainer_of(folder, 60).fit(record_file, evaluate=record_file)
    assert results["global_step"] == 60
    assert results["eval_accuracy"] == 1.0
    answers = bert_tf.load(folder).predict(["good dog", "bad cat"])
    assert [answer["label"] for answer in answers] == ["good", "bad"]


def test_a_run_in_two_parts_has_the_bits_of_one(tmp_path, caplog, eagerly):
    dataset = batches(5).take(3)  # 3 full ones
    assert trainer_of(tmp_path / "whole", 5).fit(dataset) == {"global_step": 5}
    trainer_of(tmp_path / "parts", 5, save_checkpoints_steps=4).fit(dataset)
    for path in (tmp_path / "parts").glob("model.ckpt-5.*"):
        path.unlink()
    (tmp_path / "parts/checkpoint").write_text('model_checkpoint_path: "model.ckpt-4"\n')
    trainer_of(tmp_path / "parts", 5).fit(dataset)
    whole, parts = (
        checkpoint_arrays(tmp_path / f"{name}/model.ckpt-5") for name in ("whole", "parts")
    )
    assert_bit_equal(parts, whole)
    assert "train_batch_size" not in caplog.text  # here 8 for batches of 5


def counting(dataset, passes, fails=()):
    """The same dataset of unknown size, whose passes are counted; those of some numbers fail."""

    def rows():
        passes.append(len(passes))
        if passes[-1] in fails:
            raise RuntimeError("interrupted")
        yield from dataset.as_numpy_iterator()

    return tf.data.Dataset.from_generator(rows, output_signature=dataset.element_spec)


def evaluated_steps(folder):
    return [row["step"] for row in read_json_lines(folder / "metrics.jsonl") if "eval_loss" in row]


def test_a_dataset_of_unknown_size_is_evaluated_whole_and_the_last_step_once(tmp_path, eagerly):
    passes, dataset = [], batches(4)
    trainer = trainer_of(tmp_path, evaluate_steps=1)
    results = trainer.fit(dataset, evaluate=counting(dataset, passes))
    assert evaluated_steps(tmp_path) == [1, 2]
    assert len(passes) == 4  # to count, the first batch, and all of them for each evaluation
    assert trainer.evaluate(dataset) == pytest.approx(results)
    assert trainer_of(tmp_path, evaluate_steps=1).evaluate(dataset) == pytest.approx(results)


@pytest.mark.night
@pytest.mark.parametrize("failing", [2, 3])
def test_an_evaluation_that_an_interruption_prevented_is_made_at_the_resume(
    tmp_path, failing, eagerly
):
    """The checkpoint of its step exists; early stopping and the best weights need the evaluation."""
    given, dataset = {"evaluate_steps": 1, "save_checkpoints_steps": 1}, batches(4)
    with pytest.raises(tf.errors.OpError):
        trainer_of(tmp_path, **given).fit(dataset, evaluate=counting(dataset, [], fails=[failing]))
    results = trainer_of(tmp_path, **given).fit(dataset, evaluate=dataset)
    assert evaluated_steps(tmp_path) == [1, 2]
    assert trainer_of(tmp_path, **given).fit(dataset, evaluate=dataset) == pytest.approx(results)
    assert evaluated_steps(tmp_path) == [1, 2]


def test_a_head_for_the_same_labels_in_another_order_is_loaded_in_that_of_the_task(
    tmp_path, caplog, eagerly
):
    first = trainer_of(tmp_path / "out", 1)
    first.model.weights[-1].assign([1.0, 2.0])
    first.fit(batches(8))
    kernel, bias = weights(first)[-2:]

    def begun_with(labels, kind=bert_tf.ClassificationTask):
        own = kind(labels, max_seq_length=8)
        return trainer_of(tmp_path / "other", own=own, init_checkpoint=tmp_path / "out")

    found = weights(begun_with(["good", "bad"]))[-2:]
    np.testing.assert_array_equal(found[0], kernel[::-1])
    np.testing.assert_array_equal(found[1], bias[::-1])
    subclass = type("Own", (bert_tf.ClassificationTask,), {})
    np.testing.assert_array_equal(weights(begun_with(["good", "bad"], subclass))[-1], bias[::-1])
    with caplog.at_level("INFO"):
        begun_with(["cat", "dog"])
    assert "head has the labels bad, good, the model's cat, dog" in caplog.text


def test_a_task_with_arguments_of_its_own_begins_with_its_folder(tmp_path, eagerly):
    class Mine(ClassificationTask):
        def __init__(self):
            super().__init__(["bad", "good"], max_seq_length=8)

        def arguments(self):
            return super().arguments() | {"mine": 1}

    own, folder = Mine(), tmp_path / "out"
    first = trainer_of(folder, 1, own)
    first.model.weights[-1].assign([1.0, 2.0])
    first.fit(batches(8))
    assert trainer_of(folder, 1, own).fit(batches(8)) == {"global_step": 1}
    second = trainer_of(tmp_path / "x", own=own, init_checkpoint=folder)
    np.testing.assert_array_equal(weights(second)[-1], weights(first)[-1])


def test_another_task_or_tokenizer_than_in_the_folder_is_refused(tmp_path):
    write_files(str(tmp_path), model_files(CONFIG, task().values(), list(TOKENIZER.vocab), True))
    save_checkpoint(str(tmp_path), {"v": np.zeros(2)}, step=1)
    for own, changes, difference in (
        (task(["good", "bad"]), {}, "labels"),
        (task(problem_type="multi_label"), {}, "problem_type"),
        (bert_tf.TokenClassificationTask(["bad", "good"], 8), {}, "token_classification"),
        (task(), {"tokenizer": bert_tf.FullTokenizer(TOKENS, do_lower_case=False)}, "lower_case"),
    ):
        with refused("output_dir") as error:
            trainer_of(tmp_path, own=own, **changes)
        assert difference in str(error.value)


def test_a_folder_is_trained_on_with_another_length(tmp_path, eagerly):
    trainer_of(tmp_path, 1).fit(batches(8))
    assert trainer_of(tmp_path, 1, task(length=7)).fit(batches(8)) == {"global_step": 1}


def test_batches_that_do_not_fit_the_task_are_refused(tmp_path, eagerly):
    trainer, values = trainer_of(tmp_path), features()
    for name in ("label_ids", "is_real_example"):  # losses of a regression would be [B, B]
        with refused(name):
            trainer.fit(batches(4, **{name: values[name][:, None]}))
    for label, dtype in ((-1, np.int32), (2, np.int64)):
        wrong = batches(16, label_ids=np.array([*LABELS[1:], label], dtype))
        for act in (trainer.fit, trainer.evaluate):
            with pytest.raises(ValueError, match="label"):
                act(wrong)
    for act in (trainer.fit, trainer.evaluate):
        with pytest.raises(ValueError, match="segment_ids"):
            act(batches(16, segment_ids=values["segment_ids"] + 2))
    with refused("repeat()"):
        trainer.fit(batches(4), evaluate=batches(4).repeat())
    for name in ("evaluate_steps", "pack_sequences"):
        with refused(name):
            trainer_of(tmp_path, **{name: True}).fit(batches(8))


def test_a_tokenizer_with_other_ids_than_the_checkpoint_is_refused(tmp_path, eagerly):
    trainer_of(tmp_path / "out", 1).fit(batches(8))
    other = bert_tf.FullTokenizer([*TOKENS[:-2], *TOKENS[:-3:-1]])
    with pytest.raises(ValueError, match="tokenizer"):
        trainer_of(tmp_path / "other", init_checkpoint=tmp_path / "out", tokenizer=other)


def test_a_dataset_without_end_is_trained_on(tmp_path, eagerly):
    dataset = batches(4).repeat()
    assert trainer_of(tmp_path, 1).fit(dataset) == {"global_step": 1}


def test_the_same_command_again_keeps_what_is_noted_of_the_training(tmp_path, eagerly):
    trainer_of(tmp_path, 1).fit(batches(8))
    files = [tmp_path / name for name in ("training.json", "README.md")]
    before = [file.read_text() for file in files]
    trainer_of(tmp_path, 1, learning_rate=0.5).fit(batches(8))
    assert [file.read_text() for file in files] == before


def test_a_wrong_argument_is_named(tmp_path):
    with pytest.raises(TypeError, match="learning_rat"):
        trainer_of(tmp_path, learning_rat=1.0)
    misspelt = {"best_metric": "eval_acuracy", "evaluate_steps": 1}
    for change, name in (({"config": None}, "bert_config_file"), (misspelt, "best_metric")):
        with refused(name):
            trainer_of(tmp_path, **change)
