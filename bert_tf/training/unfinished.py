"""training.json, the note of the training of a folder, and warnings if that has not ended."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_tf.data.files import lock_holder, write_text
from bert_tf.interop.checkpoint import read_json, typed
from bert_tf.interop.hub import SCHEME
from bert_tf.training.checkpoints import LOCK_FILE, checkpoint_step, latest_checkpoint

logger = logging.getLogger(__name__)

TRAINING_FILE = "training.json"
# Its keys. The others are options, as `finetuning/same_run.py` compares them.
LAST_STEP = "last_step"  # step at which the training ends
ALL_STEPS = "steps"  # of the whole training, without `stop_step`
FLAGS = "flags"  # name -> value of those that differ from their defaults
USED = "used"  # name -> text of resolved values
DATA = "data"  # rows of the data in the model card
EARLIER = "earlier"  # parts of the training before, each with its options, USED, DATA and STEP
STEP = "step"  # last step of an earlier part
# Flags that a run that resumes does not use. FLAGS keeps those of the first run.
INITIAL = ("init_checkpoint", "init_layers", "init_optimizer")

_TYPES_OF_PART = {STEP: int, USED: dict, DATA: list}
_TYPES = {LAST_STEP: int, ALL_STEPS: int, FLAGS: dict, USED: dict, DATA: list, EARLIER: list}


def read_note(folder: str) -> dict[str, Any]:
    """Return the values of training.json, {} without the file.

    Raises:
        ValueError: the file is damaged. The message names the key.
    """
    path = os.path.join(folder, TRAINING_FILE)
    if not tf.io.gfile.exists(path):
        return {}
    note = read_json(path)
    check_values(note, _TYPES, path)
    typed(note.get(FLAGS, {}), "init_checkpoint", str, path)
    for part in note.get(EARLIER, ()):
        if not isinstance(part, dict) or part.get(STEP) is None:
            raise ValueError(
                f"{path}: `{EARLIER}` contains {part!r:.60}, but each part must be a JSON object with "
                f"`{STEP}`. Correct the file, or remove it."
            )
        check_values(part, _TYPES_OF_PART, path)
    return note


def check_values(values: dict[str, Any], types: Mapping[str, type], path: str) -> None:
    """Remove keys whose value is null; raise ValueError for a value of another type.

    Args:
        path: of the file, for messages.
    """
    for key, kind in types.items():
        if typed(values, key, kind, path) is None:
            values.pop(key, None)
    for row in values.get(DATA, ()):
        if not (isinstance(row, list) and len(row) == 2 and all(isinstance(x, str) for x in row)):
            raise ValueError(
                f"{path}: `{DATA}` contains {row!r:.60}, but each row must be a list of two strings. "
                "Correct the file, or remove it."
            )


def write_note(folder: str, note: dict[str, Any]) -> None:
    write_text(os.path.join(folder, TRAINING_FILE), json.dumps(note, indent=2) + "\n")


def planned_step(folder: str) -> int | None:
    """Return the step at which the training in a folder ends, or None if unknown."""
    return read_note(folder).get(LAST_STEP)


def warn_if_unfinished(folder: str) -> None:
    """Log a warning if a process trains in a folder, or if its training was interrupted.

    Args:
        folder: of a model. Folders without `training.json`, such as best/, are complete.
    """
    if folder.startswith(SCHEME) or not tf.io.gfile.exists(os.path.join(folder, TRAINING_FILE)):
        return
    prefix = latest_checkpoint(folder)
    if prefix is None:
        return
    step, planned = checkpoint_step(prefix), planned_step(folder)
    is_unfinished = planned is not None and step < planned
    reached = f"training has reached step {step}" + (f" of {planned}" if is_unfinished else "")
    process = lock_holder(os.path.join(folder, LOCK_FILE))
    if process is not None:
        logger.warning(
            "%s: process %s is training in this folder; %s. Wait for its end, unless you want this "
            "checkpoint.",
            folder,
            process,
            reached,
        )
    elif is_unfinished:
        logger.warning("%s: %s. The same training command continues it.", folder, reached)
