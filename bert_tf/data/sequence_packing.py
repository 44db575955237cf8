"""Several short examples in one row, because padding is the largest waste there is.

    examples              rows of 8             sequence_ids        position_ids
    a a a . . . . .       b b b b b b c c       1 1 1 1 1 1 2 2     0 1 2 3 4 5 0 1
    b b b b b b . .   ->  a a a d d . . .       1 1 1 2 2 0 0 0     0 1 2 0 1 0 0 0
    c c . . . . . .
    d d . . . . . .

A token attends to its own sequence only and counts its positions from its own start, so nothing that an
example gives depends on what shares its row. The encoder runs over rows; `packed_positions` says where
each token of each example stands in them, and the heads and losses see examples as ever.

Shapes: B examples, S their length, R rows, L length of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

# What a packed batch has besides the features of its examples; all go into the model.
PACKED_FEATURES = ("position_ids", "sequence_ids", "packed_positions")
_ROW_FEATURES = ("input_ids", "segment_ids", "position_ids", "sequence_ids")


def pack_batch(
    features: Mapping[str, tf.Tensor], row_length: int, parts: int = 1
) -> dict[str, tf.Tensor]:
    """A batch of examples as rows.

    Args:
        features: name -> tensor [B, ...], with `input_ids`, `input_mask` (1 = real, 0 = padding, after
            all that is real) and `segment_ids`, each int32 [B, S].
        row_length: L, at least the length of the longest example.
        parts: the batch is cut into so many equal parts, each packed for itself and into the same
            number of rows: for replicas, each of which gets one.

    Returns:
        The features, with int32 `input_ids`, `segment_ids`, `position_ids` and `sequence_ids` (0 =
        padding, n = n-th example of the row), each [R, L], and `packed_positions` [B, S], the place of a
        token in the rows of its part laid end to end; for padding the place of the first token.
    """
    names = ("input_ids", "input_mask", "segment_ids")
    rows, positions = tf.numpy_function(
        lambda *arrays: _pack(*arrays, row_length=row_length, parts=parts),
        [features[name] for name in names],
        [tf.int32, tf.int32],
        stateful=False,
    )
    rows.set_shape([len(_ROW_FEATURES), None, row_length])
    positions.set_shape(features["input_mask"].shape)
    packed = dict(zip(_ROW_FEATURES, tf.unstack(rows), strict=True))
    return {**features, **packed, "packed_positions": positions}


def _pack(input_ids, input_mask, segment_ids, *, row_length: int, parts: int):
    """int32 [4, R, L] and [B, S]; see `pack_batch`."""
    lengths = np.maximum(input_mask.sum(axis=1), 1)
    if lengths.max() > row_length:
        raise ValueError(
            f"An example has {lengths.max()} tokens, but a packed row only {row_length}."
        )
    size = len(lengths) // parts
    if size * parts != len(lengths):
        raise ValueError(
            f"A batch of {len(lengths)} examples cannot be packed for {parts} replicas: its size must "
            "be a multiple of their number. Change train_batch_size."
        )
    plans = [
        first_fit(lengths[start : start + size], row_length)
        for start in range(0, len(lengths), size)
    ]
    # Few different numbers of rows, since a compiled step is compiled for each.
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
    """Which examples share a row: the longest first, each into the first row that has room.

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
