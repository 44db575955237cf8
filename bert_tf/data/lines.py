"""Readers of lines of text. Every error names file and line.

Files are UTF-8, with or without a byte order mark, or UTF-16 with one. Lines end with "\\n" or "\\r\\n".
Files may be plain or gzip, local or remote (`tf.io.gfile`). "-" is standard input, whose lines are read
as they arrive, with U+FFFD for bytes that are not UTF-8.
"""

from __future__ import annotations

import codecs
import io
import os
from collections.abc import Iterable, Iterator
from typing import Any

from bert_tf.data.streams import BLOCK, STANDARD_INPUT, open_binary


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
                raise ValueError(
                    f"{file}:{_line_number(file, offset)}: not UTF-8: byte "
                    f"0x{line[error.start]:02x} at offset {offset + error.start} of the file. Convert "
                    "the file with iconv."
                ) from error
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
        raise ValueError(f"{file} begins as UTF-16, but cannot be decoded: {error}.") from error
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
