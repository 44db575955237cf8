"""Requests of server_versions.py: inputs of every signature that an export.json describes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

TEXT_INPUTS = ("text", "text_a", "text_b", "question", "context", "words", "choices")
TEXTS = (
    "The cat sat on a [MASK] in New York, and John Smith of Oslo saw it.",
    "",
    "Zoë's naïve CAFÉ cost 3,50 €; the [MASK] was 東京 [MASK]!",
    "unaffable",
    "A longer text about owls, dogs and Mary Jones of London, which needs more than one window. "
    * 4,
    "bytes \udcff that are \udcc3 not UTF-8",
)


def make_requests(values: Mapping) -> dict[str, np.ndarray]:
    """Return "signature/number/input" -> array: for every signature one row, then one for each text."""
    found = {}
    for signature, described in values["signatures"].items():
        for number, rows in enumerate((1, len(TEXTS))):
            for place, (name, spec) in enumerate(described["inputs"].items()):
                rank = len(spec["shape"])
                if spec["dtype"] == "int32":
                    made = ids(name, rows, rank, values["vocab_size"])
                elif name in TEXT_INPUTS:
                    made = texts(rows, place, rank)
                else:
                    made = serialized(rows, values["signatures"]["serving_default"]["inputs"])
                found[f"{signature}/{number}/{name}"] = made
    return found


def texts(rows: int, place: int, rank: int) -> np.ndarray:
    """Return bytes [rows], or [rows, words] for a table. Each `place` has another order of rows."""
    found = [TEXTS[(row + place) % len(TEXTS)] for row in range(rows)]
    column = np.array([text.encode(errors="surrogateescape") for text in found], object)
    if rank == 1:
        return column
    words = [text.split() for text in column]
    most = max([3, *map(len, words)])
    return np.array([row + [b""] * (most - len(row)) for row in words], object)


def serialized(rows: int, inputs: Mapping) -> np.ndarray:
    """Return `tf.train.Example`s of the inputs that take text, serialized, [rows]."""
    columns = {
        name: texts(rows, place, len(spec["shape"]))
        for place, (name, spec) in enumerate(inputs.items())
    }
    found = np.empty(rows, object)
    for row in range(rows):
        feature = {
            name: tf.train.Feature(
                bytes_list=tf.train.BytesList(value=np.atleast_1d(column[row]).tolist())
            )
            for name, column in columns.items()
        }
        example = tf.train.Example(features=tf.train.Features(feature=feature))
        found[row] = example.SerializeToString()
    return found


def ids(name: str, rows: int, rank: int, vocab_size: int) -> np.ndarray:
    """Return int32 [rows, S] or [rows, 3, S]: ids, a mask, segments or positions, by their name."""
    length = 3 if rows == 1 else 19
    lengths = np.maximum(length - 3 * np.arange(rows), 1)[:, np.newaxis]
    mask = np.arange(length) < lengths
    if "position" in name:
        found = np.arange(4) % lengths
    elif "mask" in name:
        found = mask
    elif "segment" in name or "type" in name:
        found = mask & (np.arange(length) >= lengths // 2)
    else:
        found = mask * np.random.default_rng(3).integers(vocab_size, size=mask.shape)
    found = found.astype(np.int32)
    return found if rank == 2 else np.stack([found, found[:, ::-1], found], axis=1)
