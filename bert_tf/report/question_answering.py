"""Sections of report.html for answers: F1 by group and threshold, calibration, errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_tf.report.page import (
    MAX_ERRORS,
    Section,
    bars,
    calibration,
    hardest_errors,
    line_chart,
    shorten,
)

_NO_ANSWER = "(no answer)"
# Pairs of words come first, because "how many" is more specific than "how".
_HOW = ("how many", "how much", "how long", "how old", "how far")
_QUESTION_WORDS = (*_HOW, "what", "who", "whom", "whose", "when", "where", "which", "why", "how")
_OTHER = "other"


@dataclass(frozen=True)
class ScoredAnswer:
    """A question, the known answers, and the prediction with its scores.

    Args:
        answers: known ones; none if the question has no answer.
        probability: of the prediction among the n-best.
        f1: of the prediction, 0 to 1.
        null_odds: above the threshold, the question gets no answer; None if each gets one.
        best_f1: F1 of the best prediction that is not empty; used with `null_odds`.
    """

    id: str
    question: str
    passage: str
    answers: Sequence[str]
    predicted: str
    probability: float
    f1: float
    is_exact: bool
    null_odds: float | None = None
    best_f1: float = 0.0


def answer_sections(rows: Sequence[ScoredAnswer]) -> list[Section]:
    words = [question_word(row.question) for row in rows]
    by_word = {}
    for word in (*_QUESTION_WORDS, _OTHER):
        if values := [row.f1 for row, own in zip(rows, words, strict=True) if own == word]:
            by_word[word] = (float(np.mean(values)), len(values))
    probabilities = np.array([row.probability for row in rows])
    return [
        Section("By question word", [bars(by_word, "F1, and questions")]),
        *([_by_threshold(rows)] if rows[0].null_odds is not None else []),
        calibration(probabilities, np.array([row.is_exact for row in rows])),
        _hardest(rows),
    ]


def question_word(question: str) -> str:
    """Return the first question word of a question.

    >>> [question_word(text) for text in ("In what year?", "How many were there?", "Is it so?")]
    ['what', 'how many', 'other']
    """
    words = "".join(c if c.isalpha() else " " for c in question.lower()).split()
    for index, word in enumerate(words):
        for candidate in (" ".join(words[index : index + 2]), word):
            if candidate in _QUESTION_WORDS:
                return candidate
    return _OTHER


def _by_threshold(rows: Sequence[ScoredAnswer]) -> Section:
    """Return F1 for every threshold of null_odds.json."""
    odds = np.array([row.null_odds for row in rows])
    order = np.argsort(odds, kind="stable")
    # A question gets an answer if its odds are not above the threshold.
    gains = [rows[index].best_f1 - (not rows[index].answers) for index in order]
    f1 = (sum(not row.answers for row in rows) + np.cumsum(gains)) / len(rows)
    low, high = np.percentile(odds, [1, 99])  # without extreme values
    points = [(odds[n], float(f)) for n, f in zip(order, f1, strict=True) if low <= odds[n] <= high]
    return Section(
        "By threshold",
        [line_chart({"F1": points}, "null_score_diff_threshold", "F1")],
        "A question gets no answer if its entry in null_odds.json is above the threshold.",
    )


def _hardest(rows: Sequence[ScoredAnswer]) -> Section:
    wrong = sorted((row for row in rows if row.f1 == 0), key=lambda row: -row.probability)
    cells = [
        [
            shorten(row.question),
            " | ".join(dict.fromkeys(row.answers)) or _NO_ANSWER,
            f"{row.predicted or _NO_ANSWER} ({row.probability:.2f})",
            shorten(row.passage),
            row.id,
        ]
        for row in wrong[:MAX_ERRORS]
    ]
    header = ["question", "answers", "predicted", "passage", "id"]
    return hardest_errors(header, cells, len(wrong), "the most probable predicted answer first")
