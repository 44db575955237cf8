"""Several runs that answer together."""

import json
import math

import pytest

from bert_tf.tasks.answer_decoding import AnswerSettings
from bert_tf.tasks.answer_ensemble import combine, read_nbest


def entries(**probabilities):
    """An n-best list; `none` is no answer."""
    texts = {"none": ""}
    return [
        {"text": texts.get(text, text), "probability": p, "start_logit": 3 * p, "end_logit": p}
        for text, p in probabilities.items()
    ]


V2 = AnswerSettings(version_2_with_negative=True)


def test_probabilities_are_averaged_and_a_text_that_a_run_does_not_name_has_none():
    runs = [
        {"q": entries(cat=0.6, dog=0.4)},
        {"q": entries(owl=0.5, dog=0.5)},
        {"q": entries(dog=0.1)},
    ]
    found = combine(runs, ["q"], AnswerSettings())["q"]
    assert found.text == "dog"
    assert {c.text: c.probability for c in found.nbest} == pytest.approx(
        {"dog": 1.0 / 3, "cat": 0.2, "owl": 0.5 / 3}
    )
    assert [c.text for c in found.nbest] == ["dog", "cat", "owl"]
    assert found.nbest[0].end_logit == pytest.approx(1.0 / 3)  # of the runs that name it


def test_odds_of_no_answer_are_those_of_the_averages():
    runs = [{"q": entries(none=0.7, cat=0.3)}, {"q": entries(cat=0.5, dog=0.3, none=0.2)}]
    found = combine(runs, ["q"], V2)["q"]
    assert found.null_odds == pytest.approx(math.log(0.45 / 0.4))
    assert (found.text, found.best_answer) == ("", "cat")
    settings = AnswerSettings(version_2_with_negative=True, null_score_diff_threshold=0.2)
    assert combine(runs, ["q"], settings)["q"].text == "cat"


def test_no_answer_stays_in_the_n_best_and_certainty_is_a_number():
    runs = [{"q": entries(cat=1.0, none=0.0)}]
    settings = AnswerSettings(n_best_size=1, version_2_with_negative=True)
    found = combine(runs, ["q"], settings)["q"]
    assert [c.text for c in found.nbest] == ["cat", ""]
    assert found.null_odds < -700 and math.isfinite(found.null_odds)
    only_null = combine([{"q": entries(none=1.0)}], ["q"], V2)["q"]
    assert only_null.text == "" and math.isfinite(only_null.null_odds)


@pytest.mark.parametrize(
    "values, version_2, message",
    [
        ({"other": []}, False, "question q"),
        ({"q": []}, False, "question q"),
        ({"q": entries(cat=1.0)}, True, "version_2_with_negative"),
        ({"q": entries(cat=0.6, none=0.4)}, False, "version_2_with_negative"),
        (None, False, "nbest_predictions.json was not found"),
    ],
)
def test_read_nbest_rejects_other_runs(tmp_path, values, version_2, message):
    if values is not None:
        (tmp_path / "nbest_predictions.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match=message):
        read_nbest(str(tmp_path), ["q"], version_2)
