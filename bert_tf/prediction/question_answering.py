"""Answers to raw questions, from a model of run_squad."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.data.windows import Passage, Window, tokenize_passage
from bert_tf.prediction.loading import TrainedModel
from bert_tf.prediction.text_model import TextModel, check_parts, check_texts, without_padding
from bert_tf.tasks.answer_decoding import (
    AnswerSettings,
    Prediction,
    find_characters,
    predict_answer,
)
from bert_tf.tasks.question_answering import QuestionAnsweringTask

Logits = tuple[np.ndarray, np.ndarray]  # of start and end, float32 [S] each


class QuestionAnsweringPredictor(TextModel):
    """A model of run_squad that answers (question, text) with a part of the text.

    Answers: {"answer": text[start:end], "start": characters, "end": characters, "probability": relative
    to the n best}, and with SQuAD 2.0 "null_odds". Without an answer: "", None, None.
    """

    task: QuestionAnsweringTask
    fields = ("question", "context")

    def __init__(self, trained: TrainedModel, batch_size: int = 32, **settings: Any):
        super().__init__(trained, batch_size)
        self._settings = AnswerSettings(
            **{
                **getattr(trained.network, "answer_settings", {}),
                **settings,
                "version_2_with_negative": self.task.version_2_with_negative,
                "answer_spans": self.task.answer_spans,
            }
        )

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        null_odds = ("null_odds",) if self.task.version_2_with_negative else ()
        return ("answer", "start", "end", "probability", *null_odds)

    def prepare(self, item: tuple[str, str]) -> tuple[str, list[Window]]:
        check_parts(item, self.fields)
        question, text = item
        check_texts(question, text)
        passage = tokenize_passage(Passage(text), self.tokenizer)
        return text, self.task.windows(question, passage, self.tokenizer)

    def answer(self, prepared: Sequence[tuple[str, list[Window]]]) -> list[dict[str, Any]]:
        logits = iter(self._logits([window for _, windows in prepared for window in windows]))
        answers = []
        for text, windows in prepared:
            rows = [next(logits) for _ in windows]
            starts, ends = [start for start, _ in rows], [end for _, end in rows]
            prediction = predict_answer(windows, starts, ends, self.tokenizer, self._settings)
            answers.append(self._locate(text, windows, prediction))
        return answers

    def _logits(self, windows: Sequence[Window]) -> list[Logits]:
        """Return start and end logits of the tokens of each window."""
        special = self.tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
        packed = [without_padding(window.pack(self.max_seq_length, *special)) for window in windows]
        return [
            (row["start_logits"][: window.num_tokens], row["end_logits"][: window.num_tokens])
            for row, window in zip(self.run(packed), windows, strict=True)
        ]

    def _locate(
        self, text: str, windows: Sequence[Window], prediction: Prediction
    ) -> dict[str, Any]:
        """Return the answer with its characters in the text."""
        answer_text = prediction.best_answer
        if self.task.version_2_with_negative:
            answer_text = prediction.text
        best = next(candidate for candidate in prediction.nbest if candidate.text == answer_text)
        characters = find_characters(best, windows, self.tokenizer)
        start, end = characters or (None, None)
        answer = {
            "answer": text[start:end] if characters else "",
            "start": start,
            "end": end,
            "probability": best.probability,
        }
        if prediction.null_odds is not None:
            answer["null_odds"] = prediction.null_odds
        return answer

    def short(self, answer: Mapping[str, Any]) -> str:
        return answer["answer"]
