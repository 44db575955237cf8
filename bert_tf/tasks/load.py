"""Tasks made from their values, in `task.json` or stated by the files and the head of other projects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from bert_tf.checkpoints.checkpoint import PretrainedCheckpoint
from bert_tf.checkpoints.heads import HEADS, task_values
from bert_tf.checkpoints.initial import initialize
from bert_tf.limits import DataError
from bert_tf.options import OptionError
from bert_tf.registry import find_task_type
from bert_tf.tasks.base import Task

# Values in a task.json of version 2 that are constants now.
_EARLIER = {"margin": 0.5, "window_pooling": "mean"}


def load_task(
    checkpoint: PretrainedCheckpoint, max_seq_length: int | None = None
) -> tuple[Task | None, str]:
    """Return the task of `task_values`; or None, and why the head has no task here, if there is one."""
    values, problem = task_values(checkpoint, max_seq_length)
    if values is None:
        return None, problem
    try:
        return make_task(values, checkpoint.folder), ""
    except DataError as error:  # an unknown task
        return None, str(error)


def make_task(values: Mapping[str, Any], source: str) -> Task:
    """Return the task with the content of a `task.json`, `Task.values`."""
    arguments = {n: v for n, v in values.items() if n not in _EARLIER or _EARLIER[n] != v}
    arguments.pop("class_weights", None)  # of a training of version 2
    name = arguments.pop("task", None)
    entry = find_task_type(name or "")
    if entry is None or entry.task is None:
        raise DataError(source, f"`task` is {name!r}: call bert_tf.register_task first.")
    return entry.task(**arguments)


def load_weights(
    model: keras.Model, checkpoint: PretrainedCheckpoint, task: Task, will_train: bool = False
) -> None:
    report = initialize(model, checkpoint, HEADS.get(task.name))
    unused = () if task.uses_pooler else "bert/pooler/"
    missing = [name for name in report.missing if not name.startswith(unused)]
    if missing and not will_train:
        raise OptionError(
            "init_checkpoint",
            f"{checkpoint.source} has no {', '.join(missing[:3])}: do_train, or it answers at random.",
        )
