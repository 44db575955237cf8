"""Checks of TFRecord files: features, ids. Errors name the file and the record."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.data.features import FeatureSpec, check_specs
from bert_tf.data.streams import compression_of

_CHECKED_RECORDS = 100  # per file, for invalid ids, before a model is built
_INVALID_ID = "a record contains an id that the model does not have"  # in TensorFlow's error


def count_records(files: Sequence[str], limit: int | None = None) -> int:
    """Count the records in `files` without parsing them, up to `limit`.

    Raises:
        ValueError: a file is damaged or not a TFRecord file. The message names it.
    """
    count = 0
    with naming_damaged_file(files):
        for file in files:
            records = tf.data.TFRecordDataset(file, compression_of(file))
            records = records if limit is None else records.take(limit - count)
            count += int(records.reduce(np.int64(0), lambda total, _: total + 1))
    return count


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
        for number, record in _first_records(file, _CHECKED_RECORDS if id_limits else 1):
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
    for _, record in _first_records(file, 1):
        features = _features(record, f"{file}: record 1").items()
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
                    f"{file} is damaged, or not a TFRecord file: record {number + 1} cannot be read "
                    "(truncated, or its checksum does not fit). Write the file again."
                ) from error
        raise
    except tf.errors.InvalidArgumentError as error:
        if _INVALID_ID in error.message:
            for file in files:
                for number, record in _first_records(file, -1):
                    _check_ids(f"record {number} of {file}", record, id_limits or {})
            if not files:
                valid = (f"`{name}` 0 to {limit - 1}" for name, limit in (id_limits or {}).items())
                raise ValueError(
                    "A batch of the dataset contains an id that the model does not have. Valid are "
                    f"{', '.join(valid)}. Leave out examples without a label, such as those with -1."
                ) from error
        if not any(words in error.message for words in _PARSER_WORDS):
            raise
        what = error.message.split("Name: ")[-1].split("\n")[0]
        raise ValueError(
            f"A record in {first_names(files)} differs from the first one ({what}). Write the files "
            "again."
        ) from error


# Words of errors from TensorFlow's parser of examples.
_PARSER_WORDS = ("Could not parse example", "Name: <unknown>")


def _first_records(file: str, limit: int) -> Iterator[tuple[int, bytes]]:
    """Yield the number (from 1) and the data of a file's first records; of all if `limit` is -1."""
    with naming_damaged_file([file]):
        records = tf.data.TFRecordDataset(file, compression_of(file)).take(limit)
        yield from enumerate(records.as_numpy_iterator(), 1)


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
