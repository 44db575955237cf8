"""Record files that are made once for the same content.

Beside `train.tf_record` lies `train.tf_record.json` with a key, a hash of all that the records depend
on. Where the key is the same, the file is used as it is.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import tensorflow as tf

from bert_tf.data.files import write_text

logger = logging.getLogger(__name__)


def make_once(path: str, key: str, write: Callable[[str], int]) -> int:
    """Makes a record file unless it is there already.

    Args:
        path: of the file.
        key: of its content. Another one means that the file is written anew.
        write: path -> number of records written.

    Returns:
        The number of records.
    """
    note = f"{path}.json"
    found = _read_note(path, note)
    if found is not None and found["key"] == key:
        logger.info("Using the %d records of %s", found["num_records"], path)
        return found["num_records"]
    if tf.io.gfile.exists(note):  # so that it never speaks of another file
        tf.io.gfile.remove(note)
    num_records = write(path)
    values = {"key": key, "num_records": num_records, "size": tf.io.gfile.stat(path).length}
    write_text(note, json.dumps(values) + "\n")
    return num_records


def _read_note(path: str, note: str) -> dict | None:
    """What the note says; None where there is none, or it does not fit the file."""
    if not tf.io.gfile.exists(path) or not tf.io.gfile.exists(note):
        return None
    with tf.io.gfile.GFile(note) as file:
        try:
            values = json.load(file)
        except json.JSONDecodeError:
            return None
    fits = isinstance(values, dict) and {"key", "num_records", "size"} <= values.keys()
    return values if fits and values["size"] == tf.io.gfile.stat(path).length else None
