"""Metrics against numbers worked out by hand, and against oracles that use other formulas."""

import math

import numpy as np
import pytest

from bert_tf.tasks.metrics import (
    accuracy,
    f1,
    f1_macro,
    log_softmax,
    matthews_correlation,
    mean_sigmoid_cross_entropy,
    pearson,
    sigmoid,
    softmax,
    spearman,
)

# true positives 2, true negatives 1, false positives 1, false negatives 2
PREDICTIONS, LABELS = np.array([1, 1, 0, 1, 0, 0]), np.array([1, 1, 0, 0, 1, 1])


def test_accuracy_and_f1_by_hand():
    assert accuracy(PREDICTIONS, LABELS) == 0.5
    precision, recall = 2 / 3, 2 / 4
    expected = 2 * precision * recall / (precision + recall)
    assert f1(PREDICTIONS, LABELS) == pytest.approx(expected)
    assert f1(LABELS, LABELS) == 1.0


def test_matthews_correlation_by_hand():
    expected = (2 * 1 - 1 * 2) / math.sqrt(3 * 4 * 2 * 3)
    assert matthews_correlation(PREDICTIONS, LABELS) == pytest.approx(expected)
    predictions, labels = np.array([1, 1, 0, 0, 1, 0, 0]), np.array([1, 1, 1, 0, 0, 0, 0])
    expected = (2 * 3 - 1 * 1) / math.sqrt(3 * 3 * 4 * 4)
    assert matthews_correlation(predictions, labels) == pytest.approx(expected)
    labels = np.tile([0, 1], 300_000)  # the product of the four sums is beyond 64 bits
    predictions = labels.copy()
    predictions[:150_000] = 1 - predictions[:150_000]
    assert matthews_correlation(predictions, labels) == pytest.approx(0.5)


def test_softmax_bears_large_logits():
    logits = np.float32([[1000.0, 1000.0], [-1000.0, 1000.0]])
    np.testing.assert_allclose(softmax(logits), [[0.5, 0.5], [0.0, 1.0]])
    np.testing.assert_allclose(log_softmax(logits)[1], [-2000.0, 0.0])
    assert softmax(logits).dtype == np.float64


def test_mean_sigmoid_cross_entropy_is_exact_far_from_zero():
    logits, labels = np.float32([[800.0, -800.0, 0.0]]), np.float32([[0.0, 0.0, 1.0]])
    assert mean_sigmoid_cross_entropy(logits, labels) == pytest.approx((800 + math.log(2)) / 3)
    np.testing.assert_allclose(sigmoid(logits), [[1.0, 0.0, 0.5]], atol=1e-12)


# ------------------------------------------------------------------------------------------- oracles


def random_classes(seed, num_classes, size=57):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, num_classes, size)
    predictions = np.where(rng.random(size) < 0.6, labels, rng.integers(0, num_classes, size))
    return predictions, labels


def test_matthews_correlation_of_two_classes_is_that_of_pearson():
    predictions, labels = random_classes(0, 2)
    expected = np.corrcoef(predictions, labels)[0, 1]
    assert matthews_correlation(predictions, labels) == pytest.approx(expected, rel=1e-12)


def test_matthews_correlation_of_three_classes_by_hand():
    predictions, labels = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 1, 1, 2, 0])
    expected = (4 * 6 - 12) / math.sqrt((36 - 12) * (36 - 14))  # R_K from the sums of the table
    assert matthews_correlation(predictions, labels) == pytest.approx(expected)


def test_f1_macro_is_the_mean_over_the_classes_that_occur():
    for num_classes in (2, 4):
        predictions, labels = random_classes(9, num_classes)
        scores = []
        for c in range(num_classes):
            rights = sum(p == y == c for p, y in zip(predictions, labels, strict=True))
            precision = rights / max(1, sum(p == c for p in predictions))
            recall = rights / max(1, sum(y == c for y in labels))
            scores.append(2 * precision * recall / (precision + recall))
        assert f1_macro(predictions, labels) == pytest.approx(sum(scores) / num_classes)
    assert f1_macro(np.array([5, 5]), np.array([5, 5])) == 1.0


def brute_force_ranks(values):
    """Rank = 1 + how many are smaller + half of how many others are equal."""
    return [
        1 + sum(other < value for other in values) + (sum(o == value for o in values) - 1) / 2
        for value in values
    ]


def test_correlations_agree_with_other_formulas_and_ties():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 6, 40) / 2  # many ties
        predictions = (labels + rng.normal(0, 1, 40)).round(1)
        assert pearson(predictions, labels) == pytest.approx(np.corrcoef(predictions, labels)[0, 1])
        ranks = [brute_force_ranks(values.tolist()) for values in (predictions, labels)]
        expected = np.corrcoef(*ranks)[0, 1]
        assert spearman(predictions, labels) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("correlation", [pearson, spearman])
def test_correlations_of_constants_are_zero_and_of_nan_nan(correlation):
    numbers, constant = np.float32([1e-3, 2e-3, 5e-3]), np.ones(3)
    assert correlation(constant, numbers) == correlation(numbers, constant) == 0.0
    assert correlation(numbers, numbers) == pytest.approx(1.0)
    assert correlation(-numbers, numbers) == pytest.approx(-1.0)
    assert pearson(np.array([1e8, 1e8 + 1, 1e8 + 2]), numbers) == pytest.approx(0.9607689)
    with_nan = np.array([1.0, np.nan, 3.0])
    for pair in ((with_nan, numbers), (numbers, with_nan), (with_nan, constant)):
        assert math.isnan(correlation(*pair))
