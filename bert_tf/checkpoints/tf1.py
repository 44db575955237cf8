"""Name-based TensorFlow checkpoints: the reference's, and our own training checkpoints.

Both are "V2 bundles": PREFIX.index, PREFIX.data-00000-of-00001, and for the reference PREFIX.meta.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Mapping

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.checkpoint import (
    Bundle,
    PretrainedCheckpoint,
    rename_arrays,
    sibling_file,
)
from bert_tf.checkpoints.hub import check_exists
from bert_tf.config import BertConfig
from bert_tf.limits import DataError, join_names

logger = logging.getLogger(__name__)

# Optimizer state that belongs to no variable.
_TRAINING_STATE = frozenset(
    {"global_step", "beta1_power", "beta2_power", "loss_scale/value", "loss_scale/good_steps"}
)
_AVERAGE = "/ExponentialMovingAverage"
_SLOTS = ("/adam_m", "/adam_v", _AVERAGE)
_PART = re.compile(r"\.(data-\d+-of-\d+|index|meta)$")


def read_tf1(path: str | os.PathLike) -> PretrainedCheckpoint:
    """Read a name-based TensorFlow checkpoint, without variables that only the training uses.

    Moving averages of the weights are read instead of the weights.

    Args:
        path: a folder (the newest checkpoint of its `checkpoint` file, else its only one), a prefix
            such as `uncased_L-12_H-768_A-12/bert_model.ckpt`, or a file of it. May be remote.
    """
    prefix = checkpoint_prefix(path)
    bundle = Bundle(prefix)
    averages = {name: name + _AVERAGE for name in bundle if name + _AVERAGE in bundle}
    weights = {name: name for name in sorted(bundle) if not _is_state(name, bundle)} | averages
    config_file = sibling_file(os.path.dirname(prefix), "bert_config.json")
    return PretrainedCheckpoint(
        source=prefix,
        arrays=rename_arrays(bundle, weights),
        config=BertConfig.from_json_file(config_file) if config_file else None,
        notes=("the weights are the moving averages of the trained weights",) if averages else (),
    )


def write_tf1(prefix: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a name-based checkpoint into an existing folder; the reference's code can read it."""
    names = sorted(arrays)
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[arrays[name] for name in names],
    )


def checkpoint_prefix(path: str | os.PathLike) -> str:
    """Return the prefix for `path`, a folder, a prefix or a file."""
    path = os.fspath(path)
    if tf.io.gfile.isdir(path):
        return _prefix_in_folder(path.rstrip("/") or "/")
    prefix = _PART.sub("", path)
    check_exists(f"{prefix}.index")
    return prefix


def prefixes_in(folder: str) -> list[str]:
    """Return the names, without the folder, of the checkpoints in `folder`."""
    names = tf.io.gfile.listdir(folder)
    return sorted(name.removesuffix(".index") for name in names if name.endswith(".index"))


def latest_checkpoint(folder: str) -> str | None:
    """Return the prefix of the newest checkpoint that the file `checkpoint` names, or None.

    Only the last parts of the paths in the file count: they may be of another machine.
    """
    try:
        state = tf.train.get_checkpoint_state(folder)
    except ValueError as error:
        raise DataError(f"{folder}/checkpoint", str(error)) from error
    if state is None:
        return None
    existing = prefixes_in(folder)
    paths = state.model_checkpoint_path, *reversed(state.all_model_checkpoint_paths)
    for name in dict.fromkeys(path.rsplit("/", 1)[-1] for path in paths):
        if name in existing:
            return tf.io.gfile.join(folder, name)
        logger.warning("%s: the file `checkpoint` names %s, which is missing", folder, name)
    return None


def _prefix_in_folder(folder: str) -> str:
    names = prefixes_in(folder)
    if newest := latest_checkpoint(folder):
        return newest
    if len(names) == 1 and tf.train.get_checkpoint_state(folder) is None:
        return tf.io.gfile.join(folder, names[0])
    contents = join_names(sorted(tf.io.gfile.listdir(folder)), 5) or "no files"
    raise DataError(folder, f"no checkpoint, or none named the newest, in {contents}: name one.")


def _is_state(name: str, names: Collection[str]) -> bool:
    """Return True if `name` is optimizer state; slots have the path of their variable as parent."""
    return name in _TRAINING_STATE or name.endswith(_SLOTS) or os.path.dirname(name) in names
