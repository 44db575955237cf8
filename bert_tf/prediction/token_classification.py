"""Entities in raw text or in sentences of given words: load once, then predict repeatedly.

    recognizer = EntityRecognizer("ner_output")
    recognizer.predict(["John Smith lives in New York."])
    recognizer.predict([["John", "Smith", "lives", "in", "New", "York", "."]])

Answers are plain Python values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from bert_tf.data.token_classification import Sentence
from bert_tf.data.word_splitting import WordSpan, split_words
from bert_tf.metrics.conlleval import entities
from bert_tf.model_folder import TrainedModel, loaded
from bert_tf.prediction.text_model import (
    RecordRunner,
    TextModel,
    checked_text,
)
from bert_tf.tasks.token_classification import TokenClassificationTask, by_sentence


class EntityRecognizer(TextModel):
    """A model trained by run_ner.

    Args:
        model: the --output_dir of run_ner, or the loaded folder.
        batch_size: windows per batch.

    Raises:
        ValueError: the folder has no such model.
    """

    def __init__(self, model: str | TrainedModel, batch_size: int = 32):
        self._trained = loaded(model, "token_classification")
        self.word_labels = cast(TokenClassificationTask, self._trained.task).word_labels
        self._run = RecordRunner(self._trained.model, batch_size)

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("words",) if self.word_labels else ("entities",)

    def prepare(self, item: str | list[str]) -> tuple[str | list[str], list[WordSpan]]:
        if not isinstance(item, str):
            return item, [WordSpan(index, index + 1) for index in range(len(item))]
        task = cast(TokenClassificationTask, self._trained.task)
        return item, split_words(checked_text(item), task.word_splitting, task.whole_words)

    def answer(
        self, prepared: Sequence[tuple[str | list[str], list[WordSpan]]]
    ) -> list[dict[str, Any]]:
        """Return {"entities": list as in `predict`} or {"words": ...} for each input."""
        task = cast(TokenClassificationTask, self._trained.task)
        sentences = [
            Sentence(tuple(_part(item, *span) for span in spans), None, index, "", ())
            for index, (item, spans) in enumerate(prepared)
            if spans
        ]
        (column,) = self.columns
        answers: list[dict[str, Any]] = [{column: []} for _ in prepared]
        if not sentences:
            return answers
        kept = self._run(task, list(task.records(sentences, self._trained.tokenizer)))
        labels = task.entity_labels(kept, "predictions")
        probabilities = by_sentence(kept, "probabilities")
        for sentence, row, certain in zip(sentences, labels, probabilities, strict=True):
            item, spans = prepared[sentence.document]
            for kind, first, last in entities(row):
                start, end = spans[first].start, spans[last - 1].end
                answers[sentence.document][column].append(
                    {
                        "label" if self.word_labels else "type": kind,
                        "start": start,
                        "end": end,
                        "text": _part(item, start, end),
                        "probability": float(certain[first:last].min()),
                    }
                )
        return answers

    def predict(self, items: Sequence[str | Sequence[str]]) -> list[list[dict[str, Any]]]:
        """Return the entities of each input, in order; or every word, if labels are of words.

        Long texts are read in several windows.

        Args:
            items: texts, or lists of words. Texts are split as the words of the training data were.

        Returns:
            A list for each input: {"type", "start", "end" (characters of a text, or words of a list;
            `end` is exclusive), "text", "probability" (of the least certain of its words)}; "label"
            instead of "type" for words.
        """
        (column,) = self.columns
        return [answer[column] for answer in self.answers(items)]

    def short(self, answer: Mapping[str, Any]) -> str:
        if self.word_labels:
            return " ".join(f"{found['text']}/{found['label']}" for found in answer["words"])
        return "; ".join(f"{found['text']} ({found['type']})" for found in answer["entities"])


def _part(item: str | list[str], start: int, end: int) -> str:
    return item[start:end] if isinstance(item, str) else " ".join(item[start:end])
