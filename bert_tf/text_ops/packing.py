"""`packing.pack` as TensorFlow operations on batches, for models that take raw text.

Uses only operations of TF Serving: slicing, masks and ragged concatenation.

Shapes: B batch, S longest sequence of the batch.
"""

from __future__ import annotations

import tensorflow as tf


def pack_ragged(
    ids_a: tf.RaggedTensor,
    ids_b: tf.RaggedTensor | None,
    *,
    max_seq_length: int | tf.Tensor,
    cls_id: int,
    sep_id: int,
    pad_id: int = 0,
    length_step: int | tf.Tensor = 1,
) -> dict[str, tf.Tensor]:
    """Truncate sentences or pairs, add [CLS] and [SEP], and pad to the longest of the batch.

    Args:
        ids_a: int32 [B, None], the first (or only) sentences.
        ids_b: int32 [B, None], the second ones, or None. An empty row marks a single sentence.
        max_seq_length: tokens with [CLS] and [SEP], int or int64 scalar. Longer inputs are truncated
            as in `pack`.
        length_step: S is rounded up to a multiple of this (at most `max_seq_length`), for fewer
            different shapes.

    Returns:
        `input_ids`, `input_mask`, `segment_ids`, int32 [B, S].

    Raises:
        ValueError: `max_seq_length` has no room for [CLS] and [SEP].
    """
    num_special = 2 if ids_b is None else 3
    if isinstance(max_seq_length, int) and max_seq_length < num_special:
        raise ValueError(
            f"`max_seq_length` is {max_seq_length}, but [CLS] and [SEP] need {num_special}. "
            "Use a larger max_seq_length."
        )
    batch = ids_a.nrows(out_type=tf.int64)
    cls = tf.fill([batch, 1], tf.cast(cls_id, tf.int32))
    sep = tf.fill([batch, 1], tf.cast(sep_id, tf.int32))
    if ids_b is None:
        first = tf.concat([cls, first_values(ids_a, max_seq_length - 2), sep], axis=1)
        second = tf.RaggedTensor.from_tensor(tf.zeros([batch, 0], tf.int32))
    else:
        has_b = tf.cast(ids_b.row_lengths() > 0, tf.int64)
        room = max_seq_length - 2 - has_b
        # Half of the room each. One sentence gets what the other does not need (truncate_pair).
        keep_b = tf.minimum(ids_b.row_lengths(), tf.maximum(room // 2, room - ids_a.row_lengths()))
        first = tf.concat([cls, first_values(ids_a, room - keep_b), sep], axis=1)
        # A second sentence that lost all its tokens gets no [SEP].
        closing = tf.RaggedTensor.from_tensor(sep, lengths=tf.cast(keep_b > 0, tf.int64))
        second = tf.concat([first_values(ids_b, keep_b), closing], axis=1)
    rows = tf.concat([first, second], axis=1)
    segments = tf.concat([tf.zeros_like(first), tf.ones_like(second)], axis=1)
    # A batch without rows still has a position, because layers read the first one.
    longest = tf.maximum(rows.bounding_shape(axis=1, out_type=tf.int64), 1)
    shape = [-1, tf.minimum(-(-longest // length_step) * length_step, max_seq_length)]
    return {
        "input_ids": rows.to_tensor(pad_id, shape=shape),
        "input_mask": tf.ones_like(rows).to_tensor(shape=shape),
        "segment_ids": segments.to_tensor(shape=shape),
    }


def first_values(ids: tf.RaggedTensor, length) -> tf.RaggedTensor:
    """Return the first `length` (a number, or int64 [B]) values of each row."""
    lengths = tf.minimum(ids.row_lengths(), tf.cast(length, tf.int64))
    position = tf.ragged.range(ids.row_lengths()).flat_values
    kept = position < tf.gather(lengths, ids.value_rowids())
    return tf.RaggedTensor.from_row_lengths(tf.boolean_mask(ids.flat_values, kept), lengths)
