"""Labels and numbers for raw text, from a model of run_classifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.packing import PackedSequence
from bert_tf.prediction.text_model import (
    TextModel,
    beginning,
    checked_parts,
    checked_text,
    trimmed,
)
from bert_tf.tasks.classification import ClassificationTask, InputExample

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
        parts: Sequence[Any] = (item, None)
        if not isinstance(item, str):
            parts = checked_parts(item, ("text_a", "text_b"))
        text_a, text_b = parts
        checked_text(text_a)
        if self.task.is_pair not in (None, text_b is not None):
            inputs = "pairs, [(text_a, text_b)]" if self.task.is_pair else "single sentences"
            raise ValueError(f"The model takes {inputs}, unlike {beginning(text_a)}.")
        example = InputExample("", text_a, None if text_b is None else checked_text(text_b))
        windows, is_cut = self.task.windows(example, self.tokenizer)
        self.num_cut += is_cut
        return [trimmed(window) for window in windows]

    def answer(self, prepared: Sequence[list[PackedSequence]]) -> list[dict[str, Any]]:
        if not prepared:
            return []
        windows = [window for windows in prepared for window in windows]
        owners = np.repeat(np.arange(len(prepared)), [len(windows) for windows in prepared])
        logits = np.stack([outputs["logits"] for outputs in self.run(windows)])
        kept = {"logits": logits, "example_numbers": owners, "label_ids": owners}
        logits = self.task.per_example(kept)["logits"]
        kind = self.task.kind
        rows = zip(kind.shown(logits), kind.predictions(logits), strict=True)
        return [self._named(shown, chosen) for shown, chosen in rows]

    def _named(self, shown: Sequence[float], chosen: Any) -> dict[str, Any]:
        """Return an answer with label names.

        Args:
            shown: probabilities of the labels, or the number of a regression.
            chosen: index of the label; with multiple labels, a boolean for each.
        """
        labels = self.task.labels
        if self.task.kind.name == "regression":
            return {"score": float(shown[0])}
        probabilities = dict(zip(labels, map(float, shown), strict=True))
        if self.task.kind.name == "multi_label":
            pairs = zip(labels, chosen, strict=True)
            return {"labels": [n for n, has in pairs if has], "probabilities": probabilities}
        return {"label": labels[int(chosen)], "probabilities": probabilities}

    def short(self, answer: Mapping[str, Any]) -> str:
        if "labels" in answer:
            return ", ".join(answer["labels"])
        return answer["label"] if "label" in answer else f"{answer['score']:.6g}"
