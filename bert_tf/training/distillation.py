"""Losses of distillation: a student learns the outputs of a teacher.

    hard_loss = fraction * loss of the labels
    soft_loss = (1 - fraction) * T^2 * KL(softmax(teacher / T) || softmax(student / T))
    states_loss = weight * distance of the hidden states, or of the attention relations

of embeddings

    loss = fraction * loss of the examples
         + (1 - fraction) * T^2 * KL(similarities of the teacher || of the student)

T is the temperature. Its square keeps the gradients of both terms in proportion. An example without a
label has no hard loss and the whole soft loss.

Shapes: B batch, S sequence, H hidden, L labels, W words, R relation heads.

Sources: Hinton et al. 2015, arXiv 1503.02531 (logits); Jiao et al. 2020, arXiv 1909.10351 (hidden
states); Wang et al. 2021, arXiv 2012.15828 (relations); Fang et al. 2021, arXiv 2101.04731
(similarities).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from bert_tf.data.features import FeatureSpec
from bert_tf.training.losses import Loss

Tensors = Mapping[str, Any]

# Feature of records that may have no label; 1 = has a label.
IS_LABELLED = "is_labelled"
# Outputs of a training step with states of both models.
STUDENT_STATES, TEACHER_STATES = "student_states", "teacher_states"


@dataclass(frozen=True)
class SoftTargets:
    """The outputs of a teacher as features of the records.

    Args:
        features: of role "id"; () if the teacher runs in the step.
        weight: name of the feature with the weights of the predictions, [B] or [B, W]. Without such a
            feature each example has weight 1.
        of_teacher: (model outputs, features) -> tensors [B, ...] by the names of `features`.
        losses: (model outputs, features, temperature) -> float32 [B] or [B, W], or the mean over the
            batch if the loss of the examples has `whole_batch`.
    """

    features: Sequence[FeatureSpec]
    weight: str
    of_teacher: Callable[[Tensors, Tensors], Tensors]
    losses: Callable[[Tensors, Tensors, float], tf.Tensor]

    def weights(self, features: Tensors) -> tf.Tensor:
        """Return the weights of the predictions, float32."""
        if self.weight in features:
            return tf.cast(features[self.weight], tf.float32)
        return tf.ones(tf.shape(features["input_mask"])[:1])  # of examples, also in packed rows


def divergence(teacher, student, temperature: float = 1.0):
    """Return T^2 KL(softmax(teacher / T) || softmax(student / T)) over the last axis.

    Args:
        teacher, student: logits, float [..., L].

    Returns:
        float32 [...].

    >>> divergence(tf.constant([[0.0, 1.0]]), tf.constant([[0.0, 1.0]]), 2.0).numpy()
    array([0.], dtype=float32)
    """
    teacher, student = (
        tf.nn.log_softmax(tf.cast(logits, tf.float32) / temperature)
        for logits in (teacher, student)
    )
    return temperature**2 * tf.reduce_sum(tf.exp(teacher) * (teacher - student), axis=-1)


def soft_binary_cross_entropy(teacher, student, temperature: float = 1.0):
    """Return T^2 times the binary cross-entropy to sigmoid(teacher / T), averaged over the labels.

    Args:
        teacher, student: logits, float [..., L].

    Returns:
        float32 [...].
    """
    teacher, student = (tf.cast(logits, tf.float32) / temperature for logits in (teacher, student))
    terms = tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.sigmoid(teacher), logits=student)
    return temperature**2 * tf.reduce_mean(terms, axis=-1)


def distillation_losses(
    hard: Loss, soft: SoftTargets, temperature: float, hard_labels: float, all_labelled: bool = True
) -> tuple[Loss, ...]:
    """Return the terms "hard_loss" and "soft_loss". Their sum is a mean over the global batch.

    With a `hard` of the whole batch, return the sum as one loss.

    Args:
        hard: loss of the labels.
        hard_labels: fraction of `hard`, 0 to 1.
        all_labelled: False if the records have `IS_LABELLED`.
    """
    if hard.whole_batch:

        def joined(outputs: Tensors, features: Tensors):
            soft_mean = soft.losses(outputs, features, temperature)
            soft_total = soft_mean * hard.weight(features)
            if not hard_labels:  # there may be no labels
                return soft_total
            return hard_labels * hard.total(outputs, features) + (1.0 - hard_labels) * soft_total

        return (replace(hard, total=joined),)

    def labelled(features: Tensors) -> tf.Tensor:
        """Return 1 for predictions with a label, else 0: float32 [B] or [B, W]."""
        is_labelled = tf.cast(features[IS_LABELLED], tf.float32)
        return is_labelled if soft.weights(features).shape.rank == 1 else is_labelled[:, None]

    def of_labelled(features: Tensors) -> dict[str, tf.Tensor]:
        return {**features, soft.weight: soft.weights(features) * labelled(features)}

    def hard_total(outputs: Tensors, features: Tensors):
        found = hard.total(outputs, features if all_labelled else of_labelled(features))
        loss, hits = found if hard.accuracy else (found, None)
        return (
            (hard_labels * loss, hits) if all_labelled and hits is not None else hard_labels * loss
        )

    def hard_weight(features: Tensors):
        if all_labelled:
            return hard.weight(features)
        others = soft.weights(features) * (1.0 - labelled(features))
        return hard.weight(of_labelled(features)) + tf.reduce_sum(others)

    def soft_total(outputs: Tensors, features: Tensors):
        fractions = 1.0 - hard_labels * (1.0 if all_labelled else labelled(features))
        losses = soft.losses(outputs, features, temperature)
        return tf.reduce_sum(soft.weights(features) * fractions * losses)

    # Among unlabelled examples the accuracy would be of no meaning.
    accuracy = hard.accuracy if all_labelled else None
    return (
        replace(hard, name="hard_loss", total=hard_total, weight=hard_weight, accuracy=accuracy),
        Loss(
            "soft_loss",
            soft_total,
            lambda features: tf.reduce_sum(soft.weights(features)),
            epsilon=hard.epsilon,
        ),
    )


def similarity_divergence(teacher, student, is_text, scale: float, temperature: float):
    """Return the mean divergence of the similarities of each text to the others of the batch.

    Similarities are softmax(scale * cosine / T).

    Args:
        teacher, student: vectors [..., E]; E may differ.
        is_text: bool [...]; other vectors are left out.
        scale: of the cosines of both.
    """
    is_text = tf.reshape(is_text, [-1])
    left_out = tf.eye(tf.size(is_text), dtype=tf.bool) | ~is_text

    def similarities(vectors):
        unit = tf.math.l2_normalize(tf.cast(vectors, tf.float32), axis=-1)
        unit = tf.reshape(unit, [-1, vectors.shape[-1]])
        return tf.where(left_out, -1e9, scale * tf.matmul(unit, unit, transpose_b=True))

    losses = divergence(similarities(teacher), similarities(student), temperature)
    real = tf.cast(is_text, tf.float32)
    return tf.reduce_sum(real * losses) / tf.reduce_sum(real)


def states_loss(kind: str, weight: float, relation_heads: int = 1) -> Loss:
    """Return the distance of the teacher's and the student's states, averaged over the real tokens.

    Args:
        kind: "hidden" for the squared error of hidden states, averaged over H. "relations" for the
            divergence of the relations of queries, of keys and of values, summed over the three.
        weight: factor of the loss.
        relation_heads: R.
    """

    def total(outputs: Tensors, features: Tensors):
        mask = token_mask(features)
        student, teacher = (
            tf.cast(outputs[name], tf.float32) for name in (STUDENT_STATES, TEACHER_STATES)
        )
        if kind == "hidden":
            losses = tf.reduce_mean((student - teacher) ** 2, axis=-1)
        else:
            losses = relation_losses(teacher, student, mask, relation_heads)
        return weight * tf.reduce_sum(mask * losses)

    return Loss("states_loss", total, lambda features: tf.reduce_sum(token_mask(features)))


def relation_losses(teacher, student, mask, num_heads: int):
    """Return the divergence of the relations of each token, float32 [B, S].

    A relation is softmax(X X^T / sqrt(size)) of one head of X, the queries, keys or values.

    Args:
        teacher, student: queries, keys and values, float32 [B, S, 3, H]. H may differ.
        mask: 1 = real token, 0 = padding, float32 [B, S].
        num_heads: R; must divide both H.
    """
    bias = (1.0 - mask[:, None, None, None, :]) * -1e9

    def scores(states):
        batch, length, _, size = tf.unstack(tf.shape(states))
        parts = tf.reshape(states, [batch, length, 3, num_heads, size // num_heads])
        parts = tf.transpose(parts, [0, 2, 3, 1, 4])  # [B, 3, R, S, H / R]
        return (
            tf.matmul(parts, parts, transpose_b=True) / math.sqrt(states.shape[-1] / num_heads)
            + bias
        )

    losses = divergence(scores(teacher), scores(student))  # [B, 3, R, S]
    return tf.reduce_sum(tf.reduce_mean(losses, axis=2), axis=1)


def token_mask(features: Tensors) -> tf.Tensor:
    """Return `input_mask` as float32 [B, S]; the choices of multiple choice are separate rows."""
    mask = features["input_mask"]
    return tf.cast(tf.reshape(mask, [-1, tf.shape(mask)[-1]]), tf.float32)
