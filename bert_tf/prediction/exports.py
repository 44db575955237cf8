"""Exports of every format: the files in a folder, and what they state."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.interop.checkpoint import config_from_values, read_json
from bert_tf.model_files import read_task
from bert_tf.modeling.quantized import OVERFLOW_FREE
from bert_tf.registry import TYPES, TaskType
from bert_tf.tasks.base import Task
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.strategy import INT8_FLAGS, int8_instruction

# Format -> its runtimes, each named by the module that it needs here.
FORMAT_RUNTIMES: Mapping[str, Mapping[str, str]] = {
    "saved_model": {"saved_model": "tensorflow"},
    "tflite": {"tflite": "tensorflow"},
    "onnx": {"onnx": "onnxruntime", "openvino": "openvino"},
    "openvino": {"openvino": "openvino"},
}
FILES = {
    "saved_model": "saved_model.pb",
    "tflite": "model.tflite",
    "onnx": "model.onnx",
    "openvino": "model.xml",
}
METADATA_FILE = "export.json"
EXTRA = "assets.extra"  # folder of a SavedModel for METADATA_FILE and vocab.txt; TensorFlow's name
POSITIONS = ("masked_lm_positions", "word_positions")  # another input of some models
_SETTINGS = ("n_best_size", "max_answer_length", "null_score_diff_threshold")
_SERVED = {
    entry.served.partition(":Served")[2].lower(): entry for entry in TYPES.values() if entry.served
}


@dataclass(frozen=True)
class Export:
    """An export, and what the files next to it state.

    Args:
        format: key of `FORMAT_RUNTIMES`.
        path: file or folder for the runtime.
        head: type of task.
        config: architecture.
        max_seq_length: longest input in tokens.
        tokenizer: of the files next to it.
        task: of the model; None for an encoder or a masked language model.
        settings: of the answers to questions, by the export; {} for other tasks.
    """

    format: str
    path: str
    head: TaskType
    config: BertConfig
    max_seq_length: int
    tokenizer: FullTokenizer
    task: Task | None
    settings: Mapping[str, Any]

    @property
    def runtimes(self) -> list[str]:
        """Runtimes that are installed here.

        Raises:
            ImportError: none is.
        """
        modules = FORMAT_RUNTIMES[self.format]
        found = [name for name, module in modules.items() if find_spec(module)]
        if not found:
            module = next(iter(modules.values()))
            raise ImportError(f"{self.path} needs {module}. Run `pip install {module}`.")
        return found


def read_export(folder: str) -> Export:
    """Return the export in a folder.

    Raises:
        ValueError: it has sums that overflow on this processor.
    """
    is_saved_model = tf.io.gfile.exists(os.path.join(folder, FILES["saved_model"]))
    beside = os.path.join(folder, EXTRA) if is_saved_model else folder
    metadata = os.path.join(beside, METADATA_FILE)
    facts = read_json(metadata)
    check_sums(folder, facts)
    return Export(
        facts["format"],
        folder if is_saved_model else os.path.join(folder, FILES[facts["format"]]),
        _SERVED[facts["kind"]],
        config_from_values(facts["config"], metadata),
        facts["max_seq_length"],
        FullTokenizer(os.path.join(beside, "vocab.txt"), facts["do_lower_case"]),
        read_task(beside),
        {
            name: value
            for name, value in facts.get("answer_settings", {}).items()
            if name in _SETTINGS
        },
    )


def check_sums(folder: str, facts: Mapping[str, Any]) -> None:
    """Raise if the sums of a SavedModel in int8 overflow on this processor.

    Args:
        facts: of export.json.

    Raises:
        ValueError: its weights have 8 bits, but the processor has no instruction for these.
    """
    if facts.get("largest_weight", 0) > OVERFLOW_FREE and int8_instruction() == "":
        raise ValueError(
            f"{folder} has 8-bit weights, whose sums overflow without {' or '.join(INT8_FLAGS)}: "
            "export the model on this processor."
        )
