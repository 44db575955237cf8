"""Input of predict: lines of text, or named columns of TSV, CSV and JSON lines.

text     one input per line; tabs separate the fields (text_a, text_b; question, context; choices)
others   one input per row; the fields are columns
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from bert_tf.characters import is_blank
from bert_tf.data.globs import expand_files
from bert_tf.data.lines import place_of, read_texts
from bert_tf.data.streams import STANDARD_INPUT
from bert_tf.data.tables import AS_JSON_LINES, TABLE_FORMATS, TableRow, ending_of, read_table
from bert_tf.finetuning.embeddings_options import ANCHORS, POSITIVES
from bert_tf.limits import listed
from bert_tf.options import TableOptions, option
from bert_tf.predictor import EMBEDDING_POOLINGS, TextModel

logger = logging.getLogger(__name__)

HOW_TO_TYPE = "Type a text and Enter; end with Ctrl-D."
INPUT_FORMATS = ("text", *TABLE_FORMATS)

# Columns to look for if no flag names one.
USUAL_NAMES = {
    "text_a": ("text_a", "text", "sentence", "sentence1", "sent1", "0"),
    "text_b": ("text_b", "sentence2", "1"),
    "question": ("question", "text_a", "0"),
    "context": ("context", "text", "text_b", "1"),
    "choices": ("choices",),
}
# Columns with the beginning of each choice, which run_swag reads: those of SWAG and HellaSwag.
_BEGINNINGS = {"sent2", "ctx_b"}
# Further names if no column has one of those above for the first text.
_OF_RERANKERS = {"text_a": ANCHORS, "text_b": POSITIVES}
_FLAGS = {
    "text_a": "text_a_column",
    "question": "text_a_column",
    "text_b": "text_b_column",
    "context": "text_b_column",
    "choices": "choices_column",
}


@dataclass(frozen=True)
class InputLayout:
    """Format of the input files; see the flags of predict."""

    format: str | None = None
    header: bool = True
    quoted: bool | None = None
    column_separator: str | None = None
    text_a_column: str | None = None
    text_b_column: str | None = None
    choices_column: str | None = None

    def format_of(self, file: str) -> str:
        """Return `format`, else the format by the file name, else "text".

        Raises:
            ValueError: the name ends in .json, as that of an array or of JSON lines may.
        """
        ending = ending_of(file)
        if self.format is None and ending == "json":
            raise ValueError(
                f"{file}: the format of a .json file is unknown. If each line is a JSON object, rename "
                "it to .jsonl, or give input_format=jsonl to predict; if each line is a "
                f"text, .txt or input_format=text. {AS_JSON_LINES}"
            )
        return self.format or (ending if ending in TABLE_FORMATS else "text")


@dataclass(frozen=True, kw_only=True)
class InputColumnsOptions(TableOptions):
    """Columns of the inputs in a table."""

    text_a_column: str | None = option(
        "Column of the (first) sentence or the question. Default: text_a, text, sentence, question, "
        "query, anchor.",
        group="Data",
        default=None,
    )
    text_b_column: str | None = option(
        "Column of the second sentence or of the context of a question. Default: text_b, sentence2, a "
        "name of a positive that run_embeddings finds; for a question context, text, text_b.",
        group="Data",
        default=None,
    )
    choices_column: str | None = option(
        "Column with a list of choices (JSON lines), or comma list of columns with one choice each.",
        default=None,
    )

    @property
    def layout(self) -> InputLayout:
        names = [field.name for field in fields(InputLayout) if field.name != "format"]
        return InputLayout(**{name: getattr(self, name) for name in names})


TABLE_FLAGS = tuple(field.name for field in fields(InputColumnsOptions))


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(InputColumnsOptions):
    """Flags of the input and of the answers."""

    input_file: str | None = option(
        "Comma list of files or globs, plain or gzip; - is standard input, the default.",
        group="Data",
        default=None,
    )
    input_format: str | None = option(
        "text: one input per line, tabs between the sentences of a pair, a question and its text, or a "
        "text and its choices. tsv, csv, jsonl: named columns. Default: by the file name, else text.",
        group="Data",
        default=None,
        choices=INPUT_FORMATS,
    )
    max_seq_length: int | None = option(
        "Longest input in tokens. Default: that of the model.", group="Model", default=None
    )
    pooling: str | None = option(
        "Pooling of embeddings. mean: mean of the last layer over the tokens. max: largest value of "
        "each number over the tokens. cls: [CLS] of the last layer. pooled: the tanh layer on it. "
        "concat_last_four: means of the last four layers, concatenated. Default: that of a model of "
        "run_embeddings, else mean.",
        group="Model",
        default=None,
        choices=EMBEDDING_POOLINGS,
    )
    normalize: bool | None = option(
        "Scale embeddings to length 1. Default: as a model of run_embeddings was trained, else true.",
        default=None,
    )
    as_query: bool = option(
        "Put the prefix of queries before each text, for a model of run_embeddings with prefixes. "
        "Default: the prefix of documents.",
        default=False,
    )
    null_score_diff_threshold: float = option(
        "SQuAD 2.0: the answer is empty if the odds of no answer exceed this.",
        default=0.0,
        infinite=True,
    )
    n_best_size: int = option("Candidate answers to compare per question.", default=20, min=1)
    max_answer_length: int = option("Longest answer in tokens.", group="Model", default=30, min=1)

    @property
    def layout(self) -> InputLayout:
        return replace(super().layout, format=self.input_format)

    @property
    def files(self) -> list[str]:
        """Input files; "-" is standard input.

        Raises:
            ValueError: a name matches no file, or a flag of tables is given, but no file is a table.
        """
        files = [STANDARD_INPUT]
        if self.input_file not in (None, STANDARD_INPUT):
            files = expand_files(self.input_file)
        formats = map(self.layout.format_of, files)
        self.need_table(TABLE_FLAGS, formats, "input_file", ", or give its input_format")
        return files

    @property
    def is_typed(self) -> bool:
        """True if a person types the inputs at a terminal."""
        return self.files == [STANDARD_INPUT] and sys.stdin.isatty()


@dataclass(frozen=True)
class Input:
    """One input.

    Args:
        shown: values that the output repeats.
        values: those of `TextModel.fields`; None for a line of text.
        file, line: its origin.
        error: reason why a row of a table has no valid text, or None.
    """

    shown: Mapping[str, Any]
    values: Sequence[Any] | None
    file: str
    line: int
    error: str | None = None

    @property
    def place(self) -> str:
        """The origin as "file:line", for messages."""
        return place_of(self.file, self.line)

    def item(self, model: TextModel) -> Any:
        """Return the argument of `model.prepare`; raise ValueError if a text or a choice is missing."""
        if self.error is not None:
            raise ValueError(self.error)
        if self.values is None:
            item = model.parse_line(self.shown["text"])
        else:
            item = model.parse_fields(self.values)
        parts = item if isinstance(item, tuple) else ()
        for choices in (part for part in parts if isinstance(part, list)):
            for index, choice in enumerate(choices):
                if is_blank(choice):
                    raise ValueError(
                        f"Choice {index}, counted from 0, is blank, but only the last choices may be. "
                        "Write a text, or remove it."
                    )
        return item


def check_column_flags(layout: InputLayout, model_fields: Sequence[str]) -> None:
    """Raise ValueError if a flag names a column that the model does not read."""
    read = {_FLAGS[field] for field in model_fields}
    for flag in ("text_b_column", "choices_column"):
        if getattr(layout, flag) is not None and flag not in read:
            raise ValueError(
                f"{flag} is {getattr(layout, flag)}, but the model reads only "
                f"{' and '.join(model_fields)}. Omit it."
            )


def check_answer_names(layout: InputLayout, columns: Sequence[str]) -> None:
    """Raise ValueError if an answer would replace a column that the output repeats.

    Args:
        columns: `TextModel.columns`.
    """
    answers = {name.partition(".")[0] for name in columns} | {"error"}
    for flag in ("text_a_column", "text_b_column", "choices_column"):
        value = getattr(layout, flag) or ""
        for name in value.split(",") if flag == "choices_column" else [value]:
            if name in answers:
                raise ValueError(
                    f"{flag} is {value}, but {name!r} is the name of an answer, which "
                    "would replace the text in the output. Rename the column, or use "
                    "output_format=text."
                )


def read_inputs(
    files: Sequence[str],
    layout: InputLayout,
    model_fields: Sequence[str],
    optional_fields: Sequence[str] = (),
) -> Iterator[Input]:
    """Yield the inputs of all files, in order and lazily.

    Args:
        model_fields: `TextModel.fields`, which the columns of a table must contain.
        optional_fields: those of `model_fields` that a table may lack.

    Raises:
        ValueError: a file does not match its format or lacks a column; the message has file and line.
    """
    for file in files:
        if layout.format_of(file) == "text":
            for number, line in enumerate(read_texts(file), start=1):
                yield Input({"text": line}, None, file, number)
        else:
            yield from _table_inputs(file, layout, model_fields, optional_fields)


def _table_inputs(
    file: str,
    layout: InputLayout,
    model_fields: Sequence[str],
    optional_fields: Sequence[str],
) -> Iterator[Input]:
    rows = read_table(
        file,
        format=layout.format_of(file),
        quoted=layout.quoted,
        header=layout.header,
        separator=layout.column_separator,
    )
    columns: list[Sequence[str]] = []
    optional = [number for number, name in enumerate(model_fields) if name in optional_fields]
    for row in rows:
        if not columns:
            columns = [
                [] if field in optional_fields else _columns(field, layout, row)
                for field in model_fields
            ]
            if "choices" in model_fields:
                _check_beginnings(columns, row)
            for number in optional:
                _warn_of_number(model_fields[number], layout, row)
        for number in optional:  # in JSON lines each row has its own columns
            columns[number] = _optional_columns(model_fields[number], layout, row)
        values, error = [], None
        try:
            for field, names in zip(model_fields, columns, strict=True):
                found = [row[name] for name in names]  # raises if missing, which ends the run
                is_absent = field in optional_fields and found == [None]
                values.append(None if is_absent else _value(field, names, found))
        except _InvalidText as reason:
            error = str(reason)
        kept = [*(["id"] if "id" in row else []), *(name for names in columns for name in names)]
        yield Input({name: row[name] for name in kept}, values, file, row.line, error)


def _columns(field: str, layout: InputLayout, row: TableRow) -> Sequence[str]:
    """Return the columns of a field, from the flag or by the usual names."""
    flag = _FLAGS[field]
    named = getattr(layout, flag)
    if named is not None:
        names = named.split(",") if field == "choices" else [named]
        for name in names:
            row.column(name, flag)  # raises if missing
        return names
    known = _usual_names(field, row)
    if (name := row.usual(known)) is not None:
        return [name]
    if field == "choices" and not layout.header:
        return [name for name in row if name != (layout.text_a_column or "0")]
    usual = [name for name in known if not name.isdecimal()]
    raise ValueError(
        f"{row.place_of_names}: no column is called {' or '.join(usual)}. The columns are "
        f"{listed(row)}. Name one of them with `{flag}`, or rename it.{row.remedy_without_header}"
    )


def _check_beginnings(columns: Sequence[Sequence[str]], row: TableRow) -> None:
    """Raise ValueError if the choices of a table begin in a column that is not read."""
    if unread := (_BEGINNINGS & row.keys()).difference(*columns):
        name = min(unread)
        raise ValueError(
            f"{row.place_of_names}: each choice begins with the text in {name!r}, which is not read. "
            "Let run_swag read the file: --do_predict --predict_file. Or write the text into each "
            f"choice, and remove {name!r}."
        )


def _usual_names(field: str, row: TableRow) -> list[str]:
    further = () if row.usual(USUAL_NAMES["text_a"]) else _OF_RERANKERS.get(field, ())
    return list(dict.fromkeys((*USUAL_NAMES[field], *further)))


def _optional_columns(field: str, layout: InputLayout, row: TableRow) -> Sequence[str]:
    """Return the columns of a field that an input may lack; its usual names are not numbers."""
    if getattr(layout, _FLAGS[field]) is not None:
        return _columns(field, layout, row)
    known = USUAL_NAMES[field] if layout.text_a_column else _usual_names(field, row)
    name = row.usual([name for name in known if not name.isdecimal()])
    return [] if name in (None, layout.text_a_column) else [name]


def _warn_of_number(field: str, layout: InputLayout, row: TableRow) -> None:
    """Warn of a column without a name that may be an optional field, or a label."""
    number, flag = USUAL_NAMES[field][-1], _FLAGS[field]
    if layout.text_a_column is None and getattr(layout, flag) is None and number in row:
        logger.warning(
            "%s: column %s is not read, because the model takes single texts and pairs. Give --%s=%s "
            "if it contains second texts.",
            *(row.place, number, flag, number),
        )


class _InvalidText(ValueError):
    """Raised for a value that is not a valid text."""


def _value(field: str, names: Sequence[str], values: list[Any]) -> Any:
    if not names:
        return None
    if field == "choices" and isinstance(values[0], list) and len(values) == 1:
        (values,) = values
    for value in values:
        if not isinstance(value, str):
            raise _InvalidText(
                f"column {names[0]!r} contains {value!r:.60}, but must contain a text"
                + (" or a list of texts." if field == "choices" else ".")
            )
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _InvalidText(
                f"column {names[0]!r} contains {value!r:.60}, which has half of a surrogate pair, "
                f"{value[error.start]!r}. Correct the text."
            ) from error
    if field == "choices":
        count = max((n for n, value in enumerate(values, 1) if not is_blank(value)), default=0)
        return list(values[:count])  # without blank ones at the end
    return values[0]
