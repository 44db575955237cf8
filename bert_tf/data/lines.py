"""Readers of lines of text. Every error names file and line.

Files are UTF-8, with or without a byte order mark, or UTF-16 with one. Lines end with "\\n" or "\\r\\n".
Files may be plain or gzip, local or remote (`tf.io.gfile`). "-" is standard input, whose lines are read
as they arrive, with U+FFFD for bytes that are not UTF-8.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from bert_tf.data.encodings import check_no_bare_utf16, check_no_workbook, wide_encoding, wide_lines
from bert_tf.data.streams import BLOCK, STANDARD_INPUT, open_binary

# Frequent encodings, as `iconv` names them.
_ENCODINGS = (
    "cp1252 in Western Europe, cp949 Korean, gb18030 Chinese, cp932 Japanese, cp1251 Cyrillic"
)


def place_of(file: str, line: int | None = None) -> str:
    """Return "file:line" or "file" for error messages."""
    name = "standard input" if file == STANDARD_INPUT else file
    return name if line is None else f"{name}:{line}"


def read_lines(path: str | os.PathLike, *, start: int = 0, end: int | None = None) -> Iterator[str]:
    """Yield the lines of a text file, without their ends.

    Args:
        start, end: byte range of the (uncompressed) file to read, at starts of lines. None means the
            end of the file.

    Raises:
        ValueError: a line is not UTF-8 (the message has line and byte offset), the file is UTF-16
            without a byte order mark, or it is a spreadsheet workbook.
    """
    file = os.fspath(path)
    errors = "replace" if file == STANDARD_INPUT else "strict"
    offset = start
    with open_binary(file) as stream:
        if start:
            stream.seek(start)
        else:
            check_no_workbook(file, stream)
        if not start and end is None and (encoding := wide_encoding(stream)):
            yield from wide_lines(file, stream, encoding, errors)
            return
        if not start:
            check_no_bare_utf16(place_of(file), stream)
        for line in stream:
            try:
                text = line.decode("utf-8", errors)
            except UnicodeDecodeError as error:
                encoding, others = "utf-16", ""
                if not line.startswith(codecs.BOM_UTF16_LE):
                    encoding, others = "ENCODING", f" (ENCODING is the file's own: {_ENCODINGS})"
                    if b"\0" in line:
                        raise ValueError(
                            f"{file}:{_line_number(file, offset)}: this is not text: there is a byte "
                            "0x00. Name a text file."
                        ) from error
                raise ValueError(
                    f"{file}:{_line_number(file, offset)}: not UTF-8: byte "
                    f"0x{line[error.start]:02x} at offset {offset + error.start} of the file is "
                    f"invalid ({error.reason}). Convert the file: iconv -f {encoding} -t utf8 {file}"
                    f"{others}"
                ) from error
            if offset == 0:
                text = text.removeprefix("\ufeff")
            offset += len(line)
            yield text.removesuffix("\n").removesuffix("\r")
            if offset == end:
                return


def read_text(path: str | os.PathLike) -> str:
    """Return the lines of a text file, joined by "\\n"; errors as in `read_lines`."""
    return "\n".join(read_lines(path))


def with_line_feeds(lines: Iterable[str], file: str) -> Iterator[str]:
    """Return all lines; raise if there is only one, with carriage returns as line ends."""
    rest = iter(lines)
    first = list(islice(rest, 1))
    if first and "\r" in first[0]:
        first += islice(rest, 1)
        if len(first) == 1:
            raise ValueError(
                f"{place_of(file)}: the file has no line feed; its lines end with a carriage return. "
                f"Convert it: tr '\\r' '\\n' < {file}"
            )
    return chain(first, rest)


def read_texts(file: str) -> Iterator[str]:
    """Return the lines of a file with a text per line.

    Raises:
        ValueError: the lines end with a carriage return only. Standard input is not checked, because
            its first line may be answered before the second one arrives.
    """
    lines = read_lines(file)
    return lines if file == STANDARD_INPUT else with_line_feeds(lines, file)


def count_lines(files: Iterable[str]) -> int:
    """Count the lines that `read_lines` yields for all files."""
    total = 0
    for file in files:
        last = b"\n"
        with open_binary(file) as stream:
            if wide_encoding(stream):
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
