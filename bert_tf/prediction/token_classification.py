"""Predictions of entities and of choices on raw text: load once, then ask as often as wanted.

    recognizer = EntityRecognizer("ner_output")
    recognizer.predict(["John Smith lives in New York."])

    chooser = ChoicePredictor("swag_output")
    chooser.predict([("He opens the door.", ["He goes in.", "He is a door."])])

Both answer in plain Python values.

Shapes: B batch, K choices, S sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import keras
import numpy as np
import tensorflow as tf

from bert_tf.data.features import trim_padding
from bert_tf.data.packing import PackedSequence, pack_texts
from bert_tf.data.token_classification import Sentence
from bert_tf.data.word_windows import WordSpan, split_words
from bert_tf.metrics.basic import softmax
from bert_tf.metrics.conlleval import entities
from bert_tf.model_folder import TrainedModel, loaded
from bert_tf.prediction.text_model import (
    SequenceRunner,
    TextModel,
    batches_by_length,
    beginning,
    checked_parts,
    checked_text,
    trimmed,
)
from bert_tf.tasks.base import Task
from bert_tf.tasks.multiple_choice import MultipleChoiceTask
from bert_tf.tasks.token_classification import TokenClassificationTask, by_sentence


class BatchRunner:
    """Runs a model on records, a batch of about the same length at a time."""

    def __init__(self, model: keras.Model, batch_size: int):
        self._batch_size = batch_size
        self._call = tf.function(
            lambda inputs: model(inputs, training=False), reduce_retracing=True
        )

    def __call__(self, task: Task, records: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
        """What `task.eval_outputs` keeps of all records, in their order.

        Args:
            records: with the features of `task`; one or more.
        """
        parts: list[dict[str, np.ndarray]] = []
        batches = batches_by_length([sum(r["input_mask"]) for r in records], self._batch_size)
        for rows in batches:
            batch = [records[row] for row in rows]
            features = {
                spec.name: tf.constant([record[spec.name] for record in batch], spec.dtype)
                for spec in task.features
            }
            features = trim_padding(features, task.features)
            outputs = self._call({name: features[name] for name in task.input_names})
            kept = task.eval_outputs(outputs, features)
            parts.append({name: value.numpy() for name, value in kept.items()})
        place = np.argsort(np.concatenate(batches))
        return {name: np.concatenate([part[name] for part in parts])[place] for name in parts[0]}


class EntityModel(TextModel):
    """Shared by the models that label words.

    An answer is {"entities": [{"type", "start", ...}, ...]}. For labels of words it is
    {"words": [{"label", "start", ...}, ...]}.
    """

    word_labels = False

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("words",) if self.word_labels else ("entities",)

    def short(self, answer: Mapping[str, Any]) -> str:
        if self.word_labels:
            return " ".join(f"{found['text']}/{found['label']}" for found in answer["words"])
        return "; ".join(f"{found['text']} ({found['type']})" for found in answer["entities"])


class ChoiceModel(TextModel):
    """What every model that chooses shares: {"prediction", "choice", "probabilities"}."""

    fields = ("text_a", "choices")
    takes_tuples = True
    columns = ("prediction", "choice", "probabilities")

    def checked(self, item: tuple[str, Sequence[str]]) -> tuple[str, list[str]]:
        """(text, choices), if they are so.

        Raises:
            ValueError: they are not, or there are fewer than two choices.
        """
        text, choices = checked_parts(item, self.fields)
        checked_text(text)
        if not isinstance(choices, Sequence) or isinstance(choices, str):
            raise ValueError(
                f"The choices for {beginning(text)} must be a list of two or more texts, but are "
                f"{choices!r:.60}."
            )
        if len(choices) < 2:
            raise ValueError(
                f"There are {len(choices)} choices for {beginning(text)}, but must be 2 or more."
            )
        return text, [checked_text(choice) for choice in choices]

    def parse_line(self, line: str) -> tuple[str, list[str]]:
        """(text, choices), which tabs separate."""
        text, *choices = line.split("\t")
        return text, choices

    def short(self, answer: Mapping[str, Any]) -> str:
        return answer["choice"]


class EntityRecognizer(EntityModel):
    """A model that run_ner trained.

    Args:
        model: the --output_dir of run_ner, or what was loaded from there.
        batch_size: windows that go through the model at once.

    Raises:
        ValueError: there is no such model.
    """

    def __init__(self, model: str | TrainedModel, batch_size: int = 32):
        self._trained = loaded(model, TokenClassificationTask, "run_ner")
        self.word_labels = cast(TokenClassificationTask, self._trained.task).word_labels
        self._run = BatchRunner(self._trained.model, batch_size)

    def prepare(self, item: str) -> tuple[str, list[WordSpan]]:
        return item, split_words(checked_text(item))

    def answer(self, prepared: Sequence[tuple[str, list[WordSpan]]]) -> list[dict[str, Any]]:
        """{"entities": as of `predict`}, or {"words": ...}."""
        task = cast(TokenClassificationTask, self._trained.task)
        sentences = [
            Sentence(tuple(text[start:end] for start, end in words), None, index, "", 0)
            for index, (text, words) in enumerate(prepared)
            if words
        ]
        (column,) = self.columns
        answers: list[dict[str, Any]] = [{column: []} for _ in prepared]
        if not sentences:
            return answers
        kept = self._run(task, list(task.records(sentences, self._trained.tokenizer)))
        labels = task.entity_labels(kept, "predictions")
        probabilities = by_sentence(kept, "probabilities")
        for sentence, row, certain in zip(sentences, labels, probabilities, strict=True):
            text, spans = prepared[sentence.document]
            for kind, first, last in entities(row):
                start, end = spans[first].start, spans[last - 1].end
                answers[sentence.document][column].append(
                    {
                        "label" if self.word_labels else "type": kind,
                        "start": start,
                        "end": end,
                        "text": text[start:end],
                        "probability": float(certain[first:last].min()),
                    }
                )
        return answers

    def predict(self, items: Sequence[str]) -> list[list[dict[str, Any]]]:
        """The entities of each text, in order; every word with its label if labels are of words.

        Texts may be of any length: a long one is seen through several windows.

        Returns:
            For each text {"type", "start", "end" (characters; the end is behind the last one), "text",
            "probability" (of the least certain of its words)}; "label" instead of "type" for words.
        """
        (column,) = self.columns
        return [answer[column] for answer in self.answers(items)]


class ChoicePredictor(ChoiceModel):
    """A model that run_swag trained.

    Args:
        model: the --output_dir of run_swag, or what was loaded from there.
        batch_size: choices that go through the model at once.

    Raises:
        ValueError: there is no such model.
    """

    def __init__(self, model: str | TrainedModel, batch_size: int = 32):
        self._trained = loaded(model, MultipleChoiceTask, "run_swag")

        def scores(inputs):  # the score of a choice does not depend on the others
            alone = {name: value[:, None] for name, value in inputs.items()}  # [B, 1, S]
            return {"score": self._trained.model(alone, training=False)["logits"][:, 0]}

        self._run = SequenceRunner(scores, self._trained.max_seq_length, batch_size)

    def prepare(self, item: tuple[str, Sequence[str]]) -> tuple[list[str], list[PackedSequence]]:
        text, choices = self.checked(item)
        tokenizer, length = self._trained.tokenizer, self._trained.max_seq_length
        return choices, [trimmed(pack_texts(tokenizer, text, choice, length)) for choice in choices]

    def answer(
        self, prepared: Sequence[tuple[list[str], list[PackedSequence]]]
    ) -> list[dict[str, Any]]:
        """{"prediction": index of the best choice, "choice": its text, "probabilities": [...]}."""
        scores = iter(self._run([sequence for _, rows in prepared for sequence in rows]))
        answers = []
        for choices, _ in prepared:
            shares = softmax(np.array([next(scores)["score"] for _ in choices]))
            best = int(np.argmax(shares))
            answers.append(
                {"prediction": best, "choice": choices[best], "probabilities": shares.tolist()}
            )
        return answers

    def predict(self, questions: Sequence[tuple[str, Sequence[str]]]) -> list[dict[str, Any]]:
        """The best choice of each question.

        Args:
            questions: (text, choices), two or more choices each, not necessarily as many.

        Returns:
            For each {"prediction": index of the choice, "choice": its text, "probabilities": [...]}.

        Raises:
            ValueError: a question has fewer than two choices.
        """
        return self.answers(questions)
