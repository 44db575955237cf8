"""Exports as models: the network in its runtime, and what the files next to it state.

    load_export("openvino_output")     # a TrainedModel, whose network calls the runtime

The network is the signature `tokens` of a SavedModel, or a file of TFLite, ONNX or OpenVINO.
"""

from __future__ import annotations

import abc
import logging
import os
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.limits import read_json
from bert_tf.modeling.int8 import OVERFLOW_FREE
from bert_tf.prediction.model_folder import TrainedModel, with_settings
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


# Signatures: on text; the same with the prefix of queries; on ids, the only one of files without names.
TEXT, QUERY, TOKENS = "serving_default", "query", "tokens"


class Runtime(abc.ABC):
    """A loaded export."""

    @abc.abstractmethod
    def ask(self, signature: str, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return the outputs for int32 arrays or lists of texts, by name; strings are bytes."""

    def call(self, inputs: Mapping[str, Any], outputs: Mapping[str, str]) -> dict[str, tf.Tensor]:
        """Return the `outputs` (name -> dtype) of `TOKENS` as tensors, also in a graph."""

        def ask(*arrays: np.ndarray) -> list[np.ndarray]:
            values = self.ask(TOKENS, dict(zip(inputs, arrays, strict=True)))
            return [np.asarray(values[name], dtype) for name, dtype in outputs.items()]

        tensors = tf.numpy_function(ask, list(inputs.values()), list(outputs.values()))
        return dict(zip(outputs, tensors, strict=True))

    def token_ids(self, texts: list[str]) -> list[list[int]] | None:
        """Return the ids of each text by the export's own tokenizer; None without a tokenizer."""
        return None


class SavedModel(Runtime):
    """A SavedModel in this process' TensorFlow."""

    def __init__(self, path: str, threads: int | None = None):
        with suppress(ImportError, tf.errors.OpError):
            import tensorflow_text  # noqa: F401  (registers the tokenizer's operation)
        with tf.io.gfile.GFile(f"{path}/saved_model.pb", "rb") as file:
            # A graph in oneDNN's layout has a LayerNorm that TensorFlow cannot compute on a GPU.
            self._device = "CPU:0" if b"FusedBatchNormV3" in file.read() else ""
        with tf.device(self._device):
            self._model = tf.saved_model.load(path)  # owns the weights

    def ask(self, signature, inputs):
        return {name: value.numpy() for name, value in self._call(signature, inputs).items()}

    def call(self, inputs, outputs):  # from Python it would wait for TensorFlow's threads
        tensors = self._call(TOKENS, inputs)
        return {name: tensors[name] for name in outputs}

    def _call(self, signature: str, inputs: Mapping[str, Any]) -> Mapping[str, tf.Tensor]:
        tensors = {name: tf.convert_to_tensor(value) for name, value in inputs.items()}
        with tf.device(self._device):
            return self._model.signatures[signature](**tensors)

    def token_ids(self, texts):
        tokenizer = getattr(self._model, "tokenizer", None)
        return None if tokenizer is None else tokenizer(tf.constant(texts, tf.string)).to_list()


class Lite(Runtime):
    """A TFLite file in TensorFlow's interpreter."""

    def __init__(self, path: str, threads: int | None = None):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the interpreter's move to another package
            interpreter = tf.lite.Interpreter(path, num_threads=threads)
        self._lock = threading.Lock()  # the signatures share the interpreter's tensors
        names = interpreter.get_signature_list()
        self._runners = {name: interpreter.get_signature_runner(name) for name in names}

    def ask(self, signature, inputs):
        with self._lock:
            outputs = self._runners[signature](**inputs)
            return {name: value.copy() for name, value in outputs.items()}


class Onnx(Runtime):
    """An ONNX file in ONNX Runtime, on the CPU."""

    def __init__(self, path: str, threads: int | None = None):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        self._session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
        self._outputs = [output.name for output in self._session.get_outputs()]

    def ask(self, signature, inputs):
        return dict(zip(self._outputs, self._session.run(self._outputs, inputs), strict=True))


class OpenVino(Runtime):
    """A file of OpenVINO in OpenVINO, on the CPU; in float32 if it contains the hint "f32"."""

    def __init__(self, path: str, threads: int | None = None):
        with preserve_logging():
            import openvino

        model = openvino.Core().read_model(path)
        settings: dict[str, Any] = {}
        # Without the hint, OpenVINO computes in bfloat16 if the processor can.
        hint = "INFERENCE_PRECISION_HINT"
        if model.has_rt_info(["runtime_options", hint]):
            settings[hint] = "f32"
        if threads:
            settings["INFERENCE_NUM_THREADS"] = threads
        self._model = openvino.Core().compile_model(model, "CPU", settings)
        self._lock = threading.Lock()  # all calls share one request

    def ask(self, signature, inputs):
        with self._lock:
            outputs = self._model(inputs)
            return {openvino_name(port): np.array(outputs[port]) for port in self._model.outputs}


def openvino_name(port: Any) -> str:
    """Return the name of an input or output in the file, and not that of an operation inside."""
    return min(port.get_names(), key=lambda name: ("/" in name or ":" in name, name))


RUNTIMES: Mapping[str, Callable[..., Runtime]] = {
    "saved_model": SavedModel,
    "tflite": Lite,
    "onnx": Onnx,
    "openvino": OpenVino,
}


@contextmanager
def preserve_logging() -> Iterator[None]:
    """Keep the root logger's handlers, filters and level, which OpenVINO changes."""
    root = logging.getLogger()
    handlers, filters, level = list(root.handlers), list(root.filters), root.level
    try:
        yield
    finally:
        root.handlers, root.filters = handlers, filters
        root.setLevel(level)


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
        return self._runtime.call({name: inputs[name] for name in self._inputs}, self.outputs)


def outputs_of_export(trained: TrainedModel) -> Collection[str]:
    """Return the names of the outputs of an export; none for a Keras model."""
    return trained.network.outputs if isinstance(trained.network, ExportedNetwork) else ()


def is_export(folder: str) -> bool:
    """Return True if `folder` contains an export of export_saved_model."""
    paths = (os.path.join(folder, METADATA_FILE), os.path.join(folder, EXTRA, METADATA_FILE))
    return any(map(tf.io.gfile.exists, paths))


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
    network = ExportedNetwork(RUNTIMES[format](path), facts, path)
    tokenizer = FullTokenizer(os.path.join(beside, "vocab.txt"), facts["do_lower_case"])
    length = facts["max_seq_length"]
    task = make_task(facts["task"], folder) if facts["task"] else None
    trained = TrainedModel(network, tokenizer, task, length, source=folder)
    return with_settings(trained, length)
