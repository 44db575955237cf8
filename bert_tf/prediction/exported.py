"""Predictions of exports: the text in Python, the model in its runtime.

    trained = load_exported("openvino_output")
    text_model(trained).answers([("A dog.", "A cat.")])

The classes are those of models with weights. They call the signature `tokens` of a SavedModel, or a file
of TFLite, ONNX or OpenVINO, instead of the Keras model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, cast

import keras
import numpy as np
import tensorflow as tf

from bert_tf.model_folder import TrainedModel, with_settings, with_special_tokens
from bert_tf.prediction.encoder import SentenceEncoder, prefix_of
from bert_tf.prediction.exports import EXTRA, METADATA_FILE, POSITIONS, Export, read_export
from bert_tf.prediction.masked_lm import NUM_BEST, MaskFiller
from bert_tf.prediction.runtimes import TOKENS, Runtime, load
from bert_tf.prediction.text_model import SequenceRunner, TextModel

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
    runtime, *_ = export.runtimes
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
