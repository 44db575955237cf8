"""Data sets in the layout of the GLUE download: one row of a table each.

Source: google-research/bert, run_classifier.py, the `DataProcessor` classes, and GLUE's own files
for what is not there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from bert_tf.data.readers import read_tsv
from bert_tf.tasks.classification import InputExample


@dataclass(frozen=True)
class GlueTask:
    """Where the columns of one data set are, counted from 0; -1 is the last.

    Args:
        name: of --task_name.
        labels: in the order of the output units.
        text_a, text_b: columns of the sentences; `text_b` is None for single sentences.
        label: column of the label, in train and dev.
        metrics: reported, the official ones first.
        has_header: whether train and dev have one; test always does.
        test_text_a, test_text_b: columns in test, where they differ.
        dev_file, test_file: names, where they are not dev.tsv and test.tsv.
    """

    name: str
    labels: tuple[str, ...]
    text_a: int
    text_b: int | None
    label: int
    metrics: tuple[str, ...] = ("accuracy",)
    has_header: bool = True
    test_text_a: int | None = None
    test_text_b: int | None = None
    dev_file: str = "dev.tsv"
    test_file: str = "test.tsv"

    def file_of(self, split: str) -> str:
        return {"train": "train.tsv", "dev": self.dev_file, "test": self.test_file}[split]

    def columns_of(self, split: str) -> tuple[int, int | None]:
        """Columns of the sentences in a split."""
        if split != "test":
            return self.text_a, self.text_b
        text_a = self.text_a if self.test_text_a is None else self.test_text_a
        return text_a, self.text_b if self.test_text_b is None else self.test_text_b


GLUE_TASKS = {
    task.name: task
    for task in (
        GlueTask(
            "cola",
            labels=("0", "1"),
            text_a=3,
            text_b=None,
            label=1,
            metrics=("matthews_correlation", "accuracy"),
            has_header=False,
            test_text_a=1,
        ),
        GlueTask("sst-2", labels=("0", "1"), text_a=0, text_b=None, label=1, test_text_a=1),
        GlueTask(
            "mrpc", labels=("0", "1"), text_a=3, text_b=4, label=0, metrics=("f1", "accuracy")
        ),
        GlueTask(
            "mnli",
            labels=("contradiction", "entailment", "neutral"),
            text_a=8,
            text_b=9,
            label=-1,
            dev_file="dev_matched.tsv",
            test_file="test_matched.tsv",
        ),
    )
}


def find_glue_task(name: str) -> GlueTask:
    """The task named `name`, in any case, with or without hyphens.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    for task in GLUE_TASKS.values():
        if task.name.replace("-", "") == name.lower().replace("-", ""):
            return task
    raise ValueError(
        f"--task_name is {name!r}, but must be one of {', '.join(GLUE_TASKS)}. For data of your own, "
        "use --train_file with --text_a_column and --label_column instead."
    )


def read_glue(task: GlueTask, data_dir: str, split: str) -> Iterator[InputExample]:
    """The examples of one split; those of test have no label.

    Raises:
        ValueError: a row has too few columns; the message has file and line.
    """
    path = os.path.join(data_dir, task.file_of(split))
    text_a, text_b = task.columns_of(split)
    label = None if split == "test" else task.label
    needed = max(column for column in (text_a, text_b, label) if column is not None) + 1
    header = split == "test" or task.has_header
    for index, row in enumerate(read_tsv(path)):
        if header and index == 0:
            continue
        if len(row) < needed:
            raise ValueError(
                f"{row.place}: {task.name} needs {needed} columns separated by tabs, but this row has "
                f"{len(row)}: {chr(9).join(row)[:60]!r}."
            )
        yield InputExample(
            guid=f"{split}-{index}",
            text_a=row[text_a],
            text_b=None if text_b is None else row[text_b],
            label=None if label is None else row[label],
            origin=row.place,
        )
