"""Predictions of entities and of choices on raw text: load once, then ask as often as wanted.

    recognizer = EntityRecognizer("ner_output")
    recognizer.predict(["John Smith lives in New York."])

    chooser = ChoicePredictor("swag_output")
    chooser.predict([("He opens the door.", ["He goes in.", "He is a door."])])

Both answer in plain Python values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.data.conll import Sentence
from bert_tf.data.features import trim_padding
from bert_tf.data.multiple_choice import Question
from bert_tf.data.word_offsets import split_words
from bert_tf.model_folder import TrainedModel, load_model_folder
from bert_tf.tasks.base import Task
from bert_tf.tasks.multiple_choice import MultipleChoiceTask
from bert_tf.tasks.token_classification import TokenClassificationTask, by_sentence
from bert_tf.training.conlleval import entities
from bert_tf.training.metrics import softmax

_BATCH_SIZE = 32  # windows or questions that the model sees at once


class BatchRunner:
    """Runs a model on records, a batch at a time."""

    def __init__(self, model: keras.Model):
        self._call = tf.function(
            lambda inputs: model(inputs, training=False), reduce_retracing=True
        )

    def __call__(self, task: Task, records: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
        """What `task.eval_outputs` keeps of all records; records hold the features of `task`."""
        parts: list[dict[str, np.ndarray]] = []
        for first in range(0, len(records), _BATCH_SIZE):
            batch = records[first : first + _BATCH_SIZE]
            features = {
                spec.name: tf.constant([record[spec.name] for record in batch], spec.dtype)
                for spec in task.features
            }
            features = trim_padding(features, task.features)
            outputs = self._call({name: features[name] for name in task.input_names})
            kept = task.eval_outputs(outputs, features)
            parts.append({name: value.numpy() for name, value in kept.items()})
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class EntityRecognizer:
    """A model that run_ner trained.

    Args:
        folder: the --output_dir of run_ner.

    Raises:
        ValueError: the folder holds no such model.
    """

    def __init__(self, folder: str):
        self._trained = _load(folder, TokenClassificationTask, "run_ner")
        self._run = BatchRunner(self._trained.model)

    def predict(self, texts: Sequence[str]) -> list[list[dict[str, Any]]]:
        """The entities of each text, in order.

        Texts may be of any length: a long one is seen through several windows.

        Returns:
            For each text {"type", "start", "end" (characters; the end is behind the last one), "text",
            "probability" (of the least certain of its words)}.
        """
        task = self._trained.task
        spans = [split_words(text) for text in texts]
        sentences = [
            Sentence(tuple(text[start:end] for start, end in words), None, index, "", 0)
            for index, (text, words) in enumerate(zip(texts, spans, strict=True))
            if words
        ]
        answers: list[list[dict[str, Any]]] = [[] for _ in texts]
        if not sentences:
            return answers
        kept = self._run(task, list(task.records(sentences, self._trained.tokenizer)))
        labels = task.sentence_labels(kept, "predictions")
        probabilities = by_sentence(kept, "probabilities")
        for sentence, row, certain in zip(sentences, labels, probabilities, strict=True):
            index = sentence.document
            for kind, first, last in entities(row):
                start, end = spans[index][first].start, spans[index][last - 1].end
                answers[index].append(
                    {
                        "type": kind,
                        "start": start,
                        "end": end,
                        "text": texts[index][start:end],
                        "probability": float(certain[first:last].min()),
                    }
                )
        return answers


class ChoicePredictor:
    """A model that run_swag trained.

    Args:
        folder: the --output_dir of run_swag.

    Raises:
        ValueError: the folder holds no such model.
    """

    def __init__(self, folder: str):
        self._trained = _load(folder, MultipleChoiceTask, "run_swag")
        self._run = BatchRunner(self._trained.model)

    def predict(self, questions: Sequence[tuple[str, Sequence[str]]]) -> list[dict[str, Any]]:
        """The best choice of each question.

        Args:
            questions: (text, choices), two or more choices each, not necessarily as many.

        Returns:
            For each {"prediction": index of the choice, "choice": its text, "probabilities": [...]}.

        Raises:
            ValueError: a question has fewer than two choices.
        """
        if not questions:
            return []
        for text, choices in questions:
            if len(choices) < 2:
                raise ValueError(
                    f"There are {len(choices)} choices for {text[:60]!r}, but must be 2 or more."
                )
        most = max(len(choices) for _, choices in questions)
        task = MultipleChoiceTask(most, self._trained.max_seq_length)
        records = [
            task.record(Question("", text, tuple(choices), None, ""), self._trained.tokenizer)
            for text, choices in questions
        ]
        kept = self._run(task, records)
        answers = []
        for (_, choices), row in zip(questions, softmax(kept["logits"]), strict=True):
            probabilities = [float(p) for p in row[: len(choices)]]
            best = int(np.argmax(probabilities))
            answers.append(
                {"prediction": best, "choice": choices[best], "probabilities": probabilities}
            )
        return answers


def _load(folder: str, kind: type[Task], program: str) -> TrainedModel:
    trained = load_model_folder(folder)
    if not isinstance(trained.task, kind):
        raise ValueError(
            f"{folder} holds a model for {trained.task.name}. Name the --output_dir of {program}."
        )
    return trained
