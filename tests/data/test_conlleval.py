"""conlleval: literal cases, and an oracle that reads the labels one by one as the script does."""

import random

import pytest

from bert_tf.data.label_schemes import Counts, Scores, conlleval, find_entities, format_report

# --------------------------------------------------------------------------------------- the oracle


def ends(before, label):
    """conlleval.pl's `endOfChunk`, with S- and an end between E- and B- added."""
    (b, b_type), (c, c_type) = before, label
    return (b in "BI" and c in "BSO") or (b in "ES") or (b != "O" and b_type != c_type)


def starts(before, label):
    """conlleval.pl's `startOfChunk`, with S- and a start between E- and B- added."""
    (b, b_type), (c, c_type) = before, label
    return c in "BS" or (b in "ESO" and c in "IE") or (c != "O" and b_type != c_type)


def oracle(actual, predicted):
    """(tokens, right tokens, right, found and actual entities): one pass with a state, as the script."""
    pairs = []
    for right, guess in zip(actual, predicted, strict=True):
        pairs += [*zip(right, guess, strict=True), None]  # None: the end of a sentence
    tokens = right_tokens = correct = found = existing = 0
    inside = False
    last = last_guess = ("O", "")
    for pair in pairs:
        label, guess = (
            (tuple(text.split("-", 1)) if "-" in text else (text, ""))
            for text in pair or ("O", "O")
        )
        ended, guess_ended = ends(last, label), ends(last_guess, guess)
        if inside and (ended or guess_ended or label[1] != guess[1]):
            correct += ended and guess_ended and last[1] == last_guess[1]
            inside = False
        started, guess_started = starts(last, label), starts(last_guess, guess)
        inside = inside or (started and guess_started and label[1] == guess[1])
        existing += started
        found += guess_started
        if pair:
            tokens += 1
            right_tokens += label == guess
        last, last_guess = label, guess
    return tokens, right_tokens, correct, found, existing


def random_sentences(rng, prefixes, count=40):
    labels = ["O", *(f"{prefix}-{kind}" for prefix in prefixes for kind in ("PER", "LOC"))]
    actual, predicted = [], []
    for _ in range(count):
        actual.append(rng.choices(labels, k=rng.randint(1, 9)))
        predicted.append(
            [label if rng.random() < 0.7 else rng.choice(labels) for label in actual[-1]]
        )
    return actual, predicted


@pytest.mark.parametrize("prefixes", ["BI", "BIES"])
def test_conlleval_counts_as_the_script(prefixes):
    for seed in range(30):
        actual, predicted = random_sentences(random.Random(seed), prefixes)
        scores = conlleval(actual, predicted)
        overall = scores.overall
        assert oracle(actual, predicted) == (
            scores.num_tokens,
            scores.num_correct_tokens,
            overall.correct,
            overall.predicted,
            overall.actual,
        )
        assert overall.correct > 0


# ------------------------------------------------------------------------------------ literal cases


def test_entities_by_hand():
    for labels, expected in (
        ("B-A I-A O B-B", "A02 B34"),
        ("I-A I-A B-A I-B", "A02 A23 B34"),  # IOB1
        ("O I-A I-B I-B", "A12 B24"),  # I- that breaks IOB2 begins an entity all the same
        ("B-A E-A S-B B-A I-A E-A", "A02 B23 A36"),
        ("E-A E-A I-A O", "A01 A12 A23"),
        ("S-A I-A", "A01 A12"),
        ("B-A I-A L-A L-A U-A I-A U-B", "A03 A34 A45 A56 B67"),  # BILOU
        ("B-A M-A E-A S-A M-B", "A03 A34 B45"),  # BMES
        ("O X X B-A [SEP] I-A B", "X13 A34 [SEP]45 A56 67"),  # no prefix
        ("B-A E-A B-A E-A", "A02 A24"),  # one entity for conlleval.pl
        ("B-creative-work I-creative-work", "creative-work02"),
        ("O O", ""),
    ):
        found = [f"{e.type}{e.start}{e.end}" for e in find_entities(labels.split())]
        assert found == expected.split(), labels


def test_conlleval_needs_the_type_and_both_ends_of_an_entity():
    actual = [["B-PER", "I-PER", "O", "B-LOC", "O", "B-ORG"]]
    predicted = [["B-PER", "I-PER", "I-PER", "B-ORG", "O", "B-ORG"]]
    scores = conlleval(actual, predicted)
    assert scores.overall == Counts(correct=1, predicted=3, actual=3)
    by_type = {"LOC": Counts(0, 0, 1), "ORG": Counts(1, 2, 1), "PER": Counts(0, 1, 1)}
    assert scores.by_type == by_type
    assert scores.accuracy == 4 / 6
    assert scores.by_type["ORG"].f1 == pytest.approx(2 / 3)
    assert scores.by_type["LOC"].precision == scores.by_type["LOC"].f1 == 0.0


def test_the_report_is_that_of_the_script():
    """The totals of the example on the page of CoNLL-2000's shared task, which ends in FB1 74.35."""
    scores = Scores(
        961, 808, Counts(371, 539, 459), {"NP": Counts(1, 2, 1), "creative-work": Counts(0, 0, 3)}
    )
    assert format_report(scores) == (
        "processed 961 tokens with 459 phrases; found: 539 phrases; correct: 371.\n"
        "accuracy:  84.08%; precision:  68.83%; recall:  80.83%; FB1:  74.35\n"
        "               NP: precision:  50.00%; recall: 100.00%; FB1:  66.67  2\n"
        "    creative-work: precision:   0.00%; recall:   0.00%; FB1:   0.00  0\n"
    )
