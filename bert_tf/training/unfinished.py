"""Warnings about model folders whose training has not ended."""

from __future__ import annotations

import logging
import os

import tensorflow as tf

from bert_tf.data.files import lock_holder
from bert_tf.interop.checkpoint import read_json, typed
from bert_tf.interop.hub import SCHEME
from bert_tf.training.checkpoints import LOCK_FILE, checkpoint_step, latest_checkpoint

logger = logging.getLogger(__name__)

TRAINING_FILE = "training.json"
LAST_STEP = "last_step"  # its key for the step at which the training ends


def planned_step(folder: str) -> int | None:
    """Return the step at which the training in a folder ends, or None if unknown."""
    path = os.path.join(folder, TRAINING_FILE)
    if not tf.io.gfile.exists(path):
        return None
    return typed(read_json(path), LAST_STEP, int, path)


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
