"""Record files of examples, written by several processes and reused for the same content.

`train.tf_record.json` contains a hash of everything that the records in `train.tf_record` depend on.
The file is reused if the hash is the same.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from bert_tf import __version__
from bert_tf.data.features import FeatureSpec
from bert_tf.data.files import open_whole
from bert_tf.data.parallel import map_in_order
from bert_tf.data.records import RecordWriter
from bert_tf.limits import parse_json, read_whole
from bert_tf.tokenization import FullTokenizer

logger = logging.getLogger(__name__)

Part = TypeVar("Part")

CHUNK_SIZE = 1000  # examples that become records at once


def chunks_of(examples: Sequence[Part], size: int | None = None) -> Iterator[Sequence[Part]]:
    """Yield the examples in chunks of `size` (default: CHUNK_SIZE)."""
    size = size or CHUNK_SIZE
    for start in range(0, len(examples), size):
        yield examples[start : start + size]


def write_parts(
    path: str,
    specs: Sequence[FeatureSpec],
    make: Callable[[Part], tuple[list[bytes], int]],
    parts: Iterable[Part],
    num_workers: int = 1,
) -> tuple[int, int]:
    """Write a TFRecord file. Return the number of records, and the sum of `make`'s numbers.

    Any number of workers writes the same file.

    Args:
        make: part of the examples -> their serialized records, and a number.
        parts: in the order of the file. Several workers need picklable parts and `make`.
    """
    total = 0
    with RecordWriter(path, specs) as writer:
        for records, number in map_in_order(make, parts, num_workers):
            total += number
            for record in records:
                writer.write_serialized(record)
    return writer.count, total


def content_key(tokenizer: FullTokenizer, settings: Any, rows: Iterable[Any]) -> str:
    """Return a hash of everything that records depend on, with the version of this package.

    Args:
        settings: of the task, as JSON values.
        rows: for each example in order, the values in its records, as JSON values.
    """
    vocabulary = list(tokenizer.vocab.items())
    about = [__version__, settings, tokenizer.do_lower_case, vocabulary]
    found = hashlib.sha256(json.dumps(about).encode())
    for row in rows:
        found.update(json.dumps(row).encode() + b"\n")
    return found.hexdigest()


def make_once(path: str, key: str, write: Callable[[str], int]) -> int:
    """Write a record file unless it exists with the same key. Return the number of records.

    Waits while another process writes the file.

    Args:
        key: hash of its content.
        write: path -> number of records written.
    """
    note = f"{path}.json"
    found = _read_note(path, note, key)
    if found is None:
        with open_whole(note, wait=True) as file:
            found = _read_note(path, note, key)
            if found is None:
                if tf.io.gfile.exists(note):  # or it could describe another file
                    tf.io.gfile.remove(note)
                num_records = write(path)
                logger.info("Wrote %d records to %s", num_records, path)
                values = {"key": key, "num_records": num_records}
                values["size"] = tf.io.gfile.stat(path).length
                file.write(json.dumps(values) + "\n")
                return num_records
            file.write(json.dumps(found) + "\n")
    logger.info("Using the %d records of %s", found["num_records"], path)
    return found["num_records"]


def _read_note(path: str, note: str, key: str) -> dict | None:
    """Return the note; None if it is missing, has another key, or does not fit the file."""
    if not tf.io.gfile.exists(path) or not tf.io.gfile.exists(note):
        return None
    try:
        values = parse_json(read_whole(note).decode("utf-8"))
    except ValueError:  # damaged, or too large
        return None
    fits = isinstance(values, dict) and {"key", "num_records", "size"} <= values.keys()
    fits = fits and values["key"] == key
    return values if fits and values["size"] == tf.io.gfile.stat(path).length else None
