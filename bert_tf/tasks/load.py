"""The task of a checkpoint, from `task.json` or from the files and the head of other projects."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import keras

from bert_tf.checkpoints.checkpoint import PretrainedCheckpoint, shape_of
from bert_tf.checkpoints.heads import BY_ARCHITECTURE, HEADS, find_head
from bert_tf.checkpoints.initial import initialize
from bert_tf.config import BertConfig
from bert_tf.limits import DataError, join_names
from bert_tf.options import OptionError
from bert_tf.registry import TASK_FILE, find_task_type
from bert_tf.tasks.base import Task
from bert_tf.tasks.classification import find_problem_type
from bert_tf.tasks.of_checkpoint import default_labels

# Values in a task.json of version 2 that are constants now.
_EARLIER = {"margin": 0.5, "window_pooling": "mean"}


def load_task(
    checkpoint: PretrainedCheckpoint, max_seq_length: int | None = None
) -> tuple[Task | None, str]:
    """Return the task of a checkpoint; or None, and why its head has no task here, if it has one.

    `task.json` states the task. Without it, the head is that of Hugging Face's `architectures`, or the
    only one that matches the variables.

    Args:
        max_seq_length: S of a task without `task.json`. Default: `checkpoint.longest_input`. The
            length that an embedder's folder states comes before it.

    Raises:
        ValueError: `task.json` is damaged or contradicts config.json.
    """
    if checkpoint.task is not None:
        path = os.path.join(checkpoint.folder, TASK_FILE)
        try:
            task = make_task(checkpoint.task, path)
        except DataError as error:
            if "task" not in checkpoint.task:
                raise
            return None, str(error)
        _check_same_head(checkpoint, task, path)
        return task, ""
    if checkpoint.config is None or checkpoint.problem:
        return None, checkpoint.problem
    longest = checkpoint.longest_input(checkpoint.config)
    if checkpoint.embeddings is not None:
        length = longest if checkpoint.max_seq_length else max_seq_length or longest
        values = {"task": "embeddings", "max_seq_length": length, **checkpoint.embeddings}
    else:
        values, problem = _values_of_head(checkpoint, checkpoint.config, max_seq_length or longest)
        if not values:
            return None, problem
    return make_task(values, checkpoint.source), ""


def make_task(values: Mapping[str, Any], source: str) -> Task:
    """Return the task with the content of a `task.json`, `Task.values`.

    Args:
        source: origin of the values, for messages.

    Raises:
        DataError: the task is unknown.
    """
    arguments = {n: v for n, v in values.items() if n not in _EARLIER or _EARLIER[n] != v}
    name = arguments.pop("task", None)
    entry = find_task_type(name or "")
    if entry is None or entry.task is None:
        raise DataError(source, f"`task` is {name!r}: call bert_tf.register_task first.")
    return entry.task(**arguments)


def _check_same_head(checkpoint: PretrainedCheckpoint, task: Task, path: str) -> None:
    """Raise if Hugging Face's config.json, which others may have written anew, has another head."""
    head = BY_ARCHITECTURE.get(checkpoint.architecture or "")
    # The architecture of an embedder is that of the encoder.
    expected = HEADS.get(task.name, HEADS["encoder"])
    expected = expected if expected.architecture else HEADS["encoder"]
    labels = getattr(task, "labels", ())
    for ours, theirs in (
        ((expected.architecture,), head and (head.architecture,)),
        (labels, labels and checkpoint.labels),
    ):
        if theirs and theirs != ours:
            problem = (
                f"{join_names(ours, 5)}, but the config.json next to it {join_names(theirs, 5)}"
            )
            raise DataError(path, f"{problem}: delete the wrong one.")


def _values_of_head(
    checkpoint: PretrainedCheckpoint, config: BertConfig, max_seq_length: int
) -> tuple[dict[str, Any], str]:
    """Return `Task.values` for the head of another project; or {}, and the problem of the head."""
    source, labels = checkpoint.source, checkpoint.labels
    try:
        head = find_head(checkpoint.arrays, None, checkpoint.architecture, source)
    except ValueError as error:
        return {}, f"{error} Convert it with its task by convert_checkpoint."
    if head.has_labels and labels is None:
        num_labels = shape_of(checkpoint.arrays, "output_weights")[0]
        labels = default_labels(config, num_labels)
        if labels is None:
            problem = f"has no names for the {num_labels} outputs of its classifier"
            return {}, f"{source} {problem}: name them with convert_checkpoint --labels."
    values: dict[str, Any] = {"task": head.name, "max_seq_length": max_seq_length}
    if head.name == "classification":
        kind = find_problem_type(config, labels or ())
        if not kind.has_labels and len(labels or ()) > 1:
            several = "has a regression head with several outputs, which no task here has."
            return {}, f"{source} {several}"
        values |= {"is_pair": checkpoint.is_pair, "problem_type": kind.name}
        values["labels"] = labels if kind.has_labels else ()
    elif head.name == "token_classification":
        values["labels"] = labels
    elif head.name == "question_answering":
        values["max_query_length"] = max(1, min(64, max_seq_length - 4))
    elif head.name == "multiple_choice":
        values["num_choices"] = 4
    elif head.name == "pretraining":
        values["max_predictions_per_seq"] = min(20, max_seq_length)
    else:
        return {}, ""
    return values, ""


def load_weights(
    model: keras.Model, checkpoint: PretrainedCheckpoint, task: Task, will_train: bool = False
) -> None:
    """Load a checkpoint into the model of a task.

    Raises:
        ValueError: the encoder does not fit, or the checkpoint has no head for the task and the model
            will not be trained.
    """
    report = initialize(model, checkpoint, HEADS.get(task.name))
    unused = () if task.uses_pooler else "bert/pooler/"
    missing = [name for name in report.missing if not name.startswith(unused)]
    if missing and not will_train:
        raise OptionError(
            "init_checkpoint",
            f"{checkpoint.source} has no {', '.join(missing[:3])}: do_train, or it answers at random.",
        )
