"""Entities in raw text: load once, then predict repeatedly.

    recognizer = EntityRecognizer("ner_output")
    recognizer.predict(["John Smith lives in New York."])

Answers are plain Python values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from bert_tf.data.token_classification import Sentence
from bert_tf.data.word_windows import WordSpan, split_words
from bert_tf.metrics.conlleval import entities
from bert_tf.model_folder import TrainedModel, loaded
from bert_tf.prediction.text_model import (
    RecordRunner,
    TextModel,
    checked_text,
)
from bert_tf.tasks.token_classification import TokenClassificationTask, by_sentence


class EntityModel(TextModel):
    """Base of all models that label words.

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


class EntityRecognizer(EntityModel):
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

    def prepare(self, item: str) -> tuple[str, list[WordSpan]]:
        return item, split_words(checked_text(item))

    def answer(self, prepared: Sequence[tuple[str, list[WordSpan]]]) -> list[dict[str, Any]]:
        """Return {"entities": list as in `predict`} or {"words": ...} for each text."""
        task = cast(TokenClassificationTask, self._trained.task)
        sentences = [
            Sentence(tuple(text[start:end] for start, end in words), None, index, "", ())
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
        """Return the entities of each text, in order; or every word, if labels are of words.

        Long texts are read in several windows.

        Returns:
            A list for each text: {"type", "start", "end" (characters; `end` is exclusive), "text",
            "probability" (of the least certain of its words)}; "label" instead of "type" for words.
        """
        (column,) = self.columns
        return [answer[column] for answer in self.answers(items)]
