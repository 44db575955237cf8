"""Exports of every format: the files in a folder, their signatures on ids, and differences.

Shapes: B batch, S sequence, K choices.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.data.files import file_facts
from bert_tf.data.lines import read_lines
from bert_tf.interop.checkpoint import config_from_values, read_json, typed
from bert_tf.interop.heads import find_head
from bert_tf.interop.read import read_checkpoint
from bert_tf.interop.tensor_files import weights_file
from bert_tf.modeling.inputs import OTHER_NAMES
from bert_tf.modeling.quantized import OVERFLOW_FREE
from bert_tf.prediction import runtimes
from bert_tf.prediction.saved_graph import check_graph
from bert_tf.registry import TYPES, TaskType
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.strategy import INT8_FLAGS, int8_instruction

logger = logging.getLogger(__name__)

# Format -> its runtimes, and the modules that each needs.
FORMAT_RUNTIMES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "saved_model": {"saved_model": ("tensorflow",)},
    "tflite": {"tflite": ("tensorflow",)},
    "onnx": {"onnx": ("onnxruntime",), "openvino": ("openvino",)},
    "openvino": {"openvino": ("openvino",)},
    "huggingface": {"huggingface": ("transformers", "torch")},
}
FILES = {
    "saved_model": "saved_model.pb",
    "tflite": "model.tflite",
    "onnx": "model.onnx",
    "openvino": "model.xml",
}
METADATA_FILE = "export.json"
EXTRA = "assets.extra"  # folder of a SavedModel for METADATA_FILE and vocab.txt; TensorFlow's name
PREPROCESS = "_preprocess"  # ending of the folder next to an encoder with the signature tf_hub
# Name of an input or output elsewhere -> our name.
_INPUTS = {**OTHER_NAMES, "input_word_ids": "input_ids", "input_type_ids": "segment_ids"}
_OUTPUTS = {
    "last_hidden_state": "sequence_output",
    "pooler_output": "pooled_output",
    "seq_relationship_logits": "next_sentence_logits",
    "prediction_logits": "masked_lm_logits",
}
_IDS = ("input_ids", "input_mask", "segment_ids")
POSITIONS = ("masked_lm_positions", "word_positions")  # another input of some models
_SERVED = {
    entry.served.partition(":Served")[2].lower(): entry for entry in TYPES.values() if entry.served
}


@dataclass(frozen=True)
class Export:
    """An export, and what the files next to it state.

    Args:
        folder: the folder of its files.
        format: key of `FORMAT_RUNTIMES`.
        path: file or folder for the runtime.
        head: type of task.
        config: architecture.
        precision: of the weights.
        labels: in the order of the outputs, by export.json; () without labels.
        max_seq_length: longest input in tokens; None if unknown.
        tokenizer: of the files next to it; None for a Hugging Face folder, which has its own.
        listed_labels: the lines of labels.txt, which clients read; None without the file.
        source_files: file of the weights -> its facts (`file_facts`), as export.json states them.
    """

    folder: str
    format: str
    path: str
    head: TaskType
    config: BertConfig
    precision: str
    labels: tuple[str, ...]
    max_seq_length: int | None = None
    tokenizer: FullTokenizer | None = None
    listed_labels: tuple[str, ...] | None = None
    source_files: Mapping[str, Any] | None = None

    @property
    def runtimes(self) -> list[str]:
        """Runtimes that are installed here.

        Raises:
            ImportError: none is.
        """
        wanted = FORMAT_RUNTIMES[self.format]
        found = [name for name, modules in wanted.items() if all(map(find_spec, modules))]
        if not found:
            modules = " ".join(next(iter(wanted.values())))
            raise ImportError(
                f"{self.folder} needs {modules.replace(' ', ' and ')}. Run `pip install {modules}`."
            )
        return found

    def files(self) -> dict[str, dict[str, Any]]:
        """Return path in the folder -> size in bytes and SHA-256 of each file, sorted."""
        found = {}
        for parent, _, names in os.walk(self.folder):
            for name in names:
                path = os.path.join(parent, name)
                relative = os.path.relpath(path, self.folder)
                found[relative] = file_facts(path)
        return dict(sorted(found.items()))


class UnsupportedExportError(ValueError):
    """An export that is complete, but that `find_exports` does not read."""


def find_exports(folder: str) -> list[Export]:
    """Return the exports in a folder, or else in its subfolders, or in theirs (NAME/VERSION).

    Raises:
        ValueError: the folder has no export, or the files next to one are missing or damaged.
    """
    folder = folder.rstrip("/") or folder
    folders = [folder]
    for _ in range(3):
        found: list[Export] = []
        left_out: list[UnsupportedExportError] = []
        for inside, format in [(each, format) for each in folders for format in _formats(each)]:
            try:
                found.append(_read(inside, format))
            except UnsupportedExportError as error:
                left_out.append(error)
        if left_out and not found:
            raise left_out[0]
        for reason in left_out:
            logger.warning("Left out: %s", reason)
        if found:
            return found
        folders = [inside for each in folders for inside in _inside(each)]
    raise ValueError(
        f"{folder} contains no export, nor do its subfolders and theirs: no "
        f"{', '.join(FILES.values())}, and no config.json with weights of Hugging Face. "
        "Name a folder that export_saved_model or convert_checkpoint wrote."
    )


def check_sums(folder: str, facts: Mapping[str, Any]) -> None:
    """Raise if the sums of a SavedModel in int8 overflow on this processor.

    Args:
        facts: of export.json.

    Raises:
        ValueError: its weights have 8 bits, but the processor has no instruction for these.
    """
    largest = typed(facts, "largest_weight", int, os.path.join(folder, METADATA_FILE)) or 0
    if largest > OVERFLOW_FREE and int8_instruction() == "":
        raise ValueError(
            f"{folder} has weights of 8 bits, but this processor has none of {', '.join(INT8_FLAGS)}: "
            "the sums overflow, and the answers are wrong. Export the model on a processor like this "
            "one, where weights get 7 bits."
        )


def check_labels(folder: str, listed: Sequence[str] | None, labels: Sequence[Any] | None) -> None:
    """Raise if labels.txt and export.json of an export have different labels.

    Args:
        listed: lines of labels.txt; None without the file.
        labels: of export.json; None without the file.

    Raises:
        ValueError: they differ, so the outputs would get wrong names.
    """
    if listed is None or labels is None:
        return
    stated = list(map(str, labels))  # of older models they may be numbers
    if list(listed) != stated:
        raise ValueError(
            f"{folder}: labels.txt has {', '.join(listed)}, but {METADATA_FILE} has "
            f"{', '.join(stated)}, in the order of the outputs. Copy the folder again."
        )


def _inside(folder: str) -> list[str]:
    """Return the paths in a folder, sorted."""
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [os.path.join(folder, name) for name in names]


def _formats(folder: str) -> list[str]:
    found = [name for name, file in FILES.items() if os.path.isfile(os.path.join(folder, file))]
    is_huggingface = os.path.isfile(os.path.join(folder, "config.json")) and weights_file(folder)
    return [*found, "huggingface"] if is_huggingface else found


def _read(folder: str, format: str) -> Export:
    if format == "huggingface":
        checkpoint = read_checkpoint(folder)
        if checkpoint.config is None:
            raise ValueError(f"{folder}/config.json has no architecture of BERT.")
        if not str(checkpoint.architecture or "Bert").startswith(
            "Bert"
        ):  # the runtime would load it
            raise ValueError(
                f"{folder}/config.json: `architectures` names {checkpoint.architecture!r}, but must "
                "name a class of BERT."
            )
        head = find_head(checkpoint.arrays, None, checkpoint.architecture, folder)
        stated = checkpoint.config.extra
        precision = stated.get("dtype") or stated.get("torch_dtype") or "float32"
        labels = tuple(checkpoint.labels or ()) if head.has_labels else ()
        return Export(folder, format, folder, head, checkpoint.config, precision, labels)
    beside = os.path.join(folder, EXTRA if format == "saved_model" else "")
    metadata = os.path.join(beside, METADATA_FILE)
    if not os.path.isfile(metadata):
        if format == "saved_model" and folder.endswith(PREPROCESS):
            raise UnsupportedExportError(
                f"{folder} is the preprocessing of an encoder with the signature tf_hub, and not a "
                f"model. Name the folder of the encoder, {folder.removesuffix(PREPROCESS)}."
            )
        raise ValueError(
            f"{folder} has no {os.path.relpath(metadata, folder)}, so it is not an export of "
            "export_saved_model, or incomplete. Export it again."
        )
    facts = read_json(metadata)
    check_sums(folder, facts)
    _check_sizes(folder, facts, metadata)
    if format == "saved_model":
        check_graph(folder)
    if format == "onnx" and facts.get("custom_ops"):
        raise UnsupportedExportError(
            f"{folder} takes text by operations of onnxruntime-extensions, but only ONNX files on ids "
            "are supported here. Name an export of the same model with signature=tokens."
        )
    labels_file = os.path.join(beside, "labels.txt")
    try:
        return Export(
            folder,
            format,
            folder if format == "saved_model" else os.path.join(folder, FILES[format]),
            _SERVED[str(facts["kind"])],
            config_from_values(typed(facts, "config", dict, metadata) or {}, metadata),
            facts["precision"],
            tuple(typed(facts, "labels", list, metadata) or ()),
            typed(facts, "max_seq_length", int, metadata),
            FullTokenizer(os.path.join(beside, "vocab.txt"), facts["do_lower_case"]),
            tuple(read_lines(labels_file)) if os.path.isfile(labels_file) else None,
            typed(typed(facts, "source", dict, metadata) or {}, "files", dict, metadata),
        )
    except KeyError as error:
        raise ValueError(
            f"{metadata} has no or an unknown {error}. Was it written by another version? Export the "
            "model again."
        ) from error


def _check_sizes(folder: str, facts: Mapping[str, Any], metadata: str) -> None:
    """Raise if a model's file is smaller than export.json states; some runtimes would crash.

    Older exports have no sizes.
    """
    sizes = typed(facts, "file_sizes", dict, metadata) or {}
    for name in sizes:
        path, size = os.path.join(folder, name), typed(sizes, name, int, metadata) or 0
        found = os.path.getsize(path) if os.path.isfile(path) else 0
        if found < size:
            raise ValueError(
                f"{path} has {found:,} of the {size:,} bytes that {METADATA_FILE} states. Copy the "
                f"folder again; if you changed the file, correct `file_sizes` in {METADATA_FILE}."
            )


def ids_signatures(runtime: runtimes.Runtime) -> list[str]:
    """Return the signatures that take ids, under whatever names."""
    found = []
    for name, signature in runtime.signatures.items():
        ours = {_INPUTS.get(given, given) for given in signature["inputs"]}
        if ours - set(POSITIONS) == set(_IDS):
            found.append(name)
    return found


def ask_ids(
    runtime: runtimes.Runtime, signature: str, head: TaskType, batch: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the outputs for ids, under our names.

    Args:
        signature: one of `ids_signatures`.
        head: type of the outputs that are called "logits".
        batch: int32 [B, S] by our names, or [B, K, S]; those that the signature lacks are left out.
    """
    names = runtime.signatures[signature]["inputs"]
    outputs = runtime.ask(signature, {name: batch[_INPUTS.get(name, name)] for name in names})
    renamed = dict(_OUTPUTS)
    if head.outputs and head.outputs[0].endswith("_logits"):
        renamed["logits"] = head.outputs[0]
    return {renamed.get(name, name): value for name, value in outputs.items()}


def largest_difference(
    ours: Mapping[str, np.ndarray],
    theirs: Mapping[str, np.ndarray],
    input_mask: np.ndarray | None = None,
) -> tuple[float, float]:
    """Return the largest difference and the largest magnitude of our outputs.

    A value that is not a number differs infinitely.

    Args:
        ours, theirs: name -> output.
        input_mask: 1 = compared, 0 = padding; the first dimensions of an output. None compares all.

    Raises:
        ValueError: an output is missing, or has another shape.
    """
    difference = magnitude = 0.0
    for name, value in ours.items():
        if name not in theirs or theirs[name].shape != value.shape:
            found = theirs[name].shape if name in theirs else "absent"
            raise ValueError(f"{name} is {value.shape} here, but {found} there.")
        other = theirs[name]
        if input_mask is not None and value.shape[: input_mask.ndim] == input_mask.shape:
            value, other = value[input_mask == 1], other[input_mask == 1]
        gaps = np.abs(value - other)
        difference = max(difference, float(np.where(np.isnan(gaps), np.inf, gaps).max(initial=0)))
        magnitude = max(magnitude, float(np.abs(value).max(initial=0)))
    return difference, magnitude


def is_within(difference: float, magnitude: float, tolerance: float) -> bool:
    """Return True if a difference is at most `tolerance`, relative to a magnitude above 1."""
    return difference <= tolerance * max(1.0, magnitude)
