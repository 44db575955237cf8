"""Labels and numbers for raw text, from a model of run_classifier."""

from __future__ import annotations

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

TextPair = tuple[str, str | None]


class LabelModel(TextModel):
    """What every classifier of raw text shares, wherever it computes.

    Attributes:
        labels: in the order of the probabilities; none of a regression.
        problem_type: "single_label", "multi_label" or "regression".
        is_pair: whether it was made for pairs of sentences; None if unknown, so that both are taken.
    """

    labels: Sequence[str]
    problem_type: str
    is_pair: bool | None
    takes_tuples = True

    @property
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("text_a", "text_b") if self.is_pair else ("text_a",)

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        if self.problem_type == "regression":
            return ("score",)
        first = "label" if self.problem_type == "single_label" else "labels"
        return (first, *(f"probabilities.{label}" for label in self.labels))

    def parse_line(self, line: str) -> TextPair:
        """(text_a, text_b): the text before and after a tab."""
        text_a, tab, text_b = line.partition("\t")
        return text_a, text_b if tab else None

    def checked(self, item: str | TextPair) -> TextPair:
        """A text, or (text_a, text_b) with None for a single sentence, as the latter.

        Raises:
            ValueError: there is a second sentence and should be none, or the other way round.
        """
        parts: Sequence[Any] = (item, None)
        if not isinstance(item, str):
            parts = checked_parts(item, ("text_a", "text_b"))
        text_a, text_b = parts
        checked_text(text_a)
        if self.is_pair and text_b is None:
            raise ValueError(
                f"The model takes pairs of sentences, but there is only one: {beginning(text_a)}."
            )
        if self.is_pair is False and text_b is not None:
            raise ValueError(
                "The model takes single sentences, but there is a second one: "
                f"{beginning(checked_text(text_b))}."
            )
        return text_a, None if text_b is None else checked_text(text_b)

    def predict(self, texts: Sequence[str | TextPair]) -> list[dict[str, Any]]:
        """Labels of a batch.

        Args:
            texts: (text_a, text_b); text_b is None for a single sentence, which may also be a plain
                text.

        Returns:
            For each, by `problem_type`: {"label": the most probable, "probabilities": {label:
            probability}}; {"labels": those above one half, "probabilities": ...}; {"score": number}.

        Raises:
            ValueError: a second sentence for a model of single sentences, or none for a model of
                pairs.
        """
        return self.answers(texts)

    def named(self, shown: Sequence[float], chosen: Any) -> dict[str, Any]:
        """An answer in words.

        Args:
            shown: probabilities of the labels, or the number of a regression.
            chosen: index of the label; of several labels, which of them hold.
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


class TextClassifier(LabelModel):
    """A model that run_classifier trained.

    A text beyond `max_seq_length` is cut, unless the model has a `doc_stride`: then its windows are
    pooled, as in the evaluation of run_classifier.

    Args:
        model: the --output_dir of run_classifier, or what was loaded from there.
        batch_size: windows that go through the model at once.

    Raises:
        ValueError: there is no such model.
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
