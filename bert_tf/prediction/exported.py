"""Predictions of exports: the text in Python, the model in its runtime.

    trained = load_exported("openvino_output")
    text_model(trained).answers([("A dog.", "A cat.")])

The classes are those of models with weights. They call the signature `tokens` of a SavedModel, or a file
of TFLite, ONNX or OpenVINO, instead of the Keras model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, cast

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.limits import read_json
from bert_tf.model_files import read_task
from bert_tf.model_folder import TrainedModel, with_settings, with_special_tokens
from bert_tf.modeling.quantized import OVERFLOW_FREE
from bert_tf.prediction.encoder import SentenceEncoder, prefix_of
from bert_tf.prediction.masked_lm import NUM_BEST, MaskFiller
from bert_tf.prediction.runtimes import TOKENS, Runtime, SavedModel, load
from bert_tf.prediction.text_model import SequenceRunner, TextModel
from bert_tf.registry import TYPES, TaskType
from bert_tf.tasks.base import Task
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
_SETTINGS = ("n_best_size", "max_answer_length", "null_score_diff_threshold")
_SERVED = {str(e.served).partition(":Served")[2].lower(): e for e in TYPES.values() if e.served}


@dataclass(frozen=True)
class Export:
    """An export, and what the files next to it state.

    Args:
        format: key of `FILES`.
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
        BertConfig.from_dict(facts["config"]),
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


_, _WORDS = POSITIONS


def is_exported(folder: str) -> bool:
    """Return True if `folder` contains an export of export_saved_model."""
    places = (folder, os.path.join(folder, EXTRA))
    return any(tf.io.gfile.exists(os.path.join(place, METADATA_FILE)) for place in places)


def load_exported(folder: str) -> TrainedModel:
    """Return an export, with a network that calls its runtime.

    Raises:
        ImportError: its runtime is not installed.
        ValueError: a SavedModel has no signature `tokens`.
    """
    export = read_export(folder)
    runtime = export.format
    if runtime == "onnx" and find_spec("onnxruntime") is None:
        runtime = "openvino"
    network = cast(keras.Model, ExportedNetwork(export, load(runtime, export.path)))
    length = export.max_seq_length
    trained = TrainedModel(network, export.tokenizer, export.task, length, source=folder)
    return with_settings(trained, length)


def text_model(trained: TrainedModel, **settings: Any) -> TextModel:
    """Return the model on text of an export.

    Args:
        trained: from `load_exported`.
        settings: of the class of its type of task, such as `batch_size`.
    """
    export = cast(ExportedNetwork, trained.model).export
    kind = {
        "encoder": ExportedEncoder,
        "embeddings": ExportedEncoder,
        "masked_lm": ExportedMaskFiller,
    }.get(export.head.name)
    return (kind or export.head.load("predictor"))(trained, **{**export.settings, **settings})


class ExportedNetwork:
    """An export with the call of the Keras model that was exported.

    Attributes:
        gives: numeric outputs: name -> {"dtype", "shape"}.
    """

    def __init__(self, export: Export, runtime: Runtime):
        if TOKENS not in runtime.signatures:
            raise ValueError(
                f"{export.path} has no signature {TOKENS}. Export it with that one too, or name the "
                "folder that was exported."
            )
        self.export, self.config, self._runtime = export, export.config, runtime
        outputs = runtime.signatures[TOKENS]["outputs"].items()
        self.gives = {name: spec for name, spec in outputs if spec["dtype"] != "string"}

    def __call__(self, inputs: Mapping[str, Any], training: bool = False) -> dict[str, tf.Tensor]:
        def ask(*arrays: np.ndarray) -> list[np.ndarray]:
            outputs = self._runtime.ask(TOKENS, dict(zip(inputs, arrays, strict=True)))
            return [outputs[name] for name in self.gives]

        if _WORDS in self._runtime.signatures[TOKENS]["inputs"]:
            # A CRF labels whole texts here, from the scores of all windows.
            inputs = {**inputs, _WORDS: tf.zeros_like(inputs["input_ids"][:, :1])}
        if isinstance(
            self._runtime, SavedModel
        ):  # from Python it would wait for TensorFlow's threads
            outputs = self._runtime.call(TOKENS, inputs)
            return {name: outputs[name] for name in self.gives}
        dtypes = [spec["dtype"] for spec in self.gives.values()]
        found = tf.numpy_function(ask, list(inputs.values()), dtypes)
        return dict(zip(self.gives, found, strict=True))


class ExportedEncoder(SentenceEncoder):
    """Embeddings, with the pooling chosen in `export_saved_model`."""

    def __init__(self, trained: TrainedModel, batch_size: int = 32):
        self._tokenizer, self.max_seq_length = trained.tokenizer, trained.max_seq_length
        self._width = cast(ExportedNetwork, trained.model).gives["embedding"]["shape"][-1]
        self._run = SequenceRunner(
            lambda inputs: {"embedding": trained.model(inputs)["embedding"]},
            self.max_seq_length,
            batch_size,
        )
        self._task, self.as_query, self._prefix = trained.task, False, prefix_of(trained.task)


class ExportedMaskFiller(MaskFiller):
    """Tokens for [MASK], up to the number chosen in `export_saved_model`."""

    def __init__(self, trained: TrainedModel, batch_size: int = 32):
        self._tokenizer = with_special_tokens(trained.tokenizer)
        self._max_seq_length = trained.max_seq_length
        self.top_k = cast(ExportedNetwork, trained.model).gives["token_id"]["shape"][-1]

        def most_probable(columns: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            inputs = dict(columns)
            num_best = inputs.pop(NUM_BEST)[0, 0]
            outputs = trained.model(inputs)
            return {
                "probabilities": outputs["probability"][..., :num_best],
                "tokens": outputs["token_id"][..., :num_best],
            }

        self._run = SequenceRunner(most_probable, self._max_seq_length, batch_size)
