"""Classification examples from a user's table: TSV, CSV or JSON lines.

The columns of labels depend on the problem type:

    single_label   one column: a name or a number
    multi_label    one column of names, "rude,threat" (in JSON also a list), or empty;
                   or a column of 0 and 1 per label: --label_column=rude,threat
    regression     one column: a number
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from bert_tf.characters import is_blank
from bert_tf.data.tables import TableOptions, TableRow, read_table
from bert_tf.limits import DataError
from bert_tf.options import OptionError
from bert_tf.tasks.classification import InputExample, Label

logger = logging.getLogger(__name__)

# Labels of rows without one: of SNLI, whose annotators did not agree, and of a ClassLabel of `datasets`.
NO_LABEL = ("-", "-1")
_MAX_UNLABELED = 0.1  # fraction of -1, above which it may be a class, as in -1, 0, 1
_TRUTH = {"0": False, "1": True, "false": False, "true": True}


def split_label_columns(label_column: str, problem_type: str) -> tuple[str, ...]:
    """Return the columns of a multi-label table with a column per label; else ()."""
    columns = [column.strip() for column in label_column.split(",")]
    return tuple(columns) if problem_type == "multi_label" and len(columns) > 1 else ()


def read_examples(
    path: str,
    table: TableOptions,
    label_column: str | None = None,
    problem_type: str = "single_label",
) -> Iterator[InputExample]:
    """Yield the rows of a table as examples, without labels if `label_column` is None."""
    text_a, text_b = str(table.text_a_column), table.text_b_column
    for index, row in enumerate(read_table(path, separator=table.column_separator), start=1):
        yield InputExample(
            guid=f"row-{index}",
            text_a=read_text(row, text_a, "text_a_column"),
            text_b=None if text_b is None else read_text(row, text_b, "text_b_column"),
            label=None if label_column is None else _read_label(row, label_column, problem_type),
            origin=row.location,
        )


def infer_labels(examples: Sequence[InputExample]) -> list[str]:
    """Return the distinct labels in order, numbers by value. NO_LABEL is none beside two others."""
    labels = sorted({name for example in examples for name in example.names})
    with suppress(ValueError):
        values = {label: float(label) for label in labels}
        if all(map(math.isfinite, values.values())):  # not the words "nan" and "infinity"
            labels.sort(key=values.__getitem__)  # stable: "01" before "1"
    named = [label for label in labels if label not in NO_LABEL]
    if len(named) < 2 or not isinstance(examples[0].label, str):  # multi-label
        return labels
    share = sum(example.label == "-1" for example in examples) / len(examples)
    if share > _MAX_UNLABELED:
        text = f"-1 is the label of {share:.0%} of the rows: name all labels, with -1 or without."
        raise OptionError("labels", text)
    return named


def drop_unlabeled(
    examples: Sequence[InputExample], labels: Sequence[str], split: str
) -> list[InputExample]:
    """Return the examples but those of NO_LABEL, unless that is one of the labels. Log their number."""
    missing = set(NO_LABEL).difference(labels)
    labeled = [example for example in examples if example.label not in missing]
    if num_unlabeled := len(examples) - len(labeled):
        logger.warning(
            "%d of %d rows of the %s set have no label (%s), and are left out. If it is a class, list "
            "all with --labels.",
            *(num_unlabeled, len(examples), split, " or ".join(sorted(missing))),
        )
    return labeled


def read_text(row: TableRow, column: str, flag: str) -> str:
    return check_text(row, column, row.column(column, flag))


def check_text(row: TableRow, column: str, value: Any) -> str:
    """Return a value of a row if it is a text that is not empty."""
    _require(row, column, value, "a text", isinstance(value, str) and not is_blank(value))
    return value


def _read_label(row: TableRow, column: str, problem_type: str) -> Label:
    if columns := split_label_columns(column, problem_type):
        return tuple(name for name in columns if _read_truth(row, name))
    value = row.column(column, "label_column")
    if problem_type == "regression":
        return _parse_number(row, column, value)
    if problem_type == "single_label":
        return _parse_name(row, column, value)
    if isinstance(value, str):
        value = [part for part in value.split(",") if part.strip()]
    _require(row, column, value, "labels (a text or a list)", isinstance(value, list))
    return tuple(_parse_name(row, column, part) for part in value)


def _parse_name(row: TableRow, column: str, value: Any) -> str:
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        value = json.dumps(value)  # such as 1 or true in JSON
    name = value.strip() if isinstance(value, str) else ""
    is_line = bool(name) and not {"\n", "\r"} & set(name)  # labels.txt has one label a line
    _require(row, column, value, "a label without line ends", is_line)
    return name


def _read_truth(row: TableRow, column: str) -> bool:
    value = row.column(column, "label_column")
    word = (value if isinstance(value, str) else json.dumps(value)).strip().lower()
    _require(row, column, value, "0 or 1", word in _TRUTH)
    return _TRUTH[word]


def _parse_number(row: TableRow, column: str, value: Any) -> float:
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError):
        number = math.nan
    _require(row, column, value, "a number for problem_type=regression", math.isfinite(number))
    return number


def _require(row: TableRow, column: str, value: Any, expected: str, is_valid: bool) -> None:
    if not is_valid:
        raise DataError(
            row.location, f"column {column!r} contains {value!r:.60}, but must contain {expected}."
        )
