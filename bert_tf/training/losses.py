"""Losses as two sums, so that a mean over the global batch stays exact however the batch is split.

A loss is sum(weight * loss of the example) / sum(weight) over the whole global batch. Replicas and
micro-batches each hold a part of both sums; a mean of their means would be another number.

Shapes: B batch, P predictions, V vocabulary, L labels, W words, K choices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


def classification_loss() -> Loss:
    """Mean over the real examples. It is all that a fine-tuning run minimises, hence "loss"."""
    return Loss(
        name="loss",
        total=lambda outputs, features: tf.reduce_sum(
            _is_real(features) * cross_entropy(outputs["logits"], features["label_ids"])
        ),
        weight=lambda features: tf.reduce_sum(_is_real(features)),
    )


def multiple_choice_loss() -> Loss:
    """Mean over the real examples of -log softmax over the choices that an example has."""
    return Loss(
        name="loss",
        total=lambda outputs, features: tf.reduce_sum(
            _is_real(features)
            * cross_entropy(
                masked_choices(outputs["logits"], features["choice_mask"]), features["label_ids"]
            )
        ),
        weight=lambda features: tf.reduce_sum(_is_real(features)),
    )


def masked_choices(logits, choice_mask):
    """Logits [B, K] whose softmax is 0 where `choice_mask` int32 [B, K] is 0."""
    return tf.where(choice_mask > 0, tf.cast(logits, tf.float32), -1e9)


def token_classification_loss() -> Loss:
    """Mean over the words that are predicted; a word's label is that of its first piece."""
    return Loss(
        name="loss",
        total=lambda outputs, features: tf.reduce_sum(
            features["label_weights"]
            * cross_entropy(
                word_logits(outputs["logits"], features["word_positions"]), features["label_ids"]
            )
        ),
        weight=lambda features: tf.reduce_sum(features["label_weights"]),
    )


def word_logits(logits, word_positions):
    """[B, S, L] at int32 [B, W], positions of first pieces -> [B, W, L]."""
    return tf.gather(logits, word_positions, batch_dims=1)


def _is_real(features: Tensors):
    return tf.cast(features["is_real_example"], tf.float32)


def _batch_size(tensor):
    return tf.cast(tf.shape(tensor)[0], tf.float32)
