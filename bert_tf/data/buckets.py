"""Batches of examples of similar length, to save padding.

The stream of records is cut into pools of some tens of batches. Each pool is sorted by length and cut
into batches. Their order is random in training, else from short to long. A batch depends only on the
stream, the seed and its number. The batches of a pool contain exactly its records, so a resumed run can
compute its position.

    pool      7  3  9  3  8  4      lengths of six records, batches of two
    sorted    3  3 | 4  7 | 8  9
    shuffled  8  9 | 3  3 | 4  7

Shapes: N records of a pool, B batch, S sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from bert_tf.data.features import FeatureSpec

# Feature with the positions of a batch's examples in the stream, from 0; int32 [B].
RECORD_NUMBER = "record_number"

_POOL_BATCHES = 50
_POOL_RECORDS = 16_384  # at most, unless a batch alone has more; about 1 kB each
_MOST_LENGTHS = 32  # different S, each of which needs a compilation


def pool_batches(batch_size: int, num_records: int) -> int:
    """Return the batches of a pool: at most an epoch, but one or more.

    A pool that crosses the end of an epoch can contain an example twice, and so can its batches.

    Args:
        num_records: of the data set. Above `most_pool_records` any value gives the same result.
    """
    return max(1, min(_POOL_BATCHES, _POOL_RECORDS // batch_size, num_records // batch_size))


def most_pool_records(batch_size: int) -> int:
    """Return the number of records above which `pool_batches` is constant."""
    return max(_POOL_BATCHES * batch_size, batch_size)


def length_step(max_seq_length: int) -> int:
    """Return the step of batch lengths: 8, or more for long S. A batch can also have `max_seq_length`.

    >>> [length_step(length) for length in (128, 384, 512)]
    [8, 16, 16]
    """
    return 8 * max(1, -(-max_seq_length // (8 * _MOST_LENGTHS)))


def used_lengths(input_mask: tf.Tensor) -> tf.Tensor:
    """Return the position after the last real token of each example: int [N, ..., S] -> int32 [N].

    The mask is 1 for real tokens. Padding may be anywhere. The longest of K choices counts.
    """
    length = input_mask.shape[-1]
    ends = tf.cast(input_mask, tf.int32) * tf.range(1, length + 1)
    return tf.reduce_max(tf.reshape(ends, [tf.shape(ends)[0], -1]), axis=1)


def length_reader(specs: Sequence[FeatureSpec]) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return a function from serialized examples, string [N], to `used_lengths`.

    Raises:
        ValueError: the records have no `input_mask`.
    """
    masks = [spec for spec in specs if spec.name == "input_mask"]
    if not masks:
        raise ValueError(
            "Batches by length need the feature `input_mask`, but the records contain only "
            f"{', '.join(spec.name for spec in specs)}."
        )
    schema = {"input_mask": tf.io.FixedLenFeature(masks[0].shape, tf.int64)}
    return lambda serialized: used_lengths(tf.io.parse_example(serialized, schema)["input_mask"])


def order_of_pool(
    lengths: tf.Tensor, batch_size: int, step: int, seed: tf.Tensor | None
) -> tf.Tensor:
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


def in_buckets(
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
    lengths_of = length_reader(specs)
    (mask,) = (spec for spec in specs if spec.name == "input_mask")
    step = length_step(mask.shape[-1])
    pool_size = batch_size * batches_per_pool

    @tf.autograph.experimental.do_not_convert
    def sort(pool: tf.Tensor, serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        pool_seed = None if seed is None else tf.stack([tf.cast(seed, tf.int64), pool])
        order = order_of_pool(lengths_of(serialized), batch_size, step, pool_seed)
        return tf.gather(serialized, order), pool * pool_size + tf.cast(order, tf.int64)

    return (
        records.batch(pool_size)
        .enumerate(first_pool)
        .map(sort, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .unbatch()
    )


def batches_by_length(lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    """Return the indexes of all items in batches of similar length, the shortest first.

    >>> batches_by_length([5, 1, 9, 2], batch_size=2)
    [[1, 3], [0, 2]]
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    return [order[first : first + batch_size] for first in range(0, len(order), batch_size)]
