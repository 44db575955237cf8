"""Files people have -> lines and rows. Every error says file and line.

    read_lines       one text per line
    read_tsv         GLUE's layout: tab-separated, no quoting, columns by number
    read_csv         comma-separated, quoted, columns by number
    read_table       one's own TSV, CSV or JSON lines: columns by name (or by number, without a header)

All files are UTF-8, with or without a byte order mark, with "\\n" or "\\r\\n" at the ends of lines,
plain or gzip, local or remote (`tf.io.gfile`). "-" is standard input, whose lines are given as they
arrive, with U+FFFD for what is not UTF-8.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import json
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, BinaryIO

import tensorflow as tf

from bert_tf.config import parse_json

GZIP_MAGIC = b"\x1f\x8b\x08"
TABLE_FORMATS = ("tsv", "csv", "jsonl")
STANDARD_INPUT = "-"
_BUFFER_SIZE = 1 << 20


def place_of(file: str, line: int) -> str:
    """ "file:line", for error messages."""
    return f"{'standard input' if file == STANDARD_INPUT else file}:{line}"


class Row(list):
    """The columns of one row of a TSV or CSV file, as text, and where they stand."""

    def __init__(self, columns: Iterable[str], file: str, line: int) -> None:
        super().__init__(columns)
        self.file = file
        self.line = line  # counted from 1

    @property
    def place(self) -> str:
        """ "file:line", for error messages."""
        return place_of(self.file, self.line)


class TableRow(dict):
    """One row of a table with a header, name -> value, and where it stands.

    A column that is not there is a ValueError that names the columns that are.
    """

    def __init__(self, columns: dict[str, Any], file: str, line: int) -> None:
        super().__init__(columns)
        self.file = file
        self.line = line

    @property
    def place(self) -> str:
        """ "file:line", for error messages."""
        return place_of(self.file, self.line)

    def __missing__(self, column: str) -> Any:
        close = difflib.get_close_matches(column, list(self), n=1)
        suggestion = f'; did you mean "{close[0]}"?' if close else "."
        raise ValueError(
            f"{self.place}: there is no column {column!r}{suggestion} "
            f"The columns are {', '.join(self)}."
        )


def read_lines(
    path: str | os.PathLike, errors: str = "strict", *, start: int = 0, end: int | None = None
) -> Iterator[str]:
    """The lines of a text file, without their ends.

    Args:
        path: of the file.
        errors: "strict", or "replace" to put U+FFFD where the file is not UTF-8.
        start, end: bytes of the (uncompressed) file between which to read; both are where a line
            begins. None means the end of the file.

    Raises:
        ValueError: a line is not UTF-8; the message has line and byte offset.
    """
    file = os.fspath(path)
    errors = "replace" if file == STANDARD_INPUT else errors
    offset = start
    with open_binary(file) as stream:
        if start:
            stream.seek(start)
        for line in stream:
            try:
                text = line.decode("utf-8", errors)
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{file}:{_line_number(file, offset)}: a text must be UTF-8, but byte "
                    f"0x{line[error.start]:02x} at offset {offset + error.start} of the file is "
                    f"not ({error.reason}). Convert it, for example: iconv -f latin1 -t utf8 {file}"
                ) from error
            if offset == 0:
                text = text.removeprefix("\ufeff")
            offset += len(line)
            yield text.removesuffix("\n").removesuffix("\r")
            if offset == end:
                return


def count_lines(files: Iterable[str]) -> int:
    """How many lines `read_lines` gives of all files; reads them once."""
    total = 0
    for file in files:
        last = b"\n"
        with open_binary(file) as stream:
            while block := stream.read(_BUFFER_SIZE):
                total += block.count(b"\n")
                last = block
        total += not last.endswith(b"\n")
    return total


def _line_number(file: str, offset: int) -> int:
    """The line that begins at a byte of the file, counted from 1."""
    number = 1
    with open_binary(file) as stream:
        while offset > 0 and (block := stream.read(min(offset, _BUFFER_SIZE))):
            number += block.count(b"\n")
            offset -= len(block)
    return number


def read_tsv(path: str | os.PathLike, *, quoted: bool = False) -> Iterator[Row]:
    """Rows of a tab-separated file, header included if there is one. Empty lines are left out.

    Args:
        path: of the file.
        quoted: whether '"' may enclose a column, as in CSV. False is right for GLUE, where '"' is
            a character like any other.

    Source: google-research/bert, run_classifier.py, `DataProcessor._read_tsv`.
    """
    yield from _delimited_rows(os.fspath(path), "\t", quoted)


def read_csv(path: str | os.PathLike) -> Iterator[Row]:
    """Rows of a comma-separated file, header included if there is one; '"' may enclose a column."""
    yield from _delimited_rows(os.fspath(path), ",", quoted=True)


def read_table(
    path: str | os.PathLike,
    *,
    format: str | None = None,
    quoted: bool | None = None,
    header: bool = True,
) -> Iterator[TableRow]:
    """Rows of a table whose columns have names. Empty lines are left out.

    Args:
        path: of the file.
        format: "tsv" or "csv", whose first line names the columns, or "jsonl", one JSON object per
            line. By the file's name if None.
        quoted: whether '"' may enclose a column, which may then hold separators and line ends. If
            None: for CSV, not for TSV.
        header: whether the first line of TSV and CSV names the columns. Otherwise their names are
            "0", "1" and so on.

    Yields:
        The rows: text in TSV and CSV, what JSON says otherwise.

    Raises:
        ValueError: the format is unknown, there is no header, a name stands in it twice, or a row
            has another number of columns or is no JSON object.
    """
    file = os.fspath(path)
    format = _table_format(file) if format is None else format
    if format not in TABLE_FORMATS:
        raise ValueError(f"`format` is {format!r}, but must be one of {', '.join(TABLE_FORMATS)}.")
    if format == "jsonl":
        return _json_rows(file)
    quoted = format == "csv" if quoted is None else quoted
    return _named_rows(file, "," if format == "csv" else "\t", quoted, header)


@contextmanager
def open_binary(file: str) -> Iterator[BinaryIO]:
    """The bytes of a file, buffered, decompressed if it is gzip (recognised by its content).

    Raises:
        ValueError: the gzip data are damaged.
    """
    try:
        if file == STANDARD_INPUT:
            yield _decompressed(sys.stdin.buffer)
            return
        remote = "://" in file
        with tf.io.gfile.GFile(file, "rb") if remote else open(file, "rb", 0) as opened:
            raw = _RemoteFile(opened) if remote else opened
            yield _decompressed(io.BufferedReader(raw, _BUFFER_SIZE))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{file} begins as a gzip file does, but cannot be decompressed ({error}). It may have been "
            "cut off; copy it again."
        ) from error


def _decompressed(stream: Any) -> BinaryIO:
    if not stream.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC):
        return stream
    return io.BufferedReader(gzip.GzipFile(fileobj=stream), _BUFFER_SIZE)


class _RemoteFile(io.RawIOBase):
    """A GFile as Python's buffered reader wants it. (GFile's own lines leave out every "\\r".)"""

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


def _delimited_rows(file: str, delimiter: str, quoted: bool) -> Iterator[Row]:
    if not quoted:
        for number, line in enumerate(read_lines(file), 1):
            if line:
                yield Row(line.split(delimiter), file, number)
        return
    # The default limit of 131,072 characters per column is for all of Python, and documents of that
    # length exist.
    csv.field_size_limit(2**31 - 1)
    lines = (line + "\n" for line in read_lines(file))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    number = 1
    try:
        for columns in reader:
            if columns:
                yield Row(columns, file, number)
            number = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{place_of(file, number)}: {error}. If quotation marks in this file are ordinary "
            "characters, read it without quoting."
        ) from error


def _named_rows(file: str, delimiter: str, quoted: bool, has_header: bool) -> Iterator[TableRow]:
    rows = _delimited_rows(file, delimiter, quoted)
    first = next(rows, None)
    if first is None:
        if not has_header:
            return
        raise ValueError(f"{file} is empty, but its first line must name the columns.")
    header = first
    if not has_header:
        header, rows = Row(map(str, range(len(first))), file, first.line), chain([first], rows)
    for column in header:
        if header.count(column) > 1 or not column:
            raise ValueError(
                f"{header.place}: the first line names the columns, but {column!r} stands "
                f"{header.count(column)} times in it. It begins {_beginning(header, delimiter)!r}."
            )
    for row in rows:
        if len(row) != len(header):
            raise ValueError(
                f"{row.place}: found {len(row)} columns, but {len(header)} are expected "
                f"({', '.join(header)}). The row begins {_beginning(row, delimiter)!r}."
            )
        yield TableRow(dict(zip(header, row, strict=True)), file, row.line)


def _json_rows(file: str) -> Iterator[TableRow]:
    for number, line in enumerate(read_lines(file), 1):
        if not line.strip():
            continue
        try:
            values = parse_json(line)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"{place_of(file, number)}: no JSON ({error}). Each line must be one JSON "
                f"object; the line begins {line[:60]!r}."
            ) from error
        if not isinstance(values, dict):
            raise ValueError(
                f"{place_of(file, number)}: expected a JSON object with a value per column, but found "
                f"{line[:60]!r}."
            )
        yield TableRow(values, file, number)


def _table_format(file: str) -> str:
    suffix = file.lower().removesuffix(".gz").rsplit(".", 1)[-1]
    if suffix not in TABLE_FORMATS:
        raise ValueError(
            f"{file}: the format cannot be told from the name, which should end in "
            f".{', .'.join(TABLE_FORMATS)}. Rename the file or give its format."
        )
    return suffix


def _beginning(row: Row, delimiter: str) -> str:
    return delimiter.join(row)[:60]
