"""From options to a trainer, and from record files to results."""

import numpy as np
import pytest
import tensorflow as tf
from tiny_runs import classifier_options

from bert_tf.config import BertConfig
from bert_tf.data.records import RecordWriter
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.workflows import training

CONFIG = BertConfig(
    vocab_size=9,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=48,
    type_vocab_size=2,
)


@pytest.fixture
def task_and_trainer(tmp_path):
    task = ClassificationTask(("no", "yes"), max_seq_length=48)
    options = classifier_options(tmp_path, train_file="unused.tsv", do_train=True)
    return task, training.make_trainer(
        task, CONFIG, options, options.make_strategy(), checkpoint=None, num_train_steps=3
    )


def write_lengths(path, lengths):
    """One example of each length."""
    specs = ClassificationTask(("no", "yes"), max_seq_length=48).features
    with RecordWriter(path, specs) as writer:
        for length in lengths:
            mask = (np.arange(48) < length).astype("int32")
            ids = {"input_ids": 7 * mask, "input_mask": mask, "segment_ids": 0 * mask}
            writer.write({**ids, "label_ids": 1, "is_real_example": 1})
    return str(path)


def test_batches_of_many_lengths_are_not_compiled_one_by_one(task_and_trainer, tmp_path):
    task, trainer = task_and_trainer
    file = write_lengths(tmp_path / "eval", range(2, 48, 3))
    kept = training.run_model(trainer, task, [file], batch_size=1)
    assert kept["logits"].shape == (16, 2)
    (step,) = trainer._predict_steps.values()
    assert step.experimental_get_tracing_count() <= 2


def test_the_length_that_a_batch_is_cut_to_cannot_be_seen(task_and_trainer, tmp_path):
    task, trainer = task_and_trainer
    file = write_lengths(tmp_path / "eval", [3, 17, 41, 9])
    alone, together = (
        training.run_model(trainer, task, [file], batch_size=size)["logits"] for size in (1, 4)
    )
    np.testing.assert_allclose(alone, together, rtol=0, atol=1e-6)


def test_a_damaged_file_is_named_in_evaluation_too(task_and_trainer, tmp_path):
    task, trainer = task_and_trainer
    file = write_lengths(tmp_path / "eval", [3, 5, 7])
    data = bytearray((tmp_path / "eval").read_bytes())
    data[-20] ^= 0xFF
    (tmp_path / "eval").write_bytes(data)
    with pytest.raises(ValueError, match=r"eval is damaged: record 3 cannot be read"):
        training.run_model(trainer, task, [file], batch_size=2)


def test_equal_options_make_equal_initial_weights(task_and_trainer, tmp_path):
    task, trainer = task_and_trainer
    options = classifier_options(tmp_path, train_file="unused.tsv", do_train=True)
    tf.random.normal([3])  # whatever was drawn before
    again = training.make_trainer(
        task, CONFIG, options, options.make_strategy(), checkpoint=None, num_train_steps=3
    )
    for first, second in zip(trainer.model.weights, again.model.weights, strict=True):
        np.testing.assert_array_equal(first, second, err_msg=first.path)
