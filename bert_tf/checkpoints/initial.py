"""Initial weights: load a checkpoint into a model, and report what was loaded."""

from __future__ import annotations

import dataclasses
import logging
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_tf.checkpoints.checkpoint import PretrainedCheckpoint, rename_arrays, shape_of
from bert_tf.checkpoints.heads import BY_ARCHITECTURE, HEADS, Head, head_of_model
from bert_tf.checkpoints.huggingface import ALIASES
from bert_tf.checkpoints.read import read_checkpoint
from bert_tf.config import BertConfig
from bert_tf.limits import DataError, join_names

logger = logging.getLogger(__name__)

_LAYER = "bert/encoder/layer_"

_MASKED_LM = "cls/predictions/output_bias"

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
            lines.append(f"  new, with random values: {join_names(self.missing, 12)}")
        if self.unexpected:
            lines.append(f"  in the checkpoint but not used: {join_names(self.unexpected, 12)}")
        lines.extend(f"  {note}" for note in self.notes)
        return "\n".join(lines)


def initialize(
    model, checkpoint: str | os.PathLike | PretrainedCheckpoint, head: Head | None = None
) -> LoadReport:
    """Load a checkpoint into the variables of a model, by equal name.

    A head for another type of task is not loaded. The type of the checkpoint's head is that of Hugging
    Face's `architectures`, else that of `task.json`.

    Args:
        model: a model of `bert_tf.modeling`; its `config`, if any, is compared with the checkpoint's.
        checkpoint: a `PretrainedCheckpoint`, or a path for `read_checkpoint`.
        head: type of the model's head. Default: that of its class.

    Raises:
        ValueError: the encoder does not match: a variable is missing or of another shape, or the
            configurations differ in ways that shapes do not show. Or the masked-LM head has a decoder
            that is not the word embeddings. The model is then unchanged.
    """
    if not isinstance(checkpoint, PretrainedCheckpoint):
        checkpoint = read_checkpoint(checkpoint)
    notes = list(checkpoint.notes)
    model_config = getattr(model, "config", None)
    if checkpoint.config is not None and isinstance(model_config, BertConfig):
        notes += _compare_configs(model_config, checkpoint.config, checkpoint.source)

    ignored: tuple[str, ...] = ()
    reason = checkpoint.unused_head
    head = head or head_of_model(type(model))
    # Heads of several types have the same names, `output_weights` and `output_bias`.
    if head and any(name in checkpoint.arrays for name in head.variables):
        stated = _stated_head(checkpoint)
        if stated and stated != head and stated.variables == head.variables:
            ignored = head.variables
            reason = f"The checkpoint's head is for {stated.name}, the model's for {head.name}."
    problem = explain_untied_decoder(checkpoint)
    if problem and any(variable.path == _MASKED_LM for variable in model.weights):
        raise ValueError(f"{problem} convert_checkpoint with head=encoder writes its encoder.")
    report = assign(model.weights, checkpoint.arrays, source=checkpoint.source, ignored=ignored)
    if new := tuple(name for name in report.missing if not name.startswith("bert/")):
        reshaped = " ".join(note for note in report.notes if note.startswith(new))
        reason = reason or reshaped or f"The checkpoint has no {', '.join(new)}."
        notes += [] if reshaped else [reason]
    notes = [*report.notes, *notes]
    report = dataclasses.replace(report, notes=tuple(notes), new_head=reason if new else "")
    if inside := [name for name in report.unexpected if re.search("encoder[./]layer", name)]:
        logger.warning(
            "%s: %s in the encoder's layers are not used: merge adapters, check `num_hidden_layers`.",
            *(report.source, join_names(inside, 12)),
        )
    logger.info("%s", report.summary())
    return report


def _stated_head(checkpoint: PretrainedCheckpoint) -> Head | None:
    """Return the type of the head that the files next to the weights state, or None."""
    if checkpoint.architecture is not None:
        return BY_ARCHITECTURE.get(checkpoint.architecture)
    head = HEADS.get((checkpoint.task or {}).get("task", ""))
    # Types without an architecture may have any class of model.
    return head if head and head.architecture else None


def select_layers(checkpoint: PretrainedCheckpoint, layers: Sequence[int]) -> PretrainedCheckpoint:
    """Return a checkpoint with some of its layers, in this order and numbered from 0; -1 is the last."""
    names = [name for name in checkpoint.arrays if name.startswith(_LAYER)]
    count = len({name.removeprefix(_LAYER).split("/")[0] for name in names})
    if missing := [str(layer) for layer in layers if not -count <= layer < count]:
        raise ValueError(
            f"init_layers has {', '.join(missing)}, but {checkpoint.source} has layers 0 to {count - 1}."
        )
    sources = {name: name for name in checkpoint.arrays if name not in names}
    for number, layer in enumerate(layers):
        start = f"{_LAYER}{layer % count}/"
        own = {n: f"{_LAYER}{number}/{n.removeprefix(start)}" for n in names if n.startswith(start)}
        sources |= {new: name for name, new in own.items()}
    config = checkpoint.config
    if config is not None:
        config = dataclasses.replace(config, num_hidden_layers=len(layers))
    return dataclasses.replace(
        checkpoint, arrays=rename_arrays(checkpoint.arrays, sources), config=config
    )


def assign(
    variables: Iterable,
    arrays: Mapping[str, np.ndarray],
    source: str = "the checkpoint",
    ignored: Collection[str] = (),
) -> LoadReport:
    """Assign `arrays[variable.path]` to each variable, after checking all names and shapes.

    The pooler and a BiLSTM on top of the encoder may be missing as a whole. A head may be missing or of
    another shape. Those keep their values.
    """
    variables = list(variables)
    by_name: dict[str, Any] = {variable.path: variable for variable in variables}
    if len(by_name) < len(variables):  # one of two would keep its random values
        raise ValueError(
            f"Variables of {source} have the same path: initialize one model at a time."
        )
    check_path_of_encoder([name for name in by_name if name not in arrays])
    usable = [name for name in by_name if name in arrays and name not in ignored]
    notes, reshaped, refused = [], [], []
    for name in usable:
        shape, stored = list(by_name[name].shape), list(shape_of(arrays, name))
        if shape == stored:
            continue
        if name.startswith("bert/"):
            refused.append(f"{name} is {stored} in it and {shape} in the model")
        else:
            reshaped.append(name)
            notes.append(f"{name} is {stored} in the checkpoint and {shape} in the model.")
    loaded = tuple(name for name in usable if name not in reshaped)
    missing = tuple(name for name in by_name if name not in loaded)
    encoder_missing = [name for name in missing if name.startswith("bert/")]
    for part, note in _MAY_BE_NEW.items():
        names = [name for name in by_name if name.startswith(f"bert/{part}")]
        if names and not set(names) - set(encoder_missing):
            notes.append(note)
            encoder_missing = [name for name in encoder_missing if name not in names]
    if encoder_missing:
        refused.append(f"missing in it ({len(encoder_missing)}): {join_names(encoder_missing, 3)}")
    if refused:
        problem = f"The encoder does not match the model: {'; '.join(refused[-3:])}"
        raise DataError(source, f"{problem}. Make the model from this checkpoint's configuration.")

    for name in loaded:
        by_name[name].assign(arrays[name])
    unexpected = tuple(name for name in arrays if name not in loaded)
    return LoadReport(source, loaded, missing, unexpected, tuple(notes))


def explain_untied_decoder(checkpoint: PretrainedCheckpoint) -> str:
    """Return why the masked-LM head cannot be used, if it has a decoder of its own; else ""."""
    if not ALIASES.keys() & set(checkpoint.arrays):  # they are left only if they differ
        return ""
    return f"{checkpoint.source} has an untied masked-LM head: {' '.join(checkpoint.notes)}"


def check_path_of_encoder(names: Collection[str]) -> None:
    """Raise ValueError if the only encoder among variables has another path than "bert/..."."""
    tables = [name for name in names if name.endswith("embeddings/word_embeddings")]
    if tables and not any(name.startswith("bert/") for name in names):
        raise ValueError(
            f"The model has {tables[0]}, not bert/embeddings/word_embeddings: make BertModel(config) "
            "without a `name`, and not in the `build` of another layer."
        )


def _compare_configs(model: BertConfig, checkpoint: BertConfig, source: str) -> list[str]:
    """Raise if the model would compute something else with fitting shapes; note other differences."""
    if model.hidden_size != checkpoint.hidden_size:
        return []  # `assign` raises, and names the shapes
    for field in ("hidden_act", "num_attention_heads", "attention_direction"):
        value, stated = getattr(model, field), getattr(checkpoint, field)
        if value != stated:
            raise DataError(source, f"`{field}` is {stated!r}, but {value!r} in the model.")
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
