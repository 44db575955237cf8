"""training.json: the flags, steps and data of the training in a folder."""

from __future__ import annotations

import json
import os
from typing import Any

import tensorflow as tf

from bert_tf.data.files import write_text
from bert_tf.interop.checkpoint import read_json

TRAINING_FILE = "training.json"
# Its keys. The others are options, as `finetuning/same_run.py` compares them.
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
