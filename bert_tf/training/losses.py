"""Losses as two sums, so that a mean over the global batch stays exact however the batch is split.

A loss is sum(weight * loss of the example) / sum(weight) over the whole global batch. Replicas and
micro-batches each hold a part of both sums; a mean of their means would be another number.

Shapes: B batch, P predictions, V vocabulary, L labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

Tensors = Mapping[str, Any]


@dataclass(frozen=True)
class Loss:
    """One term of the training loss.

    Args:
        name: how it is reported.
        total: (model outputs, features) -> float32 scalar, sum of weight * loss.
        weight: features -> float32 scalar, sum of the weights. It depends on the features alone, so
            that it is known for the global batch before any gradient is taken.
        epsilon: added to the sum of the weights.
    """

    name: str
    total: Callable[[Tensors, Tensors], tf.Tensor]
    weight: Callable[[Tensors], tf.Tensor]
    epsilon: float = 0.0


def cross_entropy(logits, labels):
    """-log softmax(logits)[label], in float32.

    Args:
        logits: [..., L].
        labels: int32 [...].
    """
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=labels, logits=tf.cast(logits, tf.float32)
    )


def masked_lm_loss() -> Loss:
    """sum(w * nll) / (sum(w) + 1e-5) over the masked positions.

    Source: google-research/bert, run_pretraining.py, `get_masked_lm_output`.
    """
    return Loss(
        name="masked_lm_loss",
        total=lambda outputs, features: tf.reduce_sum(
            features["masked_lm_weights"]
            * cross_entropy(outputs["masked_lm_logits"], features["masked_lm_ids"])
        ),
        weight=lambda features: tf.reduce_sum(features["masked_lm_weights"]),
        epsilon=1e-5,
    )


def next_sentence_loss() -> Loss:
    """Mean over the examples."""
    return Loss(
        name="next_sentence_loss",
        total=lambda outputs, features: tf.reduce_sum(
            cross_entropy(outputs["next_sentence_logits"], features["next_sentence_labels"])
        ),
        weight=lambda features: _batch_size(features["next_sentence_labels"]),
    )


def classification_loss(class_weights: Sequence[float] | None = None) -> Loss:
    """Mean over the real examples. It is all that a fine-tuning run minimises, hence "loss".

    Args:
        class_weights: L numbers; an example weighs as its label does. None weighs all alike.
    """

    def weights(features):
        if class_weights is None:
            return _is_real(features)
        return _is_real(features) * tf.gather(tf.constant(class_weights), features["label_ids"])

    return Loss(
        name="loss",
        total=lambda outputs, features: tf.reduce_sum(
            weights(features) * cross_entropy(outputs["logits"], features["label_ids"])
        ),
        weight=lambda features: tf.reduce_sum(weights(features)),
    )


def multi_label_loss(positive_weights: Sequence[float] | None = None) -> Loss:
    """Binary cross-entropy of each label, mean over the labels and the real examples.

    Features: `label_ids`, 0.0 and 1.0 in float32 [B, L].

    Args:
        positive_weights: L numbers; where label l is 1, its term counts so many times.
    """

    def total(outputs, features):
        terms = tf.nn.weighted_cross_entropy_with_logits(
            labels=features["label_ids"],
            logits=tf.cast(outputs["logits"], tf.float32),
            pos_weight=1.0 if positive_weights is None else tf.constant(positive_weights),
        )
        return tf.reduce_sum(_is_real(features) * tf.reduce_mean(terms, axis=-1))

    return Loss("loss", total, lambda features: tf.reduce_sum(_is_real(features)))


def regression_loss() -> Loss:
    """Squared error, mean over the real examples.

    Features: `label_ids`, float32 [B]. Outputs: `logits` [B, 1].
    """

    def total(outputs, features):
        errors = tf.cast(outputs["logits"][:, 0], tf.float32) - features["label_ids"]
        return tf.reduce_sum(_is_real(features) * errors**2)

    return Loss("loss", total, lambda features: tf.reduce_sum(_is_real(features)))


def _is_real(features: Tensors):
    return tf.cast(features["is_real_example"], tf.float32)


def _batch_size(tensor):
    return tf.cast(tf.shape(tensor)[0], tf.float32)
