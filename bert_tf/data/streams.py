"""Binary streams of files: local or remote, plain or gzip, or standard input."""

from __future__ import annotations

import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import tensorflow as tf

from bert_tf.limits import GZIP_ALLOWANCE, MAX_GZIP_RATIO, ORIGIN

GZIP_MAGIC = b"\x1f\x8b\x08"
STANDARD_INPUT = "-"
BLOCK = 1 << 20  # bytes that are read at once


@contextmanager
def open_binary(file: str) -> Iterator[BinaryIO]:
    """Open a file as a buffered binary stream, decompressed if its content is gzip.

    Raises:
        ValueError: it is a folder, or its gzip data are damaged or expand to more than
            `limits.MAX_GZIP_RATIO` allows.
    """
    try:
        if file == STANDARD_INPUT:
            yield _decompressed(sys.stdin.buffer, "standard input")
            return
        check_is_file(file)
        remote = "://" in file
        with tf.io.gfile.GFile(file, "rb") if remote else open(file, "rb", 0) as opened:
            raw = _RemoteFile(opened) if remote else opened
            yield _decompressed(io.BufferedReader(raw, BLOCK), file)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{file} begins like a gzip file, but cannot be decompressed ({error}). It may be "
            "truncated. Copy it again."
        ) from error


def check_is_file(file: str) -> None:
    """Raise ValueError for a local folder."""
    if os.path.isdir(file):
        raise ValueError(f"{file} is a folder, but must be a file. Name a file in it.")


def compression_of(file: str) -> str:
    """Return "GZIP" or "", `tf.data`'s names of a file's compression, by the first bytes."""
    with tf.io.gfile.GFile(file, "rb") as stream:
        return "GZIP" if stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC else ""


def _decompressed(stream: Any, name: str) -> BinaryIO:
    if not stream.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC):
        return stream
    return io.BufferedReader(_Unzipped(stream, name), BLOCK)


class _Unzipped(gzip.GzipFile):
    """Decompressed stream that rejects bombs: files that expand far more than text does."""

    def __init__(self, stream: Any, name: str) -> None:
        self._compressed, self._source = _Counted(stream), name
        super().__init__(fileobj=self._compressed, mode="rb")

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        position, compressed = self.tell(), self._compressed.position
        if position > GZIP_ALLOWANCE and position > MAX_GZIP_RATIO * compressed:
            raise ValueError(
                f"{self._source} is compressed more than {MAX_GZIP_RATIO} times, {ORIGIN}: its first "
                f"{compressed:,} bytes contain {position:,}. It may be a bomb that fills the memory. If "
                "you trust it, unpack it with gunzip."
            )
        return data


class _Counted:
    """Stream with its position, which a pipe does not have."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.position = 0

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self.position += len(data)
        return data

    def seek(self, offset: int) -> None:
        self._stream.seek(offset)
        self.position = offset


class _RemoteFile(io.RawIOBase):
    """Adapter of a GFile for Python's buffered reader. (GFile's own lines lose every "\\r".)"""

    def __init__(self, opened: tf.io.gfile.GFile) -> None:
        self._opened = opened

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._opened.seek(offset, whence)
        return self._opened.tell()

    def tell(self) -> int:
        return self._opened.tell()

    def readinto(self, buffer) -> int:
        data = self._opened.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
