"""Entities in raw text, or in sentences of given words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.data.label_schemes import find_entities
from bert_tf.data.token_classification import Sentence, WordSpan, split_words
from bert_tf.packing import PackedSequence
from bert_tf.prediction.loading import TrainedModel
from bert_tf.prediction.text_model import Network, TextModel, check_texts, without_padding
from bert_tf.tasks.token_classification import TokenClassificationTask, split_by_sentence


class TokenClassificationPredictor(TextModel):
    """A model trained by run_ner.

    An input is a text, which is split as the words of the training data were, or a list of words. Long
    ones are read in several windows.

    Answers: {"entities": list of {"type", "start", "end" (characters of a text, or words of a list;
    `end` is exclusive), "text", "probability" (of the least certain of its words)}}; for labels of
    words {"words": the same of every word, with "label" instead of "type"}.
    """

    task: TokenClassificationTask

    def network(self, trained: TrainedModel) -> Network:
        task: Any = trained.task

        def words(features):
            inputs = {name: features[name] for name in task.input_names}
            return task.eval_outputs(trained.network(inputs), features)

        return words

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("words",) if self.task.word_labels else ("entities",)

    def prepare(self, item: str | list[str]) -> tuple[str | list[str], list[WordSpan]]:
        if isinstance(item, list):
            check_texts(*item)
            return item, [WordSpan(index, index + 1) for index in range(len(item))]
        check_texts(item)
        return item, split_words(item, self.task.word_splitting, self.task.whole_words)

    def answer(
        self, prepared: Sequence[tuple[str | list[str], list[WordSpan]]]
    ) -> list[dict[str, Any]]:
        sentences = [
            Sentence(tuple(_part(item, *span) for span in spans), None, index, "", ())
            for index, (item, spans) in enumerate(prepared)
            if spans
        ]
        (column,) = self.columns
        answers: list[dict[str, Any]] = [{column: []} for _ in prepared]
        if not sentences:
            return answers
        records = list(self.task.records(sentences, self.tokenizer))
        outputs = self.task.decode(self._outputs(records))
        labels = self.task.entity_labels(outputs, "predictions")
        probabilities = split_by_sentence(outputs, "probabilities")
        for sentence, row, certain in zip(sentences, labels, probabilities, strict=True):
            item, spans = prepared[sentence.document]
            for kind, first, last in find_entities(row):
                start, end = spans[first].start, spans[last - 1].end
                answers[sentence.document][column].append(
                    {
                        "label" if self.task.word_labels else "type": kind,
                        "start": start,
                        "end": end,
                        "text": _part(item, start, end),
                        "probability": float(certain[first:last].min()),
                    }
                )
        return answers

    def _outputs(self, records: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
        """Return the outputs of all windows for `task.decode`."""
        names = PackedSequence._fields
        windows = [
            without_padding(PackedSequence(*map(record.__getitem__, names))) for record in records
        ]
        others = {n: [record[n] for record in records] for n in records[0] if n not in names}
        rows = self.run(windows, others)
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    def short(self, answer: Mapping[str, Any]) -> str:
        if self.task.word_labels:
            return " ".join(f"{word['text']}/{word['label']}" for word in answer["words"])
        return "; ".join(f"{entity['text']} ({entity['type']})" for entity in answer["entities"])


def _part(item: str | list[str], start: int, end: int) -> str:
    return item[start:end] if isinstance(item, str) else " ".join(item[start:end])
