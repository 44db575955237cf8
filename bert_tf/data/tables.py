"""Readers of tables. Every error names file and line.

    read_tsv         GLUE's layout: tab-separated, no quoting, columns by number
    read_csv         comma-separated, quoted, columns by number
    read_table       the user's TSV, CSV or JSON lines, columns by name (or number, without a header)

Files are read as in data/lines.py.
"""

from __future__ import annotations

import csv
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar

from bert_tf.data.encodings import WORKBOOKS, workbook_error
from bert_tf.data.lines import place_of, read_lines, with_line_feeds
from bert_tf.data.streams import check_is_file
from bert_tf.limits import MAX_WHOLE_FILE, listed, parse_json
from bert_tf.names import suggestion

logger = logging.getLogger(__name__)

TABLE_FORMATS = ("tsv", "csv", "jsonl")
AS_JSON_LINES = (
    'Write a table as JSON lines: to_json("train.jsonl", orient="records", lines=True) of datasets or '
    "pandas."
)
_LIST = re.compile(r"""\[\s*(\d[\d\s,.]*|(["']).*\2\s*)?\]""", re.DOTALL)  # ['a', 'b'] or [0 3]
_REMOVE_TITLE = "remove the lines above the names of the columns."
SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}


class _Placed:
    """A row with its file and line."""

    def __init__(self, columns: Any, file: str, line: int) -> None:
        super().__init__(columns)  # type: ignore[call-arg]
        self.file = file
        self.line = line  # counted from 1

    @property
    def place(self) -> str:
        """ "file:line", for error messages."""
        return place_of(self.file, self.line)


def check_no_list(row: TableRow, column: str, value: Any, what: str) -> None:
    """Raise ValueError if a cell is a list of texts or numbers, as pandas writes lists into CSV."""
    if isinstance(value, str) and _LIST.fullmatch(value.strip()):
        raise ValueError(
            f"{row.place}: column {column!r} contains {value!r:.60}, a list, but must contain {what}. "
            f"{AS_JSON_LINES}"
        )


# Values of pandas, databases and spreadsheets in empty or broken cells, in lower case.
_EMPTY_CELLS = ("nan", "null", "#n/a", "#null!", "#name?", "#value!", "#ref!", "#num!", "#div/0!")


def warn_of_empty_cells(labels: Iterable[str], file: str) -> None:
    """Warn of classes whose name is what other programs write into empty or broken cells."""
    for label in labels:
        if label.lower() in _EMPTY_CELLS:
            logger.warning(
                "%s: the label %r usually stands for an empty or broken cell, but is a class here. "
                "Remove its rows, unless you want this class.",
                file,
                label,
            )


class Row(_Placed, list):
    """Columns of one row of a TSV or CSV file, as strings."""


class TableRow(_Placed, dict):
    """One row of a table with a header, name -> value; a missing column raises ValueError."""

    def __init__(self, columns: Any, file: str, line: int, header_line: int | None = None) -> None:
        super().__init__(columns, file, line)
        self.header_line = line if header_line is None else header_line

    @property
    def place_of_names(self) -> str:
        return place_of(self.file, self.header_line)

    @property
    def remedy_without_header(self) -> str:
        """End of a message about missing names, if the first line of the file contains names."""
        if self.header_line == self.line:  # JSON lines, or a table without a header
            return ""
        return " If the first line is a row, use header=False."

    def column(self, name: str, flag: str) -> Any:
        """Return the value of a column. The error for a missing one names the flag."""
        if name not in self:
            raise self._no_column(name, flag)
        return self[name]

    def usual(self, names: Iterable[str]) -> str | None:
        """Return the column with the first of these names; None without one.

        Case and spaces around a name do not count.
        """
        columns = reversed(self)  # so that the first of equal names stays
        in_any_case = {column.strip().casefold(): column for column in columns}
        found = (name if name in self else in_any_case.get(name.casefold()) for name in names)
        return next((name for name in found if name is not None), None)

    def __missing__(self, column: str) -> Any:
        raise self._no_column(column, "the flag of the column")

    def _no_column(self, name: str, flag: str) -> ValueError:
        return ValueError(
            f"{self.place_of_names}: no column {name!r}{suggestion(name, self)} The columns are "
            f"{listed(self)}. Name one of them with {flag}, or rename it."
            f"{self.remedy_without_header}"
        )


AnyRow = TypeVar("AnyRow", Row, TableRow)


def read_tsv(path: str | os.PathLike, *, quoted: bool = False) -> Iterator[Row]:
    """Yield the rows of a tab-separated file, with the header. Empty lines are skipped.

    Args:
        quoted: True if '"' may enclose a column, as in CSV. In GLUE it may not: '"' is an ordinary
            character.

    Source: google-research/bert, run_classifier.py, `DataProcessor._read_tsv`.
    """
    yield from _delimited_rows(os.fspath(path), "\t", quoted)


def read_csv(path: str | os.PathLike) -> Iterator[Row]:
    """Yield the rows of a comma-separated file, with the header. '"' may enclose a column."""
    yield from _delimited_rows(os.fspath(path), ",", quoted=True)


def read_table(
    path: str | os.PathLike,
    *,
    format: str | None = None,
    quoted: bool | None = None,
    header: bool = True,
    separator: str | None = None,
    format_flag: str | None = None,
) -> Iterator[TableRow]:
    """Yield the rows of a table whose columns have names. Empty lines are skipped.

    Values are strings in TSV and CSV, JSON values otherwise.

    Args:
        format: "tsv" or "csv", whose first line names the columns, or "jsonl", one JSON object per
            line. None infers it from the file name.
        quoted: True if '"' may enclose a column, which may then contain separators and line ends.
            None means for CSV; not for TSV, with a warning of such columns.
        header: True if the first line of TSV and CSV names the columns. Otherwise their names are
            "0", "1" and so on.
        separator: of the columns of TSV and CSV, a character or one of SEPARATORS. None means the one
            of a first line such as "sep=;", which Excel reads, else a comma in CSV and a tab in TSV.
        format_flag: option of the program that sets `format`, for the message about its absence.

    Raises:
        ValueError: the format is unknown, the header is missing or wrong, or a row does not fit.
    """
    file = os.fspath(path)
    format = _table_format(file, format_flag) if format is None else format
    if format not in TABLE_FORMATS:
        raise ValueError(f"`format` is {format!r}, but must be one of {', '.join(TABLE_FORMATS)}.")
    delimiter = SEPARATORS.get(separator or "", separator)
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise ValueError(
            f"column_separator is {separator!r}, but must be one character or one of "
            f"{', '.join(SEPARATORS)}."
        )
    if format == "jsonl":
        return _json_rows(file)
    quoted = True if quoted is None and format == "csv" else quoted
    stated, lines = _separator_of_excel(read_lines(file))
    delimiter = delimiter or stated
    if delimiter is None:
        delimiter = "," if format == "csv" else "\t"
        lines = _with_checked_header(lines, file, delimiter) if header else lines
    rows = _delimited_rows(file, delimiter, quoted, lines)
    if header and quoted is None:
        rows = _with_unquoted_header(rows)
    return _named_rows(rows, file, delimiter, header)


def without_empty_rows(rows: Iterator[AnyRow]) -> Iterator[AnyRow]:
    """Skip rows whose columns are all empty, as spreadsheets write them, and log their number."""
    count = 0
    for row in rows:
        values = row.values() if isinstance(row, TableRow) else row
        if row and all(value in ("", None) for value in values):
            count, place = count + 1, row.place
        else:
            yield row
    if count:
        logger.warning("%d rows without any text were skipped, the last in %s", count, place)


def _separator_of_excel(lines: Iterator[str]) -> tuple[str | None, Iterator[str]]:
    """Return the separator of a first line such as "sep=;", and the lines with "" instead of it."""
    first = next(lines, None)
    if first is None:
        return None, lines
    if len(first) == 5 and first.lower().startswith("sep="):
        return first[-1], chain([""], lines)
    return None, chain([first], lines)


def _with_checked_header(lines: Iterator[str], file: str, delimiter: str) -> Iterator[str]:
    """Yield all lines; raise if the first one has another separator instead of `delimiter`."""
    first = next(lines, None)
    if first is None:
        return
    found = max(SEPARATORS, key=lambda name: first.count(SEPARATORS[name]))
    if delimiter not in first and SEPARATORS[found] in first:
        own = next(name for name, character in SEPARATORS.items() if character == delimiter)
        raise ValueError(
            f"{file}: the first line names the columns, but contains no {delimiter!r}. It begins "
            f"{first[:60]!r}. If {SEPARATORS[found]!r} separates the columns, write the line "
            f"sep={SEPARATORS[found]} above it, or use column_separator={found}. For a table of one "
            f"column use column_separator={own}."
        )
    yield from chain([first], lines)


def _with_unquoted_header(rows: Iterator[Row]) -> Iterator[Row]:
    """Yield all rows; raise if each column of the first one is enclosed in quotation marks."""
    for number, row in enumerate(rows):
        if number == 0 and all(len(name) > 1 and name[0] == name[-1] == '"' for name in row):
            raise ValueError(
                f"{row.place}: quotation marks enclose each column of the first line: {listed(row)}. "
                "Use quoted=True, or quoted=False if they are part of the names."
            )
        yield row


def _delimited_rows(
    file: str, delimiter: str, quoted: bool | None, lines: Iterable[str] | None = None
) -> Iterator[Row]:
    lines = with_line_feeds(read_lines(file) if lines is None else lines, file)
    if not quoted:
        may_warn = quoted is None
        for number, line in enumerate(lines, 1):
            if line:
                row = Row(line.split(delimiter), file, number)
                if may_warn and any(map(_is_enclosed, row)):
                    may_warn = False
                    logger.warning("%s: quotes as in CSV, read as text (see --quoted)", row.place)
                yield row
        return
    # Documents can exceed Python's default limit of 131,072 characters per column.
    csv.field_size_limit(MAX_WHOLE_FILE)
    number = 1  # of the row; a quoted column may contain line ends
    reader = csv.reader((line + "\n" for line in lines), delimiter=delimiter, strict=True)
    try:
        for columns in reader:
            if columns:
                yield Row(columns, file, number)
            number = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{place_of(file, number)}: {error}. Double a quotation mark inside an enclosed column. If "
            "quotation marks are ordinary characters here, use quoted=False."
        ) from error


def _is_enclosed(column: str) -> bool:
    # "He said ""no""" and "Yes, no", as spreadsheets write them with tabs too
    if column[:1] != '"':
        return False
    inner = column[1:].removesuffix('"')
    return '""' in column[1:] or (column[-1] == '"' and "," in inner and '"' not in inner)


def _named_rows(
    rows: Iterator[Row], file: str, delimiter: str, has_header: bool
) -> Iterator[TableRow]:
    first = next(rows, None)
    if first is None:
        if not has_header:
            return
        raise ValueError(f"{file} is empty, but its first line must name the columns.")
    header = first
    if has_header:
        rows = _without_empty_columns(rows, header)
        if not header:
            raise ValueError(
                f"{header.place}: the first line must name the columns, but is empty. If they are "
                f"further down, {_REMOVE_TITLE}"
            )
    else:
        header, rows = Row(map(str, range(len(first))), file, first.line), chain([first], rows)
    for column, count in Counter(header).items():
        if count > 1 or not column:
            remedy = (
                "" if header[0] else " Write it without pandas' index: to_csv(..., index=False)."
            )
            raise ValueError(
                f"{header.place}: the first line must name each column once, but contains {column!r} "
                f"{count} times. It begins {_beginning(header, delimiter)!r}.{remedy}"
            )
    for row in rows:
        if len(row) != len(header):
            raise ValueError(
                f"{row.place}: found {len(row)} columns, but {len(header)} are expected "
                f"({listed(header)}). The row begins {_beginning(row, delimiter)!r}."
                f"{_remedy(row, header)}"
            )
        values = dict(zip(header, row, strict=True))
        yield TableRow(values, file, row.line, header.line if has_header else None)


def _remedy(row: Row, header: Row) -> str:
    """Return the end of the message about a row of another length.

    An enclosed line end may have cut the row, or the first line may be a title.
    """
    if row[-1][:1] == '"' and row[-1].count('"') % 2 == 1:
        return " If '\"' encloses columns in this file, use quoted=True."
    return f" If the first line is a title, {_REMOVE_TITLE}" if len(header) == 1 else ""


def _without_empty_columns(rows: Iterator[Row], header: Row) -> Iterator[Row]:
    """Remove the empty last columns that spreadsheets write, from header and rows."""
    width = len(header)
    while header and not header[-1].strip():
        header.pop()
    excess = width - len(header)
    if not excess:
        return rows
    return (
        Row(row[:-excess], row.file, row.line)
        if len(row) == width and not any(row[-excess:])
        else row
        for row in rows
    )


def _json_rows(file: str) -> Iterator[TableRow]:
    for number, line in enumerate(read_lines(file), 1):
        if not line.strip():
            continue
        remedy = f" {AS_JSON_LINES}" if line.startswith("[") else ""
        try:
            values = parse_json(line, unique_keys=True)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"{place_of(file, number)}: invalid JSON ({error}). Each line must be one JSON object. "
                f"The line begins {line[:60]!r}.{remedy}"
            ) from error
        if not isinstance(values, dict):
            raise ValueError(
                f"{place_of(file, number)}: must be a JSON object with a value per column, but is "
                f"{line[:60]!r}.{remedy}"
            )
        yield TableRow(values, file, number)


def ending_of(file: str) -> str:
    """Return the ending of a file's name in lower case, without .gz.

    >>> ending_of("data/Train.TSV.gz")
    'tsv'
    """
    return file.lower().removesuffix(".gz").rsplit(".", 1)[-1]


def _table_format(file: str, flag: str | None) -> str:
    suffix = ending_of(file)
    if suffix in WORKBOOKS:
        raise workbook_error(file)
    if suffix not in TABLE_FORMATS:
        in_folder = ("dataset_info.json", "dataset_dict.json")  # of datasets' save_to_disk
        if suffix in ("parquet", "arrow") or any(
            os.path.exists(os.path.join(file, name)) for name in in_folder
        ):
            raise ValueError(f"{file} cannot be read as a table. {AS_JSON_LINES}")
        check_is_file(file)
        raise ValueError(
            f"{file}: unknown format of a table. The name should end in .{', .'.join(TABLE_FORMATS)}. "
            f"Rename the file{f', or give its format with {flag}' if flag else ''}."
        )
    return suffix


def _beginning(row: Row, delimiter: str) -> str:
    return delimiter.join(row)[:60]
