"""Classification examples from a user's table: TSV, CSV or JSON lines.

The columns of labels depend on the problem type:

    single_label   one column: a name or a number
    multi_label    one column of names, "rude,threat" (in JSON also a list), or empty;
                   or a column of 0 and 1 per label: --label_column=rude,threat
    regression     one column: a number
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bert_tf.characters import is_blank
from bert_tf.data.tables import TableRow, check_no_list, read_table, without_empty_rows
from bert_tf.tasks.classification import InputExample
from bert_tf.tasks.problem_types import Label

_MOST_DECIMAL_CLASSES = 20
_TRUTH = {"0": False, "1": True, "false": False, "true": True}
_ONE_HOT = {*_TRUTH, "0.0", "1.0"}


@dataclass(frozen=True)
class TableLayout:
    """Column layout of a table.

    Args:
        text_a, text_b, label: column names, or numbers from 0 without a header. A multi-label `label`
            may be several columns separated by commas.
        problem_type: key of `tasks.problem_types.PROBLEM_TYPES`.
        label_separator: between the labels in one column.
        format: "tsv", "csv" or "jsonl"; None: from the file's name.
        quoted: True if '"' may enclose a column; None: only in CSV.
        header: True if the first line contains the column names.
        separator: of the columns; see `data.tables.read_table`.
    """

    text_a: str
    text_b: str | None = None
    label: str | None = None
    problem_type: str = "single_label"
    label_separator: str = ","
    format: str | None = None
    quoted: bool | None = None
    header: bool = True
    separator: str | None = None

    @property
    def label_columns(self) -> tuple[str, ...]:
        """Columns of a multi-label table with a column per label; else ()."""
        columns = [column.strip() for column in (self.label or "").split(",")]
        is_one_per_label = self.problem_type == "multi_label" and len(columns) > 1
        return tuple(columns) if is_one_per_label else ()


def read_examples(path: str, layout: TableLayout, *, labelled: bool) -> Iterator[InputExample]:
    """Yield the rows of a table as examples.

    Args:
        path: of the file; see `data.tables.read_table`.
        labelled: True to read the labels; else the examples have none.

    Raises:
        ValueError: a column is missing, or a text or label is invalid; the message has file and line.
    """
    rows = read_table(
        path,
        format=layout.format,
        quoted=layout.quoted,
        header=layout.header,
        separator=layout.separator,
        format_flag="table_format",
    )
    rows = without_empty_rows(rows) if labelled else rows
    for index, row in enumerate(rows, start=1):
        text_b = None if layout.text_b is None else _text(row, layout.text_b, "text_b_column")
        yield InputExample(
            guid=f"row-{index}",
            text_a=_text(row, layout.text_a, "text_a_column"),
            text_b=text_b,
            label=_label(row, layout) if labelled else None,
            origin=row.place,
        )


def infer_labels(examples: Iterable[InputExample]) -> list[str]:
    """Return the distinct labels in order; numbers by their value.

    >>> infer_labels([InputExample("1", "a", label="10"), InputExample("2", "b", label="9")])
    ['9', '10']
    """
    labels = {name for example in examples for name in example.names}
    try:
        values = {label: float(label) for label in labels}
    except ValueError:
        return sorted(labels)
    if not all(map(math.isfinite, values.values())):  # the words "nan" and "infinity"
        return sorted(labels)
    # The label decides between "1" and "01", because the order of a set varies between processes.
    return sorted(labels, key=lambda label: (values[label], label))


def are_measurements(labels: Sequence[str], num_examples: int) -> bool:
    """Return True if labels look like numbers of a regression instead of classes.

    They must be decimal numbers, not all whole. There must be more than 20, or more than half the
    number of examples. Half stars (0.5, 1.0 ... 5.0) are classes.

    >>> are_measurements(["0.5", "1.0", "1.5"], num_examples=90)
    False
    >>> are_measurements(["0.25", "1.8", "3.75"], num_examples=4)
    True
    """
    try:
        values = [float(label.replace(",", ".")) for label in labels]
    except ValueError:
        return False
    have_fractions = not all(value.is_integer() for value in values)
    return have_fractions and len(labels) > min(_MOST_DECIMAL_CLASSES, num_examples / 2)


def _column(row: TableRow, name: str, flag: str) -> Any:
    """Return the value of a column, whose name may be in another case, as in another file."""
    return row.column(row.usual([name]) or name, flag)


def _text(row: TableRow, column: str, flag: str) -> str:
    value = _column(row, column, flag)
    if not isinstance(value, str) or is_blank(value):
        raise _wrong(row, column, value, "a text")
    return value


def _label(row: TableRow, layout: TableLayout) -> Label:
    if layout.label_columns:
        return tuple(name for name in layout.label_columns if _truth(row, name))
    column = str(layout.label)
    value = _column(row, column, "label_column")
    if layout.problem_type == "regression":
        return _number(row, column, value)
    if isinstance(value, str) and _OBJECT.fullmatch(value.strip()):
        remedy = "Write the names of the labels alone, as in funny,short."
        raise _wrong(row, column, value, "labels, not a JSON object", remedy)
    if layout.problem_type == "multi_label":
        return _names(row, column, value, layout.label_separator)
    check_no_list(row, column, value, "a label")
    return _name(row, column, value)


def _name(row: TableRow, column: str, value: Any) -> str:
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        value = json.dumps(value)  # such as 1 or true in JSON
    if not isinstance(value, str) or not value.strip():
        raise _wrong(row, column, value, "a label")
    value = value.strip()
    if "\n" in value or "\r" in value:  # labels.txt has one label a line
        raise _wrong(row, column, value, "a label without line ends")
    return value


def _names(row: TableRow, column: str, value: Any, separator: str) -> tuple[str, ...]:
    check_no_list(row, column, value, f"names with {separator!r} between them")
    if isinstance(value, str):
        parts: Sequence[Any] = [part for part in value.split(separator) if part.strip()]
        if len(parts) > 1 and value[0] == value[-1] == '"' and value.count('"') == 2:
            remedy = "If '\"' encloses columns in this file, use quoted=True."
            raise _wrong(row, column, value, "labels without quotation marks around them", remedy)
    elif isinstance(value, list):
        parts = value
    else:
        raise _wrong(row, column, value, "labels (a text or a list)")
    names = tuple(_name(row, column, part) for part in parts)
    distinct = {name.lower() for name in names}
    if len(distinct) < len(names) and distinct <= _ONE_HOT:
        remedy = "For a 0 or 1 for each label write a column for each: label_column=rude,threat."
        raise _wrong(row, column, value, "the names of its labels, each once", remedy)
    return names


def _truth(row: TableRow, column: str) -> bool:
    value = _column(row, column, "label_column")
    word = (value if isinstance(value, str) else json.dumps(value)).strip().lower()
    if word not in _TRUTH:
        raise _wrong(row, column, value, "0 or 1")
    return _TRUTH[word]


def _number(row: TableRow, column: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (OverflowError, TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        has_comma = isinstance(value, str) and _DECIMAL_COMMA.fullmatch(value.strip())
        remedy = "Write a point instead of each decimal comma." if has_comma else _REMEDY
        raise _wrong(row, column, value, "a number for problem_type=regression", remedy)
    return number


_OBJECT = re.compile(r"""\{\s*".*\}""", re.DOTALL)  # {"choices":["a","b"]} of Label Studio
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_REMEDY = "Remove or complete the row."


def _wrong(
    row: TableRow, column: str, value: Any, expected: str, remedy: str = _REMEDY
) -> ValueError:
    return ValueError(
        f"{row.place}: column {column!r} contains {value!r:.60}, but must contain {expected}. {remedy}"
    )
