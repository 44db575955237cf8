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

GZIP_MAGIC = b"\x1f\x8b\x08"
STANDARD_INPUT = "-"
BLOCK = 1 << 20  # bytes that are read at once


@contextmanager
def open_binary(file: str) -> Iterator[BinaryIO]:
    """Open a file as a buffered binary stream, decompressed if its content is gzip.

    Raises:
        ValueError: it is a folder, or its gzip data are damaged.
    """
    try:
        if file == STANDARD_INPUT:
            yield _decompressed(sys.stdin.buffer)
            return
        check_is_file(file)
        remote = "://" in file
        with tf.io.gfile.GFile(file, "rb") if remote else open(file, "rb", 0) as opened:
            raw = _RemoteFile(opened) if remote else opened
            yield _decompressed(io.BufferedReader(raw, BLOCK))
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


def _decompressed(stream: Any) -> BinaryIO:
    if not stream.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC):
        return stream
    return io.BufferedReader(gzip.GzipFile(fileobj=stream, mode="rb"), BLOCK)


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
