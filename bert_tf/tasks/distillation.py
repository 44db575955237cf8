"""Distillation: a student learns its labels, and the outputs of a teacher in its records.

    hard_loss = 1/2 * loss of the labels
    soft_loss = 1/2 * T^2 * KL(softmax(teacher / T) || softmax(student / T))

T is the temperature. Its square keeps the gradients of both terms in proportion. For embeddings the
softmax is over the similarities of a text to the others of the batch, and both terms are one loss.

Shapes: B batch, S sequence, L labels, W words, K choices, E embedding size.

Sources: Hinton et al. 2015, arXiv 1503.02531; Fang et al. 2021, arXiv 2101.04731 (similarities).
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import tensorflow as tf

from bert_tf.data.features import FeatureSpec
from bert_tf.tasks.base import ExampleTask, Tensors
from bert_tf.training.losses import Loss

HARD_FRACTION = 0.5


def student_task(task: ExampleTask, temperature: float, embedding_dim: int = 0) -> ExampleTask:
    """Return a task whose records have a teacher's outputs and whose losses learn them.

    Args:
        embedding_dim: E of the teacher, for embeddings.
    """
    student = copy.copy(task)
    teacher = [
        FeatureSpec(f"teacher_{name}", shape, "float32", role="id")
        for name, shape in task.learned_shapes(embedding_dim).items()
    ]
    student.features = (*task.features, *teacher)
    student.losses = distillation_losses(task, temperature)
    return student


def distillation_losses(task: ExampleTask, temperature: float) -> tuple[Loss, ...]:
    """Return the terms "hard_loss" and "soft_loss"; for embeddings their sum, "loss"."""
    (hard,) = task.losses
    if task.soft_loss == "similarities":

        def joined(outputs: Tensors, features: Tensors):
            soft = _embedding_loss(task, outputs, features, temperature) * hard.weight(features)
            return HARD_FRACTION * hard.total(outputs, features) + (1.0 - HARD_FRACTION) * soft

        return (replace(hard, total=joined),)

    def hard_total(outputs: Tensors, features: Tensors):
        total = hard.total(outputs, features)
        if hard.accuracy is None:
            return HARD_FRACTION * total
        return HARD_FRACTION * total[0], total[1]

    def weights(features: Tensors):
        for name in ("label_weights", "is_real_example"):
            if name in features:
                return tf.cast(features[name], tf.float32)
        return tf.ones(tf.shape(features["input_mask"])[:1])  # of examples, also in packed rows

    def soft_total(outputs: Tensors, features: Tensors):
        terms = [
            _SOFT_LOSSES[task.soft_loss](features[f"teacher_{name}"], logits, temperature)
            for name, logits in task.learned_outputs(outputs, features).items()
        ]
        losses = tf.add_n(terms) / len(terms)
        return (1.0 - HARD_FRACTION) * tf.reduce_sum(weights(features) * losses)

    def num_predictions(features: Tensors):
        return tf.reduce_sum(weights(features))

    return (
        replace(hard, name="hard_loss", total=hard_total),
        Loss("soft_loss", soft_total, num_predictions, epsilon=hard.epsilon),
    )


def _embedding_loss(task: Any, outputs: Tensors, features: Tensors, temperature: float):
    """Return the mean over the texts, of the whole vectors and of their `matryoshka_dims`."""
    teacher, student = features["teacher_embedding"], outputs["embedding"]
    is_text = features.get("text_numbers", tf.ones(tf.shape(student)[:-1], tf.int32)) > 0
    dims = dict.fromkeys((student.shape[-1], *task.matryoshka_dims))
    return tf.add_n(
        [
            similarity_divergence(teacher, student[..., :dim], is_text, task.scale, temperature)
            for dim in dims
        ]
    )


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


# `ExampleTask.soft_loss` -> function of teacher, student and temperature, which numbers [B, 1] lack.
_SOFT_LOSSES = {
    "softmax": divergence,
    "sigmoid": soft_binary_cross_entropy,
    "number": lambda teacher, student, _: (tf.cast(student, tf.float32) - teacher)[:, 0] ** 2,
}


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
