"""`pack_ragged` against `packing.pack`, row by row."""

import numpy as np
import tensorflow as tf

from bert_tf.packing import pack
from bert_tf.serving.text_packing import pack_ragged

CLS, SEP = 101, 102


def ragged(rows):
    return tf.ragged.constant(rows, dtype=tf.int32, ragged_rank=1)


def packed_rows(rows_a, rows_b, max_seq_length):
    """What `pack` makes of each row, cut to the longest of the batch."""
    packed = [
        pack(a, b, max_seq_length=max_seq_length, cls_id=CLS, sep_id=SEP)._asdict()
        for a, b in zip(rows_a, rows_b, strict=True)
    ]
    longest = max(sum(row["input_mask"]) for row in packed)
    return {name: [row[name][:longest] for row in packed] for name in packed[0]}


def found_rows(rows_a, rows_b, max_seq_length):
    ids = ragged(rows_a), None if rows_b is None else ragged(rows_b)
    tensors = pack_ragged(*ids, max_seq_length=max_seq_length, cls_id=CLS, sep_id=SEP)
    assert all(tensor.dtype == tf.int32 for tensor in tensors.values())
    return {name: tensor.numpy().tolist() for name, tensor in tensors.items()}


def test_pack_ragged_in_a_graph_equals_pack_for_all_lengths():
    """In a function that is traced for any number and length of rows."""
    lengths = [(a, b) for a in range(8) for b in range(8)]
    pairs = [[[i + 1] * pair[i] for pair in lengths] for i in range(2)]
    spec = tf.RaggedTensorSpec([None, None], tf.int32, ragged_rank=1)

    @tf.function(input_signature=[spec, spec])
    def packed(a, b):
        return pack_ragged(a, b, max_seq_length=9, cls_id=CLS, sep_id=SEP)

    found = packed(*map(ragged, pairs))
    assert {n: tensor.numpy().tolist() for n, tensor in found.items()} == packed_rows(*pairs, 9)
    assert all(len(rows) == 0 for rows in packed(ragged([]), ragged([])).values())
    for max_seq_length in (4, 6):
        assert found_rows(*pairs, max_seq_length) == packed_rows(*pairs, max_seq_length)


def test_pack_ragged_rounds_the_length_up_to_its_step():
    arguments = {"max_seq_length": 20, "cls_id": CLS, "sep_id": SEP}
    for longest, length in ((0, 8), (6, 8), (7, 16), (18, 20), (40, 20)):
        rows = ragged([[5] * longest, [5]])
        packed = pack_ragged(rows, None, **arguments)
        for name, tensor in pack_ragged(rows, None, **arguments, length_step=8).items():
            assert tensor.shape == (2, length)
            used = packed[name].shape[1]
            np.testing.assert_array_equal(tensor[:, :used], packed[name])
            assert not tensor[:, used:].numpy().any()
