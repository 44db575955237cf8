"""The official metrics of SQuAD: exact match and F1, and the best threshold for "no answer".

Answers are compared by their words, without case, punctuation, articles and repeated spaces. Figures
are in percent.

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

Answers = Mapping[str, Sequence[str]]  # question -> what people answered
Scorer = Callable[[str, str], float]


def normalize_answer(text: str) -> str:
    """An answer as it is compared.

    >>> normalize_answer("The  Eiffel-Tower!")
    'eiffeltower'
    """
    text = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", text).split())


def exact_match(prediction: str, answer: str) -> float:
    """1 where the two are the same once normalized, else 0."""
    return float(normalize_answer(prediction) == normalize_answer(answer))


def f1(prediction: str, answer: str) -> float:
    """Harmonic mean of precision and recall of the words; 1 if neither has any, 0 if one has none."""
    predicted, actual = normalize_answer(prediction).split(), normalize_answer(answer).split()
    if not predicted or not actual:
        return float(predicted == actual)
    common = sum((Counter(predicted) & Counter(actual)).values())
    if not common:
        return 0.0
    precision, recall = common / len(predicted), common / len(actual)
    return 2 * precision * recall / (precision + recall)


def best_score(scorer: Scorer, prediction: str, answers: Sequence[str]) -> float:
    """The score of a prediction beside the answer that it is nearest to."""
    return max(scorer(prediction, answer) for answer in answers)


class QuestionScore(NamedTuple):
    """Of one question: 0 to 1."""

    exact_match: float
    f1: float


def scores_v1(answers: Answers, predictions: Mapping[str, str]) -> dict[str, QuestionScore]:
    """The scores of SQuAD 1.1 of each question; one without a prediction is wrong."""
    return {
        name: QuestionScore(
            best_score(exact_match, predictions[name], texts),
            best_score(_f1_of_version_1, predictions[name], texts),
        )
        if name in predictions
        else QuestionScore(0.0, 0.0)
        for name, texts in answers.items()
    }


def scores_v2(answers: Answers, predictions: Mapping[str, str]) -> dict[str, QuestionScore]:
    """The scores of SQuAD 2.0 of each question, each of which has a prediction; "" is no answer."""
    scores = {}
    for name, texts in answers.items():
        golds = [text for text in texts if normalize_answer(text)] or [""]
        scores[name] = QuestionScore(
            best_score(exact_match, predictions[name], golds),
            best_score(f1, predictions[name], golds),
        )
    return scores


def evaluate_v1(answers: Answers, predictions: Mapping[str, str]) -> dict[str, float]:
    """`exact_match` and `f1` of SQuAD 1.1; a question without a prediction counts as wrong."""
    scores = scores_v1(answers, predictions).values()
    return {
        name: _percent(sum(getattr(score, name) for score in scores), len(answers))
        for name in QuestionScore._fields
    }


def _f1_of_version_1(prediction: str, answer: str) -> float:
    """In 1.1 two answers of which nothing is left have nothing in common."""
    return f1(prediction, answer) if normalize_answer(answer) else 0.0


class Threshold(NamedTuple):
    """The best that a threshold can reach: questions with higher odds of no answer get none."""

    score: float  # percent
    threshold: float


def evaluate_v2(
    answers: Answers,
    predictions: Mapping[str, str],
    best_answers: Mapping[str, str],
    null_odds: Mapping[str, float],
) -> dict[str, float]:
    """The keys of evaluate-v2.0.py; `HasAns_...` and `NoAns_...` where there are such questions.

    Args:
        answers: an empty sequence is a question without an answer.
        predictions: "" is no answer. One for each question.
        best_answers: what would be answered if something had to be.
        null_odds: how much better "no answer" is than that answer.
    """
    given, forced = scores_v2(answers, predictions), scores_v2(answers, best_answers)
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
                total = sum(given[name][index] for name in names)
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
    """Goes from answering nothing to answering everything, in the order of rising odds of no answer.

    Args:
        scores: of `best_answers`, 0 to 1.

    Where answering nothing is best the threshold lies below all odds; the official script says 0.0 then,
    which would answer some.
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
