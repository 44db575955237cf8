"""Labels and numbers for raw text, from a model of run_classifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.packing import PackedSequence
from bert_tf.prediction.text_model import TextModel, check_parts, check_texts, without_padding
from bert_tf.tasks.classification import ClassificationTask

TextPair = tuple[str, str | None]


class ClassificationPredictor(TextModel):
    """A model trained by run_classifier, or a regression.

    A text beyond `max_seq_length` is truncated. If the model has a `doc_stride`, its windows are pooled
    instead, as in the evaluation of run_classifier.

    Answers by `problem_type`: {"label": the most probable, "probabilities": {label: probability}};
    {"labels": those above one half, "probabilities": ...}; {"score": number}.
    """

    task: ClassificationTask

    @property
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("text_a",) if self.task.is_pair is False else ("text_a", "text_b")

    @property
    def optional_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("text_b",) if self.task.is_pair is None else ()

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        if self.task.kind.name == "regression":
            return ("score",)
        first = "label" if self.task.kind.name == "single_label" else "labels"
        return (first, *(f"probabilities.{label}" for label in self.task.labels))

    def parse_line(self, line: str) -> TextPair:
        """Return (text_a, text_b): the text before and after a tab."""
        text_a, tab, text_b = line.partition("\t")
        return text_a, text_b if tab else None

    def prepare(self, item: str | TextPair) -> list[PackedSequence]:
        if isinstance(item, str):
            item = (item, None)
        check_parts(item, ("text_a", "text_b"))
        text_a, text_b = item
        check_texts(text_a, *([] if text_b is None else [text_b]))
        if self.task.is_pair not in (None, text_b is not None):
            inputs = "pairs, [(text_a, text_b)]" if self.task.is_pair else "single sentences"
            raise ValueError(f"The model takes {inputs}, unlike {text_a[:60]!r}.")
        windows, is_truncated = self.task.record_maker(self.tokenizer).sequences(text_a, text_b)
        self.num_truncated += is_truncated
        return [without_padding(window) for window in windows]

    def answer(self, prepared: Sequence[list[PackedSequence]]) -> list[dict[str, Any]]:
        if not prepared:
            return []
        windows = [window for windows in prepared for window in windows]
        examples = np.repeat(np.arange(len(prepared)), [len(windows) for windows in prepared])
        logits = np.stack([outputs["logits"] for outputs in self.run(windows)])
        outputs = {"logits": logits, "example_numbers": examples, "label_ids": examples}
        logits = self.task.decode(outputs)["logits"]
        kind = self.task.kind
        rows = zip(kind.scores(logits), kind.predictions(logits), strict=True)
        return [self._answer(values, prediction) for values, prediction in rows]

    def _answer(self, values: Sequence[float], prediction: Any) -> dict[str, Any]:
        """Return the answer of one example; `prediction` is an index, or a boolean for each label."""
        labels = self.task.labels
        if self.task.kind.name == "regression":
            return {"score": float(values[0])}
        probabilities = dict(zip(labels, map(float, values), strict=True))
        if self.task.kind.name == "multi_label":
            chosen = [name for name, has in zip(labels, prediction, strict=True) if has]
            return {"labels": chosen, "probabilities": probabilities}
        return {"label": labels[int(prediction)], "probabilities": probabilities}

    def short(self, answer: Mapping[str, Any]) -> str:
        if "labels" in answer:
            return ", ".join(answer["labels"])
        return answer["label"] if "label" in answer else f"{answer['score']:.6g}"
