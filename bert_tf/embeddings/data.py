"""The examples of run_embeddings and run_reranker: from files and data sets of GLUE."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from bert_tf.data.question_answering import read_squad
from bert_tf.data.tables import TableOptions, TableRow, guess_format, read_table
from bert_tf.embeddings.losses import PAIRS, SCORES
from bert_tf.embeddings.task import EmbeddingExample, text_key
from bert_tf.limits import DataError, join_names
from bert_tf.options import ModelOptions, OptionError, changes, option
from bert_tf.tasks.glue import find_glue_task, list_splits, read_glue
from bert_tf.tasks.setup import select_files
from bert_tf.tasks.tables import check_text, read_text

LENGTH_OF_START: ModelOptions = changes(
    max_seq_length={
        "help": "WordPieces of a text, in run_reranker of a query with its document, with [CLS] and "
        "[SEP]. Default: that of the model of the same kind that the program begins with, else 128 (or "
        "the model's number of positions, if lower)."
    }
)

_NEGATIVE, _SCORE = "negative", "score"
_OTHER_NAMES = ("label", "similarity", "negative")  # of columns that only flags read
_MAX_SCORES = {"sts-b": 5.0, "mrpc": 1.0, "qqp": 1.0}


@dataclass(frozen=True, kw_only=True)
class TextsOptions:
    """Texts that belong together: a data set, or columns of .tsv, .csv and .jsonl files."""

    anchor_column: str = option(
        "Column of the anchor, the query, or the first text.", group="Data", default="anchor"
    )
    positive_column: str = option(
        "Column of the text that belongs to the anchor, or of the second text.",
        group="Data",
        default="positive",
    )
    negative_columns: str | None = option(
        "Comma list of columns of texts that do not belong to the anchor. In JSON lines a value may be "
        f"a list of texts. Default: {_NEGATIVE}, if there is one; an empty list: none.",
        default=None,
    )
    label_column: str | None = option(
        f"Column of the score of two texts, from 0 to 1. Default: {_SCORE}, if there is one and no "
        "negative; an empty name: none.",
        group="Data",
        default=None,
    )
    data_dir: str | None = option(
        "Folder of a data set, for --task_name.", group="Data", default=None
    )
    task_name: str | None = option(
        "Name of a data set of GLUE. For your own data give --train_file instead.",
        group="Data",
        default=None,
        choices=tuple(_MAX_SCORES),
    )

    def __post_init__(self) -> None:
        if self.label_column and self.negative_columns:
            raise OptionError("negative_columns", "scores of two texts have no negatives.")


def read_examples(
    options: Any,
) -> tuple[dict[str, str], dict[str, list[EmbeddingExample]]]:
    """Return the examples of the splits that the run needs, and their types: split -> type.

    A model may be trained on one type and evaluated on another. The test set needs no scores: a missing
    one is nan.
    """
    splits, types = {}, {}
    for split, file in select_files(options).items():
        if options.texts.task_name:
            types[split], splits[split] = SCORES, _read_glue(options.texts, split)
        else:
            layout = options.table, options.texts
            types[split], splits[split] = _read_file(str(file), *layout, split == "test")
        if not splits[split]:
            raise DataError(str(file or options.texts.data_dir), "no examples.")
        if types[split] == PAIRS:
            splits[split] = unify_spelling(splits[split])
    if SCORES in types.values():
        score_each_pair(types, splits)
    return types, splits


def unify_spelling(examples: Sequence[EmbeddingExample]) -> list[EmbeddingExample]:
    """Return the examples with the first of all texts that differ only in case or whitespace.

    Otherwise they would be different documents, and negatives of each other.
    """
    firsts: dict[str, str] = {}
    return [
        replace(e, texts=tuple(firsts.setdefault(text_key(text), text) for text in e.texts))
        for e in examples
    ]


def score_each_pair(types: dict[str, str], splits: dict[str, list[EmbeddingExample]]) -> None:
    """Make a test set of anchors with one positive each pairs without scores."""
    test = splits.get("test", [])
    if types.get("test") == PAIRS and all(len(example.texts) == 2 for example in test):
        types["test"] = SCORES
        splits["test"] = [replace(example, label=math.nan) for example in test]


def _read_glue(texts: TextsOptions, split: str) -> list[EmbeddingExample]:
    name, data_dir = str(texts.task_name), str(texts.data_dir)
    task = find_glue_task(name)
    rows = [
        row
        for part in list_splits(task, data_dir, split)
        for row in read_glue(task, data_dir, part)
    ]
    return [
        EmbeddingExample(
            (row.text_a, str(row.text_b)),
            math.nan if row.label is None else float(cast(str, row.label)) / _MAX_SCORES[name],
            row.origin,
        )
        for row in rows
        if row.label is not None or split == "test"
    ]


def _read_file(
    path: str, table: TableOptions, texts: TextsOptions, is_test: bool
) -> tuple[str, list[EmbeddingExample]]:
    """Return the type of the examples of a table or a SQuAD file, and the examples."""
    if guess_format(path) == "json":
        return PAIRS, [
            EmbeddingExample((example.question_text, example.passage.text), origin=example.location)
            for example in read_squad(path)
        ]
    examples: list[EmbeddingExample] = []
    example_type = PAIRS
    for row in read_table(path, separator=table.column_separator):
        if not examples and texts.label_column is None and texts.negative_columns is None:
            unread = [n for n in row if n != _NEGATIVE and n.startswith(_OTHER_NAMES)]
            if unread:
                problem = (
                    f"{join_names(unread)} would not be read: use label_column, negative_columns."
                )
                raise DataError(row.location, problem)
        negatives = [_NEGATIVE] if _NEGATIVE in row and not texts.label_column else []
        if texts.negative_columns is not None:
            negatives = [name for name in texts.negative_columns.split(",") if name]
        label = texts.label_column
        if label is None and not negatives and _SCORE in row:
            label = _SCORE
        row_type = SCORES if label else PAIRS
        if examples and row_type != example_type:
            raise DataError(
                row.location, "unlike above, rows with and without a score: split the file."
            )
        example_type = row_type
        score = _read_score(row, label, is_test) if label else 0.0
        examples.append(EmbeddingExample(_read_texts(row, texts, negatives), score, row.location))
    return example_type, examples


def _read_texts(row: TableRow, texts: TextsOptions, negatives: Sequence[str]) -> tuple[str, ...]:
    row_texts = [
        read_text(row, texts.anchor_column, "anchor_column"),
        read_text(row, texts.positive_column, "positive_column"),
    ]
    for name in negatives:
        value = row.column(name, "negative_columns")
        for text in value if isinstance(value, list) else [value]:
            if text not in ("", None):
                row_texts.append(check_text(row, name, text))
    return tuple(row_texts)


def _read_score(row: TableRow, column: str, is_test: bool) -> float:
    value = row.get(column) if is_test else row.column(column, "label_column")
    if is_test and value in (None, ""):
        return math.nan
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number <= 1:
        raise DataError(row.location, f"{column} is {value!r:.60}, but must be from 0 to 1.")
    return number
