"""Initial weights: read any checkpoint that --init_checkpoint accepts, and load it into a model."""

from __future__ import annotations

import dataclasses
import difflib
import logging
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.interop.checkpoint import (
    LazyArrays,
    PretrainedCheckpoint,
    file_beside,
    num_values,
    read_json,
    shape_of,
)
from bert_tf.interop.hub import SCHEME, local_path, path_of_model
from bert_tf.interop.huggingface import ALIASES, read_huggingface
from bert_tf.interop.tensor_files import is_weights_file, weights_file
from bert_tf.interop.tf1 import checkpoint_prefix, data_files, is_part, prefixes_in, read_tf1
from bert_tf.interop.tf2 import check_no_export, is_object_based, read_saved_model, read_tf2
from bert_tf.registry import BY_ARCHITECTURE, TASK_FILE, TYPES, TaskType, type_of_model

logger = logging.getLogger(__name__)

SUPPORTED = (
    "a TensorFlow 1 checkpoint or one of our own (folder, prefix or .index file), a Hugging Face or "
    "sentence-transformers folder (config.json with model.safetensors, pytorch_model.bin or "
    "tf_model.h5) or hf://org/name, an object-based checkpoint or a SavedModel of a tf-models-official "
    "encoder"
)


# First dimension of each table -> the field of the configuration that sets it.
_ROWS = {
    "bert/embeddings/word_embeddings": "vocab_size",
    "bert/embeddings/position_embeddings": "max_position_embeddings",
    "bert/embeddings/token_type_embeddings": "type_vocab_size",
}

_WIDTHS = ("hidden_size", "intermediate_size")

# Field of the configuration -> the end of a message.
_HINTS = {
    "hidden_act": ' ("gelu" is the tanh form, "gelu_erf" the exact one).',
    "attention_direction": ", or set attention of run_pretraining to train it in the other direction.",
}

_LAYER = "bert/encoder/layer_"

_MASKED_LM = "cls/predictions/output_bias"

_SMALL_MODEL = 1 << 27  # parameters, 0.5 GB; whether a smaller one fits is checked after it is made

# Parts of the encoder that a checkpoint may lack as a whole, and the consequence.
_MAY_BE_NEW = {
    "pooler/": "The checkpoint has no pooler, so pooled_output is random until it is trained. Models of "
    "words and of questions do not use it.",
    "bilstm_": "The checkpoint has no BiLSTM, so the outputs are random until it is trained.",
}


@dataclass(frozen=True)
class LoadReport:
    """The result of loading a checkpoint, by variable name.

    Args:
        source: the path that was read.
        loaded: variables with the checkpoint's values.
        missing: variables that the checkpoint did not fill; they keep their random values.
        unexpected: variables of the checkpoint that the model did not use.
        notes: other remarks for the user; one sentence each.
        new_head: the note with the reason why the model's head is new; "" if it is not.
    """

    source: str
    loaded: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    notes: tuple[str, ...] = ()
    new_head: str = ""

    def summary(self) -> str:
        """Return the report in a few lines."""
        total = len(self.loaded) + len(self.missing)
        lines = [f"{len(self.loaded)} of {total} variables initialized from {self.source}"]
        if self.missing:
            lines.append(f"  new, with random values: {_listing(self.missing)}")
        if self.unexpected:
            lines.append(f"  in the checkpoint but not used: {_listing(self.unexpected)}")
        lines.extend(f"  {note}" for note in self.notes)
        return "\n".join(lines)


def read_checkpoint(path: str | os.PathLike) -> PretrainedCheckpoint:
    """Read any supported checkpoint.

    A folder with TensorFlow and Hugging Face weights is read as Hugging Face's. If it has the file
    `checkpoint`, which training writes, it is read as TensorFlow's. hf://org/name is downloaded first.

    Raises:
        FileNotFoundError: nothing is found at the path; close matches are offered.
        ImportError: a library for this format is not installed.
        ValueError: the file or folder is not supported, or damaged.
    """
    checkpoint = _read_any(path_of_model(path))
    if checkpoint.config is not None:
        _check_size(checkpoint.config, checkpoint.arrays, checkpoint.source)
    return checkpoint


def _read_any(path: str) -> PretrainedCheckpoint:
    if path.startswith(SCHEME):
        return read_huggingface(local_path(path))
    if tf.io.gfile.isdir(path):
        return _read_folder(path)
    exists = tf.io.gfile.exists(path)
    if exists and is_weights_file(path):
        return read_huggingface(path)
    if is_part(path) if exists else (tf.io.gfile.exists(f"{path}.index") or data_files(path)):
        return _read_tensorflow(path)
    if exists:
        raise ValueError(f"{path} is not a checkpoint that can be read. Supported: {SUPPORTED}.")
    raise _nothing_at(path)


def check_exists(path: str) -> None:
    """Raise FileNotFoundError, with close matches, if nothing is found at a local path."""
    if not (tf.io.gfile.exists(path) or tf.io.gfile.exists(f"{path}.index") or data_files(path)):
        raise _nothing_at(path)


def initialize(
    model, checkpoint: str | os.PathLike | PretrainedCheckpoint, head: TaskType | None = None
) -> LoadReport:
    """Load a checkpoint into the variables of a model, by equal name.

    A head for another type of task is not loaded. The type of the checkpoint's head is that of Hugging
    Face's `architectures`, else that of `task.json`.

    Args:
        model: a model of `bert_tf.modeling`; its `config`, if any, is compared with the checkpoint's.
        checkpoint: a `PretrainedCheckpoint`, or a path for `read_checkpoint`.
        head: type of the model's head. Default: that of its class.

    Returns:
        The loaded, new and unused variables; also logged.

    Raises:
        ValueError: the encoder does not match: a variable is missing or of another shape, or the
            configurations differ in ways that shapes do not show. The model is then unchanged.
    """
    if not isinstance(checkpoint, PretrainedCheckpoint):
        checkpoint = read_checkpoint(checkpoint)
    notes = list(checkpoint.notes)
    model_config = getattr(model, "config", None)
    if checkpoint.config is not None and isinstance(model_config, BertConfig):
        notes += _compare_configs(model_config, checkpoint.config, checkpoint.source)

    ignored: tuple[str, ...] = ()
    reason = checkpoint.unused_head
    here = head or type_of_model(type(model))
    # Heads of several types have the same names, `output_weights` and `output_bias`.
    if here and any(name in checkpoint.arrays for name in here.variables):
        there = _stated_type(checkpoint)
        if there and there != here and there.variables == here.variables:
            ignored = here.variables
            reason = f"The checkpoint's head is for {there.name}, the model's for {here.name}."
    report = assign(model.weights, checkpoint.arrays, source=checkpoint.source, ignored=ignored)
    if new := tuple(name for name in report.missing if not name.startswith("bert/")):
        reshaped = [note for note in report.notes if note.startswith(new)]
        if any(not name.startswith("bert/") for name in report.loaded):  # one of two heads
            reason = reason or f"The checkpoint lacks {', '.join(new)}."
        reason = reason or " ".join(reshaped) or _absent_head(checkpoint.arrays)
        notes += [] if reshaped else [reason]
    notes = [*report.notes, *notes]
    report = dataclasses.replace(report, notes=tuple(notes), new_head=reason if new else "")
    if ALIASES.keys() & set(report.unexpected) and _MASKED_LM in report.loaded:
        for note in checkpoint.notes:
            logger.warning("%s: %s", report.source, note)
    logger.info("%s", report.summary())
    for name in report.loaded:
        logger.debug("  %s, *INIT_FROM_CKPT*", name)
    return report


def _stated_type(checkpoint: PretrainedCheckpoint) -> TaskType | None:
    """Return the type of the head that the files next to the weights state, or None."""
    if checkpoint.architecture is not None:
        return BY_ARCHITECTURE.get(checkpoint.architecture)
    path = file_beside(folder_of(checkpoint.source), TASK_FILE)
    name = read_json(path).get("task") if path else None
    entry = TYPES.get(name) if isinstance(name, str) else None
    # Types without an architecture may have any class of model.
    return entry if entry and entry.architecture else None


def layers_of(checkpoint: PretrainedCheckpoint) -> list[int]:
    """Return the numbers of the layers in a checkpoint, in order."""
    names = (name for name in checkpoint.arrays if name.startswith(_LAYER))
    return sorted({int(name.removeprefix(_LAYER).split("/")[0]) for name in names})


def with_layers(checkpoint: PretrainedCheckpoint, layers: Sequence[int]) -> PretrainedCheckpoint:
    """Return a checkpoint with some of its layers, in the given order and numbered from 0.

    Args:
        layers: numbers of layers, from 0; -1 is the last.

    Raises:
        ValueError: the checkpoint lacks one of the layers.
    """
    there = layers_of(checkpoint)
    missing = [str(layer) for layer in layers if not -len(there) <= layer < len(there)]
    if missing:
        raise ValueError(
            f"init_layers has {', '.join(missing)}, but the layers of {checkpoint.source} are 0 to "
            f"{len(there) - 1}. The first layer is 0, the last -1."
        )
    sources = {name: name for name in checkpoint.arrays if not name.startswith(_LAYER)}
    for number, layer in enumerate(layers):
        start = f"{_LAYER}{there[layer]}/"
        for name in checkpoint.arrays:
            if name.startswith(start):
                sources[f"{_LAYER}{number}/{name.removeprefix(start)}"] = name
    arrays = LazyArrays(
        {name: shape_of(checkpoint.arrays, source) for name, source in sources.items()},
        lambda name: checkpoint.arrays[sources[name]],
    )
    config = checkpoint.config
    if config is not None:
        config = dataclasses.replace(config, num_hidden_layers=len(layers))
    return dataclasses.replace(checkpoint, arrays=arrays, config=config)


def assign(
    variables: Iterable,
    arrays: Mapping[str, np.ndarray],
    source: str = "the checkpoint",
    ignored: Collection[str] = (),
) -> LoadReport:
    """Assign `arrays[variable.path]` to each variable, after checking all names and shapes.

    Args:
        variables: Keras variables whose `path` is the reference's name.
        arrays: name -> array.
        source: name of the arrays in messages.
        ignored: names in `arrays` that are not used.

    Raises:
        ValueError: a variable of the encoder ("bert/...") is missing or of another shape, the encoder
            has another path, or two variables have the same path. The pooler and a BiLSTM on top of the
            encoder may be missing as a whole. A head may be missing or of another shape. Those keep
            their values.
    """
    by_name: dict[str, Any] = {}
    for variable in variables:
        if by_name.setdefault(variable.path, variable) is not variable:
            raise ValueError(
                f"Two variables have the path {variable.path}, so one of them would keep its random "
                "values. Initialize one model at a time."
            )
    check_path_of_encoder(by_name)
    usable = [name for name in by_name if name in arrays and name not in ignored]
    notes, reshaped, refused = [], [], []
    for name in usable:
        wanted, found = tuple(by_name[name].shape), shape_of(arrays, name)
        if wanted == found:
            continue
        if name.startswith("bert/"):
            refused.append(_shape_problem(name, wanted, found))
        else:
            reshaped.append(name)
            notes.append(
                f"{name} is {list(found)} in the checkpoint and {list(wanted)} in the model."
            )
    loaded = tuple(name for name in usable if name not in reshaped)
    missing = tuple(name for name in by_name if name not in loaded)
    encoder_missing = [name for name in missing if name.startswith("bert/")]
    for part, note in _MAY_BE_NEW.items():
        names = [name for name in by_name if name.startswith(f"bert/{part}")]
        if names and not set(names) - set(encoder_missing):
            notes.append(note)
            encoder_missing = [name for name in encoder_missing if name not in names]
    if refused or encoder_missing:
        raise ValueError(_refusal(refused, encoder_missing, arrays, source))

    for name in loaded:
        by_name[name].assign(arrays[name])
    unexpected = tuple(name for name in arrays if name not in loaded)
    return LoadReport(source, loaded, missing, unexpected, tuple(notes))


def check_path_of_encoder(names: Collection[str]) -> None:
    """Raise ValueError if the only encoder among variables has another path than "bert/..."."""
    tables = [name for name in names if name.endswith("embeddings/word_embeddings")]
    if tables and not any(name.startswith("bert/") for name in names):
        raise ValueError(
            f"The model has the encoder {tables[0].removesuffix('embeddings/word_embeddings')}, but "
            "its path must be bert/, as in checkpoints, whose variables are found by path. Make it as "
            "BertModel(config) without another `name`, and not in the `build` of another layer."
        )


def _absent_head(arrays: Iterable[str]) -> str:
    """Return the reason for a new head if the checkpoint has no array of its names."""
    has_head = any(entry.owns(name) for name in arrays for entry in TYPES.values())
    return f"The checkpoint has no {'such ' if has_head else ''}head."


def _compare_configs(model: BertConfig, checkpoint: BertConfig, source: str) -> list[str]:
    """Raise if the model would compute something else with fitting shapes; note other differences."""
    if any(getattr(model, size) != getattr(checkpoint, size) for size in _WIDTHS):
        return []  # `assign` raises, and names the shapes
    for field in ("hidden_act", "num_attention_heads", "attention_direction"):
        ours, theirs = getattr(model, field), getattr(checkpoint, field)
        if ours != theirs:
            raise ValueError(
                f"`{field}` is {ours!r} in the model, but {theirs!r} in the configuration next to "
                f"{source}. The weights would fit but compute something else; give the model the "
                "checkpoint's configuration"
                f"{_HINTS.get(field, '.')}"
            )
    notes = []
    if model.layer_norm_eps != checkpoint.layer_norm_eps:
        notes.append(
            f"`layer_norm_eps` is {model.layer_norm_eps} in the model, but "
            f"{checkpoint.layer_norm_eps} in the configuration next to the checkpoint."
        )
    if model.num_hidden_layers < checkpoint.num_hidden_layers:
        notes.append(
            f"The model has only the first {model.num_hidden_layers} of the checkpoint's "
            f"{checkpoint.num_hidden_layers} layers."
        )
    for note in notes:
        logger.warning("%s", note)
    return notes


def _check_size(config: BertConfig, arrays: Mapping[str, np.ndarray], source: str) -> None:
    """Raise if the configuration describes a far larger model than the weights, before it is made."""
    stored = num_values(arrays)
    if config.encoder_size > 4 * stored + _SMALL_MODEL or config.num_hidden_layers > len(arrays):
        raise ValueError(
            f"The configuration next to {source} describes {config.num_hidden_layers:,} layers and "
            f"{config.encoder_size:,} parameters, but the weights are {len(arrays):,} tensors with "
            f"{stored:,} values. They do not belong together; get both again."
        )


def _shape_problem(name: str, wanted: tuple[int, ...], found: tuple[int, ...]) -> str:
    if name in _ROWS and wanted[1:] == found[1:]:
        return (
            f"{name} has {found[0]} rows in the checkpoint and {wanted[0]} in the model "
            f"(`{_ROWS[name]}`)"
        )
    return f"{name} is {list(found)} in the checkpoint and {list(wanted)} in the model"


def _refusal(
    refused: list[str], missing: list[str], arrays: Mapping[str, np.ndarray], source: str
) -> str:
    problems = list(refused)
    if missing:
        problems.append(f"missing in it ({len(missing)}): {_listing(missing, 3)}")
    message = f"The encoder in {source} does not match the model: {_listing(problems, 3, '; ')}."
    if not any(name.startswith("bert/") for name in arrays):
        return f"{message} It has no variable under bert/, but {_listing(list(arrays), 3)}."
    return (
        f"{message} Make the model from the configuration next to the checkpoint (bert_config.json "
        "or config.json)."
    )


def _read_folder(folder: str) -> PretrainedCheckpoint:
    names = [name.rstrip("/") for name in tf.io.gfile.listdir(folder)]
    trained = "checkpoint" in names and not tf.io.gfile.isdir(os.path.join(folder, "checkpoint"))
    has_weights = "config.json" in names and weights_file(folder) is not None
    if not trained and (has_weights or "modules.json" in names):
        return read_huggingface(folder)
    if trained or prefixes_in(folder):
        return _read_tensorflow(folder)
    if "saved_model.pb" in names:
        return read_saved_model(folder)
    if "config.json" in names:
        return read_huggingface(folder)  # its error names the missing files
    else:
        check_no_export(folder)
        found = f"{_listing(sorted(names), 5)}" if names else "nothing"
    inside = [
        name
        for name in sorted(names)
        if tf.io.gfile.isdir(path := tf.io.gfile.join(folder, name)) and holds_checkpoint(path)
    ]
    hint = f" Did you mean {tf.io.gfile.join(folder, inside[0])}?" if inside else ""
    raise ValueError(f"{folder} contains {found}, and no checkpoint.{hint} Supported: {SUPPORTED}.")


def _read_tensorflow(path: str) -> PretrainedCheckpoint:
    prefix = checkpoint_prefix(path)
    return read_tf2(prefix) if is_object_based(prefix) else read_tf1(prefix)


def folder_of(path: str | os.PathLike) -> str:
    """Return the folder of a checkpoint that --init_checkpoint names."""
    path = local_path(path)
    return path if tf.io.gfile.isdir(path) else os.path.dirname(path)


def holds_checkpoint(folder: str) -> bool:
    """Return True if a folder itself contains weights, of TensorFlow or of Hugging Face."""
    return bool(prefixes_in(folder)) or weights_file(folder) is not None


def _nothing_at(path: str) -> FileNotFoundError:
    """Return the error for a missing path, with similar names in its folder.

    Names in the form of the Hugging Face hub are proposed with hf:// before them.
    """
    folder, name = os.path.split(path.rstrip("/"))
    hub_name = ""
    if re.fullmatch(r"bert-(base|large)-[a-z-]+", path):  # older names of the hub, without an owner
        hub_name = f" For the model of the Hugging Face hub give {SCHEME}google-bert/{path}."
    elif re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", path) and "ckpt" not in name:
        hub_name = f" For a model of the Hugging Face hub give {SCHEME}{path}."
    folder = folder or "."
    if not tf.io.gfile.isdir(folder):
        return FileNotFoundError(
            f"There is no checkpoint {path}: the folder {folder} does not exist.{hub_name}"
        )
    candidates = prefixes_in(folder) + [
        entry.rstrip("/") for entry in tf.io.gfile.listdir(folder) if "." not in entry
    ]
    close = difflib.get_close_matches(name, candidates, n=3, cutoff=0.5)
    hint = (
        f" Did you mean {' or '.join(tf.io.gfile.join(folder, c) for c in close)}?" if close else ""
    )
    hub_name = "" if "/" in path else hub_name  # the folder exists, so the path is local
    return FileNotFoundError(
        f"There is no checkpoint {path}.{hub_name}{hint} Supported: {SUPPORTED}."
    )


def _listing(names, limit: int = 12, separator: str = ", ") -> str:
    shown = separator.join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
