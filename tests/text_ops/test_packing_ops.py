"""`pack_ragged` against `packing.pack`, row by row."""

import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.data.packing import pack
from bert_tf.text_ops.packing import pack_ragged

CLS, SEP = 101, 102


def ragged(rows):
    return tf.ragged.constant(rows, dtype=tf.int32, ragged_rank=1)


def packed_rows(rows_a, rows_b, max_seq_length):
    """What `pack` makes of each row, cut to the longest of the batch."""
    packed = [
        pack(a, b, max_seq_length=max_seq_length, cls_id=CLS, sep_id=SEP)._asdict()
        for a, b in zip(rows_a, rows_b or [None] * len(rows_a), strict=True)
    ]
    longest = max((sum(row["input_mask"]) for row in packed), default=0)
    return {name: [row[name][:longest] for row in packed] for name in packed[0]}


def as_lists(tensors):
    assert all(tensor.dtype == tf.int32 for tensor in tensors.values())
    return {name: tensor.numpy().tolist() for name, tensor in tensors.items()}


def in_graph(rows_a, rows_b, max_seq_length):
    """`pack_ragged` inside a function traced for any number and length of rows."""
    spec = tf.RaggedTensorSpec([None, None], tf.int32, ragged_rank=1)

    @tf.function(input_signature=[spec] if rows_b is None else [spec, spec])
    def packed(*ids):
        both = (*ids, None) if len(ids) == 1 else ids
        return pack_ragged(*both, max_seq_length=max_seq_length, cls_id=CLS, sep_id=SEP)

    return as_lists(packed(*(ragged(rows) for rows in (rows_a, rows_b) if rows is not None)))


def random_rows(rng, batch, longest):
    return [[rng.randint(1, 99) for _ in range(rng.randint(0, longest))] for _ in range(batch)]


@pytest.mark.parametrize("max_seq_length", [3, 4, 5, 8, 13, 40])
def test_random_pairs_are_packed_as_pack_does(max_seq_length):
    rng = random.Random(max_seq_length)
    rows_a, rows_b = (random_rows(rng, batch=60, longest=12) for _ in range(2))
    assert [] in rows_b and [] in rows_a
    expected = packed_rows(rows_a, rows_b, max_seq_length)
    tensors = pack_ragged(
        ragged(rows_a), ragged(rows_b), max_seq_length=max_seq_length, cls_id=CLS, sep_id=SEP
    )
    assert as_lists(tensors) == expected


def test_every_pair_of_lengths_is_cut_as_pack_does():
    lengths = [(a, b) for a in range(8) for b in range(8)]
    rows_a, rows_b = ([[i + 1] * pair[i] for pair in lengths] for i in range(2))
    for max_seq_length in (4, 6, 9):
        expected = packed_rows(rows_a, rows_b, max_seq_length)
        assert in_graph(rows_a, rows_b, max_seq_length) == expected


def test_a_batch_is_as_long_as_its_longest_example():
    assert in_graph([[7], [8, 9]], [[5], []], 40) == {
        "input_ids": [[CLS, 7, SEP, 5, SEP], [CLS, 8, 9, SEP, 0]],
        "input_mask": [[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]],
        "segment_ids": [[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]],
    }


def test_an_empty_batch_stays_empty():
    assert all(rows == [] for rows in in_graph([], [], 5).values())
    assert all(rows == [] for rows in in_graph([], None, 5).values())


@pytest.mark.parametrize("rows_b, max_seq_length, room", [(None, 1, 2), ([[8]], 2, 3)])
def test_a_length_without_room_for_the_special_tokens_is_refused(rows_b, max_seq_length, room):
    message = f"`max_seq_length` is {max_seq_length}, but .* {room}\\. Use"
    ids_b = None if rows_b is None else ragged(rows_b)
    with pytest.raises(ValueError, match=message):
        pack_ragged(ragged([[7]]), ids_b, max_seq_length=max_seq_length, cls_id=CLS, sep_id=SEP)


@pytest.mark.parametrize("longest, length", [(0, 8), (6, 8), (7, 16), (18, 20), (40, 20)])
def test_the_length_is_the_next_multiple_of_its_step_up_to_the_longest(longest, length):
    rows = [[5] * longest, [5]]
    packed = pack_ragged(ragged(rows), None, max_seq_length=20, cls_id=CLS, sep_id=SEP)
    rounded = pack_ragged(
        ragged(rows), None, max_seq_length=20, cls_id=CLS, sep_id=SEP, length_step=8
    )
    for name, tensor in rounded.items():
        assert tensor.shape == (2, length)
        used = packed[name].shape[1]
        np.testing.assert_array_equal(tensor[:, :used], packed[name])
        assert not tensor[:, used:].numpy().any()
