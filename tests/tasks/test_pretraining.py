"""Pre-training: its records, its two losses, and figures over examples of unequal weight."""

import math

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.pretraining.masking_ops import DynamicMasker
from bert_tf.pretraining.task import PretrainingTask

CONFIG = BertConfig.from_name("tiny", vocab_size=11, num_hidden_layers=1)


def features(batch=3):
    """S=7, P=2, with 2, 1 and 1 masked positions."""
    rng = np.random.default_rng(0)
    values = {
        "input_ids": rng.integers(11, size=(batch, 7)),
        "input_mask": np.ones((batch, 7)),
        "segment_ids": rng.integers(2, size=(batch, 7)),
        "masked_lm_positions": rng.integers(7, size=(batch, 2)),
        "masked_lm_ids": rng.integers(11, size=(batch, 2)),
        "next_sentence_labels": rng.integers(2, size=batch),
    }
    tensors = {name: tf.constant(value, tf.int32) for name, value in values.items()}
    return {**tensors, "masked_lm_weights": tf.constant([[1.0, 1], [1, 0], [1, 0]])[:batch]}


def kept_of(task, batch):
    """The outputs of a new model, and what an evaluation keeps of them."""
    outputs = task.build_model(CONFIG)({name: batch[name] for name in task.input_names})
    kept = task.eval_outputs(outputs, batch)
    return outputs, {name: value.numpy() for name, value in kept.items()}


def test_single_sequences_have_no_loss_and_no_figures_of_pairs():
    task = PretrainingTask(7, 2, objective="mlm")
    batch = features()
    del batch["next_sentence_labels"]
    assert {spec.name for spec in task.features} == set(batch)
    assert [loss.name for loss in task.losses] == ["masked_lm_loss"]
    figures = task.metrics(kept_of(task, batch)[1])
    assert list(figures) == ["loss", "masked_lm_accuracy", "masked_lm_loss", "masked_lm_perplexity"]
    assert figures["loss"] == figures["masked_lm_loss"]
    assert set(task.metric_keys) == set(figures)


def test_records_without_masks_are_completed_to_what_the_model_takes():
    vocab = {word: i for i, word in enumerate(["[PAD]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg"])}
    masker = DynamicMasker(vocab, max_predictions_per_seq=2)
    task = PretrainingTask(7, 2, masker=masker)
    batch = features()
    batch = {spec.name: batch[spec.name] for spec in task.record_features}
    assert sorted(batch) == ["input_ids", "input_mask", "next_sentence_labels", "segment_ids"]
    stream = tf.data.Dataset.from_tensors(batch).repeat(5)
    completed = task.complete(stream, seed=3)
    shapes = {name: spec.shape.as_list() for name, spec in completed.element_spec.items()}
    assert shapes == {spec.name: [3, *spec.shape] for spec in task.features}
    tail = task.complete(stream.skip(2), seed=3, first_batch=2)
    for expected, found in zip(completed.skip(2), tail, strict=True):
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_figures_are_means_over_masked_positions_and_over_pairs():
    kept = {
        "masked_lm_weight": np.float32([3, 1]),
        "masked_lm_nll": np.float32([6, 1]),
        "masked_lm_correct": np.float32([2, 0]),
        "next_sentence_nll": np.float32([0.5, 1.5]),
        "next_sentence_correct": np.float32([1, 0]),
    }
    assert PretrainingTask(7, 2).metrics(kept) == {
        "masked_lm_loss": 7 / 4,
        "masked_lm_accuracy": 2 / 4,
        "next_sentence_loss": 1.0,
        "next_sentence_accuracy": 0.5,
        "loss": 7 / 4 + 1.0,
        "masked_lm_perplexity": pytest.approx(math.exp(7 / 4)),
    }
    assert set(PretrainingTask(7, 2).metric_keys) == set(PretrainingTask(7, 2).metrics(kept))


def test_the_figures_are_those_of_the_training_loss_up_to_its_epsilon():
    task, batch = PretrainingTask(7, 2), features()
    outputs, kept = kept_of(task, batch)
    found = task.metrics(kept)
    for loss in task.losses:
        expected = float(loss.total(outputs, batch)[0] / loss.weight(batch))
        assert found[loss.name] == pytest.approx(expected, rel=1e-6)


@pytest.mark.filterwarnings("error")
def test_without_a_masked_position_the_figures_are_zero_as_in_the_reference():
    kept = {name: np.zeros(2, np.float32) for name in ("masked_lm_weight", "masked_lm_nll")}
    kept |= {"masked_lm_correct": np.zeros(2), "next_sentence_nll": np.ones(2)}
    found = PretrainingTask(7, 2).metrics(kept | {"next_sentence_correct": np.ones(2)})
    assert found["masked_lm_loss"] == found["masked_lm_accuracy"] == 0.0
    assert found["loss"] == found["next_sentence_loss"] == 1.0
