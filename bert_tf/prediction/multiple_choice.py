"""Choices between continuations of a text: load once, then predict repeatedly.

    chooser = ChoicePredictor("swag_output")
    chooser.predict([("He opens the door.", ["He goes in.", "He is a door."])])

Answers are plain Python values.

Shapes: B batch, K choices, S sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.characters import is_blank
from bert_tf.data.packing import PackedSequence, pack
from bert_tf.metrics.basic import softmax
from bert_tf.model_folder import TrainedModel, loaded
from bert_tf.prediction.text_model import (
    SequenceRunner,
    TextModel,
    beginning,
    checked_parts,
    checked_text,
    trimmed,
)


class ChoicePredictor(TextModel):
    """A model trained by run_swag.

    Args:
        model: the --output_dir of run_swag, or the loaded folder.
        batch_size: choices per batch.

    Raises:
        ValueError: the folder has no such model.
    """

    fields = ("text_a", "choices")
    columns = ("prediction", "choice", "probabilities")

    def __init__(self, model: str | TrainedModel, batch_size: int = 32):
        self._trained = loaded(model, "multiple_choice")

        def scores(inputs):  # the score of a choice does not depend on the others
            alone = {name: value[:, None] for name, value in inputs.items()}  # [B, 1, S]
            return {"score": self._trained.model(alone, training=False)["logits"][:, 0]}

        self._run = SequenceRunner(scores, self._trained.max_seq_length, batch_size)

    def checked(self, item: tuple[str, Sequence[str]]) -> tuple[str, list[str]]:
        """Return (text, choices); raise ValueError for other types or fewer than two choices."""
        text, choices = checked_parts(item, self.fields)
        checked_text(text)
        if not isinstance(choices, Sequence) or isinstance(choices, str) or len(choices) < 2:
            raise ValueError(
                f"The choices for {beginning(text)} must be two or more texts, but are {choices!r:.60}."
            )
        return text, [checked_text(choice) for choice in choices]

    def parse_line(self, line: str) -> tuple[str, list[str]]:
        """Return (text, choices), separated by tabs, without blank choices at the end."""
        text, *choices = line.split("\t")
        while choices and is_blank(choices[-1]):
            choices.pop()
        return text, choices

    def short(self, answer: Mapping[str, Any]) -> str:
        return answer["choice"]

    def prepare(self, item: tuple[str, Sequence[str]]) -> tuple[list[str], list[PackedSequence]]:
        text, choices = self.checked(item)
        tokenizer, length = self._trained.tokenizer, self._trained.max_seq_length
        cls_id, sep_id = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
        ids, sequences, is_cut = tokenizer.encode(text), [], False
        for choice in choices:
            second = tokenizer.encode(choice)
            is_cut |= len(ids) + len(second) + (3 if second else 2) > length
            packed = pack(ids, second, max_seq_length=length, cls_id=cls_id, sep_id=sep_id)
            sequences.append(trimmed(packed))
        self.num_cut += is_cut
        return choices, sequences

    def answer(
        self, prepared: Sequence[tuple[list[str], list[PackedSequence]]]
    ) -> list[dict[str, Any]]:
        """Return {"prediction": index of the best, "choice": its text, "probabilities": [...]}."""
        scores = iter(self._run([sequence for _, rows in prepared for sequence in rows]))
        answers = []
        for choices, _ in prepared:
            probabilities = softmax(np.array([next(scores)["score"] for _ in choices]))
            best = int(np.argmax(probabilities))
            answer = {"prediction": best, "choice": choices[best]}
            answers.append({**answer, "probabilities": probabilities.tolist()})
        return answers

    def predict(self, questions: Sequence[tuple[str, Sequence[str]]]) -> list[dict[str, Any]]:
        """Return the best choice of each question.

        Args:
            questions: (text, choices), with any number of choices from two on.

        Returns:
            One {"prediction": index of the choice, "choice": its text, "probabilities": [...]} each.

        Raises:
            ValueError: a question has fewer than two choices.
        """
        return self.answers(questions)
