"""Distillation: a student learns its labels, and the outputs of a teacher in its records.

    hard_loss = 1/2 * loss of the labels
    soft_loss = 1/2 * T^2 * KL(softmax(teacher / T) || softmax(student / T))

T is the temperature. Its square keeps the gradients of both terms in proportion. For embeddings the
softmax is over the similarities of a text to the others of the batch, and both terms are one loss.
The teacher's outputs are computed once, before the training.

Shapes: B batch, S sequence, L labels, W words, K choices, E embedding size.

Sources: Hinton et al. 2015, arXiv 1503.02531; Fang et al. 2021, arXiv 2101.04731 (similarities).
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.checkpoint import find_config
from bert_tf.checkpoints.heads import align_labels, task_values
from bert_tf.checkpoints.read import read_checkpoint
from bert_tf.data.features import FeatureSpec
from bert_tf.data.parallel import encode_columns
from bert_tf.data.records import RecordWriter, make_once
from bert_tf.options import OptionError
from bert_tf.tasks.base import ExampleTask, Tensors
from bert_tf.tasks.batches import RecordFiles, collect
from bert_tf.tasks.load import load_weights, make_task
from bert_tf.tasks.setup import FineTuningOptions
from bert_tf.tokenization import FullTokenizer, load_tokenizer
from bert_tf.training.loop import TrainLoop
from bert_tf.training.losses import Loss
from bert_tf.training.strategy import is_multi_worker

logger = logging.getLogger(__name__)

HARD_FRACTION = 0.5

_CHUNK = 1000  # records that are encoded at once


@dataclass(frozen=True)
class Teacher:
    """A trained model that reads the records of the student."""

    source: str
    model: keras.Model  # its outputs have the order of the student's labels
    task: ExampleTask  # of the records
    student: ExampleTask  # of the student's training
    strategy: tf.distribute.Strategy

    def write_records(
        self, records: str, examples: Sequence[Any], tokenizer: FullTokenizer, batch_size: int
    ) -> str:
        """Return the path of the records with the teacher's outputs; write them once."""
        model, task, specs = self.model, self.task, self.student.record_features
        about = [task.records_key(examples, tokenizer), model.dtype_policy.name]
        about += [[spec.name for spec in specs], model.config.to_dict()]
        digest = hashlib.sha256(json.dumps(about).encode())
        for variable in model.weights:
            digest.update(np.asarray(variable).tobytes())

        def write(path: str) -> int:
            logger.info("***** Running the teacher, %s *****", self.source)
            # Each of several workers computes all outputs, for its own file.
            alone = is_multi_worker(self.strategy)
            strategy = tf.distribute.get_strategy() if alone else self.strategy
            loop = TrainLoop(model, (), strategy=strategy, input_names=task.input_names)
            source = RecordFiles([records], "bucketed")
            outputs = collect(loop, task, source, task.learned_outputs, batch_size, label="teacher")
            columns = {f"teacher_{name}": values for name, values in outputs.items()}
            return add_columns(records, columns, specs, path)

        path = os.path.join(os.path.dirname(records), "train_taught.tf_record")
        make_once(path, digest.hexdigest(), write)
        return path


# What a teacher and its student must have in common.
_SHARED = ("task", "problem_type", "crf", "feature_layers", "query_prefix", "document_prefix")


def load_teacher(
    options: FineTuningOptions,
    task: ExampleTask,
    tokenizer: FullTokenizer,
    strategy: tf.distribute.Strategy,
    policy: str,
    other_names: Sequence[str] = (),
) -> Teacher:
    """Load the teacher of the model for a task; `other_names` are second names of its labels."""
    source = str(options.teacher)
    checkpoint = read_checkpoint(source)
    config = find_config(None, checkpoint)
    config.check_sequence_length(task.max_seq_length)
    own, values = task.values(), task_values(checkpoint, task.max_seq_length)[0] or {}
    is_embedder = task.name == "embeddings"  # whose pooling may differ
    if is_embedder and values.get("task") in (None, "pretraining"):
        # the means of an encoder's tokens
        values = {"task": task.name, "max_seq_length": task.max_seq_length}
    differing = [name for name in _SHARED if (values.get(name) or None) != (own.get(name) or None)]
    of_teacher = load_tokenizer(None, None, checkpoint, config)
    if of_teacher.vocab != tokenizer.vocab:
        differing.append("vocabulary")
    if of_teacher.do_lower_case != tokenizer.do_lower_case:
        differing.append("do_lower_case")
    if differing:
        text = f"{source} has another {', '.join(differing)} than the model. Use one with the same."
        raise OptionError("teacher", text)
    labels = tuple(map(str, values.get("labels", ()))), getattr(task, "labels", ())
    checkpoint = align_labels(checkpoint, *labels, other_names)
    taught: Any = make_task(values, source) if is_embedder else task
    with strategy.scope():
        model = taught.build_model(config, dtype=policy)
    load_weights(model, checkpoint, taught)
    embedding_dim = taught.width(config) if is_embedder else 0
    student = student_task(task, options.temperature, embedding_dim)
    return Teacher(source, model, task, student, strategy)


def add_columns(
    source: str, columns: Mapping[str, np.ndarray], specs: Sequence[FeatureSpec], path: str
) -> int:
    """Write the records of a file with the additional features `columns`, and return their number.

    Two serialized messages, one after the other, are the message with the fields of both.
    """
    with RecordWriter(path, specs) as writer:
        records = tf.data.TFRecordDataset(source).batch(_CHUNK).as_numpy_iterator()
        for batch in records:
            rows = slice(writer.count, writer.count + len(batch))
            added = encode_columns({name: values[rows] for name, values in columns.items()})
            for record, more in zip(batch, added, strict=True):
                writer.write_serialized(record + more)
    return writer.count


# ---- the losses of a student


def student_task(task: Any, temperature: float, embedding_dim: int = 0) -> ExampleTask:
    """Return a task whose losses learn a teacher's outputs; embeddings of it have `embedding_dim`."""
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
    """Return T^2 KL(softmax(teacher / T) || softmax(student / T)) of logits [..., L]."""
    teacher, student = (
        tf.nn.log_softmax(tf.cast(logits, tf.float32) / temperature)
        for logits in (teacher, student)
    )
    return temperature**2 * tf.reduce_sum(tf.exp(teacher) * (teacher - student), axis=-1)


def soft_binary_cross_entropy(teacher, student, temperature: float = 1.0):
    """Return T^2 times the binary cross-entropy to sigmoid(teacher / T), averaged over the labels."""
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

    Similarities are softmax(scale * cosine / T) of the vectors [..., E] where `is_text`.
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
