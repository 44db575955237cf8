"""Batches of examples of similar length, so that short ones do not pay for the padding of long ones.

The stream of records is cut into pools of some tens of batches. Each pool is sorted by length and cut
into batches, which then come in random order (or, for a model that only looks, from short to long).
A batch is a function of the stream, the seed and its number alone, and the batches of a pool are
exactly its records: so a resumed run finds its place by arithmetic.

    pool      7  3  9  3  8  4      lengths of six records, batches of two
    sorted    3  3 | 4  7 | 8  9
    shuffled  8  9 | 3  3 | 4  7

Shapes: N records of a pool, B batch, S sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from bert_tf.data.features import FeatureSpec

# The feature of a batch that says where its examples stood in the stream, from 0; int32 [B].
RECORD_NUMBER = "record_number"

_POOL_BATCHES = 50
_POOL_RECORDS = 16_384  # at most, unless a batch alone has more; about 1 kB each
_MOST_LENGTHS = 32  # different S: a compiled step is compiled for each


def pool_batches(batch_size: int, num_records: int) -> int:
    """Batches of a pool: never more than an epoch has, or an example would meet itself in a batch.

    Args:
        num_records: of the data set; a lower bound of `most_pool_records` is enough.
    """
    return max(1, min(_POOL_BATCHES, _POOL_RECORDS // batch_size, num_records // batch_size))


def most_pool_records(batch_size: int) -> int:
    """Beyond so many records `pool_batches` does not depend on their number."""
    return max(_POOL_BATCHES * batch_size, batch_size)


def length_step(max_seq_length: int) -> int:
    """What the length of a batch is a multiple of (or it is `max_seq_length`): 8, or more for long S.

    >>> [length_step(length) for length in (128, 384, 512)]
    [8, 16, 16]
    """
    return 8 * max(1, -(-max_seq_length // (8 * _MOST_LENGTHS)))


def used_lengths(input_mask: tf.Tensor) -> tf.Tensor:
    """The position after the last real token of each example, wherever padding stands.

    Args:
        input_mask: int [N, ..., S], 1 = real. With K choices the longest counts.

    Returns:
        int32 [N].
    """
    length = input_mask.shape[-1]
    ends = tf.cast(input_mask, tf.int32) * tf.range(1, length + 1)
    return tf.reduce_max(tf.reshape(ends, [tf.shape(ends)[0], -1]), axis=1)


def length_reader(specs: Sequence[FeatureSpec]) -> Callable[[tf.Tensor], tf.Tensor]:
    """A function from serialized examples, string [N], to `used_lengths`.

    Raises:
        ValueError: the records have no `input_mask`.
    """
    masks = [spec for spec in specs if spec.name == "input_mask"]
    if not masks:
        raise ValueError(
            "Batches by length need the feature `input_mask`, but the records have only "
            f"{', '.join(spec.name for spec in specs)}."
        )
    schema = {"input_mask": tf.io.FixedLenFeature(masks[0].shape, tf.int64)}
    return lambda serialized: used_lengths(tf.io.parse_example(serialized, schema)["input_mask"])


def order_of_pool(
    lengths: tf.Tensor, batch_size: int, step: int, seed: tf.Tensor | None
) -> tf.Tensor:
    """Which record stands where after sorting, cutting into batches and shuffling those.

    Records whose lengths round up to the same multiple of `step` stay in the order they came in,
    which is random in training: nothing is gained by sorting them further.

    Args:
        lengths: int32 [N].
        batch_size: B; a last, smaller batch stays the last.
        step: of `length_step`.
        seed: int [2], of the order of the batches; None for short to long.

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
    """The records in the order in which `.batch(batch_size)` makes batches of similar length.

    Args:
        records: serialized examples, from the first record of pool `first_pool` on.
        specs: what they hold.
        batches_per_pool: of `pool_batches`.
        first_pool: number of the first pool in the whole stream.
        seed: of the order of the batches; None for short to long within each pool.

    Returns:
        Dataset of (serialized example, int64 number in the stream).
    """
    lengths_of = length_reader(specs)
    (mask,) = (spec for spec in specs if spec.name == "input_mask")
    step = length_step(mask.shape[-1])
    pool_size = batch_size * batches_per_pool

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
