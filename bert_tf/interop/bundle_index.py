"""The index of a TensorFlow checkpoint, checked before TensorFlow reads it.

TensorFlow's parser ends the process for some damaged files.

A checkpoint is a "V2 bundle": PREFIX.index, a table of names and entries, and PREFIX.data-*, the values.
A table has blocks of sorted entries, a block with the place of each of them, and a footer with the place
of that block. A block has its entries, the offsets of those with whole keys, and their number. One byte
for the compression follows, and a checksum, which TensorFlow checks.

Source: tensorflow/core/lib/io/table.cc, format.cc, block.cc and
tensorflow/core/util/tensor_bundle/tensor_bundle.cc.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.core.protobuf import tensor_bundle_pb2

from bert_tf.limits import MAX_TOKENS, MAX_WHOLE_FILE, ORIGIN, read_whole

_FOOTER = 48
_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_OF_ANY_SIZE = frozenset(each.as_datatype_enum for each in (tf.string, tf.variant, tf.resource))
_COMPRESSIONS = (0, 1)  # none, Snappy
_NAME_END = b"\0\1"  # in the name of a part of a variable, after the variable's
_MAX_SIZE = 1 << 62
_MAX_RANK = 254
_MAX_DTYPE = 100  # references to variables are above
_MAX_VARINT = 10  # bytes
_CHECKSUM = 4  # bytes


class _DamagedError(ValueError):
    """The bytes are not a valid index."""


class BundleIndex(NamedTuple):
    """The content of an index.

    Attributes:
        entries: by name. Parts of variables have names that begin with a zero byte.
        shards: number of .data files.
    """

    entries: dict[bytes, Any]
    shards: int


def read_index(prefix: str) -> BundleIndex:
    """Return the content of `PREFIX.index`.

    Raises:
        ValueError: the file is damaged. The message names it.
    """
    file = f"{prefix}.index"
    try:
        return _parse(read_whole(file))
    except (_DamagedError, OSError, tf.errors.OpError) as error:
        raise ValueError(
            f"{file} cannot be read as a TensorFlow checkpoint ({error}). The file is damaged or "
            "incomplete; copy it again."
        ) from error


def check_strings(prefix: str, index: BundleIndex, name: str) -> None:
    """Raise unless the strings of a variable are as long as its part of the file.

    TensorFlow makes room for the stated lengths before it reads the strings. Their part has the lengths,
    a checksum, which TensorFlow checks, and the strings. Variables of numbers pass.

    Raises:
        ValueError: they are longer or shorter, or there are too many.
    """
    entry = index.entries.get(name.encode())
    if entry is None or entry.dtype not in _OF_ANY_SIZE:
        return
    file = f"{prefix}.data-{entry.shard_id:05d}-of-{index.shards:05d}"
    number = math.prod(dim.size for dim in entry.shape.dim)
    if entry.dtype != tf.string.as_datatype_enum or entry.slices or number > MAX_TOKENS:
        dtype = tf.dtypes.as_dtype(entry.dtype).name
        raise ValueError(
            f"{file}: {name!r} has {number:,} values of the type {dtype}, but only numbers and at most "
            f"{MAX_TOKENS:,} whole strings are read, {ORIGIN}. Save the checkpoint without it."
        )
    try:
        with tf.io.gfile.GFile(file, "rb") as values:
            there = values.size()
            values.seek(entry.offset)
            data = values.read(min(entry.size, number * _MAX_VARINT))
        place, stated = 0, 0
        for _ in range(number):
            length, place = _varint(data, place)
            stated += length
    except (_DamagedError, tf.errors.OpError) as error:
        raise ValueError(
            f"{file}: the lengths of the strings of {name!r} cannot be read ({error}). The file is "
            "damaged or of another checkpoint; copy it again next to its .index file."
        ) from error
    if place + _CHECKSUM + stated != entry.size or entry.offset + entry.size > there:
        raise ValueError(
            f"{file}: the strings of {name!r} would have {stated:,} bytes, but their part has "
            f"{entry.size:,} for them and their lengths, and the file {there:,}. The file is damaged or "
            "not trustworthy; get it again."
        )


def _parse(data: bytes) -> BundleIndex:
    items = _items(data)
    name, value = next(items, (None, b""))
    if name != b"":
        raise _DamagedError("it has no header")
    shards = _message(tensor_bundle_pb2.BundleHeaderProto, value).num_shards
    if shards < 1:
        raise _DamagedError(f"it states {shards} files of values")
    entries = {}
    for name, value in items:
        entry = _message(tensor_bundle_pb2.BundleEntryProto, value)
        reason = _reason_against(entry, shards)
        if reason:
            raise _DamagedError(f"{name[:200]!r} {reason}")
        entries[name] = entry
    for name, entry in entries.items():
        whole, _, place = name[1:].partition(_NAME_END)  # if it is a part of a variable
        is_part = name.startswith(b"\0")
        if b"\0" in (whole if is_part else name) or (is_part and not place):
            raise _DamagedError(f"the name {name[:200]!r} is invalid")
        if is_part and (whole not in entries or entries[whole].dtype != entry.dtype):
            raise _DamagedError(f"{name[:200]!r} is a part of another type, or of no variable")
        if is_part and entry.dtype in _OF_ANY_SIZE:
            raise _DamagedError(f"{name[:200]!r} is a part of a variable that is not of numbers")
    return BundleIndex(entries, shards)


def _message(kind: Any, value: bytes) -> Any:
    try:
        return kind.FromString(value)
    except Exception as error:  # DecodeError, whose module differs between protobuf versions
        raise _DamagedError(str(error)) from error


def _reason_against(entry: Any, shards: int) -> str | None:
    """Return why an entry is invalid, or None."""
    shape = [dim.size for dim in entry.shape.dim]
    try:
        dtype = tf.dtypes.as_dtype(entry.dtype)
    except TypeError:
        dtype = None
    if dtype is None or entry.dtype > _MAX_DTYPE:
        return f"has the unknown type {entry.dtype}"
    if entry.shape.unknown_rank or len(shape) > _MAX_RANK or min(shape, default=0) < 0:
        return f"has the invalid shape {shape[:9]}"
    if math.prod(max(size, 1) for size in shape) >= _MAX_SIZE:
        return f"has the shape {shape[:9]}, which no memory can hold"
    if not 0 <= entry.shard_id < shards:
        return f"is in the file {entry.shard_id}, but there are {shards}"
    if entry.offset < 0 or entry.size < 0 or entry.offset + entry.size >= _MAX_SIZE:
        return f"has the offset {entry.offset} and {entry.size} bytes"
    for part in entry.slices:
        if len(part.extent) != len(shape) or not all(map(_is_within, part.extent, shape)):
            return f"has parts outside of its shape {shape[:9]}"
    values = math.prod(shape)
    if not entry.slices and entry.dtype not in _OF_ANY_SIZE and values * dtype.size != entry.size:
        return f"has the shape {shape[:9]} of {dtype.name}, but {entry.size} bytes"
    return None


def _is_within(extent: Any, size: int) -> bool:
    return extent.start >= 0 and extent.length >= 0 and extent.start + extent.length <= size


def _items(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table. Their whole size has a limit."""
    footer = data[-_FOOTER:]
    if len(footer) < _FOOTER or footer[-len(_MAGIC) :] != _MAGIC:
        raise _DamagedError("its end is missing")
    place = 0
    for _ in range(2):  # of the block with metadata, which has none; and of the block of places
        start, place = _varint(footer, place)
        size, place = _varint(footer, place)
    end, free, last = 0, MAX_WHOLE_FILE, None
    for name, handle in _block_items(_block(data, start, size, free)):
        free -= len(name)
        start, place = _varint(handle, 0)
        size, _ = _varint(handle, place)
        if start < end:  # so that no block is read many times
            raise _DamagedError("its blocks overlap")
        end = start + size
        block = _block(data, start, size, free)
        for key, value in _block_items(block):
            free -= len(key) + len(value)
            if free < 0:
                raise _DamagedError(f"it has more than {MAX_WHOLE_FILE:,} bytes, {ORIGIN}")
            if last is not None and key <= last:
                raise _DamagedError("its names are not sorted")
            yield key, value
            last = key


def _block(data: bytes, start: int, size: int, most: int) -> bytes:
    """Return a block, decompressed."""
    if start + size + 1 + _CHECKSUM > len(data) - _FOOTER:
        raise _DamagedError("a block is outside of the file")
    compression = data[start + size]
    if compression not in _COMPRESSIONS:
        raise _DamagedError(f"a block has the unknown compression {compression}")
    block = data[start : start + size]
    return _decompressed(block, most) if compression else block


def _block_items(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block. A key begins with a part of the one before it."""
    number = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (number + 1)
    if len(block) < 4 or end < 0:
        raise _DamagedError("a block is too short")
    key, place = b"", 0
    while place < end:
        shared, place = _varint(block, place)
        new, place = _varint(block, place)
        size, place = _varint(block, place)
        if shared > len(key) or place + new + size > end:
            raise _DamagedError("an entry is longer than its block")
        key = key[:shared] + block[place : place + new]
        place += new + size
        yield key, block[place - size : place]


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a number of 7 bits a byte, least significant first, and the place after it."""
    value = 0
    for index, byte in enumerate(data[place : place + _MAX_VARINT]):
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value, place + index + 1
    raise _DamagedError("a number has no end")


def _decompressed(data: bytes, most: int) -> bytes:
    """Decompress Snappy, which other programs than TensorFlow may write.

    Source: google/snappy, format_description.txt
    """
    size, place = _varint(data, 0)
    if size > most:
        raise _DamagedError(f"it has more than {MAX_WHOLE_FILE:,} bytes, {ORIGIN}")
    out = bytearray()
    while place < len(data) and len(out) <= size:
        tag, place = data[place], place + 1
        kind, length = tag & 3, (tag >> 2) + 1
        if kind == 0:  # literal
            if length > 60:
                extra = length - 60
                length, place = (
                    int.from_bytes(data[place : place + extra], "little") + 1,
                    place + extra,
                )
            out += data[place : place + length]
            place += length
            continue
        extra = 1 << (kind - 1)  # 1, 2 or 4 bytes of the offset
        offset, place = int.from_bytes(data[place : place + extra], "little"), place + extra
        if kind == 1:
            length, offset = (tag >> 2 & 7) + 4, (tag >> 5 << 8) + offset
        if not 0 < offset <= len(out):
            raise _DamagedError("a compressed block is damaged")
        first = len(out) - offset
        piece = bytes(out[first : first + length])
        out += (piece * (length // len(piece) + 1))[:length]
    if len(out) != size:
        raise _DamagedError("a compressed block is damaged")
    return bytes(out)
