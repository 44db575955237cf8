"""Readers of lines of text. Every error names file and line.

Files are UTF-8, with or without a byte order mark, or UTF-16 with one. Lines end with "\\n" or "\\r\\n".
Files may be plain or gzip, local or remote (`tf.io.gfile`). "-" is standard input, whose lines are read
as they arrive, with U+FFFD for bytes that are not UTF-8.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from bert_tf.limits import DataError

GZIP_MAGIC = b"\x1f\x8b\x08"
STANDARD_INPUT = "-"
BLOCK = 1 << 20  # bytes that are read at once


@contextmanager
def open_binary(file: str) -> Iterator[io.BufferedReader]:
    """Open a file as a buffered binary stream, decompressed if its content is gzip.

    Raises:
        ValueError: its gzip data are damaged.
    """
    try:
        if file == STANDARD_INPUT:
            yield _decompressed(sys.stdin.buffer)
            return
        remote = "://" in file
        with tf.io.gfile.GFile(file, "rb") if remote else open(file, "rb", 0) as opened:
            raw = _RemoteFile(opened) if remote else opened
            yield _decompressed(io.BufferedReader(raw, BLOCK))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            place_of(file), f"cannot be decompressed ({error}). Copy it again."
        ) from error


def compression_of(file: str) -> str:
    """Return "GZIP" or "", `tf.data`'s names of a file's compression, by the first bytes."""
    with tf.io.gfile.GFile(file, "rb") as stream:
        return "GZIP" if stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC else ""


def _decompressed(stream: Any) -> io.BufferedReader:
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


def place_of(file: str, line: int | None = None) -> str:
    """Return "file:line" or "file" for error messages."""
    name = "standard input" if file == STANDARD_INPUT else file
    return name if line is None else f"{name}:{line}"


def is_utf16(stream: Any) -> bool:
    """Return True if a binary stream begins with the byte order mark of UTF-16."""
    return stream.peek(2).startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def read_lines(path: str | os.PathLike, *, start: int = 0, end: int | None = None) -> Iterator[str]:
    """Yield the lines of a text file, without their ends.

    Args:
        start, end: byte range of the (uncompressed) file to read, at starts of lines. None means the
            end of the file.

    Raises:
        ValueError: a line is not UTF-8; the message has line and byte offset.
    """
    file = os.fspath(path)
    errors = "replace" if file == STANDARD_INPUT else "strict"
    offset = start
    with open_binary(file) as stream:
        if start:
            stream.seek(start)
        elif end is None and is_utf16(stream):
            yield from _utf16_lines(file, stream)
            return
        for line in stream:
            try:
                text = line.decode("utf-8", errors)
            except UnicodeDecodeError as error:
                byte = f"byte 0x{line[error.start]:02x} at offset {offset + error.start}"
                number = _line_number(file, offset)
                raise DataError(f"{file}:{number}", f"{byte} is not UTF-8. Use iconv.") from error
            if offset == 0:
                text = text.removeprefix("\ufeff")
            offset += len(line)
            yield text.removesuffix("\n").removesuffix("\r")
            if offset == end:
                return


def _utf16_lines(file: str, stream: Any) -> Iterator[str]:
    text = io.TextIOWrapper(stream, "utf-16", newline="\n")
    try:
        for line in text:
            yield line.removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise DataError(file, f"begins as UTF-16, but cannot be decoded: {error}.") from error
    finally:
        text.detach()  # `text` would close standard input


def count_lines(files: Iterable[str]) -> int:
    """Count the lines that `read_lines` yields for all files."""
    total = 0
    for file in files:
        last = b"\n"
        with open_binary(file) as stream:
            if is_utf16(stream):
                total += sum(1 for _ in read_lines(file))
                continue
            while block := stream.read(BLOCK):
                total += block.count(b"\n")
                last = block
        total += not last.endswith(b"\n")
    return total


def _line_number(file: str, offset: int) -> int:
    """Return the number of the line that begins at a byte of the file, from 1."""
    number = 1
    with open_binary(file) as stream:
        while offset > 0 and (block := stream.read(min(offset, BLOCK))):
            number += block.count(b"\n")
            offset -= len(block)
    return number
