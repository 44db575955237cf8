"""Losses as sums: their values by hand."""

import math

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.training.losses import (
    classification_loss,
    cross_entropy,
    masked_lm_loss,
    multi_label_loss,
    next_sentence_loss,
    regression_loss,
)

# softmax of [0, ln 3] is [1/4, 3/4]
ONE_QUARTER = [0.0, math.log(3.0)]


def mean(loss, outputs, features):
    """The loss of one batch on its own, as the trainer takes it."""
    outputs, features = (
        {name: tf.constant(value) for name, value in part.items()} for part in (outputs, features)
    )
    total, weight = loss.total(outputs, features), loss.weight(features)
    if loss.accuracy:
        total, correct = total
        assert 0 <= correct <= weight
    assert total.shape == () and total.dtype == weight.dtype == tf.float32
    return float(total / (weight + loss.epsilon))


def test_cross_entropy_is_minus_the_logarithm_of_the_labels_probability():
    found = cross_entropy(tf.constant([ONE_QUARTER, ONE_QUARTER]), tf.constant([0, 1]))
    np.testing.assert_allclose(found, [math.log(4), math.log(4 / 3)], rtol=1e-6)


def test_cross_entropy_is_computed_in_float32_and_finite_for_huge_logits():
    found = cross_entropy(tf.constant([[0.0, 20.0]], tf.float16), tf.constant([0]))
    assert found.dtype == tf.float32
    assert found.numpy() == pytest.approx(20.0)
    found = cross_entropy(tf.constant([[1e6, -1e6]]), tf.constant([1]))
    assert found.numpy() == pytest.approx(2e6)


MASKED = {
    "masked_lm_ids": [[0, 1, 0], [1, 0, 0]],
    "masked_lm_weights": [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]],
}


def test_the_masked_lm_loss_is_the_mean_over_masked_positions():
    expected = (math.log(4) + 2 * math.log(4 / 3)) / (3 + 1e-5)
    logits = [[ONE_QUARTER] * 3] * 2
    assert mean(masked_lm_loss(), {"masked_lm_logits": logits}, MASKED) == pytest.approx(expected)


def test_what_stands_at_an_unused_prediction_does_not_matter():
    logits = np.random.default_rng(0).normal(size=(2, 3, 2)).astype("float32")
    changed = np.where(np.float32(MASKED["masked_lm_weights"])[..., None] == 1, logits, 77)
    found = [mean(masked_lm_loss(), {"masked_lm_logits": x}, MASKED) for x in (logits, changed)]
    assert found[0] == found[1]
    none = MASKED | {"masked_lm_weights": np.zeros((2, 3), np.float32)}
    assert mean(masked_lm_loss(), {"masked_lm_logits": logits}, none) == 0


def test_the_next_sentence_loss_is_the_mean_over_the_pairs():
    features = {"next_sentence_labels": [0, 1, 1]}
    expected = (math.log(4) + 2 * math.log(4 / 3)) / 3
    logits = {"next_sentence_logits": [ONE_QUARTER] * 3}
    assert mean(next_sentence_loss(), logits, features) == pytest.approx(expected)


def test_the_classification_loss_leaves_examples_out_that_are_not_real():
    features = {"label_ids": [0, 1, 0], "is_real_example": [1, 1, 0]}
    expected = (math.log(4) + math.log(4 / 3)) / 2
    logits = {"logits": [ONE_QUARTER, ONE_QUARTER, [50.0, -50.0]]}
    assert mean(classification_loss(), logits, features) == pytest.approx(expected)


def test_the_loss_of_several_labels_is_a_mean_over_labels_and_real_examples():
    logits = np.float32([[1, -2], [0, 3], [7, 7]])
    labels = np.float32([[1, 1], [0, 1], [0, 0]])
    features = {"label_ids": tf.constant(labels), "is_real_example": tf.constant([1, 1, 0])}
    expected = 0.0
    for row, label in np.ndindex(2, 2):
        probability = 1 / (1 + math.exp(-float(logits[row, label])))
        expected -= math.log(probability if labels[row, label] else 1 - probability) / 4
    found = mean(multi_label_loss(), {"logits": logits}, features)
    assert found == pytest.approx(expected)


def test_the_loss_of_a_regression_is_the_mean_squared_error_of_real_examples():
    features = {
        "label_ids": tf.constant([1.0, 5.0, 0.0]),
        "is_real_example": tf.constant([1, 1, 0]),
    }
    outputs = {"logits": tf.constant([[2.0], [2.0], [9.0]])}
    assert mean(regression_loss(), outputs, features) == pytest.approx((1 + 9) / 2)
