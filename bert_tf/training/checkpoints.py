"""Training checkpoints: `model.ckpt-N` in the reference's format, under the reference's names.

A checkpoint contains every variable of the model under its path, the optimizer's moments under
`<path>/adam_m` and `<path>/adam_v`, `global_step`, and in mixed_float16 the scale of the loss. Dropout
masks and the order of the data are functions of the step, so no other state needs saving.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from concurrent import futures
from contextlib import AbstractContextManager
from pathlib import PurePath
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.tf1 import prefixes_in, write_tf1
from bert_tf.files import hold_lock, write_text

GLOBAL_STEP = "global_step"


def training_variables(model, optimizer=None) -> dict[str, Any]:
    """Map checkpoint names to the Keras variables of a model and of its built optimizer, if given."""
    named = {variable.path: variable for variable in model.weights}
    if len(named) != len(model.weights):
        raise ValueError(
            "Two variables of the model have the same path; checkpoints need distinct names."
        )
    if optimizer is not None:
        for variable in model.trainable_variables:
            for slot, moment in optimizer.slots(variable).items():
                named[f"{variable.path}/{slot}"] = moment
        named[GLOBAL_STEP] = optimizer.iterations
    return named


def save_checkpoint(
    directory: str, variables: Mapping[str, Any], step: int, keep_max: int = 5
) -> str:
    """Write `model.ckpt-<step>`, delete all but `keep_max` (0: none), and return the new prefix.

    TensorFlow writes the files under temporary names and renames them. The `checkpoint` file, which
    names the latest one, is replaced last. A kill at any moment leaves the previous checkpoint valid.
    """
    tf.io.gfile.makedirs(directory)
    prefix = tf.io.gfile.join(directory, f"model.ckpt-{step}")
    arrays = {name: np.asarray(variable) for name, variable in variables.items()}
    if GLOBAL_STEP in arrays:
        arrays[GLOBAL_STEP] = np.asarray(step, np.int64)
    write_tf1(prefix, arrays)
    earlier = [path for path in list_checkpoints(directory) if path != prefix]
    names = [PurePath(path).name for path in (*earlier, prefix)][-keep_max:]  # [-0:] is all
    # Relative paths, so that the folder can be moved.
    lines = [f'model_checkpoint_path: "{names[-1]}"']
    lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
    write_text(tf.io.gfile.join(directory, "checkpoint"), "\n".join(lines) + "\n")
    for name in tf.io.gfile.listdir(directory):  # of old checkpoints and of interrupted writes
        match = re.match(r"(model\.ckpt-\d+)\.(index|meta|data-)", name)
        if match and (match[1] not in names or ".tempstate" in name):
            tf.io.gfile.remove(tf.io.gfile.join(directory, name))
    return prefix


class BackgroundSaver:
    """`save_checkpoint` in a thread, of a copy of the values, while training continues."""

    def __init__(self, directory: str, keep_max: int = 5):
        self._directory = directory
        self._keep_max = keep_max
        # If an exception ends the run, Python waits until the checkpoint is complete.
        self._thread = futures.ThreadPoolExecutor(1, "checkpoint")
        self._writing: futures.Future | None = None

    def save(self, variables: Mapping[str, Any], step: int) -> str:
        """Start writing a checkpoint and return its prefix; see `save_checkpoint`."""
        self.wait()
        arrays = {name: np.asarray(variable).copy() for name, variable in variables.items()}
        self._writing = self._thread.submit(
            save_checkpoint, self._directory, arrays, step, self._keep_max
        )
        return tf.io.gfile.join(self._directory, f"model.ckpt-{step}")

    def wait(self) -> None:
        """Wait until the last checkpoint is written; raise its error if writing failed."""
        if self._writing is not None:
            written, self._writing = self._writing, None
            written.result()


def list_checkpoints(directory: str) -> list[str]:
    """Return the prefixes of the `model.ckpt-N` in `directory`, by ascending step."""
    names = prefixes_in(directory) if tf.io.gfile.isdir(directory) else []
    names = [name for name in names if re.fullmatch(r"model\.ckpt-\d+", name)]
    return [tf.io.gfile.join(directory, name) for name in sorted(names, key=checkpoint_step)]


def checkpoint_step(prefix: str) -> int:
    """Return N of `model.ckpt-N`."""
    return int(prefix.rsplit("-", 1)[1])


def restore_checkpoint(
    prefix: str, variables: Mapping[str, Any], optional: Sequence[str] = ()
) -> None:
    """Set every variable to its value in the checkpoint, or none; `optional` ones may be missing."""
    try:
        reader = tf.train.load_checkpoint(prefix)
        shapes = reader.get_variable_to_shape_map()
        variables = {n: v for n, v in variables.items() if n in shapes or n not in optional}
        problems = [
            f"{name} has shape {shapes.get(name)} in the checkpoint and {list(variable.shape)} here"
            for name, variable in variables.items()
            if shapes.get(name) != list(variable.shape)
        ]
        problems += [name for name in shapes if name.endswith("/ExponentialMovingAverage")]
        if problems:
            text = "; ".join(problems[:5]) + ("; ..." if len(problems) > 5 else "")
            raise ValueError(
                f"{prefix} cannot be resumed: {text}. Its run had another model, optimizer "
                "or `freeze`. Use those, or its folder as init_checkpoint of another output_dir."
            )
        arrays = {name: reader.get_tensor(name) for name in variables}
    except (tf.errors.OpError, IndexError) as error:  # a truncated file raises IndexError
        raise ValueError(
            f"The checkpoint {prefix} is corrupt ({error}). Remove its files to resume from the "
            "previous checkpoint."
        ) from error
    for name, variable in variables.items():
        variable.assign(arrays[name])


LOCK_FILE = ".training.lock"


def folder_lock(folder: str) -> AbstractContextManager[None]:
    """Hold a lock on the folder of a training that other processes cannot take; see `hold_lock`."""
    tf.io.gfile.makedirs(folder)
    return hold_lock(
        os.path.join(folder, LOCK_FILE),
        f"{folder}: another process trains in it. Wait for it or end it, or use another output_dir.",
    )
