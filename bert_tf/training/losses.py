"""Losses as two sums, so that the mean over the global batch is exact however the batch is split.

A loss is sum(weight * loss of the example) / sum(weight) over the global batch. Replicas and
micro-batches each compute a part of both sums. The mean of their means would differ.

Shapes: B batch, S sequence, P predictions, V vocabulary, L labels, W words, K choices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from bert_tf.modeling import fused
from bert_tf.modeling.crf import Chains, log_likelihood, make_chains

Tensors = Mapping[str, Any]


@dataclass(frozen=True)
class Loss:
    """One term of the training loss.

    Args:
        name: its name in logs.
        total: (model outputs, features) -> float32 scalar, sum of weight * loss. With `accuracy`, also
            the sum of weight * (1 if the largest logit is the label's, else 0).
        weight: features -> float32 scalar, sum of the weights. It depends on the features alone, so
            it is known for the global batch before any gradient is computed.
        epsilon: added to the sum of the weights.
        accuracy: name of the accuracy in logs; None to log no accuracy.
        whole_batch: outputs that `total` needs of the global batch at once, because it compares
            examples with each other; () if it is a sum over the examples. See step.py.
    """

    name: str
    total: Callable[[Tensors, Tensors], tf.Tensor]
    weight: Callable[[Tensors], tf.Tensor]
    epsilon: float = 0.0
    accuracy: str | None = None
    whole_batch: tuple[str, ...] = ()


def cross_entropy(logits, labels):
    """Return -log softmax(logits [..., L])[labels int32 [...]], in float32."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=labels, logits=tf.cast(logits, tf.float32)
    )


def cross_entropy_and_correct(logits, labels) -> tuple[Any, Any]:
    """Return `cross_entropy`, also of `fused.Logits`, and 1 if no other logit is larger, else 0."""
    if isinstance(logits, fused.Logits):
        return fused.cross_entropy(logits, labels)
    of_label = tf.gather(logits, labels, batch_dims=labels.shape.rank)
    correct = tf.stop_gradient(of_label) >= tf.reduce_max(tf.stop_gradient(logits), axis=-1)
    return cross_entropy(logits, labels), tf.cast(correct, tf.float32)


def _weighted(weights, logits, labels) -> tuple[Any, Any]:
    """Return the sums of weight * cross-entropy and of weight * correct."""
    losses, correct = cross_entropy_and_correct(logits, labels)
    return tf.reduce_sum(weights * losses), tf.reduce_sum(weights * correct)


def masked_lm_loss() -> Loss:
    """Return sum(w * nll) / (sum(w) + 1e-5) over the masked positions.

    Source: google-research/bert, run_pretraining.py, `get_masked_lm_output`.
    """
    return Loss(
        name="masked_lm_loss",
        total=lambda outputs, features: _weighted(
            features["masked_lm_weights"], outputs["masked_lm_logits"], features["masked_lm_ids"]
        ),
        weight=lambda features: tf.reduce_sum(features["masked_lm_weights"]),
        epsilon=1e-5,
        accuracy="masked_lm_accuracy",
    )


def next_sentence_loss() -> Loss:
    """Return the mean cross-entropy over the examples."""
    return Loss(
        name="next_sentence_loss",
        total=lambda outputs, features: _weighted(
            1.0, outputs["next_sentence_logits"], features["next_sentence_labels"]
        ),
        weight=lambda features: tf.cast(tf.size(features["next_sentence_labels"]), tf.float32),
        accuracy="next_sentence_accuracy",
    )


def classification_loss() -> Loss:
    """Return the mean cross-entropy over the real examples."""
    return _label_loss(_is_real, lambda outputs, _: outputs["logits"])


def _label_loss(
    weights: Callable[[Tensors], Any], logits: Callable[[Tensors, Tensors], Any]
) -> Loss:
    """Return the mean cross-entropy of `label_ids`, with weights of features and logits of outputs."""
    return Loss(
        name="loss",
        total=lambda outputs, features: _weighted(
            weights(features), logits(outputs, features), features["label_ids"]
        ),
        weight=lambda features: tf.reduce_sum(weights(features)),
        accuracy="accuracy",
    )


def multi_label_loss() -> Loss:
    """Return the binary cross-entropy, averaged over labels and real examples.

    Features: `label_ids`, 0.0 and 1.0 in float32 [B, L].
    """

    def total(outputs, features):
        terms = tf.nn.sigmoid_cross_entropy_with_logits(
            labels=features["label_ids"], logits=tf.cast(outputs["logits"], tf.float32)
        )
        return tf.reduce_sum(_is_real(features) * tf.reduce_mean(terms, axis=-1))

    return Loss("loss", total, lambda features: tf.reduce_sum(_is_real(features)))


def regression_loss() -> Loss:
    """Return the squared error of `logits` [B, 1] and `label_ids` float32 [B] over the real examples."""

    def total(outputs, features):
        errors = tf.cast(outputs["logits"][:, 0], tf.float32) - features["label_ids"]
        return tf.reduce_sum(_is_real(features) * errors**2)

    return Loss("loss", total, lambda features: tf.reduce_sum(_is_real(features)))


def span_loss() -> Loss:
    """Return the mean of (cross-entropy of the start + cross-entropy of the end) / 2.

    Padding cannot be an answer. In the reference it competes with the tokens, so the loss depends on
    the amount of padding. Source: google-research/bert, run_squad.py, `compute_loss`.
    """

    def is_real(features: Tensors):
        ones = tf.ones_like(features["start_positions"])
        return tf.cast(features.get("is_real_example", ones), tf.float32)

    def total(outputs: Tensors, features: Tensors):
        start, end = (
            cross_entropy(
                without_padding(outputs[f"{name}_logits"], features["input_mask"]),
                features[f"{name}_positions"],
            )
            for name in ("start", "end")
        )
        return tf.reduce_sum((start + end) / 2.0 * is_real(features))

    return Loss("loss", total, lambda features: tf.reduce_sum(is_real(features)))


def without_padding(logits, input_mask):
    """Return float32 [B, S], with -1e30 at padding (`input_mask` 0), which softmax maps to 0."""
    logits = tf.cast(logits, tf.float32)
    return tf.where(tf.equal(input_mask, 0), tf.constant(-1e30, tf.float32), logits)


def multiple_choice_loss() -> Loss:
    """Return the mean over the real examples of -log softmax over the choices of an example."""
    return _label_loss(
        _is_real,
        lambda outputs, features: masked_choices(outputs["logits"], features["choice_mask"]),
    )


def masked_choices(logits, choice_mask):
    """Return logits [B, K] whose softmax is 0 where `choice_mask` int32 [B, K] is 0."""
    return tf.where(choice_mask > 0, tf.cast(logits, tf.float32), -1e9)


def token_classification_loss() -> Loss:
    """Return the mean over the predicted words; a word has the label of its first piece."""
    return _label_loss(
        lambda features: features["label_weights"],
        lambda outputs, features: word_logits(outputs["logits"], features["word_positions"]),
    )


def crf_loss() -> Loss:
    """Return -log p(labels of the predicted words), per word; context may have any labels."""

    def total(outputs: Tensors, features: Tensors):
        chains, known = chains_of_words(outputs, features), features["label_weights"]
        return -tf.reduce_sum(log_likelihood(chains, features["label_ids"], known))

    return Loss("loss", total, lambda features: tf.reduce_sum(features["label_weights"]))


def chains_of_words(outputs: Tensors, features: Tensors) -> Chains:
    """Return the chains of the CRF for windows of words, as in its records."""
    return make_chains(
        word_logits(outputs["logits"], features["word_positions"]),
        outputs["transitions"],
        features["word_positions"],  # 0, [CLS], is padding
        features["sentence_starts"],
        features["sentence_ends"],
    )


def word_logits(logits, word_positions):
    """Gather [B, S, L] at the first pieces `word_positions` int32 [B, W], giving [B, W, L]."""
    return tf.gather(logits, word_positions, batch_dims=1)


def _is_real(features: Tensors):
    return tf.cast(features["is_real_example"], tf.float32)
