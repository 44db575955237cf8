"""Answers to raw questions, from a model of run_squad."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from bert_tf.data.question_answering import Passage
from bert_tf.data.span_windows import Window, tokenize_passage
from bert_tf.model_folder import TrainedModel, loaded
from bert_tf.prediction.text_model import (
    SequenceRunner,
    TextModel,
    checked_parts,
    checked_text,
    trimmed,
)
from bert_tf.tasks.answer_decoding import AnswerSettings, Prediction, characters_of, predict_answer
from bert_tf.tasks.question_answering import QuestionAnsweringTask

Logits = tuple[np.ndarray, np.ndarray]  # of start and end, float32 [S] each


class QuestionAnswerer(TextModel):
    """A model of run_squad that answers questions with parts of texts.

        QuestionAnswerer("squad_output").predict([("Who won?", "Denver beat Carolina.")])

    "probability" is relative to the n best.

    Args:
        model: the --output_dir of run_squad, or the loaded folder.
        null_score_diff_threshold: for a model of SQuAD 2.0; the answer is empty if the odds of no
            answer exceed this.
        n_best_size, max_answer_length: as in run_squad.
        batch_size: windows per batch.

    Raises:
        ValueError: the folder has no question-answering model.
    """

    fields = ("question", "context")

    def __init__(
        self,
        model: str | TrainedModel,
        null_score_diff_threshold: float = 0.0,
        n_best_size: int = 20,
        max_answer_length: int = 30,
        batch_size: int = 32,
    ):
        trained = loaded(model, "question_answering")
        self.task = cast(QuestionAnsweringTask, trained.task)
        self._tokenizer = trained.tokenizer
        self.has_null_odds = self.task.version_2_with_negative
        self._settings = AnswerSettings(
            n_best_size,
            max_answer_length,
            self.has_null_odds,
            null_score_diff_threshold,
            self.task.answer_spans,
        )
        self._special = trained.tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
        self._run = SequenceRunner(
            lambda inputs: trained.model(inputs, training=False),
            self.task.max_seq_length,
            batch_size,
        )

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        null_odds = ("null_odds",) if self.has_null_odds else ()
        return ("answer", "start", "end", "probability", *null_odds)

    def parse_line(self, line: str) -> tuple[str, str]:
        """Return (question, text), separated by a tab."""
        question, tab, text = line.partition("\t")
        if not tab:
            raise ValueError("A line must be a question, a tab, and the text with the answer.")
        return question, text

    def checked(self, item: tuple[str, str]) -> tuple[str, str]:
        question, text = checked_parts(item, self.fields)
        return checked_text(question), checked_text(text)

    def prepare(self, item: tuple[str, str]) -> tuple[str, list[Window]]:
        question, text = self.checked(item)
        passage = tokenize_passage(Passage(text), self._tokenizer)
        return text, self.task.windows(question, passage, self._tokenizer)

    def answer(self, prepared: Sequence[tuple[str, list[Window]]]) -> list[dict[str, Any]]:
        logits = iter(self.logits([window for _, windows in prepared for window in windows]))
        answers = []
        for text, windows in prepared:
            found = self.choose(windows, [next(logits) for _ in windows])
            answers.append(self.named(text, windows, found))
        return answers

    def logits(self, windows: Sequence[Window]) -> list[Logits]:
        """Return start and end logits of the tokens of each window."""
        packed = [
            trimmed(window.pack(self.task.max_seq_length, *self._special)) for window in windows
        ]
        return [
            (row["start_logits"][: window.num_tokens], row["end_logits"][: window.num_tokens])
            for row, window in zip(self._run(packed), windows, strict=True)
        ]

    def choose(self, windows: Sequence[Window], logits: Sequence[Logits]) -> Prediction:
        """Return the best answers to one question."""
        starts, ends = [start for start, _ in logits], [end for _, end in logits]
        return predict_answer(windows, starts, ends, self._tokenizer, self._settings)

    def named(self, text: str, windows: Sequence[Window], found: Prediction) -> dict[str, Any]:
        """Return the answer with its place in the text."""
        wanted = found.text if self.has_null_odds else found.best_answer
        best = next(candidate for candidate in found.nbest if candidate.text == wanted)
        characters = characters_of(best, windows, self._tokenizer)
        start, end = characters or (None, None)
        answer = {
            "answer": text[start:end] if characters else "",
            "start": start,
            "end": end,
            "probability": best.probability,
        }
        return answer if found.null_odds is None else answer | {"null_odds": found.null_odds}

    def predict(self, questions: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """Answer a batch of (question, text).

        Returns:
            One dict each: {"answer": text[start:end], "start": characters, "end": characters,
            "probability": number}, and with SQuAD 2.0 "null_odds". Without an answer: "", None, None.
        """
        return self.answers(questions)

    def short(self, answer: Mapping[str, Any]) -> str:
        return answer["answer"]
