"""The official metrics of SQuAD, on cases worked out by hand, and the threshold by trying all."""

import math
import random

import pytest

from bert_tf.tasks.squad_metrics import (
    evaluate_v1,
    evaluate_v2,
    f1,
    find_best_threshold,
    normalize_answer,
)


def test_normalize_answer_drops_what_the_official_one_drops():
    for text, expected in (
        ("The Broncos", "broncos"),
        ("a  An\tthe theory", "theory"),
        ("U.S.A.", "usa"),
        ("the-cat", "thecat"),  # punctuation goes first, so that no article is left
        ("“quoted”", "“quoted”"),  # only ASCII punctuation is stripped
        ("Señor\u00a0X", "señor x"),
        ("ÉCOLE", "école"),
        ("$5,000", "5000"),
        ("the", ""),
        ("an apple a day", "apple day"),
    ):
        assert normalize_answer(text) == expected


def test_f1_counts_common_words_as_often_as_both_have_them():
    assert f1("the cat sat", "cat sat down") == pytest.approx(2 * 1 * (2 / 3) / (1 + 2 / 3))
    assert f1("to be to be", "to be") == pytest.approx(2 * (2 / 4) * 1 / 1.5)
    assert f1("red", "blue") == 0.0
    assert f1("", "") == f1("the", "") == 1.0
    assert f1("", "cat") == f1("cat", "") == 0.0


def test_evaluate_v1_takes_the_nearest_answer():
    answers = {"a": ["Denver Broncos", "The Broncos"], "b": ["1895"], "c": ["no"], "d": ["x"]}
    found = evaluate_v1(answers, {"a": "Broncos", "b": "in 1895", "c": "yes"})
    assert found == pytest.approx({"exact_match": 25.0, "f1": 100 * (1 + 2 / 3) / 4})
    assert evaluate_v1({"a": ["the"]}, {"a": "a"}) == {"exact_match": 100.0, "f1": 0.0}


def test_evaluate_v2_has_figures_for_both_kinds_of_questions():
    answers = {"a": ["red cat", "cat"], "b": ["blue"], "none": [], "empty": ["the"]}
    found = evaluate_v2(
        answers,
        {"a": "the cat", "b": "", "none": "sea", "empty": ""},
        {"a": "the cat", "b": "dark blue", "none": "sea", "empty": "owl"},
        {"a": -5.0, "b": 1.0, "none": -1.0, "empty": 3.0},
    )
    assert found == pytest.approx(
        {
            "exact": 50.0,
            "f1": 50.0,
            "total": 4,
            "HasAns_exact": 200 / 3,
            "HasAns_f1": 200 / 3,
            "HasAns_total": 3,
            "NoAns_exact": 0.0,
            "NoAns_f1": 0.0,
            "NoAns_total": 1,
            # Only "a" answered: right in "a" and "none". What is called unanswerable is "none" alone.
            "best_exact": 50.0,
            "best_exact_thresh": -5.0,
            "best_f1": 50.0,
            "best_f1_thresh": -5.0,
        }
    )


def score_at(threshold, scores, odds, has_answer, answers):
    """Percent, if questions with odds above the threshold get no answer."""
    points = 0.0
    for name in odds:
        if odds[name] > threshold:
            points += not has_answer[name]
        else:
            points += scores[name] if has_answer[name] else not answers[name]
    return 100 * points / len(odds)


def test_find_best_threshold_equals_trying_all():
    rng = random.Random(2)
    for _ in range(100):
        names = [str(number) for number in range(rng.randint(1, 12))]
        has_answer = {name: rng.random() < 0.5 for name in names}
        answers = {name: rng.choice(["x", "y", ""]) for name in names}
        scores = {n: rng.choice([0, 0.5, 1]) if has_answer[n] else 0.0 for n in names}
        odds = {name: rng.uniform(-9, 9) for name in names}
        arguments = (scores, odds, has_answer, answers)
        found = find_best_threshold(answers, scores, odds, has_answer)
        tried = [score_at(t, *arguments) for t in [-math.inf, *odds.values()]]
        assert found.score == pytest.approx(max(tried))
        assert score_at(found.threshold, *arguments) == pytest.approx(found.score)
