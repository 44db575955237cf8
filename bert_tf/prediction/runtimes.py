"""Runtimes that answer with an export: TensorFlow, TFLite, ONNX Runtime, OpenVINO.

runtime = load("onnx", "exported/model.onnx")
runtime.ask("tokens", {"input_ids": ids, ...})    # name -> array
"""

from __future__ import annotations

import abc
import logging
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import tensorflow as tf

# Signatures: on text; the same with the prefix of queries; on ids, the only one of files without names.
TEXT, QUERY, TOKENS = "serving_default", "query", "tokens"


class Runtime(abc.ABC):
    """A loaded export."""

    @abc.abstractmethod
    def ask(self, signature: str, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return the outputs of a signature by name; strings are bytes.

        Args:
            inputs: int32 arrays, or lists of texts.
        """

    def call(self, inputs: Mapping[str, Any], outputs: Mapping[str, str]) -> dict[str, tf.Tensor]:
        """Return outputs of `TOKENS` as tensors, also in the graph of a function.

        Args:
            outputs: name -> dtype of those to return.
        """

        def ask(*arrays: np.ndarray) -> list[np.ndarray]:
            found = self.ask(TOKENS, dict(zip(inputs, arrays, strict=True)))
            return [np.asarray(found[name], dtype) for name, dtype in outputs.items()]

        found = tf.numpy_function(ask, list(inputs.values()), list(outputs.values()))
        return dict(zip(outputs, found, strict=True))

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
        found = self._call(TOKENS, inputs)
        return {name: found[name] for name in outputs}

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
    """A file of OpenVINO or ONNX in OpenVINO, on the CPU.

    It computes in float32 if the file is ONNX or contains the hint "f32".
    """

    def __init__(self, path: str, threads: int | None = None):
        with logging_kept():
            import openvino

        source: Any = path
        if path.endswith(".onnx"):  # OpenVINO 2026.4 reads the loops of a CRF from bytes only
            with open(path, "rb") as file:
                source = file.read()
        model = openvino.Core().read_model(source)
        settings: dict[str, Any] = {}
        # Without the hint, OpenVINO computes in bfloat16 if the processor can.
        hint = "INFERENCE_PRECISION_HINT"
        if path.endswith(".onnx") or model.has_rt_info(["runtime_options", hint]):
            settings[hint] = "f32"
        if threads:
            settings["INFERENCE_NUM_THREADS"] = threads
        self._model = openvino.Core().compile_model(model, "CPU", settings)
        self._lock = threading.Lock()  # all calls share one request

    def ask(self, signature, inputs):
        with self._lock:
            found = self._model(inputs)
            return {openvino_name(port): np.array(found[port]) for port in self._model.outputs}


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
def logging_kept() -> Iterator[None]:
    """Keep the root logger's handlers, filters and level, which OpenVINO changes."""
    root = logging.getLogger()
    handlers, filters, level = list(root.handlers), list(root.filters), root.level
    try:
        yield
    finally:
        root.handlers, root.filters = handlers, filters
        root.setLevel(level)


def load(format: str, path: str, **settings: Any) -> Runtime:
    """Return the runtime of a file or folder.

    Args:
        format: key of `RUNTIMES`.
        settings: `threads`.

    Raises:
        ImportError: the runtime is not installed.
    """
    return RUNTIMES[format](path, **settings)
