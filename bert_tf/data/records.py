"""TFRecord files: written completely or not at all, read as a resumable `tf.data.Dataset`.

A TFRecord file is a sequence of [length uint64][checksum][data][checksum]. The data are serialized
`tf.train.Example`s from `features.encode_example`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from bert_tf import __version__
from bert_tf.data.batching import (
    MAX_POOL_BATCHES,
    RECORD_NUMBER,
    bucket_by_length,
    choose_pool_size,
    read_epochs,
)
from bert_tf.data.features import FeatureSpec, check_specs, encode_example, parse_examples
from bert_tf.data.parallel import map_in_order
from bert_tf.files import atomic_path, detect_compression, write_text
from bert_tf.limits import DataError, join_names, read_json
from bert_tf.tokenization import FullTokenizer

logger = logging.getLogger(__name__)

Part = TypeVar("Part")


# ----------------------------------------------------------------------------------------- checks


def count_records(files: Sequence[str], limit: int | None = None) -> int:
    """Count the records in `files` without parsing them, up to `limit`."""
    count = 0
    with explain_read_errors(files):
        for file in files:
            records = tf.data.TFRecordDataset(file, detect_compression(file))
            records = records if limit is None else records.take(limit - count)
            count += int(records.reduce(np.int64(0), lambda total, _: total + 1))
    return count


def check_records(files: Sequence[str], specs: Sequence[FeatureSpec]) -> None:
    """Check the first record of each file before a model is built on them."""
    check_specs(specs)
    records = {file: record for file in files if (record := _first_record(file)) is not None}
    if not records:
        raise ValueError(f"No record found in {summarize_files(files)}. Write the records again.")
    for file, features in records.items():
        for spec in specs:
            expected = (
                math.prod(spec.shape),
                "int64_list" if spec.dtype == "int32" else "float_list",
            )
            actual = features.get(spec.name, (0, "missing"))
            if actual != expected:
                problem = "has {} values ({})".format(*actual)
                raise DataError(
                    file,
                    f"`{spec.name}` {problem}, but must have {expected[0]} ({expected[1]}). Use the "
                    "max_seq_length and max_predictions_per_seq of the records, or make them again. "
                    f"Features: {join_names(sorted(features))}.",
                )


def feature_sizes(file: str) -> dict[str, int]:
    """Return feature -> number of values, of a file's first record; {} for an empty file."""
    return {name: size for name, (size, _) in (_first_record(file) or {}).items()}


def _first_record(file: str) -> dict[str, tuple[int, str]] | None:
    """Return feature -> number and kind of its values, of a file's first record; None if empty."""
    with explain_read_errors([file]):
        records = tf.data.TFRecordDataset(file, detect_compression(file))
        record = next(records.take(1).as_numpy_iterator(), None)
    if record is None:
        return None
    try:
        features = tf.train.Example.FromString(record).features.feature
    except Exception as error:  # DecodeError, whose module differs between protobuf versions
        raise DataError(file, "its first record is not a tf.train.Example.") from error
    sizes = {}
    for name, feature in features.items():
        kind = feature.WhichOneof("kind")
        sizes[name] = (len(getattr(feature, kind).value), kind) if kind else (0, "empty")
    return sizes


_INVALID_ID = "is no id of the model: use the vocabulary and the labels of the records"
# In messages of `assert_ids` and of TensorFlow's parser.
_READ_ERRORS = (_INVALID_ID, "Could not parse example", "Name: <unknown>")


def assert_ids(features: Mapping[str, tf.Tensor], id_limits: Mapping[str, int]) -> None:
    """Add an operation that fails if a batch has an id outside 0 to `id_limits[feature]` - 1."""
    for name in id_limits.keys() & features.keys():
        # Without its sign, a negative id is larger than any limit.
        max_id = tf.reduce_max(tf.bitcast(features[name], tf.uint32))
        limit = id_limits[name]
        tf.debugging.Assert(
            max_id < limit, [f"a value of `{name}` is not in [0, {limit}), so it {_INVALID_ID}"]
        )


@contextmanager
def explain_read_errors(files: Sequence[str]) -> Iterator[None]:
    """Name the files in errors of iteration over `read_records`, which TensorFlow's errors do not."""
    try:
        yield
    except tf.errors.DataLossError as error:
        for file in filter(_is_corrupt, files):
            raise DataError(file, "corrupt, or not a TFRecord file.") from error
        raise
    except tf.errors.InvalidArgumentError as error:
        if not any(words in error.message for words in _READ_ERRORS):
            raise
        cause = error.message.splitlines()[0].split("assertion failed: ")[-1].strip("[]")
        raise DataError(summarize_files(files), cause) from error


def _is_corrupt(file: str) -> bool:
    try:
        for _ in tf.data.TFRecordDataset(file, detect_compression(file)):
            pass
    except tf.errors.DataLossError:
        return True
    return False


def summarize_files(files: Sequence[str]) -> str:
    """Return at most three names and the number of others, for messages."""
    return ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")


# -------------------------------------------------------------------------------- write and read


class RecordWriter:
    """Context manager that writes one TFRecord file.

    The file gets its name only if the block ends without an exception (`files.atomic_path`).

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
        with ExitStack() as stack:
            name = stack.enter_context(atomic_path(self.path))
            writer = tf.io.TFRecordWriter(name)
            self._writer = stack.enter_context(writer)
            self._stack = stack.pop_all()
        return self

    def write(self, values: Mapping[str, Any]) -> None:
        """Append one example, with `values` as in `features.encode_example`."""
        self.write_serialized(encode_example(self.specs, values))

    def write_serialized(self, record: bytes) -> None:
        """Append one example from `parallel.encode_columns`."""
        self._writer.write(record)
        self.count += 1

    def __exit__(self, *error) -> None:
        self._writer = None
        self._stack.__exit__(*error)


def read_records(
    files: Sequence[str],
    specs: Sequence[FeatureSpec],
    batch_size: int,
    *,
    seed: int | None = None,
    skip_batches: int = 0,
    by_length: bool = False,
    id_limits: Mapping[str, int] | None = None,
) -> tf.data.Dataset:
    """Return a dataset of batches. Every iteration over it gives the same batches.

    Args:
        files: TFRecord files, plain or GZIP; see `files.expand_files`.
        specs: features to parse. Others are ignored.
        batch_size: B, examples per batch.
        seed: None: all records in the order of the files; the last batch may be smaller. A number, for a
            training: epochs without end, each in another random order of the files, four at a time, and
            of the examples in a buffer. A batch may contain the end of one epoch and the start of the
            next, as in the reference. `tf.random.set_seed` has no effect.
        skip_batches: first batches of a training to leave out. A run resumes after n batches with
            `skip_batches=n`.
        by_length: batch examples of similar length (batching.py). Without a seed they go from short to
            long, with the feature `RECORD_NUMBER`, each example's position in the files.
        id_limits: feature -> number of valid ids. Other ids stop the iteration, because XLA would take
            the nearest valid one and a GPU return zeros or NaN.

    Returns:
        Dataset of dicts name -> tensor [B, *shape], of known cardinality.

    Raises:
        ValueError: as in `check_records`, which is called here.
    """
    files = list(files)
    check_records(files, specs)
    pool = 1  # batches that are read together, and so are skipped together
    if by_length:
        pool = choose_pool_size(batch_size, count_records(files, MAX_POOL_BATCHES * batch_size))
    first_pool, skip_in_pool = divmod(skip_batches, pool)
    skip_records = first_pool * pool * batch_size
    if seed is None:
        epochs, num_batches = tf.data.Dataset.range(1), -(-count_records(files) // batch_size)
    else:
        first_epoch = 0
        if skip_records:  # skipped epochs are never opened
            first_epoch, skip_records = divmod(skip_records, count_records(files))
        epochs = tf.data.Dataset.range(first_epoch, tf.int64.max)
        num_batches = tf.data.INFINITE_CARDINALITY
    # Skipped before parsing, which costs more.
    records = epochs.flat_map(read_epochs(files, seed)).skip(skip_records)
    if by_length:
        records = bucket_by_length(
            records,
            specs,
            batch_size=batch_size,
            batches_per_pool=pool,
            first_pool=first_pool,
            seed=seed,
        ).skip(skip_in_pool * batch_size)
    parse = parse_examples(specs)

    @tf.autograph.experimental.do_not_convert
    def features(serialized, number=None):
        parsed = parse(serialized)
        assert_ids(parsed, id_limits or {})
        return {**parsed, RECORD_NUMBER: number} if by_length and seed is None else parsed

    dataset = (
        records.batch(batch_size, drop_remainder=seed is not None)
        .map(features, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .apply(tf.data.experimental.assert_cardinality(num_batches))
        .prefetch(tf.data.AUTOTUNE)
    )
    options = tf.data.Options()
    # All hosts read the same batches, and each takes its part. Files cannot be distributed because
    # epochs are made inside `flat_map`.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return dataset.with_options(options)


CHUNK_SIZE = 1000  # examples that become records at once


def split_chunks(examples: Iterable[Part]) -> Iterator[list[Part]]:
    iterator = iter(examples)
    return iter(lambda: list(itertools.islice(iterator, CHUNK_SIZE)), [])


def write_parts(
    path: str,
    specs: Sequence[FeatureSpec],
    make: Callable[[Part], tuple[list[bytes], int]],
    parts: Iterable[Part],
    num_workers: int = 1,
) -> tuple[int, int]:
    """Write a TFRecord file; return the number of records, and the sum of `make`'s numbers.

    `make`: part of the examples -> their serialized records, and a number.
    """
    total = 0
    with RecordWriter(path, specs) as writer:
        for records, number in map_in_order(make, parts, num_workers):
            total += number
            for record in records:
                writer.write_serialized(record)
    return writer.count, total


def content_key(tokenizer: FullTokenizer, settings: Any, rows: Iterable[Any]) -> str:
    """Return a hash of everything that records depend on, with the version of this package."""
    vocabulary = list(tokenizer.vocab.items())
    header = [__version__, settings, tokenizer.do_lower_case, vocabulary]
    digest = hashlib.sha256(json.dumps(header).encode())
    for row in rows:
        digest.update(json.dumps(row).encode() + b"\n")
    return digest.hexdigest()


def make_once(path: str, key: str, write: Callable[[str], int]) -> int:
    """Write a record file unless it exists with the same key. Return the number of records."""
    key_file = f"{path}.json"
    if tf.io.gfile.exists(key_file):
        if tf.io.gfile.exists(path):
            saved = read_json(key_file)
            if (saved["key"], saved["size"]) == (key, tf.io.gfile.stat(path).length):
                logger.info("Using the %d records of %s", saved["num_records"], path)
                return saved["num_records"]
        tf.io.gfile.remove(key_file)  # or it could describe another file
    num_records = write(path)
    logger.info("Wrote %d records to %s", num_records, path)
    size = tf.io.gfile.stat(path).length
    write_text(key_file, json.dumps({"key": key, "num_records": num_records, "size": size}) + "\n")
    return num_records
