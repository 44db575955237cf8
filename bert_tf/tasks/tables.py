"""A person's own table as classification examples: TSV, CSV or JSON lines with named columns."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator

from bert_tf.data.readers import TableRow, read_table
from bert_tf.tasks.classification import InputExample


def read_examples(
    path: str,
    *,
    text_a_column: str,
    text_b_column: str | None = None,
    label_column: str | None = None,
) -> Iterator[InputExample]:
    """The rows of a table as examples.

    Args:
        path: ends in .tsv, .csv or .jsonl; see `data.readers.read_table`.
        text_a_column, text_b_column, label_column: names of columns. Without a label column the
            examples have no label.

    Raises:
        ValueError: a column is missing, or a text is empty or no text; the message has file and line.
    """
    for index, row in enumerate(read_table(path), start=1):
        text_b = None if text_b_column is None else _text(row, text_b_column)
        yield InputExample(
            guid=f"row-{index}",
            text_a=_text(row, text_a_column),
            text_b=text_b,
            label=None if label_column is None else _label(row, label_column),
            origin=row.place,
        )


def infer_labels(examples: Iterable[InputExample]) -> list[str]:
    """The labels that occur, sorted; numbers by their value.

    >>> infer_labels([InputExample("1", "a", label="10"), InputExample("2", "b", label="9")])
    ['9', '10']
    """
    labels = {example.label for example in examples if example.label is not None}
    try:
        values = {label: float(label) for label in labels}
    except ValueError:
        return sorted(labels)
    if not all(map(math.isfinite, values.values())):  # the words "nan" and "infinity"
        return sorted(labels)
    # The label itself decides between "1" and "01", because the order of a set is not that of the
    # next process.
    return sorted(labels, key=lambda label: (values[label], label))


def _text(row: TableRow, column: str) -> str:
    value = row[column]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(
            f"{row.place}: column {column!r} holds {value!r}, but must hold a text. "
            "Remove the row or fill it."
        )
    return value


def _label(row: TableRow, column: str) -> str:
    value = row[column]
    if isinstance(value, bool | int | float) and math.isfinite(value):
        value = json.dumps(value)  # JSON may say 1 or true
    if not isinstance(value, str) or not value.strip():
        raise ValueError(
            f"{row.place}: column {column!r} holds {value!r}, but must hold a label. "
            "Remove the row or fill it."
        )
    return value.strip()
