"""TFRecord files: written whole or not at all, read as a resumable `tf.data.Dataset`.

A TFRecord file is a row of [length uint64][checksum][data][checksum]; the data are serialized
`tf.train.Example`s as `features.encode_example` makes them.
"""

from __future__ import annotations

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
from bert_tf.data.readers import GZIP_MAGIC, open_binary
from bert_tf.data.record_order import epochs_of

COMPRESSIONS = (None, "GZIP")

# Records (serialized, about 1 kB each) among which the next one is drawn. The reference has 100.
SHUFFLE_BUFFER = 10_000

_LENGTH = struct.Struct("<Q")
_HEADER_SIZE = 12
_LARGEST_RECORD = 2**31  # bytes; a protocol buffer cannot be larger
_CHECKED_RECORDS = 100  # of each file, for ids that the model does not have


class RecordWriter:
    """Writes one TFRecord file; a context manager.

    The file appears under its name only when the block ends without an exception, as
    `files.whole_file` says.

    Args:
        path: of the file; remote paths go through `tf.io.gfile`.
        specs: what an example consists of.
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
        self._writer: Any = None  # a tf.io.TFRecordWriter while it is open

    def __enter__(self) -> RecordWriter:
        if tf.io.gfile.isdir(self.path):
            raise ValueError(f"{self.path} is a folder, but must be the name of a new file in one.")
        with ExitStack() as stack:
            name = stack.enter_context(whole_file(self.path))
            writer = tf.io.TFRecordWriter(name, self.compression)
            self._writer = stack.enter_context(writer)
            self._stack = stack.pop_all()
        return self

    def write(self, values: Mapping[str, Any]) -> None:
        """Appends one example; `values` as in `features.encode_example`."""
        self._check_is_open()
        self.write_serialized(encode_example(self.specs, values))

    def write_serialized(self, record: bytes) -> None:
        """Appends one example, as `example_bytes.encode_columns` makes it."""
        self._check_is_open()
        self._writer.write(record)
        self.count += 1

    def _check_is_open(self) -> None:
        if self._writer is None:
            raise ValueError(f"{self.path} is not open: write inside `with RecordWriter(...)`.")

    def __exit__(self, *error) -> None:
        self._writer = None
        self._stack.__exit__(*error)


def count_records(files: Sequence[str], limit: int | None = None) -> int:
    """Number of records in `files`, without parsing them; counting ends at `limit`.

    Raises:
        ValueError: a file is truncated or no TFRecord file; the message names it.
    """
    return sum(
        1 for _ in islice((record for file in files for record in _raw_records(file)), limit)
    )


def check_records(
    files: Sequence[str],
    specs: Sequence[FeatureSpec],
    id_limits: Mapping[str, int] | None = None,
) -> None:
    """Looks at the first records of each file, before a model is built on them.

    Args:
        files: TFRecord files.
        specs: what the first record of each must hold.
        id_limits: feature -> number of ids there are; looked for in the first hundred records. A GPU
            would give zeros or NaN for an id beyond them.

    Raises:
        ValueError: a record lacks a feature, or has another length or type than its spec, or an id
            beyond the limit; all files are empty; a file is damaged. The message names file,
            feature, what was found, what was expected, and the remedy.
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
        raise ValueError(f"There is no record in {_few(files)}.")


def feature_names(file: str) -> set[str]:
    """What the first record of a file holds; nothing where there is no record.

    Raises:
        ValueError: the file is damaged.
    """
    with naming_damaged_file([file]):
        for record in tf.data.TFRecordDataset(file, _compression(file)).take(1):
            return set(_features(record.numpy(), f"{file}: record 1"))
    return set()


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
) -> tf.data.Dataset:
    """Batches of examples. Every iteration over the result gives the same batches.

    Args:
        files: TFRecord files, plain or GZIP; see `files.expand_files`.
        specs: what to parse; other features of the records are ignored.
        batch_size: B, examples per batch.
        shuffle: files in random order, four at a time, and examples drawn from a buffer; another
            order in each epoch. Otherwise the order of the files.
        seed: of the order; the same seed gives the same batches, whatever `tf.random.set_seed`.
        repeat: epochs without end; a batch may hold the end of one epoch and the start of the next,
            as in the reference.
        drop_remainder: drop the last, smaller batch.
        skip_batches: batches to leave out: the result is the tail of the whole stream, so a run
            that took n batches goes on with `skip_batches=n`.
        shuffle_buffer: number of serialized records in the buffer.
        by_length: examples of similar length share a batch (buckets.py). With `shuffle` the batches
            are in random order; without, from short to long, and the feature
            `buckets.RECORD_NUMBER` says where each example stands in the files.

    Returns:
        Dataset of dicts name -> tensor [B, *shape], of known cardinality.

    Raises:
        ValueError: as `check_records`, which is called here.
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
    compressions = [_compression(file) for file in files]
    num_records = count_records(files) if skip_batches or not repeat else 0  # 0: not counted
    # Of a pool the whole is read before a part of it can be left out.
    pool = 1
    if by_length:
        pool = buckets.pool_batches(
            batch_size, num_records or count_records(files, buckets.most_pool_records(batch_size))
        )
    first_pool, skip_in_pool = divmod(skip_batches, pool)
    skip_records = first_pool * pool * batch_size

    epoch_records = epochs_of(files, compressions, shuffle, seed, shuffle_buffer)

    if repeat:
        # Whole epochs that lie behind are never opened.
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
        return parsed if shuffle or not by_length else {**parsed, buckets.RECORD_NUMBER: number}

    dataset = (
        records.batch(batch_size, drop_remainder=drop_remainder or repeat)
        .map(features, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .apply(tf.data.experimental.assert_cardinality(num_batches))
        .prefetch(tf.data.AUTOTUNE)
    )
    options = tf.data.Options()
    # Several hosts read the same batches and take their share of each; files cannot be dealt out
    # because an epoch is made inside `flat_map`.
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
    """The files that batch `number` (from 0) of `read_records` came from, shuffled and repeated.

    With `by_length`, those of the whole pool that the batch was chosen from.
    """
    files = list(files)
    compressions = [_compression(file) for file in files]
    epoch_files = epochs_of(files, compressions, True, seed, shuffle_buffer, names_only=True)
    num_records = count_records(files)
    pool = buckets.pool_batches(batch_size, num_records) if by_length else 1
    first_epoch, skip = divmod(number // pool * pool * batch_size, num_records)
    epochs = tf.data.Dataset.range(first_epoch, tf.int64.max)
    names = epochs.flat_map(epoch_files).skip(skip).take(pool * batch_size)
    return sorted({name.decode() for name in names.as_numpy_iterator()})


@contextmanager
def naming_damaged_file(files: Sequence[str]) -> Iterator[None]:
    """Wrap iteration over `read_records` in this: TensorFlow's errors do not say which file.

    Raises:
        ValueError: instead of `tf.errors.DataLossError`, with file and record number; and where a
            record cannot be parsed, with the files.
    """
    try:
        yield
    except tf.errors.DataLossError as error:
        for file in files:
            number = 0
            try:
                for _ in tf.data.TFRecordDataset(file, _compression(file)):
                    number += 1
            except tf.errors.DataLossError:
                raise ValueError(
                    f"{file} is damaged: record {number + 1} cannot be read "
                    "(cut off, or its checksum does not fit). Write the file again."
                ) from error
        raise
    except tf.errors.InvalidArgumentError as error:
        if not any(words in error.message for words in _PARSER_WORDS):
            raise
        what = error.message.split("Name: ")[-1].split("\n")[0]
        raise ValueError(
            f"A record in {_few(files)} is not what its first one is ({what}). Write the files again."
        ) from error


# What TensorFlow's parser of examples says, and hardly anything else.
_PARSER_WORDS = ("Could not parse example", "Name: <unknown>")


def _compression(file: str) -> str:
    """ "GZIP" or "", by the first bytes."""
    with tf.io.gfile.GFile(file, "rb") as stream:
        return "GZIP" if stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC else ""


def _raw_records(file: str) -> Iterator[bytes]:
    """Data of the records of one file; lengths are checked, checksums are not."""
    limit = _LARGEST_RECORD if _compression(file) else tf.io.gfile.stat(file).length
    number = 1
    with open_binary(file) as stream:
        try:
            while header := stream.read(_HEADER_SIZE):
                length = _LENGTH.unpack_from(header)[0] if len(header) == _HEADER_SIZE else 0
                if length > limit:
                    raise ValueError(
                        f"{file} is not a TFRecord file or is damaged: record {number} would be "
                        f"{length} bytes long."
                    )
                data = stream.read(length + 4)
                if len(header) < _HEADER_SIZE or len(data) < length + 4:
                    raise EOFError
                yield data[:length]
                number += 1
        except EOFError as error:  # gzip raises it as well
            raise ValueError(
                f"{file} is truncated: record {number} is cut off. Write the file again."
            ) from error


def _features(record: bytes, place: str) -> Mapping[str, Any]:
    """The features of a serialized example, by name."""
    try:
        return tf.train.Example.FromString(record).features.feature
    except Exception as error:  # DecodeError, whose home differs between protobuf versions
        raise ValueError(
            f"{place} is not a tf.train.Example. Write the file with create_pretraining_data or the "
            "script of the task."
        ) from error


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
        found = len(getattr(feature, kind).value)
        expected = 1
        for size in spec.shape:
            expected *= size
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
                f"`{name}` is {beyond[0]} in {place}, but the model has only the ids 0 to {limit - 1}. "
                "Records and model belong together: give the bert_config_file of the vocabulary "
                "that the records were made with."
            )


def _length_remedy(spec: FeatureSpec, found: int) -> str:
    if len(spec.shape) != 1:
        return "Make the records again with the settings of this run."
    setting = "max_predictions_per_seq" if spec.name.startswith("masked_lm_") else "max_seq_length"
    return f"Use {setting}={found}, or make the records again with {setting}={spec.shape[0]}."


def _few(files: Sequence[str]) -> str:
    return ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
