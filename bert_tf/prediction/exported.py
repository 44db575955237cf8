"""Exports: the network in its runtime, and what the files next to it state.

    load_export("openvino_output")     # a TrainedModel, whose network calls the runtime

The network is the signature `tokens` of a SavedModel, or a file of TFLite, ONNX or OpenVINO.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from typing import Any

import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.limits import read_json
from bert_tf.modeling.quantized import OVERFLOW_FREE
from bert_tf.prediction.model_folder import TrainedModel, with_settings
from bert_tf.prediction.runtimes import TOKENS, Runtime, load
from bert_tf.tasks.load import make_task
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.strategy import INT8_FLAGS, int8_instruction

FILES = {
    "saved_model": "saved_model.pb",
    "tflite": "model.tflite",
    "onnx": "model.onnx",
    "openvino": "model.xml",
}
METADATA_FILE = "export.json"
EXTRA = "assets.extra"  # folder of a SavedModel for METADATA_FILE and vocab.txt; TensorFlow's name
POSITIONS = ("masked_lm_positions", "word_positions")  # another input of some models


class ExportedNetwork:
    """An export with the call of the Keras model that was exported.

    Args:
        facts: of export.json.

    Attributes:
        head: name of its type of task.
        config: architecture.
        outputs: numeric outputs: name -> dtype.
        answer_settings: of the answers to questions; {} for other tasks.
    """

    def __init__(self, runtime: Runtime, facts: Mapping[str, Any], source: str):
        if TOKENS not in facts["signatures"]:
            raise ValueError(
                f"{source} has no signature {TOKENS}. Export it with that one too, or name the folder "
                "that was exported."
            )
        without_task = {"encoder": "encoder", "maskfiller": "masked_lm"}
        self.head = without_task.get(facts["kind"]) or facts["task"]["task"]
        self.config = BertConfig.from_dict(facts["config"])
        self.answer_settings = facts.get("answer_settings", {})
        self._runtime, self._inputs = runtime, facts["signatures"][TOKENS]["inputs"]
        outputs = facts["signatures"][TOKENS]["outputs"].items()
        self.outputs = {name: s["dtype"] for name, s in outputs if s["dtype"] != "string"}

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        # A CRF gets no words: it labels whole texts in Python, from the scores of all windows.
        no_words = tf.zeros_like(inputs["input_ids"][:, :1])
        inputs = {name: inputs.get(name, no_words) for name in self._inputs}
        return self._runtime.call(inputs, self.outputs)


def outputs_of_export(trained: TrainedModel) -> Collection[str]:
    """Return the names of the outputs of an export; none for a Keras model."""
    return trained.network.outputs if isinstance(trained.network, ExportedNetwork) else ()


def is_export(folder: str) -> bool:
    """Return True if `folder` contains an export of export_saved_model."""
    places = (folder, os.path.join(folder, EXTRA))
    return any(tf.io.gfile.exists(os.path.join(place, METADATA_FILE)) for place in places)


def load_export(folder: str) -> TrainedModel:
    """Return the export in a folder.

    Raises:
        ImportError: its runtime is not installed.
        ValueError: a SavedModel has no signature `tokens`, or sums that overflow on this processor.
    """
    is_saved_model = tf.io.gfile.exists(os.path.join(folder, FILES["saved_model"]))
    beside = os.path.join(folder, EXTRA) if is_saved_model else folder
    facts = read_json(os.path.join(beside, METADATA_FILE))
    if facts.get("largest_weight", 0) > OVERFLOW_FREE and int8_instruction() == "":
        raise ValueError(
            f"{folder} has 8-bit weights, whose sums overflow without {' or '.join(INT8_FLAGS)}: "
            "export the model on this processor."
        )
    format = facts["format"]
    path = folder if is_saved_model else os.path.join(folder, FILES[format])
    if format == "onnx" and find_spec("onnxruntime") is None:
        format = "openvino"
    network = ExportedNetwork(load(format, path), facts, path)
    tokenizer = FullTokenizer(os.path.join(beside, "vocab.txt"), facts["do_lower_case"])
    length = facts["max_seq_length"]
    task = make_task(facts["task"], folder) if facts["task"] else None
    trained = TrainedModel(network, tokenizer, task, length, source=folder)
    return with_settings(trained, length)
