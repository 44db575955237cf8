"""Predictions of files on ids (TFLite, ONNX, OpenVINO): the text in Python, the model in its runtime.

    trained = load_exported("openvino_output")
    text_model(trained).answers([("A dog.", "A cat.")])

The classes are those of models with weights. They call the file instead of the Keras model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, cast

import keras
import numpy as np
import tensorflow as tf

from bert_tf.model_files import read_task
from bert_tf.model_folder import TrainedModel, with_settings, with_special_tokens
from bert_tf.prediction.encoder import SentenceEncoder, prefix_of
from bert_tf.prediction.exports import (
    METADATA_FILE,
    POSITIONS,
    Export,
    read_export,
)
from bert_tf.prediction.masked_lm import NUM_BEST, MaskFiller
from bert_tf.prediction.runtimes import TOKENS, Runtime, load
from bert_tf.prediction.text_model import SequenceRunner, TextModel

_, _WORDS = POSITIONS


def is_exported(folder: str) -> bool:
    """Return True if `folder` contains a file on ids of export_saved_model."""
    return os.path.isfile(os.path.join(folder, METADATA_FILE))


def load_exported(folder: str) -> TrainedModel:
    """Return an export on ids, with a network that calls its runtime.

    Raises:
        ImportError: its runtime is not installed.
    """
    export = read_export(folder)
    runtime, *_ = export.runtimes
    network = cast(keras.Model, ExportedNetwork(export, load(runtime, export.path)))
    length = export.max_seq_length
    trained = TrainedModel(network, export.tokenizer, read_task(folder), length, source=folder)
    return with_settings(trained, length)


def text_model(trained: TrainedModel, **settings: Any) -> TextModel:
    """Return the model on text of an export.

    Args:
        trained: from `load_exported`.
        settings: of the class of its type of task, such as `batch_size`.
    """
    head = cast(ExportedNetwork, trained.model).head
    kind = {
        "encoder": ExportedEncoder,
        "embeddings": ExportedEncoder,
        "masked_lm": ExportedMaskFiller,
    }.get(head.name)
    return (kind or head.load("predictor"))(trained, **settings)


class ExportedNetwork:
    """A file on ids with the call of the Keras model that was exported.

    Attributes:
        head: type of task.
        gives: outputs: name -> {"dtype", "shape"}.
    """

    def __init__(self, export: Export, runtime: Runtime):
        self.config, self.head = export.config, export.head
        self.gives: Mapping[str, Any] = runtime.signatures[TOKENS]["outputs"]
        self._runtime = runtime

    def __call__(self, inputs: Mapping[str, Any], training: bool = False) -> dict[str, tf.Tensor]:
        def ask(*arrays: np.ndarray) -> list[np.ndarray]:
            outputs = self._runtime.ask(TOKENS, dict(zip(inputs, arrays, strict=True)))
            return [outputs[name] for name in self.gives]

        if _WORDS in self._runtime.signatures[TOKENS]["inputs"]:
            # A CRF labels whole texts here, from the scores of all windows.
            inputs = {**inputs, _WORDS: tf.zeros_like(inputs["input_ids"][:, :1])}
        dtypes = [spec["dtype"] for spec in self.gives.values()]
        found = tf.numpy_function(ask, list(inputs.values()), dtypes)
        return dict(zip(self.gives, found, strict=True))


class ExportedEncoder(SentenceEncoder):
    """Embeddings, with the pooling chosen in `export_saved_model`."""

    def __init__(self, trained: TrainedModel, batch_size: int = 32):
        self._tokenizer, self.max_seq_length = trained.tokenizer, trained.max_seq_length
        self._width = cast(ExportedNetwork, trained.model).gives["embedding"]["shape"][-1]
        self._run = SequenceRunner(trained.model, self.max_seq_length, batch_size)
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
