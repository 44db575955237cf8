"""Indexes of TensorFlow's checkpoints with any entries and right checksums.

`bert_tf/interop/bundle_index.py` describes the format.
"""

import struct
from pathlib import Path

from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto
from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto


def varint(value):
    """7 bits a byte, least significant first."""
    return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])


def _crc32c_of_byte(crc):
    for _ in range(8):
        crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    return crc


_CRC32C = [_crc32c_of_byte(byte) for byte in range(256)]


def masked_crc32c(data):
    """The checksum of TensorFlow's files, which adds a constant to the rotated CRC-32C."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC32C[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "little")


def block_of(items):
    """A block of (key, value), each with its whole key."""
    parts = (
        varint(0) + varint(len(key)) + varint(len(value)) + key + value for key, value in items
    )
    return b"".join(parts) + struct.pack("<II", 0, 1)


def write_index(prefix, entries, header=b"\x08\x01", compress=None):
    """An index of serialized entries by name, in one block, and no values."""
    block = block_of([(b"", header), *sorted(entries.items())])
    return write_block(prefix, compress(block) if compress else block, compress is not None)


def write_block(prefix, block, is_compressed=False):
    """An index whose entries are in this block, with a right checksum, and no values."""

    def stored(block, compression=0):
        block += bytes([compression])
        return block + masked_crc32c(block)

    places = block_of([(b"\xff", varint(0) + varint(len(block)))])
    start, empty = len(block) + 5, block_of([])
    table = stored(block, int(is_compressed)) + stored(places) + stored(empty)
    handles = (
        varint(start + len(places) + 5) + varint(len(empty)) + varint(start) + varint(len(places))
    )
    magic = struct.pack("<Q", 0xDB4775248B80FB57)
    Path(f"{prefix}.index").write_bytes(table + handles.ljust(40, b"\0") + magic)
    Path(f"{prefix}.data-00000-of-00001").touch()
    return prefix


def entry_of(dtype=1, shape=(2,), size=8, **values):
    sizes = [TensorShapeProto.Dim(size=dimension) for dimension in shape]
    values = {"dtype": dtype, "shape": TensorShapeProto(dim=sizes), "size": size, **values}
    return BundleEntryProto(**values).SerializeToString()


def snappy(block):
    """Compress runs of one byte; copies overlap what they write."""
    out, place = varint(len(block)), 0
    while place < len(block):
        rest = block[place : place + 64]
        run = len(rest) - len(rest.lstrip(rest[:1]))
        out += bytes([0, block[place]])
        if run > 4:
            out += bytes([(run - 2) << 2 | 2, 1, 0])
            place += run
        else:
            place += 1
    return out


def write_strings(prefix, name, shape, lengths, rest, **values):
    """A checkpoint of one variable of strings, with a right checksum of their lengths."""
    data = b"".join(map(varint, lengths))
    data += (
        masked_crc32c(b"".join(struct.pack("<I", length & 0xFFFFFFFF) for length in lengths)) + rest
    )
    entry = entry_of(7, shape, **{"size": len(data), "crc32c": 0, **values})
    write_index(prefix, {name: entry})
    Path(f"{prefix}.data-00000-of-00001").write_bytes(data)
    return prefix
