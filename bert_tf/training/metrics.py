"""Official metrics, computed in NumPy over a whole evaluation set."""

from __future__ import annotations

import math

import numpy as np


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis, in float64."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis, in float64."""
    return np.exp(log_softmax(logits))


def mean_cross_entropy(logits: np.ndarray, labels: np.ndarray) -> float:
    """Mean of -log softmax(logits)[label], in nats.

    Args:
        logits: float [examples, L].
        labels: int [examples].
    """
    return float(-log_softmax(logits)[np.arange(len(labels)), labels].mean())


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Share of examples whose prediction is the label."""
    return float((predictions == labels).mean())


def f1(predictions: np.ndarray, labels: np.ndarray, positive: int = 1) -> float:
    """Harmonic mean of precision and recall of the class `positive`; 0 where neither is defined.

    The official metric of MRPC and QQP.
    """
    predicted, actual = predictions == positive, labels == positive
    both = int((predicted & actual).sum())
    total = int(predicted.sum()) + int(actual.sum())
    return 2.0 * both / total if total else 0.0


def matthews_correlation(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Correlation of two binary sequences, in [-1, 1]; 0 when one of them is constant.

    The official metric of CoLA.
    """
    p, a = predictions == 1, labels == 1
    true_positive, true_negative = int((p & a).sum()), int((~p & ~a).sum())
    false_positive, false_negative = int((p & ~a).sum()), int((~p & a).sum())
    product = (
        (true_positive + false_positive)
        * (true_positive + false_negative)
        * (true_negative + false_positive)
        * (true_negative + false_negative)
    )
    if product == 0:
        return 0.0
    covariance = true_positive * true_negative - false_positive * false_negative
    return covariance / math.sqrt(product)
