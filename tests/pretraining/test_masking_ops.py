"""Masks made on batches: what is chosen, what stands in its place, and of what it is a function."""

import itertools
from array import array

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.pretraining.instances import pretraining_features
from bert_tf.pretraining.masking import Masker, MaskingOptions, continuation_ids
from bert_tf.pretraining.masking_ops import DynamicMasker
from bert_tf.pretraining.python_random import RandomWords

WORDS = ["dog", "cat", "##s", "##ed", "bark", "the", "[UNK]"]
VOCAB = {w: i for i, w in enumerate(["[PAD]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
LARGE = {**VOCAB, **{f"w{i}": len(VOCAB) + i for i in range(990)}}
PAIR = "[CLS] the dog ##s ##ed bark [SEP] ##s cat ##s the dog [SEP]"


def batch(*sentences, length=None):
    """Features of texts of pieces, padded to the longest or to `length`."""
    rows = [[VOCAB[piece] for piece in text.split()] for text in sentences]
    length = length or max(map(len, rows))
    ids = [row + [0] * (length - len(row)) for row in rows]
    mask = [[1] * len(row) + [0] * (length - len(row)) for row in rows]
    return {"input_ids": tf.constant(ids), "input_mask": tf.constant(mask)}


def long_batch(examples=64, length=128, seed=0):
    """Random words of LARGE, [CLS] A [SEP] B [SEP], some padded."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(len(VOCAB), len(LARGE), (examples, length))
    lengths = rng.integers(length // 2, length + 1, examples)
    mask = np.arange(length) < lengths[:, None]
    ids[:, 0] = VOCAB["[CLS]"]
    ids[:, 20] = VOCAB["[SEP]"]
    ids[np.arange(examples), lengths - 1] = VOCAB["[SEP]"]
    return {
        "input_ids": tf.constant(ids * mask, tf.int32),
        "input_mask": tf.constant(mask, tf.int32),
    }


def arrays(features):
    return {name: value.numpy() for name, value in features.items()}


def chosen(masked):
    """Of each example, the positions that are predicted."""
    return [
        row[weights > 0].tolist()
        for row, weights in zip(
            masked["masked_lm_positions"].numpy(), masked["masked_lm_weights"].numpy(), strict=True
        )
    ]


# ------------------------------------------------------------------------------ names, shapes, slots


def test_a_masked_batch_is_what_a_batch_of_masked_records_is():
    features = {**batch(PAIR, "[CLS] dog [SEP]"), "next_sentence_labels": tf.constant([0, 1])}
    features["segment_ids"] = tf.zeros_like(features["input_ids"])
    specs = pretraining_features(13, 5)
    for whole_words in (False, True):
        options = MaskingOptions(do_whole_word_mask=whole_words)
        masked = DynamicMasker(VOCAB, options, max_predictions_per_seq=5)(features, 1, 0)
        assert set(masked) == {spec.name for spec in specs}
        for spec in specs:
            assert masked[spec.name].shape == (2, *spec.shape), spec.name
            assert masked[spec.name].dtype == spec.dtype, spec.name


def test_labels_are_the_original_pieces_and_nothing_else_changes():
    features = long_batch()
    before, masked = arrays(features), arrays(DynamicMasker(LARGE)(features, 3, 0))
    rows = np.arange(64)[:, None]
    used = masked["masked_lm_weights"] > 0
    original = before["input_ids"][rows, masked["masked_lm_positions"]]
    np.testing.assert_array_equal(masked["masked_lm_ids"], original * used)
    for positions, is_used in zip(masked["masked_lm_positions"], used, strict=True):
        assert (np.diff(positions[is_used]) > 0).all()
        assert (np.diff(is_used.astype(int)) <= 0).all() and not positions[~is_used].any()
    is_chosen = np.zeros((64, 128), bool)
    is_chosen[np.nonzero(used)[0], masked["masked_lm_positions"][used]] = True
    np.testing.assert_array_equal(masked["input_ids"][~is_chosen], before["input_ids"][~is_chosen])


# -------------------------------------------------------------------------------------- what is chosen


def test_special_tokens_and_padding_are_never_chosen():
    features = batch(PAIR, "[CLS] dog ##s [SEP]", length=16)
    for whole_words in (False, True):
        options = MaskingOptions(masked_lm_prob=1.0, do_whole_word_mask=whole_words)
        masked = DynamicMasker(VOCAB, options, max_predictions_per_seq=13)(features, 0, 0)
        assert chosen(masked) == [[1, 2, 3, 4, 5, 7, 8, 9, 10, 11], [1, 2]]


def test_as_many_pieces_are_predicted_as_in_static_records():
    texts = ["[CLS] " + "dog " * count + "[SEP]" for count in range(1, 40)]
    for prob, most in itertools.product([0.01, 0.15, 0.25, 0.5], [1, 3, 20]):
        options = MaskingOptions(masked_lm_prob=prob, max_predictions_per_seq=most)
        masked = DynamicMasker(VOCAB, options, max_predictions_per_seq=most)(batch(*texts), 0, 0)
        static = Masker(VOCAB, options, most, continuation_ids(VOCAB))
        for text, positions in zip(texts, chosen(masked), strict=True):
            ids = array("i", [VOCAB[piece] for piece in text.split()])
            expected = static(ids, len(ids) - 1, RandomWords(0)).masked_lm_positions
            assert len(positions) == len(expected), (prob, most, text)


def test_all_pieces_of_a_word_are_masked_or_none():
    masker = DynamicMasker(VOCAB, MaskingOptions(masked_lm_prob=0.4, do_whole_word_mask=True))
    # As in the reference, the "##s" at the front of B belongs to the last word of A.
    words = [{1}, {2, 3, 4}, {5, 7}, {8, 9}, {10}, {11}]
    for number in range(50):
        (positions,) = chosen(masker(batch(PAIR), 0, number))
        assert all(word <= set(positions) or not word & set(positions) for word in words)
        assert 1 <= len(positions) <= 5  # of 13 tokens, 0.4


def test_a_sequence_that_begins_in_the_middle_of_a_word_has_these_pieces_as_a_word():
    masker = DynamicMasker(VOCAB, MaskingOptions(masked_lm_prob=0.4, do_whole_word_mask=True))
    found = {
        tuple(chosen(masker(batch("[CLS] ##s ##ed dog [SEP]"), 0, number))[0])
        for number in range(30)
    }
    assert found == {(1, 2), (3,)}


@given(
    lengths=st.lists(st.integers(min_value=1, max_value=5), min_size=7, max_size=7),
    limit=st.integers(min_value=1, max_value=12),
    number=st.integers(min_value=0, max_value=99),
)
@settings(max_examples=60, deadline=None)
def test_a_word_is_left_out_only_if_it_would_be_too_much(lengths, limit, number):
    words = [" ".join(["dog", *["##s"] * (length - 1)]) for length in lengths]
    options = MaskingOptions(masked_lm_prob=1.0, do_whole_word_mask=True)
    masker = DynamicMasker(VOCAB, options, max_predictions_per_seq=limit)
    features = batch(f"[CLS] {' '.join(words)} [SEP]", length=40)
    (positions,) = chosen(masker(features, 0, number))
    ends = np.cumsum([1, *lengths])
    numbers = [sum(start <= p < end for p in positions) for start, end in itertools.pairwise(ends)]
    assert all(n in (0, length) for n, length in zip(numbers, lengths, strict=True))
    left = limit - len(positions)
    assert left >= 0
    assert all(n or length > left for n, length in zip(numbers, lengths, strict=True))


@pytest.mark.parametrize("whole_words", [False, True])
def test_each_position_is_chosen_as_often_as_in_static_records(whole_words):
    draws = 3000
    options = MaskingOptions(
        masked_lm_prob=0.3, max_predictions_per_seq=9, do_whole_word_mask=whole_words
    )
    masker = DynamicMasker(VOCAB, options, max_predictions_per_seq=9)
    rows = chosen(masker(batch(*[PAIR] * draws), 0, 0))
    dynamic = np.bincount(np.concatenate(rows), minlength=13)
    static = Masker(VOCAB, options, 9, continuation_ids(VOCAB))
    ids, rng = array("i", [VOCAB[piece] for piece in PAIR.split()]), RandomWords(0)
    rows = [static(ids, 6, rng).masked_lm_positions for _ in range(draws)]
    expected = np.bincount(np.concatenate(rows), minlength=13)
    # Five standard deviations of the difference of two shares near a third.
    assert np.abs(dynamic - expected).max() / draws < 5 * np.sqrt(2 * 0.25 / draws)
    assert dynamic[[0, 6, 12]].sum() == 0


# ------------------------------------------------------------------------------ what stands in its place


def test_the_shares_of_mask_random_and_kept_pieces_are_those_asked_for():
    features = long_batch(512)
    for mask, random in ((0.8, 0.1), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0), (0.5, 0.2)):
        options = MaskingOptions(mask_token_prob=mask, random_token_prob=random)
        masked = arrays(DynamicMasker(LARGE, options)(features, 11, 0))
        used = masked["masked_lm_weights"] > 0
        rows = np.nonzero(used)[0]
        seen = masked["input_ids"][rows, masked["masked_lm_positions"][used]]
        assert len(seen) > 6000
        is_mask, is_kept = seen == VOCAB["[MASK]"], seen == masked["masked_lm_ids"][used]
        tolerance = 5 * np.sqrt(0.25 / len(seen))
        assert is_mask.mean() == pytest.approx(mask, abs=tolerance)
        assert is_kept.mean() == pytest.approx(1 - mask - random, abs=tolerance)
        random_ids = seen[~is_mask & ~is_kept]
        if random >= 0.2:  # over the whole vocabulary
            assert len(np.unique(random_ids)) > 0.6 * len(LARGE)
            assert abs(random_ids.mean() / len(LARGE) - 0.5) < 5 * 0.29 / np.sqrt(len(random_ids))


# ---------------------------------------------------------------------------- of what it is a function


def test_masks_are_a_function_of_seed_and_number_of_the_batch_alone():
    features = long_batch(8)
    masker = DynamicMasker(LARGE, MaskingOptions(do_whole_word_mask=True))
    tf.random.set_seed(1)
    first = arrays(masker(features, 7, 3))
    tf.random.set_seed(2)
    again = arrays(DynamicMasker(LARGE, MaskingOptions(do_whole_word_mask=True))(features, 7, 3))
    for name, array_ in first.items():
        np.testing.assert_array_equal(again[name], array_, err_msg=name)
    for seed, number in ((7, 4), (8, 3)):
        assert (arrays(masker(features, seed, number))["input_ids"] != first["input_ids"]).any()


def test_equal_sequences_of_a_batch_have_different_masks():
    one = {name: tf.repeat(value[:1], 10, axis=0) for name, value in long_batch(1).items()}
    assert len(set(map(tuple, chosen(DynamicMasker(LARGE)(one, 0, 0))))) == 10


def test_in_a_pipeline_masks_are_those_of_a_call():
    masker, features = DynamicMasker(LARGE, MaskingOptions(do_whole_word_mask=True)), long_batch(8)
    dataset = tf.data.Dataset.from_tensors(features).repeat(3).enumerate(5)
    dataset = dataset.map(lambda number, x: masker(x, 2**40 + 1, number), num_parallel_calls=2)
    for number, found in enumerate(dataset, start=5):
        expected = arrays(masker(features, 2**40 + 1, number))
        for name, value in arrays(found).items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)
