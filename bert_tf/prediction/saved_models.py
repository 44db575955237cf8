"""Predictions of SavedModels that export_saved_model wrote: the programs of TF Serving, in Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

# Registers the operation with which the exported models tokenize.
import tensorflow_text  # noqa: F401

from bert_tf.model_folder import read_task
from bert_tf.prediction.answers import QuestionModel
from bert_tf.prediction.classifier import LabelModel, TextPair
from bert_tf.prediction.text_model import batches_by_length


class SavedClassifier(LabelModel):
    """A classifier that `export_saved_model` wrote.

    Args:
        folder: of the SavedModel.

    Attributes:
        labels: in the order of the probabilities; none of a regression.
        problem_type: "single_label", "multi_label" or "regression".
        is_pair: whether the model was made for pairs of sentences.

    Raises:
        ValueError: the folder holds no SavedModel of a classifier.
    """

    def __init__(self, folder: str, batch_size: int = 32):
        self._batch_size = batch_size
        if not is_saved_model(folder):
            raise ValueError(
                f"{folder} holds no saved_model.pb. Name a folder that export_saved_model wrote."
            )
        path = os.path.join(folder, "assets.extra", "labels.txt")
        if not tf.io.gfile.exists(path):
            raise ValueError(
                f"{folder} has no assets.extra/labels.txt, so it is not a SavedModel that "
                "export_saved_model wrote."
            )
        with tf.io.gfile.GFile(path) as file:
            self.labels = file.read().splitlines()
        self._model = tf.saved_model.load(folder)  # kept, since it owns the weights
        self._serve = self._model.signatures["serving_default"]
        names = self._serve.structured_input_signature[1]
        self.is_pair = "text_b" in names
        if "text_a" not in names or "choices" in names:
            raise ValueError(
                f"{folder} takes {', '.join(names)}, so it is no classifier. For entities or choices of "
                "raw text name the --output_dir of run_ner or run_swag."
            )
        # An export of a version that knew one problem type has no task.json.
        task = read_task(os.path.dirname(path))
        self.problem_type = "single_label" if task is None else task.kind.name

    def prepare(self, item: str | TextPair) -> TextPair:
        return self.checked(item)

    def answer(self, prepared: Sequence[TextPair]) -> list[dict[str, Any]]:
        return _in_batches(prepared, self._batch_size, self._answer_batch)

    def _answer_batch(self, texts: Sequence[TextPair]) -> list[dict[str, Any]]:
        inputs = {"text_a": tf.constant([text_a for text_a, _ in texts], tf.string)}
        if self.is_pair:
            inputs["text_b"] = tf.constant([text_b for _, text_b in texts], tf.string)
        return [self._named(outputs) for outputs in _rows(self._serve(**inputs))]

    def _named(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        if self.problem_type == "regression":
            return self.named([outputs["score"]], None)
        if self.problem_type == "multi_label":
            return self.named(outputs["probabilities"], outputs["has_label"])
        label = outputs["label"].decode("utf-8")
        return self.named(outputs["probabilities"], self.labels.index(label))


class SavedAnswerer(QuestionModel):
    """A model that answers questions, which `export_saved_model` wrote.

    Raises:
        ValueError: the folder holds no such SavedModel.
    """

    def __init__(self, folder: str, batch_size: int = 32):
        self._batch_size = batch_size
        self._model = tf.saved_model.load(folder)  # kept, since it owns the weights
        self._serve = self._model.signatures["serving_default"]
        if "question" not in self._serve.structured_input_signature[1]:
            raise ValueError(f"{folder} is a SavedModel, but none that answers questions.")
        self.has_null_odds = "null_odds" in self._serve.structured_outputs
        self.certainty = "score"

    def prepare(self, item: tuple[str, str]) -> tuple[str, str]:
        return self.checked(item)

    def answer(self, prepared: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """As of `QuestionAnswerer`, with "score" (the sum of the logits) for "probability"."""
        return _in_batches(prepared, self._batch_size, self._answer_batch)

    def _answer_batch(self, questions: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        outputs = self._serve(
            question=tf.constant([question for question, _ in questions]),
            context=tf.constant([text for _, text in questions]),
        )
        names = ("answer", "start", "end", "score", "null_odds")
        answers = []
        for row in _rows(outputs):
            answer = {name: row[name] for name in names if name in row}
            answer["answer"] = answer["answer"].decode("utf-8")
            if answer["start"] < 0:
                answer["start"] = answer["end"] = None
            answers.append(answer)
        return answers


def load_saved_model(folder: str, batch_size: int = 32) -> SavedClassifier | SavedAnswerer:
    """Whichever of the two a SavedModel is."""
    labels = os.path.join(folder, "assets.extra", "labels.txt")
    if tf.io.gfile.exists(labels) or not is_saved_model(folder):
        return SavedClassifier(folder, batch_size)
    return SavedAnswerer(folder, batch_size)


def _in_batches(items: Sequence[Any], batch_size: int, answer: Callable) -> list[dict[str, Any]]:
    """The answers to all, in their order; texts of about the same length go together."""
    answers: list[dict[str, Any]] = [{}] * len(items)
    lengths = [sum(len(text or "") for text in item) for item in items]
    for rows in batches_by_length(lengths, batch_size):
        for row, found in zip(rows, answer([items[row] for row in rows]), strict=True):
            answers[row] = found
    return answers


def _rows(outputs: Mapping[str, tf.Tensor]) -> list[dict[str, Any]]:
    """The outputs of a batch, example by example, in plain Python values."""
    columns = {name: value.numpy().tolist() for name, value in outputs.items()}
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def is_saved_model(folder: str) -> bool:
    """Whether `folder` holds a SavedModel."""
    return tf.io.gfile.exists(os.path.join(folder, "saved_model.pb"))
