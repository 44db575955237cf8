"""Labels and numbers for raw text, from a model of run_classifier."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from bert_tf.data.packing import PackedSequence
from bert_tf.model_folder import TrainedModel, loaded
from bert_tf.prediction.text_model import (
    SequenceRunner,
    TextModel,
    beginning,
    checked_parts,
    checked_text,
    trimmed,
)
from bert_tf.tasks.classification import ClassificationTask, InputExample

logger = logging.getLogger(__name__)

TextPair = tuple[str, str | None]


class TextClassifier(TextModel):
    """A model trained by run_classifier.

    A text beyond `max_seq_length` is truncated. If the model has a `doc_stride`, its windows are pooled
    instead, as in the evaluation of run_classifier.

    Args:
        model: the --output_dir of run_classifier, or the loaded folder.
        batch_size: windows per batch.

    Raises:
        ValueError: the folder has no such model.

    Attributes:
        labels: in the order of the probabilities; empty for a regression.
        problem_type: "single_label", "multi_label" or "regression".
        is_pair: True if inputs are pairs of sentences; None if unknown, so that both are accepted.
    """

    def __init__(self, model: str | TrainedModel, batch_size: int = 32):
        trained = loaded(model, "classification")
        self.task = cast(ClassificationTask, trained.task)
        self.labels, self.is_pair = self.task.labels, self.task.is_pair
        self.problem_type = self.task.kind.name
        self._tokenizer = trained.tokenizer
        self._run = SequenceRunner(
            lambda inputs: trained.model(inputs, training=False),
            self.task.max_seq_length,
            batch_size,
        )

    @property
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("text_a",) if self.is_pair is False else ("text_a", "text_b")

    @property
    def optional_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("text_b",) if self.is_pair is None else ()

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        if self.problem_type == "regression":
            return ("score",)
        first = "label" if self.problem_type == "single_label" else "labels"
        return (first, *(f"probabilities.{label}" for label in self.labels))

    def parse_line(self, line: str) -> TextPair:
        """Return (text_a, text_b): the text before and after a tab."""
        text_a, tab, text_b = line.partition("\t")
        return text_a, text_b if tab else None

    def checked(self, item: str | TextPair) -> TextPair:
        """Return (text_a, text_b), with None for the second sentence of a single text.

        Raises:
            ValueError: a second sentence is missing or unexpected.
        """
        parts: Sequence[Any] = (item, None)
        if not isinstance(item, str):
            parts = checked_parts(item, ("text_a", "text_b"))
        text_a, text_b = parts
        checked_text(text_a)
        if self.is_pair not in (None, text_b is not None):
            inputs = "pairs, [(text_a, text_b)]" if self.is_pair else "single sentences"
            raise ValueError(f"The model takes {inputs}, unlike {beginning(text_a)}.")
        return text_a, None if text_b is None else checked_text(text_b)

    def prepare(self, item: str | TextPair) -> list[PackedSequence]:
        text_a, text_b = self.checked(item)
        example = InputExample("", text_a, text_b)
        windows, is_cut = self.task.windows(example, self._tokenizer)
        self.num_cut += is_cut
        return [trimmed(window) for window in windows]

    def answer(self, prepared: Sequence[list[PackedSequence]]) -> list[dict[str, Any]]:
        if not prepared:
            return []
        windows = [window for windows in prepared for window in windows]
        owners = np.repeat(np.arange(len(prepared)), [len(windows) for windows in prepared])
        logits = np.stack([outputs["logits"] for outputs in self._run(windows)])
        kept = {"logits": logits, "example_numbers": owners, "label_ids": owners}
        logits = self.task.per_example(kept)["logits"]
        kind = self.task.kind
        rows = zip(kind.shown(logits), kind.predictions(logits), strict=True)
        return [self.named(shown, chosen) for shown, chosen in rows]

    def predict(self, texts: Sequence[str | TextPair]) -> list[dict[str, Any]]:
        """Predict the labels of a batch.

        Args:
            texts: (text_a, text_b); single sentences are (text_a, None) or plain texts.

        Returns:
            One dict per text. By `problem_type`: {"label": the most probable, "probabilities": {label:
            probability}}; {"labels": those above one half, "probabilities": ...}; {"score": number}.

        Raises:
            ValueError: a second sentence is missing or unexpected.
        """
        return self.answers(texts)

    def named(self, shown: Sequence[float], chosen: Any) -> dict[str, Any]:
        """Return an answer with label names.

        Args:
            shown: probabilities of the labels, or the number of a regression.
            chosen: index of the label; with multiple labels, a boolean for each.
        """
        if self.problem_type == "regression":
            return {"score": float(shown[0])}
        probabilities = dict(zip(self.labels, map(float, shown), strict=True))
        if self.problem_type == "multi_label":
            pairs = zip(self.labels, chosen, strict=True)
            return {"labels": [n for n, has in pairs if has], "probabilities": probabilities}
        return {"label": self.labels[int(chosen)], "probabilities": probabilities}

    def short(self, answer: Mapping[str, Any]) -> str:
        if "labels" in answer:
            return ", ".join(answer["labels"])
        return answer["label"] if "label" in answer else f"{answer['score']:.6g}"
