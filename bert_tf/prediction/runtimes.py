"""Runtimes that answer with an export: TensorFlow, TFLite, ONNX Runtime, OpenVINO, transformers.

    runtime = load("onnx", "exported/model.onnx")
    runtime.signatures                                # {"tokens": {"inputs": ..., "outputs": ...}}
    runtime.ask("tokens", {"input_ids": ids, ...})    # name -> array

A program too, which answers requests on standard input:

    python runtimes.py '{"format": "saved_model", "path": "exported/1"}'

This file imports nothing of bert_tf. So any Python with NumPy and the runtime can start it, such as
that of an older TensorFlow.
"""

from __future__ import annotations

import json
import logging
import os
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

_LOCAL = {"local_files_only": True, "trust_remote_code": False}  # nothing of others is run
_MAX_CONFIG = 64 << 20  # bytes; one with 1,000 labels has 0.05 million

# Signatures: on text; the same with the prefix of queries; on ids, the only one of files without names.
TEXT, QUERY, TOKENS = "serving_default", "query", "tokens"


class Runtime:
    """A loaded export.

    Attributes:
        version: name and version of the library.
        signatures: name -> {"inputs": name -> {"dtype", "shape"}, "outputs": the same}.
        seconds: duration of the last `ask`.
    """

    version = ""
    signatures: dict[str, dict[str, Any]]
    seconds = 0.0

    def ask(self, signature: str, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
        """Return the outputs of a signature by name; strings are bytes."""
        start = time.perf_counter()
        outputs = self._ask(signature, inputs)
        self.seconds = time.perf_counter() - start
        return outputs

    def token_ids(self, texts: list[str]) -> list[list[int]] | None:
        """Return the ids of each text by the export's own tokenizer; None without a tokenizer."""
        return None

    def peak_memory(self) -> int:
        """Return the most memory that the runtime's process had, in bytes."""
        try:
            with open("/proc/self/status", encoding="ascii") as file:
                line = next(line for line in file if line.startswith("VmHWM:"))
                return 1024 * int(line.split()[1])
        except (OSError, StopIteration):  # not Linux
            import resource

            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            return peak if sys.platform == "darwin" else 1024 * peak

    def _ask(self, signature: str, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
        raise NotImplementedError


def _signature(
    spec: Callable[[Any], tuple[str, dict[str, Any]]], inputs: Iterable, outputs: Iterable
) -> dict[str, Any]:
    return {"inputs": dict(map(spec, inputs)), "outputs": dict(map(spec, outputs))}


class SavedModel(Runtime):
    """A SavedModel in this process' TensorFlow."""

    def __init__(self, path: str, threads: int | None = None):
        import tensorflow as tf

        problem = None
        try:
            import tensorflow_text  # noqa: F401  (registers the tokenizer's operation)
        except (ImportError, tf.errors.OpError) as error:
            problem = str(error)
        self.version = f"TensorFlow {tf.__version__}"
        try:
            with tf.io.gfile.GFile(f"{path}/saved_model.pb", "rb") as file:
                # A graph in oneDNN's layout has a LayerNorm that TensorFlow cannot compute on a GPU.
                self._device = "CPU:0" if b"FusedBatchNormV3" in file.read() else ""
            with tf.device(self._device):
                self._model = tf.saved_model.load(path)  # owns the weights
        except Exception as error:
            if problem is None or "not registered" not in str(error):
                raise
            raise ImportError(
                f"{path} needs tensorflow_text, which cannot be imported ({problem}). Install the "
                f"version for TensorFlow {tf.__version__}."
            ) from error
        self.signatures = {
            name: _signature(
                _spec, each.structured_input_signature[1].items(), each.structured_outputs.items()
            )
            for name, each in self._model.signatures.items()
        }

    def _ask(self, signature, inputs):
        import tensorflow as tf

        specs = self.signatures[signature]["inputs"]
        tensors = {name: tf.constant(v, specs[name]["dtype"]) for name, v in inputs.items()}
        with tf.device(self._device):
            outputs = self._model.signatures[signature](**tensors)
        return {name: value.numpy() for name, value in outputs.items()}

    def token_ids(self, texts):
        import tensorflow as tf

        tokenizer = getattr(self._model, "tokenizer", None)
        return None if tokenizer is None else tokenizer(tf.constant(texts, tf.string)).to_list()


def _spec(item: tuple[str, Any]) -> tuple[str, dict[str, Any]]:
    name, tensor = item
    return name, {"dtype": tensor.dtype.name, "shape": tensor.shape.as_list()}


class Lite(Runtime):
    """A TFLite file in TensorFlow's interpreter."""

    def __init__(self, path: str, threads: int | None = None):
        import tensorflow as tf

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the interpreter's move to another package
            interpreter = tf.lite.Interpreter(path, num_threads=threads)
        self.version = f"TFLite of TensorFlow {tf.__version__}"
        self._lock = threading.Lock()  # the signatures share the interpreter's tensors
        names = interpreter.get_signature_list()
        self._runners = {name: interpreter.get_signature_runner(name) for name in names}
        self.signatures = {
            name: _signature(
                _lite_spec, each.get_input_details().items(), each.get_output_details().items()
            )
            for name, each in self._runners.items()
        }

    def _ask(self, signature, inputs):
        with self._lock:
            outputs = self._runners[signature](**inputs)
            return {name: value.copy() for name, value in outputs.items()}


def _lite_spec(item: tuple[str, Any]) -> tuple[str, dict[str, Any]]:
    name, details = item
    shape = [None if size < 0 else int(size) for size in details["shape_signature"]]
    return name, {"dtype": np.dtype(details["dtype"]).name, "shape": shape}


class Onnx(Runtime):
    """An ONNX file in ONNX Runtime, on the CPU."""

    def __init__(self, path: str, threads: int | None = None):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        self._session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
        self.version = f"ONNX Runtime {onnxruntime.__version__}"
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        self.signatures = {TOKENS: _signature(_onnx_spec, inputs, outputs)}

    def _ask(self, signature, inputs):
        specs = self.signatures[TOKENS]
        given = {name: np.asarray(v, specs["inputs"][name]["dtype"]) for name, v in inputs.items()}
        names = list(specs["outputs"])
        found = self._session.run(names, given)
        return {name: found[place] for place, name in enumerate(names)}


def _onnx_spec(found: Any) -> tuple[str, dict[str, Any]]:
    dtype = found.type[len("tensor(") : -1]
    dtype = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    shape = [size if isinstance(size, int) else None for size in found.shape]
    return found.name, {"dtype": dtype, "shape": shape}


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
        self.version = f"OpenVINO {openvino.__version__}"
        inputs, outputs = self._model.inputs, self._model.outputs
        self.signatures = {TOKENS: _signature(_openvino_spec, inputs, outputs)}

    def _ask(self, signature, inputs):
        specs = self.signatures[TOKENS]["inputs"]
        given = {name: np.asarray(v, specs[name]["dtype"]) for name, v in inputs.items()}
        with self._lock:
            found = self._model(given)
            return {openvino_name(port): np.array(found[port]) for port in self._model.outputs}


def _openvino_spec(port: Any) -> tuple[str, dict[str, Any]]:
    shape = [None if size.is_dynamic else size.get_length() for size in port.get_partial_shape()]
    dtype = np.dtype(port.get_element_type().to_dtype()).name
    return openvino_name(port), {"dtype": dtype, "shape": shape}


def openvino_name(port: Any) -> str:
    """Return the name of an input or output in the file, and not that of an operation inside."""
    return min(port.get_names(), key=lambda name: ("/" in name or ":" in name, name))


class Transformers(Runtime):
    """A Hugging Face folder in transformers and PyTorch, in float32.

    triton, which ends a process that has loaded TensorFlow, cannot be imported afterwards.

    Args:
        architecture: class of transformers. Default: the first in config.json.
    """

    def __init__(self, path: str, threads: int | None = None, architecture: str | None = None):
        if "triton" not in sys.modules:
            sys.modules["triton"] = None  # type: ignore[assignment]  # PyTorch does without it
        import torch
        import transformers

        if threads:
            torch.set_num_threads(threads)
        transformers.utils.logging.disable_progress_bar()
        if architecture is None:
            architecture = _architecture(os.path.join(path, "config.json"))
        model_class: Any = getattr(transformers, str(architecture), None)
        is_class = isinstance(model_class, type)
        if not (is_class and issubclass(model_class, transformers.PreTrainedModel)):
            raise ValueError(
                f"{path}: the architecture {str(architecture)[:60]!r} is not a model of transformers "
                f"{transformers.__version__}. Correct `architectures` in its config.json."
            )
        # config.json could name attention from a hub, whose code would be run.
        attention = "sdpa" if getattr(model_class, "_supports_sdpa", False) else "eager"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # from the imported libraries
            model = model_class.from_pretrained(path, attn_implementation=attention, **_LOCAL)
        self._path, self._model = path, model.eval().float()
        self.version = f"transformers {transformers.__version__}"
        ids = {"dtype": "int64", "shape": [None, None]}
        names = ("input_ids", "attention_mask", "token_type_ids")
        self.signatures = {TOKENS: {"inputs": dict.fromkeys(names, ids), "outputs": {}}}

    def _ask(self, signature, inputs):
        import torch

        tensors = {name: torch.tensor(np.asarray(v)).long() for name, v in inputs.items()}
        with torch.no_grad():
            return {name: value.numpy() for name, value in self._model(**tensors).items()}

    def token_ids(self, texts):
        import transformers

        # Texts may be longer than the model's input.
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            self._path, model_max_length=1 << 30, **_LOCAL
        )
        return tokenizer(list(texts), add_special_tokens=False)["input_ids"]


def _architecture(config_file: str) -> str:
    """Return the class of transformers that config.json names."""
    with open(config_file, "rb") as file:
        content = file.read(_MAX_CONFIG + 1)
    if len(content) > _MAX_CONFIG:
        raise ValueError(
            f"{config_file} has more than {_MAX_CONFIG:,} bytes, the limit for files of others. Get it "
            "again."
        )
    try:
        values = json.loads(content)
    except (RecursionError, ValueError) as error:
        raise ValueError(f"{config_file}: this is not JSON in UTF-8: {error}") from error
    found = values.get("architectures") if isinstance(values, dict) else None
    return found[0] if isinstance(found, list) and found else "BertModel"


RUNTIMES = {
    "saved_model": SavedModel,
    "tflite": Lite,
    "onnx": Onnx,
    "openvino": OpenVino,
    "huggingface": Transformers,
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
        settings: `threads`, and `architecture` of a Hugging Face folder.

    Raises:
        ImportError: the runtime is not installed.
    """
    return RUNTIMES[format](path, **settings)


def send(stream: IO[bytes], head: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Write a message: its size, JSON, and the bytes of the numbers."""
    described: list[list[Any]] = []
    numbers: list[bytes] = []
    for name, given in arrays.items():
        array = np.asarray(given, object) if _is_text(given) else np.asarray(given)
        if array.dtype.kind in "OSU":
            texts = [_as_text(value) for value in array.reshape(-1).tolist()]
            described.append([name, "", list(array.shape), texts])
        else:
            described.append([name, array.dtype.str, list(array.shape), None])
            numbers.append(np.ascontiguousarray(array).tobytes())
    content = json.dumps({"head": head, "arrays": described}).encode("ascii")
    stream.write(struct.pack(">Q", len(content)) + content + b"".join(numbers))
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a message of `send`; strings are bytes. Raise EOFError if the other side has ended."""
    (size,) = struct.unpack(">Q", _read(stream, 8))
    content = json.loads(_read(stream, size))
    arrays = {}
    for name, dtype, shape, texts in content["arrays"]:
        if texts is None:
            count = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            arrays[name] = np.frombuffer(_read(stream, count), dtype).reshape(shape)
        else:
            values = np.empty(len(texts), object)
            values[:] = [text.encode("utf-8", "surrogateescape") for text in texts]
            arrays[name] = values.reshape(shape)
    return content["head"], arrays


def _read(stream: IO[bytes], size: int) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        raise EOFError(f"The stream ended after {len(content)} of {size} bytes.")
    return content


def _is_text(values: Any) -> bool:
    while isinstance(values, (list, tuple)) and values:
        values = values[0]
    return isinstance(values, (str, bytes))


def _as_text(value: Any) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def main() -> None:
    """Answer requests until standard input ends."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries print
    try:
        runtime = load(**json.loads(sys.argv[1]))
        head: dict[str, Any] = {"version": runtime.version, "signatures": runtime.signatures}
    except Exception as error:
        send(answers, {"error": f"{type(error).__name__}: {error}"}, {})
        return
    outputs: dict[str, np.ndarray] = {}
    while True:
        send(answers, {**head, "peak_memory": runtime.peak_memory()}, outputs)
        try:
            asked, inputs = receive(requests)
        except EOFError:
            return
        outputs = {}
        try:
            if "texts" in asked:
                head = {"ids": runtime.token_ids(asked["texts"])}
            else:
                outputs = runtime.ask(asked["signature"], inputs)
                head = {"seconds": runtime.seconds}
        except Exception as error:
            head = {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]
    main()
