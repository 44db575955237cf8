"""Distillation of each type of task: the teacher's outputs in the records, and the student's task.

Shapes: B batch, S sequence, L labels, W words, K choices, N records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.features import FeatureSpec
from bert_tf.modeling import fused
from bert_tf.modeling.bert import encoder_outputs
from bert_tf.modeling.crf import log_marginals
from bert_tf.tasks.base import ExampleTask, Task, Tensors
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.embeddings import EmbeddingTask
from bert_tf.tasks.multiple_choice import MultipleChoiceTask
from bert_tf.tasks.question_answering import QuestionAnsweringTask
from bert_tf.tasks.reranking import RerankingTask
from bert_tf.tasks.token_classification import TokenClassificationTask
from bert_tf.training.distillation import (
    STUDENT_STATES,
    TEACHER_STATES,
    SoftTargets,
    divergence,
    similarity_divergence,
    soft_binary_cross_entropy,
)
from bert_tf.training.losses import (
    Loss,
    chains_of_words,
    masked_choices,
    without_padding,
    word_logits,
)

TEACHER_LOGITS, TEACHER_EMBEDDING = "teacher_logits", "teacher_embedding"
MASKED_WORDS = "masked_lm_logits"


def soft_targets(task: ExampleTask, teacher_width: int = 0) -> SoftTargets:
    """Return the teacher's outputs that a student of this task learns.

    Args:
        teacher_width: E, the size of the teacher's vectors, for embeddings.
    """
    if isinstance(task, EmbeddingTask):
        return _of_embeddings(task, teacher_width)
    return _of_reranking(task) if isinstance(task, RerankingTask) else _TARGETS[task.name](task)


def _of_embeddings(task: EmbeddingTask, teacher_width: int) -> SoftTargets:
    def losses(outputs: Tensors, features: Tensors, temperature: float):
        teacher, student = features[TEACHER_EMBEDDING], outputs["embedding"]
        is_text = features.get("text_numbers", tf.ones(tf.shape(student)[:-1], tf.int32)) > 0
        widths = dict.fromkeys((student.shape[-1], *task.matryoshka_dims))
        terms = [
            similarity_divergence(teacher, student[..., :width], is_text, task.scale, temperature)
            for width in widths
        ]
        return tf.add_n(terms)

    shape = (teacher_width,) if task.num_texts == 1 else (task.num_texts, teacher_width)
    return SoftTargets(
        (FeatureSpec(TEACHER_EMBEDDING, shape, "float32", role="id"),),
        "",
        lambda outputs, features: {TEACHER_EMBEDDING: outputs["embedding"]},
        losses,
    )


def _of_reranking(task: RerankingTask) -> SoftTargets:
    def losses(outputs: Tensors, features: Tensors, temperature: float):
        teacher, student = features[TEACHER_LOGITS], tf.cast(outputs["logits"], tf.float32)
        if task.num_documents == 1:
            return soft_binary_cross_entropy(teacher, student, temperature)
        student = masked_choices(student, features["choice_mask"])
        return divergence(teacher, student, temperature)

    return _logits((task.num_documents,), "is_real_example", task.eval_outputs, losses)


def _of_classification(task: ClassificationTask) -> SoftTargets:
    def losses(outputs: Tensors, features: Tensors, temperature: float):
        teacher, student = features[TEACHER_LOGITS], tf.cast(outputs["logits"], tf.float32)
        if task.kind.name == "regression":  # a number has no temperature
            return (student - teacher)[:, 0] ** 2
        compare = soft_binary_cross_entropy if task.kind.name == "multi_label" else divergence
        return compare(teacher, student, temperature)

    return _logits((task.num_outputs,), "is_real_example", task.eval_outputs, losses)


def _of_multiple_choice(task: MultipleChoiceTask) -> SoftTargets:
    def losses(outputs: Tensors, features: Tensors, temperature: float):
        student = masked_choices(outputs["logits"], features["choice_mask"])
        return divergence(features[TEACHER_LOGITS], student, temperature)

    return _logits((task.num_choices,), "is_real_example", task.eval_outputs, losses)


def _of_token_classification(task: TokenClassificationTask) -> SoftTargets:
    def of_words(outputs: Tensors, features: Tensors) -> Tensors:
        """Return logits, or with a CRF the logarithms of each word's own probabilities."""
        if task.crf is None:
            return {"logits": word_logits(outputs["logits"], features["word_positions"])}
        return {"logits": log_marginals(chains_of_words(outputs, features))}

    def losses(outputs: Tensors, features: Tensors, temperature: float):
        student = of_words(outputs, features)["logits"]
        return divergence(features[TEACHER_LOGITS], student, temperature)

    (words,) = (spec.shape[0] for spec in task.features if spec.name == "label_ids")
    return _logits((words, len(task.labels)), "label_weights", of_words, losses)


def _logits(shape, weight: str, outputs_of: Callable, losses: Callable) -> SoftTargets:
    """Return the targets of a task with one tensor of logits."""
    return SoftTargets(
        (FeatureSpec(TEACHER_LOGITS, shape, "float32", role="id"),),
        weight,
        lambda outputs, features: {TEACHER_LOGITS: outputs_of(outputs, features)["logits"]},
        losses,
    )


def _of_question_answering(task: QuestionAnsweringTask) -> SoftTargets:
    names = ("start_logits", "end_logits")

    def of_teacher(outputs: Tensors, features: Tensors) -> Tensors:
        kept = task.eval_outputs(outputs, features)
        return {f"teacher_{name}": kept[name] for name in names}

    def losses(outputs: Tensors, features: Tensors, temperature: float):
        mask = features["input_mask"]
        start, end = (
            divergence(
                features[f"teacher_{name}"][:, : tf.shape(mask)[1]],
                without_padding(outputs[name], mask),
                temperature,
            )
            for name in names
        )
        return (start + end) / 2.0

    specs = [
        FeatureSpec(f"teacher_{name}", (task.max_seq_length,), "float32", role="id")
        for name in names
    ]
    return SoftTargets(specs, "is_real_example", of_teacher, losses)


def masked_words() -> SoftTargets:
    """Return the teacher's distributions of masked words, which `TeacherInStep` computes."""

    def losses(outputs: Tensors, features: Tensors, temperature: float):
        student = outputs[MASKED_WORDS]
        if isinstance(student, fused.Logits):
            student = tf.cast(student.product, tf.float32) + student.bias
        return divergence(outputs[f"teacher_{MASKED_WORDS}"], student, temperature)

    return SoftTargets((), "masked_lm_weights", lambda outputs, features: {}, losses)


_TARGETS: Mapping[str, Callable[[Any], SoftTargets]] = {
    "classification": _of_classification,
    "multiple_choice": _of_multiple_choice,
    "token_classification": _of_token_classification,
    "question_answering": _of_question_answering,
}


def aligned(
    task: ExampleTask,
    of_teacher: Mapping[str, np.ndarray],
    of_student: Mapping[str, np.ndarray],
) -> np.ndarray:
    """Return the teacher's outputs for records of its own for the student's records, [N, ...].

    An example of a classifier may have several windows. Each window of the student gets the pooled
    logits of the teacher's windows. A word gets the logits of the same word.

    Args:
        of_teacher: the teacher's outputs and the features of its records.
        of_student: features of the student's records.
    """
    if isinstance(task, EmbeddingTask):
        return of_teacher[TEACHER_EMBEDDING]
    logits = of_teacher[TEACHER_LOGITS]
    if isinstance(task, TokenClassificationTask):
        weights = of_student["label_weights"]
        found = np.zeros((*weights.shape, logits.shape[-1]), np.float32)
        found[weights > 0] = logits[of_teacher["label_weights"] > 0]  # each word once, in order
        return found
    if isinstance(task, ClassificationTask) and task.doc_stride:
        numbers = of_teacher["example_numbers"]
        kept = {"logits": logits, "label_ids": numbers, "example_numbers": numbers}
        return task.per_example(kept)["logits"][of_student["example_numbers"]]
    return logits


class TeacherInStep:
    """A teacher that runs in every training step, for outputs that are too large to store.

    They are logits over a vocabulary; hidden states, or queries, keys and values, of one of its layers
    and the last layer of the student.

    Args:
        teacher: the model.
        states: "none", "hidden" or "relations".
        layer: of the teacher, from 0.
        logits: name of an output; the student gets it as `teacher_<name>`. Empty for none.
    """

    def __init__(self, teacher: keras.Model, states: str, layer: int = 0, logits: str = ""):
        self._teacher, self._learned, self._layer, self._logits = teacher, states, layer, logits

    def outputs(self, student: keras.Model, inputs: Tensors) -> Tensors:
        """Return the outputs of the student in training, and those of the teacher to learn."""
        with encoder_outputs() as of_student:
            outputs = dict(student(inputs, training=True))
        if "masked_lm_positions" not in self._teacher.exported_inputs:
            inputs = {n: value for n, value in inputs.items() if n != "masked_lm_positions"}
        with encoder_outputs() as of_teacher:
            found = self._teacher(inputs, training=False)
        if self._logits:
            outputs[f"teacher_{self._logits}"] = tf.stop_gradient(found[self._logits])
        if self._learned != "none":
            last = len(student.bert.encoder_layers) - 1
            states = self._states(student.bert, of_student[0], last)
            if self._learned == "hidden" and hasattr(student, PROJECTION):
                states = getattr(student, PROJECTION)(states)
            encoder = getattr(self._teacher, "bert", self._teacher)
            wanted = self._states(encoder, of_teacher[0], self._layer)
            outputs |= {STUDENT_STATES: states, TEACHER_STATES: tf.stop_gradient(wanted)}
        return outputs

    def _states(self, bert, outputs: Mapping[str, Any], layer: int):
        if self._learned == "hidden":
            return outputs["all_encoder_layers"][layer]
        before = [outputs["embedding_output"], *outputs["all_encoder_layers"]][layer]
        return bert.encoder_layers[layer].self_attention.query_key_value(before)

    def prepare(self, student: keras.Model) -> None:
        """Add a linear layer to a student whose hidden states are smaller than the teacher's."""
        size, wanted = (model.config.hidden_size for model in (student, self._teacher))
        if self._learned == "hidden" and size != wanted:
            layer = keras.layers.Dense(wanted, name=PROJECTION, dtype=student.dtype_policy)
            layer.build((None, size))
            setattr(student, PROJECTION, layer)


# Attribute of a student and name of its linear layer, which only the training uses.
PROJECTION = "distillation"


class DistilledTask(Task):
    """A task whose training records contain a teacher's outputs.

    Args:
        task: of the student.
        features: additional features of the records.
        losses: instead of those of `task`.
        in_step: teacher that runs in every step, or None.
    """

    def __init__(
        self,
        task: Task,
        features: Sequence[FeatureSpec],
        losses: Sequence[Loss],
        in_step: TeacherInStep | None = None,
    ):
        self._task, self._in_step = task, in_step
        self._added = tuple(features)
        self.name, self.best_metric = task.name, task.best_metric
        self.max_seq_length = task.max_seq_length
        self.predictions_per_token = task.predictions_per_token
        self.features = (*task.features, *self._added)
        self.losses = tuple(losses)

    @property
    def record_features(self) -> Sequence[FeatureSpec]:
        return (*self._task.record_features, *self._added)

    @property
    def uses_pooler(self) -> bool:
        return self._task.uses_pooler

    def id_limits(self, config: BertConfig) -> dict[str, int]:
        return self._task.id_limits(config)

    def complete(
        self, dataset: tf.data.Dataset, seed: int, first_batch: int = 0
    ) -> tf.data.Dataset:
        return self._task.complete(dataset, seed, first_batch)

    def arguments(self) -> dict[str, Any]:
        return self._task.arguments()

    def build_model(self, config: BertConfig, dtype: str | None = None) -> keras.Model:
        model = self._task.build_model(config, dtype=dtype)
        if self._in_step is not None:
            self._in_step.prepare(model)
        return model

    def training_outputs(self, model: keras.Model, inputs: Tensors) -> Tensors:
        if self._in_step is None:
            return super().training_outputs(model, inputs)
        return self._in_step.outputs(model, inputs)

    def eval_outputs(self, outputs: Tensors, features: Tensors) -> Tensors:
        return self._task.eval_outputs(outputs, features)

    def decode(self, kept: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return self._task.decode(kept)

    def metrics(self, kept: Mapping[str, np.ndarray]) -> dict[str, float]:
        return self._task.metrics(kept)


class TeacherTask(DistilledTask):
    """A task as the teacher evaluates it: the outputs are `targets` and the features of the records.

    Args:
        task: makes the records.
        teacher_width: see `soft_targets`.
    """

    def __init__(self, task: ExampleTask, teacher_width: int = 0):
        super().__init__(task, (), ())
        self.targets = soft_targets(task, teacher_width)

    def eval_outputs(self, outputs: Tensors, features: Tensors) -> Tensors:
        beside = [spec.name for spec in self.features if spec.role != "input"]
        kept = {name: features[name] for name in beside}
        return {**kept, **self.targets.of_teacher(outputs, features)}

    def decode(self, kept: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return kept
