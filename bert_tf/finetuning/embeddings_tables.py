"""Examples of embeddings from one file: a table of pairs, scores or classes, or a SQuAD file."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bert_tf.characters import is_blank
from bert_tf.data.question_answering import read_squad
from bert_tf.data.tables import (
    TableRow,
    check_no_list,
    ending_of,
    read_table,
    warn_of_empty_cells,
    without_empty_rows,
)
from bert_tf.finetuning.embeddings_options import (
    ANCHORS,
    FIRST_TEXTS,
    LABEL,
    LABELS,
    NEGATIVE,
    POSITIVES,
    TextColumnsOptions,
)
from bert_tf.limits import listed
from bert_tf.tasks.embeddings import EmbeddingExample
from bert_tf.training.embedding_losses import CLASSES, PAIRS, SCORES

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Columns:
    """Columns of a table: names, or numbers from 0 without a header."""

    anchor: str
    positive: str | None
    negatives: tuple[str, ...]
    label: str | None

    @property
    def names(self) -> tuple[str | None, ...]:
        return (self.anchor, self.positive, *self.negatives, self.label)

    @property
    def example_type(self) -> str:
        if self.positive is None:
            return CLASSES
        return PAIRS if self.label is None else SCORES

    def __str__(self) -> str:
        found = {
            "anchor": self.anchor,
            "positive": self.positive,
            "negatives": ", ".join(self.negatives) or None,
            "label": self.label,
        }
        return ", ".join(
            f"{name} in {column!r}" for name, column in found.items() if column is not None
        )


def read_file(
    path: str,
    options: TextColumnsOptions,
    missing_label: float | None = None,
    keep_empty_rows: bool = False,
) -> tuple[str, list[EmbeddingExample]]:
    """Return the type of the examples of a table or a SQuAD file, and the examples.

    Args:
        missing_label: of examples without a score or a class; None if these are an error.
        keep_empty_rows: raise for a row without any text, instead of skipping it.

    Raises:
        ValueError: the file cannot be read, has no examples, lacks a column, mixes types of examples, or
            has an empty text, an invalid score, or only one class.
    """
    if ending_of(path) == "json":
        return PAIRS, [
            EmbeddingExample((each.question_text, each.passage.text), origin=each.place)
            for each in read_squad(path)
        ]
    rows = read_table(
        path,
        quoted=options.quoted,
        header=options.header,
        separator=options.column_separator,
    )
    rows = rows if keep_empty_rows else without_empty_rows(rows)
    labelled = missing_label is None
    found: dict[tuple[str, ...], Columns] = {}  # by the names in a row: JSON lines may differ
    types: dict[str, str] = {}  # -> place of the first example
    classes: dict[str, int] = {}
    marks = _UnreadMarks(())
    examples = []
    for row in rows:
        names = tuple(row)
        if names not in found:
            found[names] = _columns(row, options, labelled)
            types.setdefault(found[names].example_type, row.place)
            if len(found) == 1:
                logger.info("%s: %s", path, found[names])
                if unread := [name for name in names if name not in found[names].names]:
                    logger.info("%s: not read: %s", path, listed(unread))
                if found[names].example_type == PAIRS and options.label_column != "":
                    marks = _UnreadMarks(unread)
        marks.read(row)
        examples.append(_example(row, found[names], classes, missing_label))
    check_some(examples, path)
    marks.warn(path)
    if len(types) > 1:
        places = ", ".join(f"{place}: {example_type}" for example_type, place in types.items())
        raise ValueError(
            f"The file contains different types of examples ({places}). Split it, or name the columns "
            "with anchor_column, positive_column and label_column."
        )
    example_type = next(iter(types))
    if example_type == CLASSES:
        named = list(classes)
        warn_of_empty_cells(named, path)
        if labelled and len(classes) == 1:
            raise ValueError(
                f"{path}: every text has the class {named[0]!r}, but two or more are needed. Add texts "
                "of other classes, or name another column with label_column."
            )
    return example_type, examples


class _UnreadMarks:
    """Unread columns with marks from 0 to 5, where 0 may mean that the texts do not belong together."""

    def __init__(self, unread: Iterable[str]):
        self._seen: dict[str, set[str]] = {name: set() for name in unread}
        self._num_rows = 0

    def read(self, row: TableRow) -> None:
        """Add the values of a row, and forget columns with other values."""
        usual = {"false": "0", "true": "1"}
        self._num_rows += 1
        for name, seen in list(self._seen.items()):
            text = str(row.get(name)).strip().lower().removesuffix(".0")
            seen.add(usual.get(text, text))
            if not seen <= set("012345"):
                del self._seen[name]

    def warn(self, path: str) -> None:
        """Warn of the columns that have 0 and another mark."""
        for name, seen in self._seen.items():
            if "0" not in seen or len(seen) == 1:
                continue
            if len(seen) == self._num_rows:  # all differ, as row numbers do
                continue
            *others, last = sorted(seen)
            logger.warning(
                "%s: column %r has %s and %s, but is not read, so every row is a pair that belongs "
                "together. If 0 means that the texts of a row do not, rename the column to label%s.",
                *(path, name, ", ".join(others), last),
                "" if last == "1" else f" and divide it by {last}",
            )


def check_some(examples: Sequence[EmbeddingExample], source: str, what: str = "examples") -> None:
    """Raise ValueError if there are no examples; `what` names them in the message."""
    if not examples:
        raise ValueError(f"{source} has no {what}.")


def _columns(row: TableRow, options: TextColumnsOptions, labelled: bool) -> Columns:
    """Return the columns that the options name, else those with usual names."""

    def find(flag: str, usual: Sequence[str]) -> str | None:
        given = getattr(options, flag)
        if given is not None:
            row.column(given, flag)  # raises if it is missing
            return given
        return row.usual(usual)

    anchor = find("anchor_column", ANCHORS)
    if anchor is None:
        raise ValueError(
            f"{row.place_of_names}: the columns are {listed(row)}, and none has the name of an "
            f"anchor ({', '.join(ANCHORS)}). Name it with anchor_column.{row.remedy_without_header}"
        )
    others = [name for name in POSITIVES if name.casefold() != anchor.casefold()]
    positive = find("positive_column", others)
    label = None
    if options.label_column == "":
        if ignored := row.usual(LABELS):
            logger.warning("%s: %r is not used as a score", row.place_of_names, ignored)
    elif labelled or options.label_column in (None, *row):
        label = find("label_column", LABELS)
    else:
        logger.warning("%s: no column %r, so no metrics", row.place_of_names, options.label_column)
    if options.negative_columns is not None:
        parts = options.negative_columns.split(",")
        negatives = tuple(name.strip() for name in parts if name.strip())
        for name in negatives:
            row.column(name, "negative_columns")
    else:
        usual = re.compile(f"{NEGATIVE}(s|_.*)?", re.IGNORECASE)
        negatives = tuple(name for name in row if usual.fullmatch(name.strip()))
        own = (anchor, positive, label, *negatives)
        unread = [name for name in row if "neg" in name.casefold() and name not in own]
        if positive is not None and unread:
            logger.warning(
                "%s: the columns %s are not read. If they contain negatives, name all columns of "
                "negatives with --negative_columns.",
                *(row.place_of_names, ", ".join(map(repr, unread[:20]))),
            )
    if negatives:
        if label is not None and not options.label_column:
            logger.warning("%s: %r is not used as a score", row.place_of_names, label)
        label = options.label_column or None
    if labelled and positive is None and label is None:
        remedy = "positive. Name its column with positive_column."
        if options.label_column != "":
            remedy = "positive or a class. Name its column with positive_column or label_column."
        raise ValueError(
            f"{row.place_of_names}: the columns are {listed(row)}. The anchor in {anchor!r} needs a "
            f"{remedy}"
        )
    if negatives and (positive is None or label is not None):
        raise ValueError(
            f"{row.place_of_names}: the negatives in {listed(negatives)} need a positive, and no "
            "label. Omit label_column, or name the positive with positive_column."
        )
    columns = Columns(anchor, positive, negatives, label)
    if labelled and columns.example_type == CLASSES:
        _check_names_of_one_text(row, columns)
    return columns


def _check_names_of_one_text(row: TableRow, columns: Columns) -> None:
    """Raise if a column has a name that is usual only in tables of two texts."""
    of_two = {*FIRST_TEXTS, "premise", *LABELS} - {LABEL}
    for name in (columns.anchor, str(columns.label)):
        if name.strip().casefold() in map(str.casefold, of_two):
            raise _second_text_missing(row, columns, f"{name!r} is a name for two texts")


def _second_text_missing(row: TableRow, columns: Columns, why: str) -> ValueError:
    return ValueError(
        f"{row.place}: the columns are {listed(row)}. {why}, but only one text was found, in "
        f"{columns.anchor!r}. Name the column of the other text with positive_column. If the label is "
        "a class, rename the columns to text and label, and write a name or a whole number."
    )


def _example(
    row: TableRow, columns: Columns, classes: dict[str, int], missing_label: float | None
) -> EmbeddingExample:
    texts = [text_of(row, columns.anchor)]
    if columns.positive is not None:
        texts.append(text_of(row, columns.positive))
    for name in columns.negatives:
        check_no_list(row, name, row[name], "one text")
        values = row[name] if isinstance(row[name], list) else [row[name]]
        texts += [_as_text(row, name, value) for value in values if value not in ("", None)]
    label = 0.0
    is_missing = columns.example_type != PAIRS and row.get(columns.label) in (None, "")
    if is_missing and missing_label is not None:
        label = missing_label
    elif columns.example_type == CLASSES:
        value = row[columns.label]
        name = "" if value is None else str(value).strip()
        if not name:
            raise ValueError(
                f"{row.place}: {columns.label} is {value!r}, but must be a class. Complete the row, or "
                "remove it."
            )
        if missing_label is None and _is_fraction(name):
            why = f"{columns.label} is {value!r}, a score of two texts"
            raise _second_text_missing(row, columns, why)
        label = float(classes.setdefault(name, len(classes)))
    elif columns.example_type == SCORES:
        label = _score(row, str(columns.label))
    return EmbeddingExample(tuple(texts), label, row.place)


def text_of(row: TableRow, column: str) -> str:
    """Return the text in a column, without surrounding whitespace. Raise ValueError if it is empty."""
    return _as_text(row, column, row[column])


def _as_text(row: TableRow, column: str, value: Any) -> str:
    if not isinstance(value, str) or is_blank(value):
        remedy = "Complete the row, or remove it."
        if isinstance(value, list) and value:
            remedy = "Write a row for each of its texts."
        raise ValueError(f"{row.place}: {column} is {value!r:.60}, but must be a text. {remedy}")
    return value.strip()


def _score(row: TableRow, column: str) -> float:
    value = row[column]
    number = math.nan if isinstance(value, bool) else _as_number(value)
    if 0 <= number <= 1:
        return number
    remedy = "Divide larger scores by their maximum."
    if number < 0:
        remedy = "For cosines from -1 to 1 write (score + 1) / 2."
    elif str(value).strip().lower() in ("true", "false"):
        remedy = "Write 1 for true and 0 for false."
    elif "," in str(value):
        remedy = "Write a decimal point, not a comma."
    elif math.isnan(number):
        remedy = "Complete it, or name another column with label_column (an empty name: none)."
    raise ValueError(
        f"{row.place}: {column} is {value!r:.60}, but a score must be a number from 0 to 1: the "
        f"similarity of the two texts. {remedy}"
    )


def _as_number(value: Any) -> float:
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):
        return math.nan


def _is_fraction(text: str) -> bool:
    number = _as_number(text.replace(",", "."))
    return math.isfinite(number) and not number.is_integer()
