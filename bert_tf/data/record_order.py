"""Order of the records of a set of files in each epoch."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from bert_tf.data.streams import compression_of

# Files read in turn when shuffling: min(4, number of files), as in the reference.
_FILES_AT_ONCE = 4


def epochs_of(
    files: list[str],
    shuffle: bool,
    seed: int,
    shuffle_buffer: int,
) -> Callable[[tf.Tensor], tf.data.Dataset]:
    """Return a function from an epoch to its serialized examples.

    The order depends only on seed and epoch.
    """
    compressions = [compression_of(file) for file in files]
    files_at_once = min(_FILES_AT_ONCE, len(files))

    @tf.autograph.experimental.do_not_convert
    def records_of(file, compression):
        return tf.data.TFRecordDataset(file, compression)

    @tf.autograph.experimental.do_not_convert
    def epoch_records(epoch: tf.Tensor) -> tf.data.Dataset:
        named = tf.data.Dataset.from_tensor_slices((files, compressions))
        if not shuffle:
            return named.flat_map(records_of)
        if not tf.executing_eagerly():  # always, except in tf.data's debug mode
            tf.random.set_seed(1)  # of this function's graph; hides the caller's global seed
        seeds = tf.random.experimental.stateless_split([tf.cast(seed, tf.int64), epoch], 2)
        seeds = tf.cast(seeds[:, 0], tf.int64)
        return (
            named.shuffle(len(files), seeds[0], reshuffle_each_iteration=False)
            .interleave(records_of, files_at_once, 16, files_at_once, deterministic=True)
            .shuffle(shuffle_buffer, seeds[1], reshuffle_each_iteration=False)
        )

    return epoch_records
