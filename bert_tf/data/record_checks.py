"""Checks of TFRecord files: lengths, features, ids. Errors name the file and the record."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import tensorflow as tf

from bert_tf.data.features import FeatureSpec, check_specs
from bert_tf.data.streams import compression_of, open_binary
from bert_tf.limits import MAX_RECORD, ORIGIN

_LENGTH = struct.Struct("<Q")
_HEADER_SIZE = 12
_CHECKED_RECORDS = 100  # per file, for invalid ids, before a model is built
_FORGED = "a record has a forged length"  # in TensorFlow's error, as the next
_INVALID_ID = "a record contains an id that the model does not have"  # in TensorFlow's error


def count_records(files: Sequence[str], limit: int | None = None) -> int:
    """Count the records in `files` without parsing them, up to `limit`.

    Raises:
        ValueError: a file is truncated or not a TFRecord file. The message names it.
    """
    return sum(
        1 for _ in islice((record for file in files for record in _raw_records(file)), limit)
    )


def is_plain(file: str) -> bool:
    """Return True for a local file without compression, whose lengths TensorFlow does not check."""
    return "://" not in file and not compression_of(file)


def check_lengths(file: bytes) -> bytes:
    """Return the name of a file for `tf.numpy_function`.

    Raises:
        ValueError: it is plain and has a forged length, at which TensorFlow would crash.
    """
    if is_plain(file.decode()):
        try:
            count_records([file.decode()])
        except ValueError as error:
            if not isinstance(error.__cause__, EOFError):  # TensorFlow names a truncated record
                raise ValueError(f"{_FORGED}: {error}") from error
    return file


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
            if not files:
                valid = (f"`{name}` 0 to {limit - 1}" for name, limit in (id_limits or {}).items())
                raise ValueError(
                    "A batch of the dataset contains an id that the model does not have. Valid are "
                    f"{', '.join(valid)}. Leave out examples without a label, such as those with -1."
                ) from error
        if _FORGED in error.message:
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


def assert_ids(features: Mapping[str, tf.Tensor], id_limits: Mapping[str, int]) -> None:
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
