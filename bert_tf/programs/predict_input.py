"""Input of predict: lines of text, or named columns of TSV, CSV and JSON lines.

text     one input per line; tabs separate the fields (text_a, text_b; question, context; choices)
others   one input per row; the fields are columns, for run_ner also lists of words in JSON lines
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from bert_tf.characters import is_blank
from bert_tf.data.lines import place_of, read_lines
from bert_tf.data.tables import TABLE_FORMATS, TableRow, ending_of, read_table
from bert_tf.finetuning.embeddings_options import ANCHORS, POSITIVES
from bert_tf.limits import listed
from bert_tf.options import TableOptions, option
from bert_tf.predictor import TextModel

INPUT_FORMATS = ("text", *TABLE_FORMATS)

# Columns to look for if no flag names one; "0" and "1" without a header.
USUAL_NAMES = {
    "text_a": (
        "text_a",
        "text",
        "sentence",
        "sentence1",
        "sent1",
        *ANCHORS,
        "words",
        "tokens",
        "0",
    ),
    "text_b": ("text_b", "sentence2", *POSITIVES, "1"),
    "question": ("question", "text_a", "0"),
    "context": ("context", "text", "text_b", "1"),
    "choices": ("choices",),
}
_FLAGS = {
    "text_a": "text_a_column",
    "question": "text_a_column",
    "text_b": "text_b_column",
    "context": "text_b_column",
    "choices": "choices_column",
}


@dataclass(frozen=True, kw_only=True)
class InputColumnsOptions(TableOptions):
    """Columns of the inputs in a table."""

    text_a_column: str | None = option(
        "Column of the (first) sentence or the question. Default: that of the training, else text_a, "
        "text, sentence, question, query, anchor.",
        group="Data",
        default=None,
    )
    text_b_column: str | None = option(
        "Column of the second sentence or of the context of a question. Default: that of the training, "
        "else text_b, sentence2, positive; for a question context, text, text_b.",
        group="Data",
        default=None,
    )
    choices_column: str | None = option(
        "Column with a list of choices (JSON lines), or comma list of columns with one choice each.",
        default=None,
    )


@dataclass(frozen=True)
class Input:
    """One input.

    Args:
        shown: values that the output repeats.
        place: origin as "file:line".
        item: argument of `TextModel.prepare`; None with an error.
        error: reason why there is no valid text, or None.
    """

    shown: Mapping[str, Any]
    place: str
    item: Any = None
    error: str | None = None


def read_inputs(
    files: Sequence[str],
    options: InputColumnsOptions,
    model: TextModel,
    format: str | None = None,
    trained: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[Input]:
    """Yield the inputs of all files, in order and lazily.

    An empty text is an error, as in a table for training.

    Args:
        options: columns of tables.
        format: one of INPUT_FORMATS. Default: by the name of each file, else "text".
        trained: flags of the training, whose columns are looked for first.

    Raises:
        ValueError: a file does not match its format or lacks a column; the message has file and line.
    """
    for file in files:
        kind = format or ending_of(file)
        if kind == "json":
            raise ValueError(
                f"{file}: give the format of a .json file: input_format=jsonl or text."
            )
        if kind in TABLE_FORMATS:
            yield from _read_rows(file, kind, options, model, trained)
        else:
            for number, line in enumerate(read_lines(file), start=1):
                yield _input({"text": line}, place_of(file, number), model.parse_line, line)


def _read_rows(
    file: str,
    format: str,
    options: InputColumnsOptions,
    model: TextModel,
    trained: Mapping[str, Any],
) -> Iterator[Input]:
    rows = read_table(
        file, format=format, header=options.header, separator=options.column_separator
    )
    columns: dict[str, list[str]] = {}
    for row in rows:
        columns = columns or {
            field: _columns(field, options, row, trained, field in model.optional_fields)
            for field in model.fields
        }
        values = [_value(field, row, names) for field, names in columns.items()]
        names = [name for names in columns.values() for name in names]
        shown = {name: row[name] for name in (*(["id"] if "id" in row else []), *names)}
        yield _input(shown, row.place, model.parse_fields, values)


def _columns(
    field: str,
    options: InputColumnsOptions,
    row: TableRow,
    trained: Mapping[str, Any],
    is_optional: bool,
) -> list[str]:
    """Return the columns of a field: those of its flag, of the training, or with a usual name."""
    flag = _FLAGS[field]
    named = getattr(options, flag)
    if named and field == "choices":
        return named.split(",")
    known = [trained[flag]] if flag in trained else []
    known += [n for n in USUAL_NAMES[field] if not (is_optional and n.isdecimal())]
    if found := row.find(flag, named, known):
        return [found]
    if is_optional:
        return []
    raise ValueError(f"{row.place}: the columns are {listed(row)}. Name one with `{flag}`.")


def _value(field: str, row: TableRow, names: Sequence[str]) -> Any:
    values = [row.column(name, _FLAGS[field]) for name in names]
    if field == "choices":
        values = values[0] if len(values) == 1 and isinstance(values[0], list) else values
        while values and isinstance(values[-1], str) and is_blank(values[-1]):
            values = values[:-1]
        return values
    return values[0] if values else None


def _input(shown: Mapping[str, Any], place: str, parse: Any, value: Any) -> Input:
    try:
        item = parse(value)
        for part in item if isinstance(item, tuple) else [item]:
            for text in part if isinstance(part, list) else [part]:
                if text is not None and (not isinstance(text, str) or is_blank(text)):
                    raise ValueError(f"{text!r:.60} is not a text, or empty. Write one.")
    except ValueError as error:
        return Input(shown, place, error=str(error))
    return Input(shown, place, item)
