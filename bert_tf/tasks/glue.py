"""Data sets in the layout of the GLUE download, and XNLI: one table row per example.

Source: google-research/bert, run_classifier.py, the `DataProcessor` classes. Tasks that it lacks follow
the files of GLUE (gluebenchmark.com) and XNLI-1.0.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import tensorflow as tf

from bert_tf.data.tables import Row, read_tsv
from bert_tf.limits import DataError
from bert_tf.tasks.classification import InputExample, Label

logger = logging.getLogger(__name__)

NLI = ("contradiction", "entailment", "neutral")
TWO = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")


@dataclass(frozen=True)
class Split:
    """One file of a data set. Columns are counted from 0; -1 is the last."""

    file: str  # "{language}" is the language of XNLI
    text_a: int
    text_b: int | None = None  # None for single sentences
    label: int | None = None  # None for a test set
    header: bool = True
    language: int | None = None  # rows in other languages are skipped
    submission: str | None = None  # the split's file for the GLUE leaderboard


@dataclass(frozen=True)
class GlueTask:
    """One data set.

    Args:
        name: value of --task_name.
        splits: "train", "dev", "test"; others are named "dev_..." and "test_...".
        labels: in the order of the output units; empty for a regression.
        metrics: to report, the official ones first.
        has_broken_rows: True if the official files have rows with too few columns. Such rows are then
            counted and skipped instead of rejected.
        label_names: names of `labels` in models on Hugging Face's hub, in the same order. Source: the
            `ClassLabel`s of the data set `nyu-mll/glue`.
    """

    name: str
    splits: Mapping[str, Split]
    labels: tuple[str, ...] = TWO
    metrics: tuple[str, ...] = ("accuracy",)
    has_broken_rows: bool = False
    label_names: tuple[str, ...] = ()

    @property
    def problem_type(self) -> str:
        return "single_label" if self.labels else "regression"

    @property
    def is_pair(self) -> bool:
        return next(iter(self.splits.values())).text_b is not None


def _splits(submission: str, columns: tuple, test_columns: tuple, **kwargs) -> dict[str, Split]:
    """Return train.tsv, dev.tsv and test.tsv with (text_a, text_b, label) and (text_a, text_b)."""
    return {
        "train": Split("train.tsv", *columns, **kwargs),
        "dev": Split("dev.tsv", *columns, **kwargs),
        "test": replace(Split("test.tsv", *test_columns), submission=submission),
    }


GLUE_TASKS = {
    task.name: task
    for task in (
        GlueTask(
            "cola",
            _splits("CoLA.tsv", (3, None, 1), (1, None), header=False),
            metrics=("matthews_correlation", "accuracy"),
            label_names=("unacceptable", "acceptable"),
        ),
        GlueTask(
            "sst-2",
            _splits("SST-2.tsv", (0, None, 1), (1, None)),
            label_names=("negative", "positive"),
        ),
        GlueTask(
            "mrpc",
            _splits("MRPC.tsv", (3, 4, 0), (3, 4)),
            metrics=("f1", "accuracy"),
            label_names=("not_equivalent", "equivalent"),
        ),
        GlueTask(
            "qqp",
            _splits("QQP.tsv", (3, 4, 5), (1, 2)),
            metrics=("f1", "accuracy"),
            has_broken_rows=True,
            label_names=("not_duplicate", "duplicate"),
        ),
        GlueTask(
            "sts-b",
            _splits("STS-B.tsv", (7, 8, 9), (7, 8)),
            labels=(),
            metrics=("pearson", "spearman"),
        ),
        GlueTask(
            "mnli",
            {
                "train": Split("train.tsv", 8, 9, -1),
                "dev": Split("dev_matched.tsv", 8, 9, -1),
                "dev_mismatched": Split("dev_mismatched.tsv", 8, 9, -1),
                "test": Split("test_matched.tsv", 8, 9, submission="MNLI-m.tsv"),
                "test_mismatched": Split("test_mismatched.tsv", 8, 9, submission="MNLI-mm.tsv"),
            },
            labels=NLI,
        ),
        GlueTask("qnli", _splits("QNLI.tsv", (1, 2, 3), (1, 2)), labels=ENTAILMENT),
        GlueTask("rte", _splits("RTE.tsv", (1, 2, 3), (1, 2)), labels=ENTAILMENT),
        GlueTask(
            "wnli",
            _splits("WNLI.tsv", (1, 2, 3), (1, 2)),
            label_names=("not_entailment", "entailment"),
        ),
        GlueTask("ax", {"test": Split("diagnostic.tsv", 1, 2, submission="AX.tsv")}, labels=NLI),
        GlueTask(
            "xnli",
            {
                "train": Split("multinli/multinli.train.{language}.tsv", 0, 1, 2),
                "dev": Split("xnli.dev.tsv", 6, 7, 1, language=0),
                "test": Split("xnli.test.tsv", 6, 7, language=0),
            },
            labels=NLI,
        ),
    )
}


def find_glue_task(name: str) -> GlueTask:
    """Return the task named `name`, in any case, with or without hyphens."""
    for task in GLUE_TASKS.values():
        if task.name.replace("-", "") == name.lower().replace("-", ""):
            return task
    raise ValueError(
        f"task_name is {name!r}, but must be one of {', '.join(GLUE_TASKS)}. For others use train_file."
    )


def list_splits(task: GlueTask, data_dir: str, name: str) -> list[str]:
    """Return the splits that a run uses: `name`, and existing variants such as "dev_mismatched"."""
    if name not in task.splits:
        raise ValueError(
            f"task_name={task.name} has no {name} set. Predict it with a model of another (mnli for ax)."
        )
    return [name] + [
        variant
        for variant, split in task.splits.items()
        if variant.startswith(f"{name}_") and tf.io.gfile.exists(os.path.join(data_dir, split.file))
    ]


def read_glue(
    task: GlueTask, data_dir: str, split: str, language: str = ""
) -> Iterator[InputExample]:
    """Yield the examples of one split; test examples have no label."""
    layout = task.splits[split]
    path = os.path.join(data_dir, layout.file.format(language=language))
    columns = (layout.text_a, layout.text_b, layout.label, layout.language)
    needed = max(column for column in columns if column is not None) + 1
    broken: list[Row] = []
    for index, row in enumerate(read_tsv(path)):
        if layout.header and index == 0:
            continue
        if len(row) < needed:
            if not task.has_broken_rows:
                raise DataError(
                    row.location,
                    f"{task.name} needs {needed} columns, but this row has {len(row)}.",
                )
            broken.append(row)
            continue
        if layout.language is not None and row[layout.language] != language:
            continue
        texts = (row[layout.text_a], None if layout.text_b is None else row[layout.text_b])
        yield InputExample(f"{split}-{index}", *texts, _read_label(task, layout, row), row.location)
    if broken:
        text = "%d rows of %s have too few columns and are skipped, first %s"
        logger.warning(text, len(broken), path, broken[0].location)


def format_submission(task: GlueTask, predictions: list) -> list[str]:
    """Return the lines for the GLUE leaderboard: a header, then example number and prediction."""
    if task.labels:
        values = [task.labels[index] for index in predictions]
    else:
        values = [f"{min(max(float(number), 0.0), 5.0):.3f}" for number in predictions]
    return ["index\tprediction", *(f"{index}\t{value}" for index, value in enumerate(values))]


def _read_label(task: GlueTask, layout: Split, row: Row) -> Label:
    if layout.label is None:
        return None
    label = row[layout.label]
    if task.labels:
        return "contradiction" if label == "contradictory" else label  # XNLI's training set
    try:
        return float(label)
    except ValueError as error:
        raise DataError(row.location, f"{label!r} must be a number.") from error
