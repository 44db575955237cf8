"""The examples of run_embeddings and run_reranker: from files, GLUE data sets and SNLI."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from bert_tf.characters import is_blank
from bert_tf.data.question_answering import read_squad
from bert_tf.data.tables import TableOptions, TableRow, guess_format, read_table
from bert_tf.embeddings.losses import CLASSES, PAIRS, SCORES
from bert_tf.embeddings.task import EmbeddingExample, text_key
from bert_tf.limits import DataError, join_names, suggestion
from bert_tf.options import ModelOptions, OptionError, changes, option
from bert_tf.tasks.classification import InputExample, Label
from bert_tf.tasks.glue import find_glue_task, list_splits, read_glue
from bert_tf.tasks.setup import select_files

logger = logging.getLogger(__name__)

LENGTH_OF_START: ModelOptions = changes(
    max_seq_length={
        "help": "WordPieces of a text, in run_reranker of a query with its document, with [CLS] and "
        "[SEP]. Default: that of the model of the same kind that the program begins with, else 128 (or "
        "the model's number of positions, if lower)."
    }
)

# Usual names of columns, as in the data sets of sentence-transformers.
ANCHORS = (
    *("anchor", "query", "question", "sentence1", "sentence_A", "text_a"),
    *("text", "sentence"),
)
POSITIVES = ("positive", "answer", "sentence2", "sentence_B", "text_b", "passage", "document")
LABELS = ("score", "label", "similarity_score", "similarity")
NEGATIVE = "negative"  # and negatives, negative_1, negative_2, ...

TASK_NAMES = ("sts-b", "mrpc", "qqp", "mnli", "snli")


@dataclass(frozen=True, kw_only=True)
class TextsOptions:
    """Texts that belong together: a data set, or columns of .tsv, .csv and .jsonl files."""

    anchor_column: str | None = option(
        "Column of the anchor, the query, or the first text. Default: one with a usual name: "
        f"{', '.join(ANCHORS)}.",
        group="Data",
        default=None,
    )
    positive_column: str | None = option(
        "Column of the text that belongs to the anchor, or of the second text. Default: one with a "
        f"usual name: {', '.join(POSITIVES)}.",
        group="Data",
        default=None,
    )
    negative_columns: str | None = option(
        "Comma list of columns of texts that do not belong to the anchor. In JSON lines a value may be "
        f"a list of texts. Default: {NEGATIVE}, {NEGATIVE}s, and those that begin with {NEGATIVE}_; an "
        "empty list: none.",
        default=None,
    )
    label_column: str | None = option(
        "Column of the score of two texts, from 0 to 1, or of the class of one. Default: one with a "
        f"usual name: {', '.join(LABELS)}; an empty name: none.",
        group="Data",
        default=None,
    )
    data_dir: str | None = option(
        "Folder of a data set, for --task_name.", group="Data", default=None
    )
    task_name: str | None = option(
        f"Name of a data set, in any case: {', '.join(TASK_NAMES)} (the folder snli_1.0 with its .jsonl "
        "files). For your own data give --train_file instead. mnli, snli: premises with their entailed "
        "sentences, and contradictions as negatives.",
        group="Data",
        default=None,
    )

    @property
    def data_set(self) -> str | None:
        """Data set named by --task_name, in any case and with or without "-"; None without one."""
        names = {name.replace("-", ""): name for name in TASK_NAMES}
        return names.get((self.task_name or "").lower().replace("-", ""))

    def __post_init__(self) -> None:
        if self.task_name and self.data_set is None:
            end = ", ".join(TASK_NAMES) + suggestion(self.task_name, TASK_NAMES)
            raise OptionError("task_name", f"must be one of {end}")


_STS_B_MAX_SCORE = 5.0


def read_examples(
    options: Any,
) -> tuple[dict[str, str], dict[str, list[EmbeddingExample]]]:
    """Return the examples of the splits that the run needs, and their types: split -> type.

    A model may be trained on one type and evaluated on another. The test set needs no labels: a missing
    one is nan.

    Raises:
        ValueError: a file cannot be read, has no examples, lacks a column, or has an empty text or an
            invalid score.
    """
    splits, types = {}, {}
    for split, file in select_files(options).items():
        if options.texts.task_name:
            types[split], splits[split] = _read_data_set(options.texts, split)
            check_some(splits[split], describe_source(options, split), "pairs, or no entailed ones")
        else:
            missing_label = math.nan if split == "test" else None
            types[split], splits[split] = read_file(
                str(file), options.table, options.texts, missing_label
            )
    for split, examples in splits.items():
        if types[split] == PAIRS:
            splits[split] = unify_spelling(examples)
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


def describe_source(options: Any, split: str) -> str:
    """Return where the examples of a split are from, for messages."""
    texts = options.texts
    if texts.task_name:
        return f"{texts.data_dir} (task_name={texts.task_name})"
    return str(select_files(options)[split])


def score_each_pair(types: dict[str, str], splits: dict[str, list[EmbeddingExample]]) -> None:
    """Make a test set of anchors with one positive each pairs without scores."""
    test = splits.get("test", [])
    if types.get("test") == PAIRS and all(len(example.texts) == 2 for example in test):
        types["test"] = SCORES
        splits["test"] = [replace(example, label=math.nan) for example in test]


def _read_data_set(texts: TextsOptions, split: str) -> tuple[str, list[EmbeddingExample]]:
    name, data_dir = str(texts.data_set), str(texts.data_dir)
    if name == "snli":
        return PAIRS, _pair_entailments(_read_snli(data_dir, split))
    task = find_glue_task(name)
    parts = list_splits(task, data_dir, split)
    rows = [row for part in parts for row in read_glue(task, data_dir, part)]
    labelled = [row for row in rows if row.label is not None]
    if labelled and name == "mnli":
        return PAIRS, _pair_entailments(labelled)
    max_score = _STS_B_MAX_SCORE if name == "sts-b" else 1.0
    return SCORES, [
        EmbeddingExample((row.text_a, str(row.text_b)), _number(row.label) / max_score, row.origin)
        for row in (rows if split == "test" and not labelled else labelled)
    ]


def _number(label: Label) -> float:
    return math.nan if label is None else float(cast(str, label))


def _read_snli(data_dir: str, split: str) -> Iterator[InputExample]:
    """Yield the pairs of a split of SNLI 1.0. Those without agreement have the label "-"."""
    for row in read_table(os.path.join(data_dir, f"snli_1.0_{split}.jsonl")):
        a, b = read_text(row, "sentence1"), read_text(row, "sentence2")
        yield InputExample("", a, b, str(row["gold_label"]), row.location)


def _pair_entailments(rows: Iterable[InputExample]) -> list[EmbeddingExample]:
    """Return premises with their entailed hypotheses, and contradictions as negatives."""
    by_premise: dict[str, dict[str, list]] = {}
    for row in rows:
        labels = by_premise.setdefault(row.text_a, {})
        labels.setdefault(str(row.label), []).append(row)
    examples = []
    for premise, labels in by_premise.items():
        against = [row.text_b for row in labels.get("contradiction", [])]
        for row in labels.get("entailment", []):
            examples.append(EmbeddingExample((premise, row.text_b, *against[:1]), 0.0, row.origin))
    return examples


@dataclass(frozen=True)
class Columns:
    """Names of the columns of a table."""

    anchor: str
    positive: str | None
    negatives: tuple[str, ...]
    label: str | None

    @property
    def example_type(self) -> str:
        if self.positive is None:
            return CLASSES
        return PAIRS if self.label is None else SCORES


def read_file(
    path: str, table: TableOptions, texts: TextsOptions, missing_label: float | None = None
) -> tuple[str, list[EmbeddingExample]]:
    """Return the type of the examples of a table or a SQuAD file, and the examples.

    Args:
        missing_label: of examples without a score or a class; None if these are an error.

    Raises:
        ValueError: the file cannot be read, has no examples, lacks a column, mixes types of examples, or
            has an empty text, an invalid score, or only one class.
    """
    if guess_format(path) == "json":
        return PAIRS, [
            EmbeddingExample((example.question_text, example.passage.text), origin=example.location)
            for example in read_squad(path)
        ]
    layouts: dict[tuple[str, ...], Columns] = {}  # by the names in a row: JSON lines may differ
    classes: dict[str, int] = {}
    examples = []
    for row in read_table(path, separator=table.column_separator):
        names = tuple(row)
        if names not in layouts:
            layouts[names] = _columns(row, texts, missing_label is None)
            if len({columns.example_type for columns in layouts.values()}) > 1:
                text = f"the columns are {layouts[names]}, unlike those above. Split the file."
                raise DataError(row.location, text)
            if len(layouts) == 1:
                logger.info("%s: %s of %s", path, layouts[names], join_names(names))
        examples.append(_example(row, layouts[names], classes, missing_label))
    check_some(examples, path)
    example_type = next(iter(layouts.values())).example_type
    if example_type == CLASSES and missing_label is None:
        examples = _without_unlabelled(examples, classes, path)
    return example_type, examples


def check_some(examples: list[EmbeddingExample], source: str, what: str = "examples") -> None:
    """Raise ValueError if there are no examples; `what` names them in the message."""
    if not examples:
        raise DataError(source, f"no {what}.")


def _columns(row: TableRow, texts: TextsOptions, labelled: bool) -> Columns:
    """Return the columns that the options name, else those with usual names."""
    anchor = row.find("anchor_column", texts.anchor_column, ANCHORS)
    names = [name for name in POSITIVES if name != anchor]
    positive = row.find("positive_column", texts.positive_column, names)
    if texts.negative_columns is None:
        negatives = tuple(name for name in row if re.fullmatch(f"{NEGATIVE}(s|_.*)?", name))
    else:
        parts = map(str.strip, texts.negative_columns.split(","))
        negatives = tuple(filter(None, parts))
        for name in negatives:
            row.column(name, "negative_columns")
    label = texts.label_column or None
    if texts.label_column is None and not negatives:
        label = row.find("label_column", None, LABELS)
    elif label is not None and labelled:
        row.column(label, "label_column")
    elif label not in row:  # a test set
        label = None
    if anchor is None or (labelled and positive is None and label is None):
        text = f"the columns are {join_names(row)}: name anchor_column, positive_column or label_column."
        raise DataError(row.location, text)
    if negatives and (positive is None or label is not None):
        text = f"the negatives in {join_names(negatives)} need a positive, and no label."
        raise DataError(row.location, text)
    return Columns(anchor, positive, negatives, label)


def _example(
    row: TableRow, columns: Columns, classes: dict[str, int], missing_label: float | None
) -> EmbeddingExample:
    texts = [read_text(row, columns.anchor)]
    if columns.positive is not None:
        texts.append(read_text(row, columns.positive))
    for name in columns.negatives:
        values = row[name] if isinstance(row[name], list) else [row[name]]
        texts += [_as_text(row, name, value) for value in values if value not in ("", None)]
    label = 0.0
    is_missing = columns.example_type != PAIRS and row.get(columns.label) in (None, "")
    if is_missing and missing_label is not None:
        label = missing_label
    elif columns.example_type == CLASSES:
        value = row[columns.label]
        name = "" if value is None else str(value).strip()
        _require(name, row, columns.label, "a class")
        label = float(classes.setdefault(name, len(classes)))
    elif columns.example_type == SCORES:
        label = _score(row, str(columns.label))
    return EmbeddingExample(tuple(texts), label, row.location)


def read_text(row: TableRow, column: str) -> str:
    """Return the text in a column, without surrounding whitespace. Raise ValueError if it is empty."""
    return _as_text(row, column, row[column])


def _as_text(row: TableRow, column: str, value: Any) -> str:
    _require(isinstance(value, str) and not is_blank(value), row, column, "a text")
    return value.strip()


def _score(row: TableRow, column: str) -> float:
    try:
        number = float(row[column])
    except (OverflowError, TypeError, ValueError):
        number = math.nan
    _require(0 <= number <= 1, row, column, "a score from 0 to 1")
    return number


def _require(is_valid: object, row: TableRow, column: str | None, rule: str) -> None:
    if not is_valid:
        value = row[str(column)]
        raise DataError(row.location, f"{column} is {value!r:.60}, but must be {rule}.")


def _without_unlabelled(
    examples: list[EmbeddingExample], classes: dict[str, int], path: str
) -> list[EmbeddingExample]:
    """Return the examples but those of - (SNLI) and -1 (`datasets`) if two or more classes remain."""
    missing = {float(classes[name]) for name in ("-", "-1") if name in classes}
    if len(classes) - len(missing) > 1 and missing:
        labelled = [example for example in examples if example.label not in missing]
        logger.warning(
            "%s: %d of %d rows have no class (- or -1), and are left out",
            *(path, len(examples) - len(labelled), len(examples)),
        )
        return labelled
    if len(classes) == 1:
        text = f"every text has the class {next(iter(classes))!r}. Name another label_column."
        raise DataError(path, text)
    return examples
