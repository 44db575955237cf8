"""A linear probe: how well a linear classifier on frozen features predicts labels.

Shapes: N examples, H features, L labels.

Source: Alain and Bengio 2016, arXiv 1610.01644.
"""

from __future__ import annotations

import logging

import numpy as np

from bert_tf.metrics.basic import accuracy, softmax

logger = logging.getLogger(__name__)

_MOST_ITERATIONS = 2000
_TOLERANCE = 1e-5  # largest number in the gradient of the loss of an example


def probe_accuracy(features: np.ndarray, labels: np.ndarray, is_held_out: np.ndarray) -> float:
    """Return the accuracy on held-out examples of a probe that is trained on the others.

    Features are scaled to mean 0 and variance 1 over the training examples.

    Args:
        features: float [N, H].
        labels: int [N].
        is_held_out: bool [N].
    """
    features = features.astype(np.float64)
    train, mean = features[~is_held_out], features[~is_held_out].mean(axis=0)
    deviation = train.std(axis=0)
    scaled = (features - mean) / np.where(deviation > 0, deviation, 1.0)
    found, classes = np.unique(labels[~is_held_out], return_inverse=True)  # some may be held out
    weights = logistic_regression(scaled[~is_held_out], classes)
    logits = scaled[is_held_out] @ weights[:-1] + weights[-1]
    return accuracy(found[logits.argmax(axis=1)], labels[is_held_out])


def logistic_regression(features: np.ndarray, labels: np.ndarray, decay: float = 1.0) -> np.ndarray:
    """Return the weights of a multinomial logistic regression, float64 [H + 1, L].

        minimum over W and b of  sum over n of -log softmax(x_n W + b)[label_n]  +  decay / 2 |W|^2

    scikit-learn's `LogisticRegression(C=1 / decay)` has the same minimum if L is 3 or more. With two
    labels it has one column of weights, and the same minimum at C=2 / decay.

    Args:
        features: float [N, H], each of about the same size.
        labels: int [N], from 0 to L - 1.

    Returns:
        W, and b in the last row.

    Source: Böhning 1992, "Multinomial logistic regression algorithm": Newton's method with a constant
    upper bound of the Hessian, so that it needs no line search. Nesterov's momentum speeds it up; it
    begins again if the loss would rise (O'Donoghue and Candès 2015, arXiv 1204.3982).
    """
    inputs = np.column_stack([features, np.ones(len(features))]).astype(np.float64)
    is_label = labels[:, None] == np.arange(labels.max() + 1)
    penalty = np.full((inputs.shape[1], 1), float(decay))
    penalty[-1] = 0.0
    inverse = np.linalg.inv(inputs.T @ inputs / 2 + np.diag(penalty[:, 0]))
    weights = ahead = np.zeros((inputs.shape[1], is_label.shape[1]))
    momentum = 1.0
    for _ in range(_MOST_ITERATIONS):
        gradient = inputs.T @ (softmax(inputs @ ahead) - is_label) + penalty * ahead
        if np.abs(gradient).max() <= _TOLERANCE * len(inputs):
            return ahead
        before, weights = weights, ahead - inverse @ gradient
        momentum_before = momentum
        momentum = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        if np.sum(gradient * (weights - before)) > 0:
            momentum_before = momentum = 1.0
        ahead = weights + (momentum_before - 1) / momentum * (weights - before)
    logger.warning("The probe did not converge in %d iterations", _MOST_ITERATIONS)
    return ahead
