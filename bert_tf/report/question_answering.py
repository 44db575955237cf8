"""Sections of report.html for answers: F1 by group and threshold, calibration, errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from bert_tf.data.question_answering import SquadExample
from bert_tf.report.page import Section, bars, line_chart
from bert_tf.report.sections import MOST_ERRORS, calibration, hardest_errors, shortened
from bert_tf.tasks.answer_decoding import Prediction
from bert_tf.tasks.squad_metrics import QuestionScore, scores_v1, scores_v2

_NO_ANSWER = "(no answer)"
# Pairs of words come first, because "how many" is more specific than "how".
_HOW = ("how many", "how much", "how long", "how old", "how far")
_QUESTION_WORDS = (*_HOW, "what", "who", "whom", "whose", "when", "where", "which", "why", "how")
_OTHER = "other"
_LENGTHS = ((1, "1 word"), (2, "2 words"), (4, "3-4 words"), (8, "5-8 words"))
_LONGEST = "9 or more words"
_ALL_LENGTHS = (*(name for _, name in _LENGTHS), _LONGEST, _NO_ANSWER)


def answer_sections(
    examples: Sequence[SquadExample],
    predictions: Mapping[str, Prediction],
    version_2_with_negative: bool,
) -> list[Section]:
    """Return the sections of one set of questions with answers.

    Args:
        predictions: id of a question -> prediction.
    """
    answers = {e.qas_id: [answer.text for answer in e.answers or ()] for e in examples}
    texts = {name: predictions[name].text for name in answers}
    score_all = scores_v2 if version_2_with_negative else scores_v1
    scores = score_all(answers, texts)
    words = {e.qas_id: question_word(e.question_text) for e in examples}
    lengths = {name: _length_of(texts) for name, texts in answers.items()}
    order = (*_QUESTION_WORDS, _OTHER)
    sections = [
        Section("By question word", [bars(_groups(scores, words, order), "F1, and questions")]),
        Section(
            "By length of the answer",
            [bars(_groups(scores, lengths, _ALL_LENGTHS), "F1, and questions")],
            "The length of the first of the known answers.",
        ),
    ]
    if version_2_with_negative:
        sections.append(_by_threshold(answers, predictions))
    confidence = np.array([_probability(predictions[name]) for name in answers])
    right = np.array([scores[name].exact_match == 1 for name in answers])
    return [
        *sections,
        calibration(confidence, right, low=0.0),
        _hardest(examples, answers, predictions, scores),
    ]


def question_word(question: str) -> str:
    """Return the first question word of a question.

    >>> [question_word(text) for text in ("In what year?", "How many were there?", "Is it so?")]
    ['what', 'how many', 'other']
    """
    words = "".join(c if c.isalpha() else " " for c in question.lower()).split()
    for index, word in enumerate(words):
        pair = " ".join(words[index : index + 2])
        for found in (pair, word):
            if found in _QUESTION_WORDS:
                return found
    return _OTHER


def _length_of(answers: Sequence[str]) -> str:
    if not answers:
        return _NO_ANSWER
    length = len(answers[0].split())
    return next((name for most, name in _LENGTHS if length <= most), _LONGEST)


def _groups(
    scores: Mapping[str, QuestionScore], groups: Mapping[str, str], order: Iterable[str]
) -> dict[str, tuple[float, int]]:
    """Return mean F1 and number of questions by group."""
    found = {}
    for group in order:
        values = [scores[name].f1 for name, its_group in groups.items() if its_group == group]
        if values:
            found[group] = (float(np.mean(values)), len(values))
    return found


def _by_threshold(
    answers: Mapping[str, Sequence[str]], predictions: Mapping[str, Prediction]
) -> Section:
    """Return F1 for every threshold of null_odds.json."""
    forced = scores_v2(answers, {name: predictions[name].best_answer for name in answers})
    odds = {name: predictions[name].null_odds or 0.0 for name in answers}
    names = sorted(odds, key=odds.__getitem__)
    # A question gets an answer if its odds are not above the threshold.
    gains = [forced[name].f1 - (not answers[name]) for name in names]
    f1 = (sum(not texts for texts in answers.values()) + np.cumsum(gains)) / len(names)
    low, high = np.percentile(list(odds.values()), [1, 99])  # without extreme values
    points = [(odds[n], float(f)) for n, f in zip(names, f1, strict=True) if low <= odds[n] <= high]
    return Section(
        "By threshold",
        [line_chart({"F1": points}, "null_score_diff_threshold", "F1", most_points=200)],
        "A question gets no answer if its entry in null_odds.json is above the threshold.",
    )


def _probability(prediction: Prediction) -> float:
    """Return the probability of the predicted text among the n-best."""
    found = (c.probability for c in prediction.nbest if c.text == prediction.text)
    return next(found, 0.0)


def _hardest(
    examples: Sequence[SquadExample],
    answers: Mapping[str, Sequence[str]],
    predictions: Mapping[str, Prediction],
    scores: Mapping[str, QuestionScore],
) -> Section:
    wrong = [example for example in examples if scores[example.qas_id].f1 == 0]
    wrong.sort(key=lambda example: -_probability(predictions[example.qas_id]))
    rows = [
        [
            shortened(example.question_text),
            " | ".join(dict.fromkeys(answers[example.qas_id])) or _NO_ANSWER,
            f"{predictions[example.qas_id].text or _NO_ANSWER} "
            f"({_probability(predictions[example.qas_id]):.2f})",
            shortened(example.passage.text),
            example.qas_id,
        ]
        for example in wrong[:MOST_ERRORS]
    ]
    return hardest_errors(
        ["question", "answers", "predicted", "passage", "id"],
        rows,
        len(wrong),
        "the most probable predicted answer first",
    )
