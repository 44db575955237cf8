"""Files that are not UTF-8: UTF-16, UTF-32 with a byte order mark, and workbooks."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from typing import Any

_WIDE_ENCODINGS = {
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark is a prefix of it
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_WORKBOOK_MAGIC = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")  # zip (.xlsx, .ods), and .xls
WORKBOOKS = ("xlsx", "xls", "ods", "numbers")


def check_no_workbook(file: str, stream: Any) -> None:
    if stream.peek(4).startswith(_WORKBOOK_MAGIC):
        raise workbook_error(file)


def workbook_error(file: str) -> ValueError:
    return ValueError(
        f"{file} is a spreadsheet workbook or a zip archive, but must be a text file. "
        "Export the table as CSV (UTF-8), or unpack the archive."
    )


def check_no_bare_utf16(file: str, stream: Any) -> None:
    """Raise ValueError if the first line has the bytes 0x00 of letters in UTF-16."""
    line = stream.peek(4).partition(b"\n")[0]
    even, odd = line[::2], line[1::2]
    for encoding, high, low in (("utf-16le", odd, even), ("utf-16be", even, odd)):
        if len(line) >= 4 and 2 * high.count(0) > len(high) and not low.count(0):
            raise ValueError(
                f"{file}: the first line looks like UTF-16 without a byte order mark. Convert the file: "
                f"iconv -f {encoding} -t utf8 {file}"
            )


def wide_encoding(stream: Any) -> str | None:
    """Return the encoding that a byte order mark names; None for UTF-8."""
    start = stream.peek(4)
    return next((name for mark, name in _WIDE_ENCODINGS.items() if start.startswith(mark)), None)


def wide_lines(file: str, stream: Any, encoding: str, errors: str) -> Iterator[str]:
    text = io.TextIOWrapper(stream, encoding, errors, newline="\n")
    try:
        for line in text:
            yield line.removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{file} begins with the byte order mark of {encoding}, but cannot be decoded "
            f"({error}). It may be truncated. Copy it again."
        ) from error
    finally:
        text.detach()  # `text` would close standard input
