"""Packing of several short examples into one row, to save padding.

    examples              rows of 8             sequence_ids        position_ids
    a a a . . . . .       b b b b b b c c       1 1 1 1 1 1 2 2     0 1 2 3 4 5 0 1
    b b b b b b . .   ->  a a a d d . . .       1 1 1 2 2 0 0 0     0 1 2 0 1 0 0 0
    c c . . . . . .
    d d . . . . . .

A token attends to its own sequence only, and positions count from the start of the sequence. So the
outputs of an example do not depend on the rest of its row. The encoder runs over rows. Heads and losses
get examples as usual, because `packed_positions` maps their tokens to rows.

Shapes: B examples, S their length, R rows, L length of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.data.features import SEQUENCE_FEATURES

# Additional features of a packed batch, all inputs of the model.
PACKED_FEATURES = ("position_ids", "sequence_ids", "packed_positions")
_ROW_FEATURES = ("input_ids", "segment_ids", "position_ids", "sequence_ids")


def pack_batch(
    features: Mapping[str, tf.Tensor], row_length: int, parts: int = 1
) -> dict[str, tf.Tensor]:
    """Pack a batch of examples into rows.

    Args:
        features: name -> tensor [B, ...], with `input_ids`, `input_mask` (1 = real, 0 = padding, at the
            end) and `segment_ids`, each int32 [B, S].
        row_length: L, at least the length of the longest example.
        parts: number of equal parts of the batch that are computed apart: replicas, times the parts of
            gradient accumulation. Each is packed separately, into the same number of rows.

    Returns:
        The features, with int32 [R, L] `input_ids`, `segment_ids`, `position_ids`, `sequence_ids` (0 =
        padding, n = n-th example of the row). `packed_positions` [B, S] are positions in the
        concatenated rows of the part. Padding has that of the example's first token.
    """
    rows, positions = tf.numpy_function(
        lambda *arrays: _pack(*arrays, row_length=row_length, parts=parts),
        [features[name] for name in SEQUENCE_FEATURES],
        [tf.int32, tf.int32],
        stateful=False,
    )
    rows.set_shape([len(_ROW_FEATURES), None, row_length])
    positions.set_shape(features["input_mask"].shape)
    packed = dict(zip(_ROW_FEATURES, tf.unstack(rows), strict=True))
    return {**features, **packed, "packed_positions": positions}


def _pack(input_ids, input_mask, segment_ids, *, row_length: int, parts: int):
    """Return int32 [4, R, L] and [B, S]; see `pack_batch`."""
    lengths = np.maximum(input_mask.sum(axis=1), 1)
    if lengths.max() > row_length:
        raise ValueError(
            f"An example has {lengths.max()} tokens, but a packed row has only {row_length}."
        )
    size = len(lengths) // parts
    if size * parts != len(lengths):
        raise ValueError(
            f"The batch has {len(lengths)} examples, but must have a multiple of {parts}, the number of "
            "replicas. Change train_batch_size."
        )
    plans = [
        first_fit(lengths[start : start + size], row_length)
        for start in range(0, len(lengths), size)
    ]
    # Few different numbers of rows, because each needs a compilation.
    multiple = max(1, size // 16)
    num_rows = -(-max(map(len, plans)) // multiple) * multiple
    rows = np.zeros((len(_ROW_FEATURES), parts * num_rows, row_length), np.int32)
    positions = np.zeros(input_mask.shape, np.int32)
    for part, plan in enumerate(plans):
        for row, members in enumerate(plan):
            start = 0
            for number, member in enumerate(members, start=1):
                example = part * size + member
                length = lengths[example]
                count = np.arange(length)
                place = rows[:, part * num_rows + row, start : start + length]
                place[0] = input_ids[example, :length]
                place[1] = segment_ids[example, :length]
                place[2] = count
                place[3] = number
                positions[example] = row * row_length + start
                positions[example, :length] += count
                start += length
    return rows, positions


def first_fit(lengths: Sequence[int], row_length: int) -> list[list[int]]:
    """Return the examples of each row: longest first, each in the first row with room.

    >>> first_fit([3, 6, 2, 2], 8)
    [[1, 2], [0, 3]]
    """
    rows: list[list[int]] = []
    room: list[int] = []
    for example in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        row = next((row for row, free in enumerate(room) if free >= lengths[example]), None)
        if row is None:
            row = len(rows)
            rows.append([])
            room.append(row_length)
        rows[row].append(example)
        room[row] -= int(lengths[example])
    return rows
