"""TFRecord files: written completely or not at all, read as a resumable `tf.data.Dataset`.

A TFRecord file is a sequence of [length uint64][checksum][data][checksum]. The data are serialized
`tf.train.Example`s from `features.encode_example`.
"""

from __future__ import annotations

import functools
import math
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any

import tensorflow as tf

from bert_tf.data import buckets
from bert_tf.data.features import FeatureSpec, check_specs, encode_example, parse_examples
from bert_tf.data.files import whole_file
from bert_tf.data.record_order import epochs_of
from bert_tf.data.streams import compression_of, open_binary
from bert_tf.limits import MAX_RECORD, ORIGIN

COMPRESSIONS = (None, "GZIP")

# Records (serialized, about 1 kB each) from which the next one is drawn. The reference has 100.
SHUFFLE_BUFFER = 10_000

_LENGTH = struct.Struct("<Q")
_HEADER_SIZE = 12
_CHECKED_RECORDS = 100  # per file, for invalid ids, before a model is built
_INVALID_ID = "a record contains an id that the model does not have"  # in TensorFlow's error


class RecordWriter:
    """Context manager that writes one TFRecord file.

    The file gets its name only if the block ends without an exception (`files.whole_file`).

    Args:
        path: local, or remote through `tf.io.gfile`.
        compression: None or "GZIP".

    >>> with RecordWriter("train.tf_record", specs) as writer:   # doctest: +SKIP
    ...     writer.write({"input_ids": [101, 7592, 102], "label_ids": 1})
    """

    def __init__(
        self,
        path: str | os.PathLike,
        specs: Sequence[FeatureSpec],
        compression: str | None = None,
    ) -> None:
        if compression not in COMPRESSIONS:
            raise ValueError(f"`compression` is {compression!r}, but must be None or 'GZIP'.")
        check_specs(specs)
        self.path = os.fspath(path)
        self.specs = tuple(specs)
        self.compression = compression
        self.count = 0  # examples written
        self._writer: Any = None  # a tf.io.TFRecordWriter while open

    def __enter__(self) -> RecordWriter:
        if tf.io.gfile.isdir(self.path):
            raise ValueError(f"{self.path} is a folder, but must be a file. Name a file in it.")
        with ExitStack() as stack:
            name = stack.enter_context(whole_file(self.path))
            writer = tf.io.TFRecordWriter(name, self.compression)
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


def count_records(files: Sequence[str], limit: int | None = None) -> int:
    """Count the records in `files` without parsing them, up to `limit`.

    Raises:
        ValueError: a file is truncated or not a TFRecord file. The message names it.
    """
    return sum(
        1 for _ in islice((record for file in files for record in _raw_records(file)), limit)
    )


def check_records(
    files: Sequence[str],
    specs: Sequence[FeatureSpec],
    id_limits: Mapping[str, int] | None = None,
) -> None:
    """Check the first records of each file before a model is built on them.

    Args:
        id_limits: feature -> number of valid ids, checked in the first hundred records. `read_records`
            checks all.

    Raises:
        ValueError: a feature or id does not fit, all files are empty, or one is damaged. The message
            names file, feature, found and expected values, and the remedy.
    """
    check_specs(specs)
    empty = True
    for file in files:
        records = _raw_records(file)
        for number, record in enumerate(islice(records, _CHECKED_RECORDS if id_limits else 1), 1):
            if number == 1:
                _check_first_record(file, record, specs)
            _check_ids(f"record {number} of {file}", record, id_limits or {})
            empty = False
    if empty:
        raise ValueError(f"No record found in {first_names(files)}. Write the records again.")


def feature_sizes(file: str) -> dict[str, int]:
    """Return feature -> number of values, of a file's first record; {} for an empty file.

    Raises:
        ValueError: the file is damaged.
    """
    next(_raw_records(file), None)  # TensorFlow's reader crashes for a forged length
    with naming_damaged_file([file]):
        for record in tf.data.TFRecordDataset(file, compression_of(file)).take(1):
            features = _features(record.numpy(), f"{file}: record 1").items()
            return {name: len(_values(feature)) for name, feature in features}
    return {}


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
        files: TFRecord files, plain or GZIP; see `files.expand_files`.
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

    @functools.cache  # in the first epoch
    def check_lengths(file: bytes) -> bytes:
        """Raise for a forged length of a local file, at which TensorFlow would crash."""
        name = file.decode()
        if is_plain(name):
            try:
                count_records([name])
            except ValueError as error:
                if not isinstance(error.__cause__, EOFError):  # TensorFlow names a truncated record
                    raise
        return file

    def is_plain(file: str) -> bool:  # a forged length in gzip is TensorFlow's error
        return "://" not in file and not compression_of(file)

    # Counting has checked them. For remote files, Python would be no part of the pipeline of a TPU.
    check = check_lengths if not num_records and any(map(is_plain, files)) else None
    epoch_records = epochs_of(files, shuffle, seed, shuffle_buffer, check=check)

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

    def features(serialized, number=None):
        parsed = parse(serialized)
        _assert_ids(parsed, id_limits or {})
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


def files_of_batch(
    files: Sequence[str],
    number: int,
    *,
    batch_size: int,
    seed: int,
    by_length: bool = False,
    shuffle_buffer: int = SHUFFLE_BUFFER,
) -> list[str]:
    """Return the files of batch `number` (from 0) of shuffled and repeated `read_records`.

    With `by_length`, return the files of the batch's whole pool.
    """
    files = list(files)
    epoch_files = epochs_of(files, True, seed, shuffle_buffer, names_only=True)
    num_records = count_records(files)
    pool = buckets.pool_batches(batch_size, num_records) if by_length else 1
    first_epoch, skip = divmod(number // pool * pool * batch_size, num_records)
    epochs = tf.data.Dataset.range(first_epoch, tf.int64.max)
    names = epochs.flat_map(epoch_files).skip(skip).take(pool * batch_size)
    return sorted({name.decode() for name in names.as_numpy_iterator()})


@contextmanager
def naming_damaged_file(
    files: Sequence[str], id_limits: Mapping[str, int] | None = None
) -> Iterator[None]:
    """Name the file in errors of iteration over `read_records`, which TensorFlow's errors do not.

    Args:
        id_limits: those of `read_records`.

    Raises:
        ValueError: a record cannot be read or has an invalid id (the message has file and record
            number), or cannot be parsed (the message has the files).
    """
    try:
        yield
    except tf.errors.DataLossError as error:
        for file in files:
            number = 0
            try:
                for _ in tf.data.TFRecordDataset(file, compression_of(file)):
                    number += 1
            except tf.errors.DataLossError:
                raise ValueError(
                    f"{file} is damaged: record {number + 1} cannot be read "
                    "(truncated, or its checksum does not fit). Write the file again."
                ) from error
        raise
    except tf.errors.InvalidArgumentError as error:
        if _INVALID_ID in error.message:
            for file in files:
                for number, record in enumerate(_raw_records(file), 1):
                    _check_ids(f"record {number} of {file}", record, id_limits or {})
        if "ValueError: " in error.message:  # of `check_lengths`
            count_records(files)
        if not any(words in error.message for words in _PARSER_WORDS):
            raise
        what = error.message.split("Name: ")[-1].split("\n")[0]
        raise ValueError(
            f"A record in {first_names(files)} differs from the first one ({what}). Write the files "
            "again."
        ) from error
    except UnicodeDecodeError as error:  # TensorFlow's message quotes the bytes of a damaged record
        raise ValueError(
            f"A record in {first_names(files)} cannot be parsed ({error}). Write the files again."
        ) from error


# Words of errors from TensorFlow's parser of examples.
_PARSER_WORDS = ("Could not parse example", "Name: <unknown>")


def _raw_records(file: str) -> Iterator[bytes]:
    """Yield the data of a file's records. Check lengths, but not checksums."""
    number, offset = 1, 0
    with open_binary(file) as stream:
        try:
            while header := stream.read(_HEADER_SIZE):
                length = _LENGTH.unpack_from(header)[0] if len(header) == _HEADER_SIZE else 0
                if length > MAX_RECORD:
                    raise ValueError(
                        f"{file} is not a TFRecord file, or is damaged: record {number}, at byte "
                        f"{offset:,} of the records, would have {length:,} bytes. The file has "
                        f"{tf.io.gfile.stat(file).length:,} bytes, and a record at most "
                        f"{MAX_RECORD:,}, {ORIGIN}. Write the file again."
                    )
                data = stream.read(length + 4)
                if len(header) < _HEADER_SIZE or len(data) < length + 4:
                    raise EOFError
                yield data[:length]
                number += 1
                offset += len(header) + len(data)
        except EOFError as error:  # gzip raises it as well
            raise ValueError(
                f"{file} is truncated at record {number}. Write the file again."
            ) from error


def _features(record: bytes, place: str) -> Mapping[str, Any]:
    """Return the features of a serialized example, by name."""
    try:
        return tf.train.Example.FromString(record).features.feature
    except Exception as error:  # DecodeError, whose module differs between protobuf versions
        raise ValueError(
            f"{place} is not a tf.train.Example. Write the file with create_pretraining_data or the "
            "script of the task."
        ) from error


def _values(feature: tf.train.Feature) -> Sequence[Any]:
    kind = feature.WhichOneof("kind")
    return getattr(feature, kind).value if kind else ()


def _check_first_record(file: str, record: bytes, specs: Sequence[FeatureSpec]) -> None:
    features = _features(record, f"{file}: record 1")
    for spec in specs:
        if spec.name not in features:
            raise ValueError(
                f"{file}: feature `{spec.name}` is missing; record 1 has "
                f"{', '.join(sorted(features)) or 'none'}. Make the records for this task."
            )
        feature = features[spec.name]
        expected_kind = "int64_list" if spec.dtype == "int32" else "float_list"
        kind = feature.WhichOneof("kind")
        if kind != expected_kind:
            raise ValueError(
                f"{file}: feature `{spec.name}` is a {kind}, but {spec.dtype} is stored as "
                f"{expected_kind}. Make the records for this task."
            )
        found, expected = len(_values(feature)), math.prod(spec.shape)
        if found != expected:
            raise ValueError(
                f"{file}: feature `{spec.name}` has {found} values in record 1, but {expected} "
                f"are expected (shape {list(spec.shape)}). {_length_remedy(spec, found)}"
            )


def _check_ids(place: str, record: bytes, id_limits: Mapping[str, int]) -> None:
    features = _features(record, place)
    for name, limit in id_limits.items():
        beyond = [number for number in features[name].int64_list.value if not 0 <= number < limit]
        if beyond:
            raise ValueError(
                f"`{name}` is {beyond[0]} in {place}, but the model's ids are 0 to {limit - 1}. Use the "
                "model (bert_config_file) and the labels that the records were made for, or make the "
                "records again."
            )


def _assert_ids(features: Mapping[str, tf.Tensor], id_limits: Mapping[str, int]) -> None:
    """Add an operation to `tf.data` that fails if a batch contains an invalid id."""
    names = [name for name in id_limits if name in features]
    if names:  # without its sign, a negative id is larger than any limit
        most = [tf.reduce_max(tf.bitcast(features[name], tf.uint32)) for name in names]
        limits = tf.constant([id_limits[name] for name in names], tf.uint32)
        tf.debugging.Assert(tf.reduce_all(tf.stack(most) < limits), [_INVALID_ID])


def _length_remedy(spec: FeatureSpec, found: int) -> str:
    if len(spec.shape) != 1:
        return "Make the records again with the settings of this run."
    setting = "max_predictions_per_seq" if spec.name.startswith("masked_lm_") else "max_seq_length"
    return f"Use {setting}={found}, or make the records again with {setting}={spec.shape[0]}."


def first_names(files: Sequence[str]) -> str:
    """Return at most three names and the number of others, for messages."""
    return ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
