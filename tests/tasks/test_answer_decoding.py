"""Answers: the n-best of a question by brute force, and their texts by hand."""

import math
import random

import numpy as np
import pytest

from bert_tf.data.windows import Passage, make_windows, tokenize_passage
from bert_tf.tasks.answer_decoding import (
    CERTAINLY_NULL,
    AnswerSettings,
    find_characters,
    get_final_text,
    predict_answer,
)
from bert_tf.tokenization import BasicTokenizer, FullTokenizer

WORDS = ["owl", "hen", "cat", "pig", "the", "saw", "and", "ran", "far", "off"]
TOKENIZER = FullTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, "who", "?", ".", "##s"])
SEQ = 14


def windows_of(text, max_seq_length=SEQ, doc_stride=3):
    passage = tokenize_passage(Passage(text), TOKENIZER)
    query = TOKENIZER.encode("who ?")
    return list(make_windows(query, passage, max_seq_length=max_seq_length, doc_stride=doc_stride))


def answer(windows, starts, ends, **settings):
    return predict_answer(windows, starts, ends, TOKENIZER, AnswerSettings(**settings))


def by_brute_force(windows, starts, ends, *, n_best_size, max_answer_length, version_2):
    """[(text, score)] of all that may be an answer, from the best down; texts once.

    Words are single pieces in lower case here, so that the text is simply the words.
    """
    found = []
    for number, window in enumerate(windows):

        def rank(logits, position):
            here = (-logits[position], position)
            return sum((-logit, p) < here for p, logit in enumerate(logits))

        for first in range(window.offset, window.offset + window.span.length):
            for last in range(first, window.offset + window.span.length):
                order = (number, rank(starts[number], first), rank(ends[number], last))
                if last - first + 1 > max_answer_length or max(order[1:]) >= n_best_size:
                    continue
                if not window.is_max_context[first - window.offset]:
                    continue
                tokens = map(window.passage_token, (first, last))
                span = slice(next(tokens), next(tokens) + 1)
                text = " ".join(TOKENIZER.convert_ids_to_tokens(window.passage.ids[span]))
                score = float(starts[number][first]) + float(ends[number][last])
                found.append((-score, order, text))
    if version_2:
        null = min(float(s[0]) + float(e[0]) for s, e in zip(starts, ends, strict=True))
        found.append((-null, (math.inf,), ""))
    best = {}
    for score, _, text in sorted(found):
        best.setdefault(text, -score)
    top = list(best.items())[:n_best_size]
    if version_2 and "" not in dict(top):
        top.append(("", best[""]))
    return top or [("empty", 0.0)]


@pytest.mark.parametrize("version_2", [False, True])
def test_the_n_best_are_those_of_trying_every_pair(version_2):
    rng, np_rng = random.Random(7), np.random.default_rng(8)
    for _ in range(150):
        windows = windows_of(" ".join(rng.choices(WORDS, k=rng.randint(1, 25))))
        shape = (len(windows), SEQ)
        # Few different values, so that there are ties.
        starts = np_rng.integers(-4, 9, shape).astype(np.float32) / 2
        ends = np_rng.integers(-4, 9, shape).astype(np.float32) / 2
        sizes = {"n_best_size": rng.randint(1, 8), "max_answer_length": rng.randint(1, 5)}
        found = answer(windows, starts, ends, version_2_with_negative=version_2, **sizes)
        expected = by_brute_force(windows, starts, ends, version_2=version_2, **sizes)
        assert [(c.text, c.score) for c in found.nbest] == expected
        total = sum(math.exp(score) for _, score in expected)
        for candidate, (_, score) in zip(found.nbest, expected, strict=True):
            assert candidate.probability == pytest.approx(math.exp(score) / total)
        texts = [text for text, _ in expected if text]
        assert found.best_answer == (texts[0] if texts else "")
        if version_2 and texts:
            null, best = dict(expected)[""], dict(expected)[texts[0]]
            assert found.null_odds == pytest.approx(null - best)
            assert found.text == ("" if null > best else texts[0])


def one_window(text="owl saw hen .", **logits):
    """Windows, starts, ends: logits by position of the passage's tokens; [CLS] is -1."""
    windows = windows_of(text, max_seq_length=20)
    (window,) = windows
    pair = np.full((2, 1, 20), -9.0, np.float32)
    for row, name in enumerate(("starts", "ends")):
        for token, value in logits[name].items():
            pair[row, 0, 0 if token == -1 else window.offset + token] = value
    return windows, pair[0], pair[1]


def test_no_answer_is_given_where_its_odds_are_above_the_threshold_and_not_at_it():
    arguments = one_window(starts={-1: 2.0, 0: 1.0}, ends={-1: 2.0, 0: 1.5})
    for threshold, text in ((1.4, ""), (1.5, "owl"), (1.6, "owl")):
        settings = {"version_2_with_negative": True, "null_score_diff_threshold": threshold}
        found = answer(*arguments, **settings)
        assert (found.null_odds, found.text, found.best_answer) == (1.5, text, "owl")


def test_a_question_for_which_only_no_answer_is_left_gets_none_where_the_reference_fails():
    # The best positions are in the question and behind the passage.
    windows, starts, ends = one_window(starts={-1: 5.0}, ends={-1: 5.0})
    found = answer(windows, starts, ends, version_2_with_negative=True, n_best_size=1)
    assert (found.text, found.best_answer, found.null_odds) == ("", "", CERTAINLY_NULL)
    assert [(c.text, c.probability) for c in found.nbest] == [("", 1.0)]
    settings = {"version_2_with_negative": True, "null_score_diff_threshold": 1e9}
    assert answer(windows, starts, ends, n_best_size=1, **settings).text == ""
    assert answer([], [], [], version_2_with_negative=True).text == ""  # no windows
    assert answer([], [], []).text == "empty"


def test_answers_know_their_characters():
    text = "Owls saw\u202f(Hens)."
    windows, starts, ends = one_window(text, starts={2: 4.0}, ends={5: 4.0})
    assert TOKENIZER.tokenize(text)[:3] == ["owl", "##s", "saw"]
    settings = AnswerSettings(version_2_with_negative=True)
    nbest = predict_answer(windows, starts, ends, TOKENIZER, settings).nbest
    start, end = find_characters(nbest[0], windows, TOKENIZER)
    assert text[start:end] == "saw\u202f(Hens"
    null = next(candidate for candidate in nbest if not candidate.text)
    assert find_characters(null, windows, TOKENIZER) is None


def test_characters_are_exact_where_the_alignment_of_the_reference_gives_up():
    text = "the owl\u00a0saw."  # one character less without the no-break space
    windows, starts, ends = one_window(text, starts={2: 4.0}, ends={2: 4.0})
    best = predict_answer(windows, starts, ends, TOKENIZER, AnswerSettings()).nbest[0]
    start, end = find_characters(best, windows, TOKENIZER)
    assert (best.text, text[start:end]) == ("owl\u00a0saw.", "saw")
    assert answer(windows, starts, ends, answer_spans="characters").text == "saw"


def test_the_answer_is_found_in_the_words_it_is_of():
    for predicted, original, expected in (
        ("steve smith", "Steve Smith's", "Steve Smith"),
        ("1895", "(1895-1943).", "1895"),
        ("1895 - 1943", "(1895-1943).", "1895-1943"),
        ("$ 5 , 000", "cost $5,000,", "$5,000"),
        ("resume", "a résumé", "résumé"),
        ("東", "東京", "東"),
        ("smith", "SMITH smith", "SMITH"),  # the first of several
    ):
        assert get_final_text(predicted, original, BasicTokenizer()) == expected
    tokenizer = BasicTokenizer(do_lower_case=False)
    for predicted, expected in (("Smith", "Smith"), ("smith", "Smith's")):
        assert get_final_text(predicted, "Smith's", tokenizer) == expected
    # The two do not fit: the answer is all the words.
    for predicted, original in (("[UNK]", "ЖЖ won"), ("won", "x\u00a0won."), ("", "won.")):
        assert get_final_text(predicted, original, BasicTokenizer()) == original
