"""The types of task. Each registers in its own module, as a user's does (examples/custom_head.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import bert_tf

TASK_FILE = "task.json"  # next to our checkpoints; `task` in it is a name


@dataclass(frozen=True, kw_only=True)
class TaskType:
    """A type of task, or a model without a task. `register_task` makes one known.

    Args:
        name: in task.json.
        task: class of the task, or None.
        predictor, served: make its `TextModel` and its `Served`; None for those of this package, if any.
        program: fine-tuning or pre-training program, or "".
        pipeline: name of the pipeline on Hugging Face's hub.
        usage: call of `bert_tf.load(folder)`, for the model card.
    """

    name: str
    task: type | None = None
    predictor: Callable[..., Any] | None = None
    served: Callable[..., Any] | None = None
    program: str = ""
    pipeline: str = "feature-extraction"
    usage: str = 'embed(["A dog barked."])'


TYPES: dict[str, TaskType] = {}


def register_task(entry: TaskType) -> None:
    """Make a type of task known: `bert_tf.load` and `predict` then answer with a model of `Trainer`.

    Args:
        entry: `name` and `task` are those of a `bert_tf.Task`. An earlier entry of this name is
            replaced.
    """
    TYPES[entry.name] = entry


def find_task_type(name: str) -> TaskType | None:
    """Return the type of task of a name, or None. Those of this package register on import."""
    for export in bert_tf.__all__:
        if name not in TYPES and export.endswith("Task"):
            getattr(bert_tf, export)
    return TYPES.get(name)
