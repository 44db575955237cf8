"""Documents to next-sentence pairs, and the record of an instance."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.data.sentence_pairs import (
    MIN_SEQ_LENGTH,
    Document,
    PretrainingInstance,
    pretraining_features,
    sentence_pairs,
)
from reference import pretraining_data as reference

sentences = st.lists(st.integers(min_value=0, max_value=9), min_size=1, max_size=9)
corpora = st.lists(st.lists(sentences, min_size=1, max_size=6), min_size=1, max_size=4)


def pairs(corpus, index=0, *, max_seq_length, short_seq_prob=0.0, seed=0):
    return sentence_pairs(
        [Document(sentences) for sentences in corpus],
        index,
        max_seq_length=max_seq_length,
        short_seq_prob=short_seq_prob,
        rng=random.Random(seed),
    )


def plain(pair):
    return list(pair[0]), list(pair[1]), pair[2]


def document(start, *lengths):
    """Sentences of these lengths, with token ids that count up from `start`."""
    numbers = iter(range(start, start + sum(lengths)))
    return [[next(numbers) for _ in range(length)] for length in lengths]


@given(
    corpus=corpora,
    max_seq_length=st.integers(min_value=MIN_SEQ_LENGTH, max_value=24),
    short_seq_prob=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(min_value=0),
)
def test_pairs_and_draws_equal_those_of_the_reference(corpus, max_seq_length, short_seq_prob, seed):
    documents = [Document(sentences) for sentences in corpus]
    rng, reference_rng = random.Random(seed), random.Random(seed)
    for index in range(len(corpus)):
        found = sentence_pairs(
            documents, index, max_seq_length=max_seq_length, short_seq_prob=short_seq_prob, rng=rng
        )
        expected = reference.cut_document(
            corpus, index, max_seq_length, short_seq_prob, reference_rng
        )
        assert [plain(pair) for pair in found] == list(expected)
        assert rng.getstate() == reference_rng.getstate()


def test_a_next_sentence_follows_in_the_same_document():
    corpus = [document(0, 3, 3, 3, 3, 3, 3), document(100, 4, 4)]
    for seed in range(30):
        for ids_a, ids_b, is_random_next in pairs(corpus, max_seq_length=12, seed=seed):
            assert (ids_b[0] >= 100) == is_random_next
            if not is_random_next:
                assert list(ids_a + ids_b) == list(range(ids_a[0], ids_b[-1] + 1))


def test_sentences_that_a_random_one_displaced_come_next():
    corpus = [document(0, 2, 2, 2, 2, 2, 2), document(100, 1)]
    for seed in range(30):
        used = []
        for ids_a, ids_b, is_random_next in pairs(corpus, max_seq_length=13, seed=seed):
            used.extend(ids_a if is_random_next else ids_a + ids_b)
        assert used == list(range(12))


def test_no_pair_is_empty_on_one_side_or_longer_than_allowed():
    corpus = [document(0, 1, 20, 1, 7), document(100, 30, 1)]
    for seed in range(30):
        for ids_a, ids_b, _ in pairs(corpus, max_seq_length=9, seed=seed):
            assert len(ids_a) >= 1 and len(ids_b) >= 1 and len(ids_a) + len(ids_b) <= 6


def test_a_document_alone_in_the_corpus_gives_its_own_sentences_as_random_ones():
    (pair,) = pairs([document(0, 4)], max_seq_length=20)
    assert plain(pair) == ([0, 1, 2, 3], [0, 1, 2, 3], True)


def test_sentences_without_tokens_are_dropped():
    assert len(Document([[4, 5], [], [6]])) == 2
    assert list(Document([[4, 5], [], [6]]).tokens(0, 2)) == [4, 5, 6]


@pytest.mark.parametrize("num_tokens, end", [(-3, 2), (0, 2), (3, 2), (4, 3), (5, 3), (99, 4)])
def test_a_run_holds_at_least_one_sentence_and_then_as_many_as_needed(num_tokens, end):
    assert Document(document(0, 7, 3, 2, 1)).end_of_run(1, num_tokens) == end


def test_an_instance_is_padded_to_its_declared_features():
    instance = PretrainingInstance(
        token_ids=[1, 8, 2, 4, 2],
        masked_lm_positions=[3],
        masked_lm_ids=[9],
        segment_ids=[0, 0, 0, 1, 1],
        is_random_next=True,
    )
    features = instance.to_features(max_seq_length=7, max_predictions_per_seq=2)
    assert features == {
        "input_ids": [1, 8, 2, 4, 2, 0, 0],
        "input_mask": [1, 1, 1, 1, 1, 0, 0],
        "segment_ids": [0, 0, 0, 1, 1, 0, 0],
        "masked_lm_positions": [3, 0],
        "masked_lm_ids": [9, 0],
        "masked_lm_weights": [1.0, 0.0],
        "next_sentence_labels": 1,
    }
    specs = pretraining_features(max_seq_length=7, max_predictions_per_seq=2)
    assert {spec.name: np.shape(features[spec.name]) for spec in specs} == {
        spec.name: spec.shape for spec in specs
    }
