"""TFRecord files: written completely or not at all, read as a resumable `tf.data.Dataset`.

A TFRecord file is a sequence of [length uint64][checksum][data][checksum]. The data are serialized
`tf.train.Example`s from `features.encode_example`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import tensorflow as tf

from bert_tf.data import buckets
from bert_tf.data.features import FeatureSpec, check_specs, encode_example, parse_examples
from bert_tf.data.files import whole_file
from bert_tf.data.record_checks import assert_ids, check_records, count_records
from bert_tf.data.record_order import epochs_of

# Records (serialized, about 1 kB each) from which the next one is drawn. The reference has 100.
SHUFFLE_BUFFER = 10_000


class RecordWriter:
    """Context manager that writes one TFRecord file.

    The file gets its name only if the block ends without an exception (`files.whole_file`).

    Args:
        path: local, or remote through `tf.io.gfile`.

    >>> with RecordWriter("train.tf_record", specs) as writer:   # doctest: +SKIP
    ...     writer.write({"input_ids": [101, 7592, 102], "label_ids": 1})
    """

    def __init__(self, path: str | os.PathLike, specs: Sequence[FeatureSpec]) -> None:
        check_specs(specs)
        self.path = os.fspath(path)
        self.specs = tuple(specs)
        self.count = 0  # examples written
        self._writer: Any = None  # a tf.io.TFRecordWriter while open

    def __enter__(self) -> RecordWriter:
        if tf.io.gfile.isdir(self.path):
            raise ValueError(f"{self.path} is a folder, but must be a file. Name a file in it.")
        with ExitStack() as stack:
            name = stack.enter_context(whole_file(self.path))
            writer = tf.io.TFRecordWriter(name)
            self._writer = stack.enter_context(writer)
            self._stack = stack.pop_all()
        return self

    def write(self, values: Mapping[str, Any]) -> None:
        """Append one example, with `values` as in `features.encode_example`."""
        self._check_is_open()
        self.write_serialized(encode_example(self.specs, values))

    def write_serialized(self, record: bytes) -> None:
        """Append one example from `example_bytes.encode_columns`."""
        self._check_is_open()
        self._writer.write(record)
        self.count += 1

    def _check_is_open(self) -> None:
        if self._writer is None:
            raise ValueError(f"{self.path} is not open. Write inside `with RecordWriter(...)`.")

    def __exit__(self, *error) -> None:
        self._writer = None
        self._stack.__exit__(*error)


def read_records(
    files: Sequence[str],
    specs: Sequence[FeatureSpec],
    *,
    batch_size: int,
    shuffle: bool,
    seed: int = 0,
    repeat: bool,
    drop_remainder: bool,
    skip_batches: int = 0,
    shuffle_buffer: int = SHUFFLE_BUFFER,
    by_length: bool = False,
    id_limits: Mapping[str, int] | None = None,
) -> tf.data.Dataset:
    """Return a dataset of batches. Every iteration over it gives the same batches.

    Args:
        files: TFRecord files, plain or GZIP; see `globs.expand_files`.
        specs: features to parse. Others are ignored.
        batch_size: B, examples per batch.
        shuffle: read files in random order, four at a time, and draw examples from a buffer. Each
            epoch has another order. Otherwise keep the order of the files.
        seed: of the order. `tf.random.set_seed` has no effect on it.
        repeat: repeat epochs without end. A batch may contain the end of one epoch and the start of
            the next, as in the reference.
        drop_remainder: drop the last, smaller batch.
        skip_batches: first batches of the stream to leave out. A run resumes after n batches with
            `skip_batches=n`.
        shuffle_buffer: records in the buffer.
        by_length: batch examples of similar length (buckets.py). With `shuffle` the batches are in
            random order. Otherwise they go from short to long, with the feature
            `buckets.RECORD_NUMBER`, each example's position in the files.
        id_limits: feature -> number of valid ids. Other ids stop the iteration, because XLA would take
            the nearest valid one and a GPU return zeros or NaN. `naming_damaged_file` names the record.

    Returns:
        Dataset of dicts name -> tensor [B, *shape], of known cardinality.

    Raises:
        ValueError: as in `check_records`, which is called here.
    """
    for name, value, least in (
        ("batch_size", batch_size, 1),
        ("skip_batches", skip_batches, 0),
        ("shuffle_buffer", shuffle_buffer, 1),
    ):
        if value < least:
            raise ValueError(f"`{name}` is {value}, but must be {least} or more.")
    files = list(files)
    check_records(files, specs)
    num_records = count_records(files) if skip_batches or not repeat else 0  # 0: not counted
    # A whole pool must be read before a part of it can be skipped.
    pool = 1
    if by_length:
        pool = buckets.pool_batches(
            batch_size, num_records or count_records(files, buckets.most_pool_records(batch_size))
        )
    first_pool, skip_in_pool = divmod(skip_batches, pool)
    skip_records = first_pool * pool * batch_size

    epoch_records = epochs_of(files, shuffle, seed, shuffle_buffer)
    if repeat:
        # Skipped epochs are never opened.
        first_epoch = 0
        if skip_records:
            first_epoch, skip_records = divmod(skip_records, num_records)
        epochs = tf.data.Dataset.range(first_epoch, tf.int64.max)
        num_batches = tf.data.INFINITE_CARDINALITY
    else:
        epochs = tf.data.Dataset.range(1)
        remaining = max(0, num_records - skip_batches * batch_size)
        num_batches = remaining // batch_size if drop_remainder else -(-remaining // batch_size)

    records = epochs.flat_map(epoch_records).skip(skip_records)  # before parsing, which costs more
    parse = parse_examples(specs)
    if by_length:
        records = buckets.in_buckets(
            records,
            specs,
            batch_size=batch_size,
            batches_per_pool=pool,
            first_pool=first_pool,
            seed=seed if shuffle else None,
        ).skip(skip_in_pool * batch_size)

    @tf.autograph.experimental.do_not_convert
    def features(serialized, number=None):
        parsed = parse(serialized)
        assert_ids(parsed, id_limits or {})
        return parsed if shuffle or not by_length else {**parsed, buckets.RECORD_NUMBER: number}

    dataset = (
        records.batch(batch_size, drop_remainder=drop_remainder or repeat)
        .map(features, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .apply(tf.data.experimental.assert_cardinality(num_batches))
        .prefetch(tf.data.AUTOTUNE)
    )
    options = tf.data.Options()
    # All hosts read the same batches, and each takes its part. Files cannot be distributed because
    # epochs are made inside `flat_map`.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return dataset.with_options(options)
