"""Metrics of classification and regression, computed in NumPy over a whole evaluation set."""

from __future__ import annotations

import math

import numpy as np


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Return log softmax over the last axis, in float64."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return softmax over the last axis, in float64."""
    return np.exp(log_softmax(logits))


def l2_normalize(vectors: np.ndarray) -> np.ndarray:
    """Return vectors of length 1 on the last axis; zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)


def mean_cross_entropy(logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean of -log softmax(logits [N, L])[labels [N]], in nats."""
    return float(-log_softmax(logits)[np.arange(len(labels)), labels].mean())


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    return float((predictions == labels).mean())


def f1(predictions: np.ndarray, labels: np.ndarray, positive: int = 1) -> float:
    """Return F1 of the class `positive`, the metric of MRPC and QQP; 0 if undefined."""
    return _f1_score(predictions == positive, labels == positive)


def f1_macro(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean of `f1` over the classes that occur in either argument, int [examples]."""
    classes = np.union1d(predictions, labels)
    return float(np.mean([f1(predictions, labels, positive=index) for index in classes]))


def matthews_correlation(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the correlation of two sequences of classes, in [-1, 1]; 0 if one is constant.

    The metric of CoLA (two classes), and its generalisation R_K to more classes.

    Source: Gorodkin, "Comparing two K-category assignments by a K-category correlation coefficient",
    2004, equation 8: a covariance of one-hot vectors.
    """
    classes = np.union1d(predictions, labels)
    one_hot = [values[:, None] == classes for values in (predictions, labels)]
    x, y = (values - values.mean(axis=0) for values in one_hot)
    norm = math.sqrt((x * x).sum() * (y * y).sum())
    return float((x * y).sum() / norm) if norm else 0.0


def exact_match(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the fraction of examples whose labels (0 or 1, [examples, L]) are all right."""
    return float((predictions == labels).all(axis=1).mean())


def multi_label_f1_micro(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return `f1` of all decisions together, [examples, L]."""
    return _f1_score(predictions.ravel() == 1, labels.ravel() == 1)


def multi_label_f1_macro(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean of each label's `f1`, [examples, L]; 0 for labels that never occur."""
    pairs = zip(predictions.T, labels.T, strict=True)
    return float(np.mean([_f1_score(predicted == 1, actual == 1) for predicted, actual in pairs]))


def pearson(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the linear correlation of two sequences, in [-1, 1]; 0 if one is constant.

    NaN if one contains a NaN. With `spearman`, the metric of STS-B.
    """
    p, a = (np.asarray(values, np.float64) for values in (predictions, labels))
    if np.isnan(p).any() or np.isnan(a).any():
        return math.nan
    if np.ptp(p) == 0 or np.ptp(a) == 0:
        return 0.0
    p, a = p - p.mean(), a - a.mean()
    correlation = (p / np.linalg.norm(p)) @ (a / np.linalg.norm(a))
    return float(np.clip(correlation, -1.0, 1.0))


def spearman(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return `pearson` of the ranks. Equal values get the mean of their ranks."""
    return pearson(_ranks(predictions), _ranks(labels))


def mean_squared_error(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean of (prediction - label) ** 2."""
    return float(np.mean((predictions.astype(np.float64) - labels) ** 2))


def mean_absolute_error(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean of |prediction - label|, in the unit of the labels."""
    return float(np.mean(np.abs(predictions.astype(np.float64) - labels)))


def mean_sigmoid_cross_entropy(logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean of -log sigmoid(logit) for label 1 and of -log(1 - sigmoid(logit)) for 0."""
    z = logits.astype(np.float64)
    return float((np.logaddexp(0.0, z) - z * labels).mean())


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-logit)), in float64."""
    return np.exp(-np.logaddexp(0.0, -logits.astype(np.float64)))


def _f1_score(predicted: np.ndarray, actual: np.ndarray) -> float:
    """Return F1 of boolean arrays; 0 if undefined."""
    both = int((predicted & actual).sum())
    total = int(predicted.sum()) + int(actual.sum())
    return 2.0 * both / total if total else 0.0


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks from 1. Equal values get the mean of their ranks, NaN gets NaN."""
    values = np.asarray(values, np.float64).ravel()
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.where(np.isnan(values), np.nan, (last - (counts - 1) / 2)[inverse.ravel()])


def largest_class(labels: np.ndarray) -> float:
    """Return the accuracy of always predicting the most frequent label, or row of labels.

    >>> largest_class(np.array([0, 1, 1, 1]))
    0.75
    """
    _, counts = np.unique(labels, axis=0, return_counts=True)
    return float(counts.max() / len(labels))
