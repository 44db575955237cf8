"""Metrics against numbers worked out by hand."""

import math

import numpy as np
import pytest

from bert_tf.training.metrics import (
    accuracy,
    f1,
    log_softmax,
    matthews_correlation,
    mean_cross_entropy,
    softmax,
)

# true positives 2, true negatives 1, false positives 1, false negatives 2
PREDICTIONS, LABELS = np.array([1, 1, 0, 1, 0, 0]), np.array([1, 1, 0, 0, 1, 1])
ZEROS, ONES = np.zeros(6, int), np.ones(6, int)


def test_accuracy_is_the_share_of_right_predictions():
    assert accuracy(PREDICTIONS, LABELS) == 0.5


def test_f1_is_the_harmonic_mean_of_precision_and_recall():
    precision, recall = 2 / 3, 2 / 4
    expected = 2 * precision * recall / (precision + recall)
    assert f1(PREDICTIONS, LABELS) == pytest.approx(expected)
    assert f1(LABELS, LABELS) == 1.0


def test_f1_can_be_of_the_other_class():
    precision, recall = 1 / 3, 1 / 2
    expected = 2 * precision * recall / (precision + recall)
    assert f1(PREDICTIONS, LABELS, positive=0) == pytest.approx(expected)


def test_f1_of_constant_predictions():
    assert f1(ONES, LABELS) == pytest.approx(2 * 4 / (6 + 4))  # precision 4/6, recall 1
    assert f1(ZEROS, LABELS) == 0.0
    assert f1(ZEROS, ZEROS) == 0.0  # neither precision nor recall is defined


def test_matthews_correlation_is_that_of_the_two_sequences():
    expected = (2 * 1 - 1 * 2) / math.sqrt(3 * 4 * 2 * 3)
    assert matthews_correlation(PREDICTIONS, LABELS) == pytest.approx(expected)
    predictions, labels = np.array([1, 1, 0, 0, 1, 0, 0]), np.array([1, 1, 1, 0, 0, 0, 0])
    expected = (2 * 3 - 1 * 1) / math.sqrt(3 * 3 * 4 * 4)
    assert matthews_correlation(predictions, labels) == pytest.approx(expected)
    assert np.corrcoef(predictions, labels)[0, 1] == pytest.approx(expected)


def test_matthews_correlation_reaches_both_ends():
    assert matthews_correlation(LABELS, LABELS) == 1.0
    assert matthews_correlation(1 - LABELS, LABELS) == -1.0


@pytest.mark.parametrize("constant", [ZEROS, ONES])
def test_matthews_correlation_of_a_constant_is_zero(constant):
    assert matthews_correlation(constant, LABELS) == 0.0
    assert matthews_correlation(LABELS, constant) == 0.0


def test_a_large_set_does_not_overflow_the_matthews_correlation():
    labels = np.tile([0, 1], 300_000)  # the product of the four sums is beyond 64 bits
    predictions = labels.copy()
    predictions[:150_000] = 1 - predictions[:150_000]
    assert matthews_correlation(predictions, labels) == pytest.approx(0.5)


def test_softmax_and_its_logarithm_bear_large_logits():
    logits = np.float32([[1000.0, 1000.0], [-1000.0, 1000.0]])
    np.testing.assert_allclose(softmax(logits), [[0.5, 0.5], [0.0, 1.0]])
    np.testing.assert_allclose(log_softmax(logits)[1], [-2000.0, 0.0])
    assert softmax(logits).dtype == np.float64


def test_mean_cross_entropy_is_in_nats():
    logits = np.float32([[0.0, math.log(3.0)]] * 2)  # probabilities 1/4 and 3/4
    expected = (math.log(4) + math.log(4 / 3)) / 2
    assert mean_cross_entropy(logits, np.array([0, 1])) == pytest.approx(expected, rel=1e-6)
