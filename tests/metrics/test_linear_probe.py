"""The linear probe: its minimum, and its accuracy on labels that can and cannot be learned."""

import math

import numpy as np
import pytest

from bert_tf.metrics.basic import largest_class, softmax
from bert_tf.metrics.linear_probe import logistic_regression, probe_accuracy


def problem(num_labels, count=240, width=5, seed=0):
    """Features, and labels that depend on them and on noise."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, width))
    logits = 2 * features @ rng.normal(size=(width, num_labels)) + [
        0.5 * n for n in range(num_labels)
    ]
    return features, (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)


def held_out(count):
    return np.arange(count) % 5 == 4


def test_two_points_have_the_weights_computed_by_hand():
    # By symmetry W is (-w, w) and b is 0: 2 log(1 + exp(-2 w)) + w^2 is least at w = 2 / (1 + exp(2 w)).
    weights = logistic_regression(np.array([[-1.0], [1.0]]), np.array([0, 1]))
    w = 0.5213
    assert w == pytest.approx(2 / (1 + math.exp(2 * w)), abs=1e-3)
    np.testing.assert_allclose(weights, [[-w, w], [0, 0]], atol=1e-3)


def test_biases_without_features_are_the_logs_of_the_frequencies():
    weights = logistic_regression(np.zeros((8, 1)), np.array([0, 1, 1, 1, 1, 2, 2, 0]))
    np.testing.assert_allclose(softmax(weights[1]), [1 / 4, 1 / 2, 1 / 4], atol=1e-3)
    np.testing.assert_array_equal(weights[0], 0)


@pytest.mark.parametrize(
    ("num_labels", "decay", "c"), [(4, 1.0, 1.0), (3, 0.1, 10.0), (2, 1.0, 2.0)]
)
def test_its_weights_are_those_of_scikit_learn(num_labels, decay, c):
    linear_model = pytest.importorskip("sklearn.linear_model")
    features, labels = problem(num_labels)
    peer = linear_model.LogisticRegression(C=c, tol=1e-10, max_iter=10_000).fit(features, labels)
    found = logistic_regression(features, labels, decay)
    if num_labels == 2:
        found = found[:, 1:] - found[:, :1]
    np.testing.assert_allclose(found[:-1].T, peer.coef_, rtol=1e-3, atol=1e-3)
    ours, theirs = (b - b.mean() if num_labels > 2 else b for b in (found[-1], peer.intercept_))
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


def test_its_accuracy_is_that_of_scikit_learn_on_scaled_features():
    linear_model = pytest.importorskip("sklearn.linear_model")
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    features, labels = problem(3)
    features = features * [1, 10, 100, 0.1, 0] + 7  # a constant feature among them
    parts = held_out(len(labels))
    scaler = preprocessing.StandardScaler().fit(features[~parts])
    scaled = scaler.transform(features)
    peer = linear_model.LogisticRegression(max_iter=10_000).fit(scaled[~parts], labels[~parts])
    assert probe_accuracy(features, labels, parts) == peer.score(scaled[parts], labels[parts])


def test_separable_labels_are_all_right_and_random_ones_are_guessed_as_the_largest():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(500, 4)).astype(np.float32)
    parts = held_out(500)
    assert probe_accuracy(features, (features[:, 2] > 0.1).astype(int), parts) > 0.97
    far_apart = features + 20 * (np.arange(500) % 3)[:, None]
    assert probe_accuracy(far_apart, np.arange(500) % 3, parts) == 1.0
    at_random = (rng.random(500) < 0.15).astype(int)
    assert probe_accuracy(features, at_random, parts) == largest_class(at_random[parts])


def test_a_label_that_is_only_held_out_is_never_predicted(caplog):
    features = np.repeat([[0.0], [9.0], [5.0]], [10, 10, 1], axis=0)
    labels, parts = np.repeat([1, 7, 3], [10, 10, 1]), np.arange(21) % 5 == 0
    assert labels[parts].tolist() == [1, 1, 7, 7, 3]
    assert probe_accuracy(features, labels, parts) == 0.8
    assert caplog.text == ""


def test_a_probe_that_does_not_converge_is_warned_of(monkeypatch, caplog):
    monkeypatch.setattr("bert_tf.metrics.linear_probe._MOST_ITERATIONS", 2)
    logistic_regression(*problem(3))
    assert "did not converge in 2 iterations" in caplog.text
