"""Readers of tables: GLUE's .tsv with columns by number, the user's .tsv, .csv and .jsonl by name.

Every error names file and line.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bert_tf.files import format_location, read_lines
from bert_tf.limits import DataError, join_names, suggestion
from bert_tf.options import option

TABLE_FORMATS = ("tsv", "csv", "jsonl")


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Layout and columns of the tables that a program reads."""

    column_separator: str | None = option(
        "Separator of the columns of TSV and CSV, a character. Default: comma in CSV, tab in TSV.",
        default=None,
    )
    text_a_column: str | None = option(
        "Column of the (first) sentence or the question. Default: that of the training, else text_a, of "
        "run_squad question.",
        group="Data",
        default=None,
    )
    text_b_column: str | None = option(
        "Column of the second sentence or of the context of a question. Default: that of the training, "
        "else text_b, of run_squad context.",
        group="Data",
        default=None,
    )
    choices_column: str | None = option(
        "Column with a list of choices (JSON lines), or comma list of columns with one choice each.",
        default=None,
    )


class _Located:
    """A row with its file and line, counted from 1."""

    def __init__(self, columns: Any, file: str, line: int) -> None:
        super().__init__(columns)  # type: ignore[call-arg]
        self.file = file
        self.line = line

    @property
    def location(self) -> str:
        """ "file:line", for error messages."""
        return format_location(self.file, self.line)


class Row(_Located, list):
    """Columns of one row of a TSV or CSV file, as strings."""


class TableRow(_Located, dict):
    """One row of a table with a header, name -> value."""

    def column(self, name: str, flag: str) -> Any:
        """Return the value of a column. The error for a missing one names the flag."""
        if name not in self:
            raise DataError(
                self.location,
                f"no column {name!r}{suggestion(name, self)} The columns are "
                f"{join_names(self)}. Set {flag} or column_separator.",
            )
        return self[name]


def read_tsv(path: str | os.PathLike) -> Iterator[Row]:
    """Yield the rows of a tab-separated file, with the header. Empty lines are skipped.

    Source: google-research/bert, run_classifier.py, `DataProcessor._read_tsv`.
    """
    return _delimited_rows(os.fspath(path), "\t", quoted=False)


def read_table(
    path: str | os.PathLike,
    *,
    format: str | None = None,
    separator: str | None = None,
) -> Iterator[TableRow]:
    """Yield the rows of a table whose columns have names. Empty lines are skipped.

    Values are strings in TSV and CSV, JSON values otherwise. Columns of CSV may be enclosed in '"'.
    """
    file = os.fspath(path)
    format = format or guess_format(file)
    if format not in TABLE_FORMATS:
        raise DataError(file, f"the name of a table must end in .{', .'.join(TABLE_FORMATS)}.")
    if format == "jsonl":
        return _json_rows(file)
    delimiter = separator or ("," if format == "csv" else "\t")
    return _named_rows(_delimited_rows(file, delimiter, quoted=format == "csv"))


def _delimited_rows(file: str, delimiter: str, quoted: bool) -> Iterator[Row]:
    lines = read_lines(file)
    if not quoted:
        for number, line in enumerate(lines, 1):
            if line:
                yield Row(line.split(delimiter), file, number)
        return
    number = 1  # of the row; a quoted column may contain line ends
    reader = csv.reader((line + "\n" for line in lines), delimiter=delimiter, strict=True)
    try:
        for columns in reader:
            if columns:
                yield Row(columns, file, number)
            number = reader.line_num + 1
    except csv.Error as error:
        raise DataError(format_location(file, number), f"{error}.") from error


def _named_rows(rows: Iterator[Row]) -> Iterator[TableRow]:
    names = next(rows, Row((), "", 0))
    if len(set(names)) < len(names):
        raise DataError(
            names.location,
            f"the first line must name each column once, but has {join_names(names)}.",
        )
    for row in rows:
        if len(row) != len(names):
            problem = f"found {len(row)} columns, but {len(names)} are expected"
            raise DataError(row.location, f"{problem} ({join_names(names)}).")
        yield TableRow(zip(names, row, strict=True), row.file, row.line)


def _json_rows(file: str) -> Iterator[TableRow]:
    for number, line in enumerate(read_lines(file), 1):
        if not line.strip():
            continue
        try:
            row = TableRow({**json.loads(line)}, file, number)
        except (ValueError, TypeError, RecursionError) as error:
            problem = f"not one JSON object ({error})."
            raise DataError(format_location(file, number), problem) from error
        yield row


def guess_format(file: str) -> str:
    """Return the ending of a file's name in lower case, without .gz.

    >>> guess_format("data/Train.TSV.gz")
    'tsv'
    """
    return file.lower().removesuffix(".gz").rsplit(".", 1)[-1]
