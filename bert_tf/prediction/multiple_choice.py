"""Choices between continuations of a text.

Shapes: B batch, K choices, S sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.packing import PackedSequence
from bert_tf.prediction.loading import TrainedModel
from bert_tf.prediction.text_model import Network, TextModel, check_parts, check_texts
from bert_tf.tasks.metrics import softmax


class MultipleChoicePredictor(TextModel):
    """A model trained by run_swag. An input is (text, choices), with two or more choices.

    Answers: {"prediction": index of the best choice, "choice": its text, "probabilities": [...]}.
    """

    fields = ("text_a", "choices")
    columns = ("prediction", "choice", "probabilities")

    def network(self, trained: TrainedModel) -> Network:
        def scores(inputs):  # the score of a choice does not depend on the others
            alone = {name: value[:, None] for name, value in inputs.items()}  # [B, 1, S]
            return {"score": trained.network(alone)["logits"][:, 0]}

        return scores

    def parse_line(self, line: str) -> tuple[str, list[str]]:
        """Return (text, choices), separated by tabs."""
        text, *choices = line.rstrip("\t").split("\t")
        return text, choices

    def short(self, answer: Mapping[str, Any]) -> str:
        return answer["choice"]

    def prepare(
        self, item: tuple[str, Sequence[str]]
    ) -> tuple[Sequence[str], list[PackedSequence]]:
        check_parts(item, self.fields)
        text, choices = item
        if not isinstance(choices, Sequence) or isinstance(choices, str) or len(choices) < 2:
            raise ValueError(
                f"The choices for {text[:60]!r} must be two or more texts, but are {choices!r:.60}."
            )
        check_texts(text, *choices)
        ids, num_truncated = self.tokenizer.encode(text), self.num_truncated
        sequences = [self.pack(ids, self.tokenizer.encode(choice)) for choice in choices]
        self.num_truncated = min(self.num_truncated, num_truncated + 1)  # a question counts once
        return choices, sequences

    def answer(
        self, prepared: Sequence[tuple[Sequence[str], list[PackedSequence]]]
    ) -> list[dict[str, Any]]:
        scores = iter(self.run([sequence for _, rows in prepared for sequence in rows]))
        answers = []
        for choices, _ in prepared:
            probabilities = softmax(np.array([next(scores)["score"] for _ in choices]))
            best = int(np.argmax(probabilities))
            answer = {"prediction": best, "choice": choices[best]}
            answers.append({**answer, "probabilities": probabilities.tolist()})
        return answers
