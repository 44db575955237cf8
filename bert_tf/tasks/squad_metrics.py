"""Official metrics of SQuAD: exact match, F1, and the best threshold for "no answer", in percent.

Answers are compared by their words, without case, punctuation, articles and repeated spaces.

Source: Rajpurkar et al. 2016 and 2018, evaluate-v1.1.py and evaluate-v2.0.py.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)

Answers = Mapping[str, Sequence[str]]  # question -> the answers in the data
Scorer = Callable[[str, str], float]


def normalize_answer(text: str) -> str:
    """Return the form of an answer that is compared."""
    text = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", text).split())


def exact_match(prediction: str, answer: str) -> float:
    """Return 1 if both are the same after normalization, else 0."""
    return float(normalize_answer(prediction) == normalize_answer(answer))


def f1(prediction: str, answer: str) -> float:
    """Return F1 of the normalized words; 1 if both texts are empty, 0 if one is."""
    predicted, actual = normalize_answer(prediction).split(), normalize_answer(answer).split()
    if not predicted or not actual:
        return float(predicted == actual)
    common = sum((Counter(predicted) & Counter(actual)).values())
    if not common:
        return 0.0
    precision, recall = common / len(predicted), common / len(actual)
    return 2 * precision * recall / (precision + recall)


def best_score(scorer: Scorer, prediction: str, answers: Sequence[str]) -> float:
    """Return the score of a prediction for the answer that it matches best."""
    return max(scorer(prediction, answer) for answer in answers)


class QuestionScore(NamedTuple):
    """Scores of one question, 0 to 1."""

    exact_match: float
    f1: float


def score_v1(answers: Answers, predictions: Mapping[str, str]) -> dict[str, QuestionScore]:
    """Return the SQuAD 1.1 scores of each question. A missing prediction is wrong."""
    return {
        name: QuestionScore(
            best_score(exact_match, predictions[name], texts),
            best_score(_f1_of_version_1, predictions[name], texts),
        )
        if name in predictions
        else QuestionScore(0.0, 0.0)
        for name, texts in answers.items()
    }


def score_v2(answers: Answers, predictions: Mapping[str, str]) -> dict[str, QuestionScore]:
    """Return the SQuAD 2.0 scores of each question. Every question needs a prediction; "" means none."""
    scores = {}
    for name, texts in answers.items():
        golds = [text for text in texts if normalize_answer(text)] or [""]
        scores[name] = QuestionScore(
            best_score(exact_match, predictions[name], golds),
            best_score(f1, predictions[name], golds),
        )
    return scores


def evaluate_v1(answers: Answers, predictions: Mapping[str, str]) -> dict[str, float]:
    """Return `exact_match` and `f1` of SQuAD 1.1. A missing prediction is wrong."""
    scores = score_v1(answers, predictions).values()
    return {
        name: _percent(sum(getattr(score, name) for score in scores), len(answers))
        for name in QuestionScore._fields
    }


def _f1_of_version_1(prediction: str, answer: str) -> float:
    """Return F1 as in 1.1, where two texts without words score 0."""
    return f1(prediction, answer) if normalize_answer(answer) else 0.0


class Threshold(NamedTuple):
    """Best score that a threshold can reach. Questions with higher odds of no answer get none."""

    score: float  # percent
    threshold: float


def evaluate_v2(
    answers: Answers,
    predictions: Mapping[str, str],
    best_answers: Mapping[str, str],
    null_odds: Mapping[str, float],
) -> dict[str, float]:
    """Return the metrics of evaluate-v2.0.py; `HasAns_...` and `NoAns_...` if there are such questions.

    Args:
        answers: an empty sequence marks a question without an answer.
        predictions: one for each question; "" means no answer.
        best_answers: the best answer that is not empty.
        null_odds: score of "no answer" minus the score of that answer.
    """
    chosen, forced = score_v2(answers, predictions), score_v2(answers, best_answers)
    has_answer = {name: bool(texts) for name, texts in answers.items()}
    groups = {
        "": list(answers),
        "HasAns_": [name for name, has in has_answer.items() if has],
        "NoAns_": [name for name, has in has_answer.items() if not has],
    }
    results: dict[str, float] = {}
    for index, key in enumerate(("exact", "f1")):
        for prefix, names in groups.items():
            if names:
                total = sum(chosen[name][index] for name in names)
                results[f"{prefix}{key}"] = _percent(total, len(names))
                results[f"{prefix}total"] = len(names)
        scores = {name: score[index] for name, score in forced.items()}
        best = find_best_threshold(best_answers, scores, null_odds, has_answer)
        results[f"best_{key}"], results[f"best_{key}_thresh"] = best
    return results


def find_best_threshold(
    best_answers: Mapping[str, str],
    scores: Mapping[str, float],
    null_odds: Mapping[str, float],
    has_answer: Mapping[str, bool],
) -> Threshold:
    """Return the threshold on `null_odds` with the best score, from answering nothing to everything.

    If answering nothing is best, the threshold is below all odds. The official script returns 0.0
    then, which would answer some questions.

    Args:
        scores: of `best_answers`, 0 to 1.
    """
    names = sorted(null_odds, key=null_odds.__getitem__)
    score = best = float(sum(not has for has in has_answer.values()))
    threshold = math.nextafter(null_odds[names[0]], -math.inf)
    for name in names:
        if has_answer[name]:
            score += scores[name]
        elif best_answers[name]:
            score -= 1
        if score > best:
            best, threshold = score, null_odds[name]
    return Threshold(_percent(best, len(scores)), threshold)


def _percent(total: float, count: int) -> float:
    return 100.0 * total / count
