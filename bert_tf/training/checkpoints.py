"""Training checkpoints: `model.ckpt-N` in the reference's format, under the reference's names.

A checkpoint contains every variable of the model under its path, the optimizer's moments under
`<path>/adam_m` and `<path>/adam_v`, and `global_step`. google-research/bert writes the same names:
its tools read our checkpoints, and its runs can be resumed here.

Dropout masks and the order of the data are functions of the step (modeling/dropout.py,
data/records.py). No other state needs saving, but mixed_float16 adds the scale of the loss
(`loss_scale/...`). training.json next to them has the flags, steps and data of the training.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from concurrent import futures
from contextlib import AbstractContextManager
from pathlib import PurePath
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.tf1 import named_checkpoints
from bert_tf.files import hold_lock, write_text

logger = logging.getLogger(__name__)

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
    """Write `model.ckpt-<step>`, delete old checkpoints, and return the new prefix.

    TensorFlow writes the files under temporary names and renames them. The `checkpoint` file, which
    names the latest one, is replaced last. A kill at any moment leaves the previous checkpoint valid.

    Args:
        directory: created if missing.
        variables: name -> Keras variable, from `training_variables`.
        step: optimizer steps taken.
        keep_max: number of checkpoints to keep; 0 keeps all.

    Raises:
        ValueError: the path of `directory` contains "*", "?" or "[".
    """
    _check_no_pattern(directory)
    tf.io.gfile.makedirs(directory)
    prefix = tf.io.gfile.join(directory, f"model.ckpt-{step}")
    names = sorted(variables)
    arrays = [np.asarray(variables[name]) for name in names]
    if GLOBAL_STEP in variables:
        arrays[names.index(GLOBAL_STEP)] = np.asarray(step, np.int64)
    try:
        tf.raw_ops.SaveV2(
            prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=arrays
        )
        earlier = [path for path in list_checkpoints(directory) if path != prefix]
        prefixes = [*earlier, prefix][-keep_max:]  # [-0:] is all
        _write_state(directory, prefixes)
    except (OSError, tf.errors.OpError):  # usually a full disk
        _remove_others(directory, list_checkpoints(directory))
        raise
    _remove_others(directory, prefixes)
    return prefix


class BackgroundSaver:
    """`save_checkpoint` in a thread, so that training continues meanwhile.

    The values are copied before `save` returns. One checkpoint is written at a time.
    """

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
            futures.wait([self._writing])
            written, self._writing = self._writing, None
            written.result()


def list_checkpoints(directory: str) -> list[str]:
    """Return the prefixes of the complete `model.ckpt-N` in `directory`, by ascending step."""
    # `listdir`, because a glob finds nothing in a path with "//".
    names = tf.io.gfile.listdir(directory) if tf.io.gfile.isdir(directory) else []
    complete = [
        name.removesuffix(".index")
        for name in names
        if re.fullmatch(r"model\.ckpt-\d+\.index", name) and _has_data(name, names)
    ]
    return [tf.io.gfile.join(directory, name) for name in sorted(complete, key=checkpoint_step)]


def latest_checkpoint(directory: str) -> str | None:
    """Return the prefix of the newest checkpoint of a training run, or None.

    This is the first one that the `checkpoint` file names. If its files are missing, the newest of the
    others in that file is used. Without that file it is None, even if there are complete checkpoints;
    `list_checkpoints` finds those.

    Raises:
        ValueError: the path contains "*", "?" or "[". TensorFlow would treat it as a pattern and could
            not read the checkpoints back. The `checkpoint` file is too large.
    """
    _check_no_pattern(directory)
    names = named_checkpoints(directory)
    complete = {PurePath(prefix).name: prefix for prefix in list_checkpoints(directory)}
    for name in names:
        if name in complete:
            return complete[name]
        if named_checkpoints(directory) != names:  # a training has saved meanwhile
            return latest_checkpoint(directory)
        logger.warning("%s: the `checkpoint` file names %s, which is missing", directory, name)
    return None


def _check_no_pattern(directory: str) -> None:
    if any(character in directory for character in "*?["):
        raise ValueError(
            f"The folder {directory} has *, ? or [ in its path, which TensorFlow treats as a pattern "
            "when it reads checkpoints. Use another output_dir."
        )


def find_checkpoint(source: str) -> str | None:
    """Return the prefix of a checkpoint, or None without one.

    Args:
        source: folder, for its latest checkpoint, or the path of a `model.ckpt-N`.
    """
    folder, name = os.path.split(source.removesuffix(".index"))
    prefixes = {os.path.basename(prefix): prefix for prefix in list_checkpoints(folder or ".")}
    return prefixes.get(name) or latest_checkpoint(source)


def checkpoint_step(prefix: str) -> int:
    """Return N of `model.ckpt-N`."""
    return int(prefix.rsplit("-", 1)[1])


def restore_checkpoint(
    prefix: str, variables: Mapping[str, Any], optional: Sequence[str] = ()
) -> None:
    """Set every variable to its value in the checkpoint.

    Args:
        optional: names of variables that keep their values if the checkpoint lacks them.

    Raises:
        ValueError: a variable is missing or has another shape, the files are corrupt, or there are
            averages of the weights. All variables are unchanged then.
    """
    try:
        reader = tf.train.load_checkpoint(prefix)
        shapes = reader.get_variable_to_shape_map()
        if any(name.endswith("/ExponentialMovingAverage") for name in shapes):
            raise ValueError(
                f"{prefix} has averaged weights, of version 2: give it as init_checkpoint and a new "
                "output_dir."
            )
        variables = {n: v for n, v in variables.items() if n in shapes or n not in optional}
        _check_shapes(prefix, shapes, variables)
        arrays = {name: reader.get_tensor(name) for name in variables}
    except (tf.errors.OpError, IndexError) as error:  # a truncated file raises IndexError
        raise _corrupt(prefix, error) from error
    for name, variable in variables.items():
        variable.assign(arrays[name])


def _corrupt(prefix: str, error: Exception) -> ValueError:
    return ValueError(
        f"The checkpoint {prefix} is corrupt ({error}). Remove its files to resume from the "
        "previous checkpoint."
    )


def _check_shapes(
    prefix: str, shapes: Mapping[str, Sequence[int]], variables: Mapping[str, Any]
) -> None:
    problems = [f"{name} is missing" for name in variables if name not in shapes]
    problems += [
        f"{name} has shape {tuple(shapes[name])} in the checkpoint and {tuple(variable.shape)} here"
        for name, variable in variables.items()
        if name in shapes and tuple(shapes[name]) != tuple(variable.shape)
    ]
    if problems:
        text = "; ".join(problems[:5]) + ("; ..." if len(problems) > 5 else "")
        raise ValueError(
            f"Training cannot be resumed from {prefix}: {text}. Its run had another model, optimizer "
            "or `freeze`. Use those, or its folder as init_checkpoint of another output_dir."
        )


def _has_data(index_file: str, names: list[str]) -> bool:
    start = index_file.removesuffix("index") + "data-"
    return any(name.startswith(start) and ".tempstate" not in name for name in names)


def _remove_others(directory: str, prefixes: list[str]) -> None:
    """Remove all checkpoints but these, and the files of incomplete ones."""
    names = {PurePath(prefix).name for prefix in prefixes}
    for name in tf.io.gfile.listdir(directory):
        match = re.match(r"(model\.ckpt-\d+)\.(index|meta|data-)", name)
        if match and (match[1] not in names or ".tempstate" in name):
            tf.io.gfile.remove(tf.io.gfile.join(directory, name))


def _write_state(directory: str, prefixes: list[str]) -> None:
    """Write the `checkpoint` file with relative paths, so that the folder can be moved."""
    names = [PurePath(prefix).name for prefix in prefixes]
    lines = [f'model_checkpoint_path: "{names[-1]}"']
    lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
    write_text(tf.io.gfile.join(directory, "checkpoint"), "\n".join(lines) + "\n")


LOCK_FILE = ".training.lock"


def folder_lock(folder: str) -> AbstractContextManager[None]:
    """Hold a lock on a folder, made if missing, that other processes cannot take; see `hold_lock`.

    Raises:
        ValueError: another process trains in this folder.
    """
    tf.io.gfile.makedirs(folder)
    return hold_lock(
        os.path.join(folder, LOCK_FILE),
        f"{folder}: another process trains in it. Wait for it or end it, or use another output_dir.",
    )
