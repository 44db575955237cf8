"""Metrics against numbers worked out by hand."""

import math

import numpy as np
import pytest

from bert_tf.metrics.basic import (
    accuracy,
    exact_match,
    f1,
    f1_macro,
    log_softmax,
    matthews_correlation,
    mean_absolute_error,
    mean_cross_entropy,
    mean_sigmoid_cross_entropy,
    mean_squared_error,
    multi_label_f1_macro,
    multi_label_f1_micro,
    pearson,
    score,
    sigmoid,
    softmax,
    spearman,
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


def test_matthews_correlation_is_that_of_the_two_sequences():
    expected = (2 * 1 - 1 * 2) / math.sqrt(3 * 4 * 2 * 3)
    assert matthews_correlation(PREDICTIONS, LABELS) == pytest.approx(expected)
    predictions, labels = np.array([1, 1, 0, 0, 1, 0, 0]), np.array([1, 1, 1, 0, 0, 0, 0])
    expected = (2 * 3 - 1 * 1) / math.sqrt(3 * 3 * 4 * 4)
    assert matthews_correlation(predictions, labels) == pytest.approx(expected)
    assert np.corrcoef(predictions, labels)[0, 1] == pytest.approx(expected)


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


@pytest.mark.parametrize("label", [-1, -100, 2])
def test_a_label_that_is_no_id_of_a_label_is_an_error(label):
    logits = np.zeros((3, 2), np.float32)
    with pytest.raises(ValueError, match=rf"2 of 3 .* such as {label}, .* 2 labels are 0 to 1\."):
        mean_cross_entropy(logits, np.array([0, label, label]))


# ------------------------------------------------------- against oracles that go another way about it


def random_classes(seed, num_classes, size=57):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, num_classes, size)
    predictions = np.where(rng.random(size) < 0.6, labels, rng.integers(0, num_classes, size))
    return predictions, labels


@pytest.mark.parametrize("num_classes", [2, 3, 5])
@pytest.mark.parametrize("seed", range(4))
def test_matthews_correlation_is_the_correlation_of_indicators(seed, num_classes):
    """R_K as a covariance of one-hot vectors, which for two classes is Pearson's correlation."""
    predictions, labels = random_classes(seed, num_classes)
    x, y = np.eye(num_classes)[predictions], np.eye(num_classes)[labels]

    def covariance(a, b):
        return ((a - a.mean(axis=0)) * (b - b.mean(axis=0))).sum()

    expected = covariance(x, y) / math.sqrt(covariance(x, x) * covariance(y, y))
    assert matthews_correlation(predictions, labels) == pytest.approx(expected, rel=1e-12)
    if num_classes == 2:
        pearsons = np.corrcoef(predictions, labels)[0, 1]
        assert matthews_correlation(predictions, labels) == pytest.approx(pearsons, rel=1e-12)


@pytest.mark.parametrize("num_classes", [2, 4])
def test_f1_macro_is_the_mean_over_the_classes_that_occur(num_classes):
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


@pytest.mark.parametrize("seed", range(5))
def test_pearson_and_spearman_agree_with_other_formulas_ties_included(seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 6, 40) / 2  # many ties
    predictions = (labels + rng.normal(0, 1, 40)).round(1)
    assert pearson(predictions, labels) == pytest.approx(np.corrcoef(predictions, labels)[0, 1])
    ranks = np.corrcoef(brute_force_ranks(predictions.tolist()), brute_force_ranks(labels.tolist()))
    assert spearman(predictions, labels) == pytest.approx(ranks[0, 1], rel=1e-12)


@pytest.mark.parametrize("metric", [pearson, spearman])
def test_a_correlation_with_nan_is_nan(metric):
    numbers, with_nan = np.array([1.0, 2.0, 3.0, 5.0]), np.array([1.0, np.nan, 3.0, 5.0])
    constant = np.ones(4)
    for pair in ((with_nan, numbers), (numbers, with_nan), (with_nan, constant)):
        assert math.isnan(metric(*pair))


def test_correlations_of_a_constant_are_zero_and_of_itself_one():
    numbers = np.float32([1e-3, 2e-3, 5e-3])
    for correlation in (pearson, spearman):
        assert correlation(np.ones(3), numbers) == correlation(numbers, np.ones(3)) == 0.0
        assert correlation(numbers, numbers) == pytest.approx(1.0)
        assert correlation(-numbers, numbers) == pytest.approx(-1.0)
    assert pearson(np.array([1e8, 1e8 + 1, 1e8 + 2]), numbers) == pytest.approx(0.9607689)


def test_the_metrics_of_scikit_learn_and_scipy_are_the_same():
    stats = pytest.importorskip("scipy.stats")
    peers = pytest.importorskip("sklearn.metrics")
    predictions, labels = random_classes(3, 4)
    assert matthews_correlation(predictions, labels) == pytest.approx(
        peers.matthews_corrcoef(labels, predictions)
    )
    assert f1_macro(predictions, labels) == pytest.approx(
        peers.f1_score(labels, predictions, average="macro")
    )
    assert spearman(predictions, labels) == pytest.approx(
        stats.spearmanr(predictions, labels).statistic
    )


def test_f1_of_several_labels_counts_all_decisions_or_means_over_labels():
    predictions = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0]])
    labels = np.array([[1, 1, 0], [0, 1, 0], [0, 1, 0]])
    assert multi_label_f1_micro(predictions, labels) == pytest.approx(2 * 3 / (4 + 4))
    assert multi_label_f1_macro(predictions, labels) == pytest.approx((2 / 3 + 4 / 5 + 0) / 3)
    assert exact_match(predictions, labels) == pytest.approx(1 / 3)


def test_the_sigmoid_loss_is_exact_far_from_zero():
    logits, labels = np.float32([[800.0, -800.0, 0.0]]), np.float32([[0.0, 0.0, 1.0]])
    assert mean_sigmoid_cross_entropy(logits, labels) == pytest.approx((800 + math.log(2)) / 3)
    np.testing.assert_allclose(sigmoid(logits), [[1.0, 0.0, 0.5]], atol=1e-12)


def test_errors_of_numbers():
    assert mean_squared_error(np.array([1.0, 3.0]), np.array([2.0, 1.0])) == 2.5
    assert mean_absolute_error(np.array([1.0, 3.0]), np.array([2.0, 1.0])) == 1.5


@pytest.mark.parametrize("metric", ["eval_accuracy", "eval_mean_absolute_error", "eval_loss"])
def test_the_better_value_has_the_higher_score_and_nan_the_lowest(metric):
    better, worse = (0.9, 0.1) if metric == "eval_accuracy" else (0.1, 0.9)
    assert score(metric, better) > score(metric, worse) > score(metric, float("nan"))
