"""Documents to the sequences that pre-training sees."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.pretraining.python_random import RandomWords
from bert_tf.pretraining.sentence_pairs import MIN_PAIR_LENGTH, Document, make_sequences
from reference import pretraining_data as reference

sentences = st.lists(st.integers(min_value=0, max_value=9), min_size=1, max_size=9)
corpora = st.lists(st.lists(sentences, min_size=1, max_size=6), min_size=1, max_size=4)


def pairs(corpus, index=0, *, max_seq_length, short_seq_prob=0.0, seed=0, objective="mlm_nsp"):
    return make_sequences(
        objective,
        [Document(sentences) for sentences in corpus],
        index,
        max_seq_length=max_seq_length,
        short_seq_prob=short_seq_prob,
        rng=RandomWords(seed),
    )


def plain(pair):
    return list(pair[0]), list(pair[1]), bool(pair[2])


def document(start, *lengths):
    """Sentences of these lengths, with token ids that count up from `start`."""
    numbers = iter(range(start, start + sum(lengths)))
    return [[next(numbers) for _ in range(length)] for length in lengths]


@given(
    corpus=corpora,
    max_seq_length=st.integers(min_value=MIN_PAIR_LENGTH, max_value=24),
    short_seq_prob=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(min_value=0),
)
def test_pairs_and_draws_equal_those_of_the_reference(corpus, max_seq_length, short_seq_prob, seed):
    documents = [Document(sentences) for sentences in corpus]
    rng, reference_rng = RandomWords(seed), random.Random(seed)
    for index in range(len(corpus)):
        found = make_sequences(
            "mlm_nsp",
            documents,
            index,
            max_seq_length=max_seq_length,
            short_seq_prob=short_seq_prob,
            rng=rng,
        )
        expected = reference.cut_document(
            corpus, index, max_seq_length, short_seq_prob, reference_rng
        )
        assert [plain(pair) for pair in found] == list(expected)
    assert rng.random() == reference_rng.random()  # as many were drawn


def test_sentences_without_tokens_are_dropped():
    assert len(Document([[4, 5], [], [6]])) == 2
    assert list(Document([[4, 5], [], [6]]).tokens(0, 2)) == [4, 5, 6]


# ------------------------------------------------------------------------------- other objectives


@given(
    corpus=corpora,
    max_seq_length=st.integers(min_value=MIN_PAIR_LENGTH, max_value=24),
    seed=st.integers(min_value=0),
)
def test_ordered_pairs_are_neighbours_of_one_document_in_either_order(corpus, max_seq_length, seed):
    numbers = iter(range(10_000))
    numbered = [[[next(numbers) for _ in sentence] for sentence in doc] for doc in corpus]
    for index in range(len(numbered)):
        last = -1
        for ids_a, ids_b, label in pairs(
            numbered, index, max_seq_length=max_seq_length, seed=seed, objective="mlm_sop"
        ):
            first, second = (ids_b, ids_a) if label else (ids_a, ids_b)
            assert 2 <= len(first) + len(second) <= max_seq_length - 3
            assert len(first) and len(second)
            assert last < first[0] and first[-1] < second[0]
            assert list(first) == list(range(first[0], first[-1] + 1))
            last = second[-1]


def test_half_of_the_ordered_pairs_are_swapped():
    corpus = [document(0, *[3] * 600)]
    labels = [p[2] for p in pairs(corpus, max_seq_length=9, seed=1, objective="mlm_sop")]
    assert sum(labels) / len(labels) == pytest.approx(0.5, abs=0.06)


def test_a_sentence_alone_is_cut_for_an_ordered_pair_and_a_single_token_left_out():
    (pair,) = pairs([document(0, 5)], max_seq_length=12, objective="mlm_sop")
    assert sorted([*pair[0], *pair[1]]) == [0, 1, 2, 3, 4]
    assert list(pairs([document(0, 1)], max_seq_length=12, objective="mlm_sop")) == []


def test_single_sequences_are_a_document_from_front_to_back():
    corpus = [document(0, 3, 4, 2, 5, 1)]
    found = list(pairs(corpus, max_seq_length=9, objective="mlm"))
    assert [(list(p[0]), p[1], p[2]) for p in found] == [
        (list(range(7)), None, 0),
        (list(range(7, 14)), None, 0),
        ([14], None, 0),
    ]


def test_a_single_sequence_that_is_too_long_loses_tokens_at_its_ends():
    (sequence,) = pairs([document(0, 30)], max_seq_length=9, objective="mlm")
    assert len(sequence[0]) == 7
    assert list(sequence[0]) == list(range(sequence[0][0], sequence[0][0] + 7))
