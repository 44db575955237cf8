"""Training checkpoints: `model.ckpt-N` in the reference's own format, under the reference's names.

A checkpoint holds every variable of the model under its path, the optimizer's moments under
`<path>/adam_m` and `<path>/adam_v`, and `global_step`. That is what google-research/bert writes, so
its tools can read ours, and its runs can be continued here.

Dropout masks and the order of the data are functions of the step (modeling/dropout.py,
data/records.py), so the step is all the state there is besides.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import IO, Any

import numpy as np
import tensorflow as tf

from bert_tf.data.files import write_text
from bert_tf.training.optimization import AVERAGE_SLOT

logger = logging.getLogger(__name__)

GLOBAL_STEP = "global_step"


def training_variables(model, optimizer=None) -> dict[str, Any]:
    """Checkpoint name -> Keras variable, for a model and, if given, its built optimizer."""
    named = {variable.path: variable for variable in model.weights}
    if len(named) != len(model.weights):
        raise ValueError(
            "Two variables of the model have one path; checkpoints need distinct names."
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
    """Writes `model.ckpt-<step>` and makes it the latest; older ones beyond `keep_max` are deleted.

    TensorFlow writes the files under temporary names and renames them; the `checkpoint` file that
    names the latest one is replaced last. A kill at any moment leaves the previous checkpoint valid.

    Args:
        directory: made if missing.
        variables: name -> Keras variable, from `training_variables`.
        step: optimizer steps taken.
        keep_max: how many checkpoints stay; 0 keeps all.

    Returns:
        The prefix of the new checkpoint.

    Raises:
        ValueError: the path of `directory` is a pattern; see `latest_checkpoint`.
    """
    _refuse_pattern(directory)
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
        others = [path for path in list_checkpoints(directory) if path != prefix]
        kept = [*others, prefix][-keep_max:]  # [-0:] is all
        _write_state(directory, kept)
    except (OSError, tf.errors.OpError):  # a full disk, most often
        _remove_fragments(directory)
        raise
    _remove_others(directory, kept)
    return prefix


class BackgroundSaver:
    """`save_checkpoint` in a thread, so that training goes on meanwhile.

    The values are copied before `save` returns; one checkpoint is written at a time.
    """

    def __init__(self, directory: str, keep_max: int = 5):
        self.directory = directory
        self._keep_max = keep_max
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def save(self, variables: Mapping[str, Any], step: int) -> None:
        """Starts to write; arguments as of `save_checkpoint`."""
        self.wait()
        arrays = {name: np.asarray(variable).copy() for name, variable in variables.items()}

        def write():
            try:
                save_checkpoint(self.directory, arrays, step, self._keep_max)
            except BaseException as error:
                self._error = error

        # Not a daemon: if the run ends by an exception, Python waits for what is being written.
        self._thread = threading.Thread(target=write, name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Until the last checkpoint is written.

        Raises:
            Exception: what kept it from being written.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error


def list_checkpoints(directory: str) -> list[str]:
    """Prefixes of the complete `model.ckpt-N` in `directory`, by rising step."""
    # Listed and not globbed, because a glob finds nothing in a path with "//".
    names = tf.io.gfile.listdir(directory) if tf.io.gfile.isdir(directory) else []
    complete = [
        name.removesuffix(".index")
        for name in names
        if re.fullmatch(r"model\.ckpt-\d+\.index", name) and _has_data(name, names)
    ]
    return [tf.io.gfile.join(directory, name) for name in sorted(complete, key=checkpoint_step)]


def latest_checkpoint(directory: str) -> str | None:
    """Prefix of the newest checkpoint of a training run, or None.

    It is the one that the `checkpoint` file names first; where its files are gone, the newest of the
    others that it names, so that a run never starts over in silence.

    Raises:
        ValueError: the path holds "*", "?" or "[", which TensorFlow takes for a pattern when it reads
            a checkpoint: what is written there could not be read again.
    """
    _refuse_pattern(directory)
    state = tf.train.get_checkpoint_state(directory)
    if state is None:
        return None
    complete = {PurePath(prefix).name: prefix for prefix in list_checkpoints(directory)}
    named = [state.model_checkpoint_path, *reversed(state.all_model_checkpoint_paths)]
    for name in dict.fromkeys(PurePath(prefix).name for prefix in named):
        if name in complete:
            return complete[name]
        logger.warning("%s: the `checkpoint` file names %s, which is gone", directory, name)
    return None


def _refuse_pattern(directory: str) -> None:
    if any(character in directory for character in "*?["):
        raise ValueError(
            f"The folder {directory} has *, ? or [ in its path, which TensorFlow takes for a pattern "
            "when it reads checkpoints. Use another output_dir."
        )


def checkpoint_step(prefix: str) -> int:
    """N of `model.ckpt-N`."""
    return int(prefix.rsplit("-", 1)[1])


def restore_checkpoint(prefix: str, variables: Mapping[str, Any]) -> None:
    """Sets every variable to its value in the checkpoint; nothing may be missing.

    Raises:
        ValueError: a variable is absent from the checkpoint or has another shape there, or the files
            are damaged. Nothing has been changed then.
    """
    try:
        reader = tf.train.load_checkpoint(prefix)
        shapes = reader.get_variable_to_shape_map()
        _refuse_other_shapes(prefix, shapes, variables)
        arrays = {name: reader.get_tensor(name) for name in variables}
    except (tf.errors.OpError, IndexError) as error:  # IndexError is how a cut-off file shows
        raise ValueError(
            f"The checkpoint {prefix} is damaged ({error}). Remove its files, and the run goes on "
            "from the one before."
        ) from error
    for name, variable in variables.items():
        variable.assign(arrays[name])


def prefer_averages(prefix: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """`variables` under the names of their moving averages, where the checkpoint has any."""
    found = {name for name, _ in tf.train.list_variables(prefix)}
    averages = {name: f"{name}/{AVERAGE_SLOT}" for name in variables}
    return {
        averages[name] if averages[name] in found else name: variable
        for name, variable in variables.items()
    }


def _refuse_other_shapes(
    prefix: str, shapes: Mapping[str, Sequence[int]], variables: Mapping[str, Any]
) -> None:
    problems = [f"{name} is missing" for name in variables if name not in shapes]
    problems += [
        f"{name} has shape {tuple(shapes[name])} there and {tuple(variable.shape)} here"
        for name, variable in variables.items()
        if name in shapes and tuple(shapes[name]) != tuple(variable.shape)
    ]
    if problems:
        shown = "; ".join(problems[:5]) + ("; ..." if len(problems) > 5 else "")
        raise ValueError(
            f"Training cannot be resumed from {prefix}: {shown}. It was written by a run with another "
            "model or optimizer. Use another output_dir, or start from its weights with "
            "init_checkpoint."
        )


def _has_data(index_file: str, names: list[str]) -> bool:
    start = index_file.removesuffix("index") + "data-"
    return any(name.startswith(start) and ".tempstate" not in name for name in names)


def _remove_others(directory: str, kept: list[str]) -> None:
    """Removes the checkpoints that are not kept, and what is left of unfinished ones."""
    kept_names = {PurePath(prefix).name for prefix in kept}
    for name in tf.io.gfile.listdir(directory):
        part = re.match(r"(model\.ckpt-\d+)\.(index|meta|data-)", name)
        if part and part[1] not in kept_names:
            tf.io.gfile.remove(tf.io.gfile.join(directory, name))


def _remove_fragments(directory: str) -> None:
    """Removes what a checkpoint left that could not be written."""
    names = tf.io.gfile.listdir(directory)
    for name in names:
        part = re.fullmatch(r"(model\.ckpt-\d+\.)(index|data-).*", name)
        is_alone = part is not None and f"{part[1]}index" not in names
        if (part and (is_alone or ".tempstate" in name)) or name == "checkpoint.tmp":
            tf.io.gfile.remove(tf.io.gfile.join(directory, name))


def _write_state(directory: str, prefixes: list[str]) -> None:
    """The `checkpoint` file, with paths relative to it, so that the folder can be moved."""
    names = [PurePath(prefix).name for prefix in prefixes]
    lines = [f'model_checkpoint_path: "{names[-1]}"']
    lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
    write_text(tf.io.gfile.join(directory, "checkpoint"), "\n".join(lines) + "\n")


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NAME = ".training.lock"


@contextlib.contextmanager
def folder_lock(folder: str) -> Iterator[None]:
    """Within the block no other process can take the same lock.

    The operating system drops it when the process ends, however it ends. Remote folders (gs://) and
    Windows have no such locks; there nothing happens.

    Args:
        folder: exists.

    Raises:
        ValueError: another process trains in this folder.
    """
    if fcntl is None or "://" in folder:
        yield
        return
    path = os.path.join(folder, NAME)
    with _locked(path, folder) as file:
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                os.remove(path)


def _locked(path: str, folder: str) -> IO[str]:
    """The file at `path`, open and locked."""
    while True:
        file = open(path, "a+", encoding="ascii")  # noqa: SIM115, the caller closes it
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "?"
            file.close()
            raise ValueError(
                f"{folder} is in use: process {holder} is training in it, and two would overwrite each "
                "other's checkpoints. Wait for it or end it, or use another output_dir."
            ) from None
        except OSError:  # a file system without locks
            return file
        # The one before us may have removed the file between our opening and our locking it.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        file.close()
