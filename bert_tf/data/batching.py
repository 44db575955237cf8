"""Batches: the order of records, batches of similar length, several examples packed into a row.

Batches by length: the stream of records is cut into pools of some tens of batches. Each pool is sorted
by length and cut into batches. Their order is random in training, else from short to long. A batch
depends only on the stream, the seed and its number. The batches of a pool contain exactly its records,
so a resumed run can compute its position.

    pool      7  3  9  3  8  4      lengths of six records, batches of two
    sorted    3  3 | 4  7 | 8  9
    shuffled  8  9 | 3  3 | 4  7

Packed batches:

    examples              rows of 8             sequence_ids        position_ids
    a a a . . . . .       b b b b b b c c       1 1 1 1 1 1 2 2     0 1 2 3 4 5 0 1
    b b b b b b . .   ->  a a a d d . . .       1 1 1 2 2 0 0 0     0 1 2 0 1 0 0 0
    c c . . . . . .
    d d . . . . . .

A token attends to its own sequence only, and positions count from the start of the sequence. So the
outputs of an example do not depend on the rest of its row. The encoder runs over rows. Heads and losses
get examples as usual, because `packed_positions` maps their tokens to rows.

Shapes: N records of a pool, B batch, S sequence, R rows, L length of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.data.features import SEQUENCE_FEATURES, FeatureSpec
from bert_tf.files import detect_compression

# Files read in turn when shuffling: min(4, number of files), as in the reference.
_FILES_AT_ONCE = 4
# Records (serialized, about 1 kB each) from which the next one is drawn. The reference has 100.
_SHUFFLE_BUFFER = 10_000


def read_epochs(files: list[str], seed: int | None) -> Callable[[tf.Tensor], tf.data.Dataset]:
    """Return epoch -> serialized examples: in the order of the files, or one of (seed, epoch) alone."""
    compressions = [detect_compression(file) for file in files]
    files_at_once = min(_FILES_AT_ONCE, len(files))

    @tf.autograph.experimental.do_not_convert
    def open_records(file, compression):
        return tf.data.TFRecordDataset(file, compression)

    @tf.autograph.experimental.do_not_convert
    def epoch_records(epoch: tf.Tensor) -> tf.data.Dataset:
        named = tf.data.Dataset.from_tensor_slices((files, compressions))
        if seed is None:
            return named.flat_map(open_records)
        if not tf.executing_eagerly():  # always, except in tf.data's debug mode
            tf.random.set_seed(1)  # of this function's graph; hides the caller's global seed
        seeds = tf.random.experimental.stateless_split([tf.cast(seed, tf.int64), epoch], 2)
        seeds = tf.cast(seeds[:, 0], tf.int64)
        return (
            named.shuffle(len(files), seeds[0], reshuffle_each_iteration=False)
            .interleave(open_records, files_at_once, 16, files_at_once, deterministic=True)
            .shuffle(_SHUFFLE_BUFFER, seeds[1], reshuffle_each_iteration=False)
        )

    return epoch_records


# Feature with the positions of a batch's examples in the stream, from 0; int32 [B].
RECORD_NUMBER = "record_number"

MAX_POOL_BATCHES = 50
_POOL_RECORDS = 16_384  # at most, unless a batch alone has more; about 1 kB each
_MAX_LENGTHS = 32  # different S, each of which needs a compilation


def choose_pool_size(batch_size: int, num_records: int) -> int:
    """Return the batches of a pool: at most an epoch, but one or more.

    A pool that crosses the end of an epoch can contain an example twice, and so can its batches.
    """
    return max(1, min(MAX_POOL_BATCHES, _POOL_RECORDS // batch_size, num_records // batch_size))


def length_step(max_seq_length: int) -> int:
    """Return the step of batch lengths: 8, or more for long S. A batch can also have `max_seq_length`.

    >>> [length_step(length) for length in (128, 384, 512)]
    [8, 16, 16]
    """
    return 8 * max(1, -(-max_seq_length // (8 * _MAX_LENGTHS)))


def measure_lengths(input_mask: tf.Tensor) -> tf.Tensor:
    """Return the position after the last real token of each example: int [N, ..., S] -> int32 [N].

    The mask is 1 for real tokens. Padding may be anywhere. The longest of K choices counts.
    """
    length = input_mask.shape[-1]
    ends = tf.cast(input_mask, tf.int32) * tf.range(1, length + 1)
    return tf.reduce_max(tf.reshape(ends, [tf.shape(ends)[0], -1]), axis=1)


def sort_pool(lengths: tf.Tensor, batch_size: int, step: int, seed: tf.Tensor | None) -> tf.Tensor:
    """Return the order of a pool's records: sorted by length, with shuffled batches.

    Records whose lengths round up to the same multiple of `step` keep their order, which is random in
    training.

    Args:
        lengths: int32 [N].
        batch_size: B. A last, smaller batch stays the last.
        seed: int [2], for the order of the batches; None for short to long.

    Returns:
        int32 [N], a permutation.
    """
    order = tf.argsort((lengths + step - 1) // step, stable=True)
    if seed is None:
        return order
    num_batches = tf.shape(lengths)[0] // batch_size
    whole = tf.reshape(order[: num_batches * batch_size], [num_batches, batch_size])
    shuffled = tf.random.experimental.stateless_shuffle(whole, seed)
    return tf.concat([tf.reshape(shuffled, [-1]), order[num_batches * batch_size :]], axis=0)


def bucket_by_length(
    records: tf.data.Dataset,
    specs: Sequence[FeatureSpec],
    *,
    batch_size: int,
    batches_per_pool: int,
    first_pool: int,
    seed: int | None,
) -> tf.data.Dataset:
    """Reorder records so that `.batch(batch_size)` makes batches of similar length.

    Args:
        records: serialized examples, beginning with pool `first_pool`.
        first_pool: number of the first pool in the whole stream.
        seed: for the order of the batches; None for short to long within each pool.

    Returns:
        Dataset of (serialized example, int64 number in the stream).
    """
    (mask,) = (spec for spec in specs if spec.name == "input_mask")
    schema = {"input_mask": tf.io.FixedLenFeature(mask.shape, tf.int64)}
    step = length_step(mask.shape[-1])
    pool_size = batch_size * batches_per_pool

    @tf.autograph.experimental.do_not_convert
    def sort(pool: tf.Tensor, serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        pool_seed = None if seed is None else tf.stack([tf.cast(seed, tf.int64), pool])
        lengths = measure_lengths(tf.io.parse_example(serialized, schema)["input_mask"])
        order = sort_pool(lengths, batch_size, step, pool_seed)
        return tf.gather(serialized, order), pool * pool_size + tf.cast(order, tf.int64)

    return (
        records.batch(pool_size)
        .enumerate(first_pool)
        .map(sort, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .unbatch()
    )


def group_by_length(lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    """Return the indexes of all items in batches of similar length, the shortest first.

    >>> group_by_length([5, 1, 9, 2], batch_size=2)
    [[1, 3], [0, 2]]
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    return [order[first : first + batch_size] for first in range(0, len(order), batch_size)]


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
    size = len(lengths) // parts
    assert lengths.max() <= row_length and size * parts == len(lengths)  # noqa: S101
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
                tokens = rows[:, part * num_rows + row, start : start + length]
                tokens[0] = input_ids[example, :length]
                tokens[1] = segment_ids[example, :length]
                tokens[2] = count
                tokens[3] = number
                positions[example] = row * row_length + start
                positions[example, :length] += count
                start += length
    return rows, positions


def first_fit(lengths: Sequence[int], row_length: int) -> list[list[int]]:
    """Return the examples of each row: longest first, each in the first row with room."""
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
