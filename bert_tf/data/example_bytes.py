"""Columns of numbers -> serialized `tf.train.Example`s, without TensorFlow.

The bytes are those that TensorFlow's own classes give, but for the order of the features.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np


def encode_columns(columns: Mapping[str, np.ndarray]) -> list[bytes]:
    """N examples.

    Args:
        columns: name -> array [N, ...]. Floats are stored as float_list; whole numbers, which must be 0
            or more, as int64_list.

    Raises:
        ValueError: a number is negative.
    """
    parts: list[list[bytes]] = []  # of each feature, the bytes of every example
    for name, values in columns.items():
        column = values.reshape(len(values), -1)
        is_float = column.dtype.kind == "f"
        payloads = _float_payloads(column) if is_float else _varint_payloads(column)
        headers = _Headers(name.encode(), is_float)
        parts.append([headers[len(payload)] + payload for payload in payloads])
    # Example: field 1 is Features, whose field 1 is the map from names to values.
    examples = map(b"".join, zip(*parts, strict=True))
    return [b"\x0a" + varint(len(example)) + example for example in examples]


class _Headers(dict):
    """Length of a payload -> bytes before it, in an entry of the map in Features."""

    def __init__(self, name: bytes, is_float: bool):
        super().__init__()
        self._key = b"\x0a" + varint(len(name)) + name
        self._kind = b"\x12" if is_float else b"\x1a"  # FloatList or Int64List

    def __missing__(self, size: int) -> bytes:
        head = b"\x0a" + varint(size)  # field 1 of the list, packed
        for tag in (self._kind, b"\x12"):  # the list in a Feature, the Feature in the entry
            head = tag + varint(len(head) + size) + head
        entry = self._key + head
        result = self[size] = b"\x0a" + varint(len(entry) + size) + entry
        return result


@functools.lru_cache(maxsize=1 << 16)
def varint(number: int) -> bytes:
    """Seven bits per byte, the lowest first; all bytes but the last have the upper bit set."""
    result = bytearray()
    while number > 0x7F:
        result.append(number & 0x7F | 0x80)
        number >>= 7
    result.append(number)
    return bytes(result)


def _float_payloads(column: np.ndarray) -> list[bytes]:
    return [row.tobytes() for row in column.astype("<f4")]


def _varint_payloads(column: np.ndarray) -> list[bytes]:
    """Each row as varints, one after the other."""
    if not column.size:
        return []
    if column.min() < 0:
        raise ValueError("`encode_columns` takes no negative numbers; use `encode_example`.")
    if column.max() < 0x80:
        return [row.tobytes() for row in column.astype(np.uint8)]
    # Seven bits into each byte of one word per number, of which the lowest bytes are written.
    size = -(-int(column.max()).bit_length() // 7)  # bytes of the largest number
    word = np.dtype("<u4") if size <= 4 else np.dtype("<u8")
    numbers: Any = column.astype(word)
    packed = numbers & 0x7F
    is_written = np.zeros((*numbers.shape, word.itemsize), bool)
    is_written[:, :, 0] = True
    for index in range(1, size):
        more = numbers >= 1 << 7 * index
        is_written[:, :, index] = more
        packed |= (numbers >> 7 * index & 0x7F) << 8 * index
        packed |= more.astype(word) << 8 * index - 1  # the byte before is not the last
    flat = np.compress(is_written.ravel(), packed.view(np.uint8).ravel()).tobytes()
    lengths = np.count_nonzero(is_written.reshape(len(column), -1), axis=1)
    ends = np.cumsum(lengths).tolist()
    return [flat[start:end] for start, end in zip([0, *ends], ends, strict=False)]
