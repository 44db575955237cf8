"""training.json, the note of the training of a folder, and warnings if that has not ended."""

from __future__ import annotations

import json
import logging
import os
from typing import Any

import tensorflow as tf

from bert_tf.data.files import lock_holder, write_text
from bert_tf.interop.checkpoint import read_json
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
# Flags that a run that resumes does not use. FLAGS keeps those of the first run.
INITIAL = ("init_checkpoint", "init_layers", "init_optimizer")


def read_note(folder: str) -> dict[str, Any]:
    """Return the values of training.json, {} without the file."""
    path = os.path.join(folder, TRAINING_FILE)
    return read_json(path) if tf.io.gfile.exists(path) else {}


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
