"""Trained models: folders of runs, checkpoints, and exports in their runtimes.

`load_model` accepts:

    folder of a run (task.json)              the model of its task
    checkpoint with a fine-tuned head        the model of the task in Hugging Face's config.json
    checkpoint with a masked-LM head         BertForPreTraining
    any other checkpoint                     BertModel, for embeddings and attention

`load_export` gives a network that calls the signature `tokens` of a SavedModel, or a file of TFLite,
ONNX or OpenVINO.
"""

from __future__ import annotations

import abc
import logging
import os
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.checkpoint import find_config
from bert_tf.checkpoints.hub import local_path
from bert_tf.checkpoints.initial import explain_untied_decoder, initialize
from bert_tf.checkpoints.read import read_checkpoint
from bert_tf.config import BertConfig
from bert_tf.limits import DataError, join_names, read_json
from bert_tf.modeling.bert import BertModel
from bert_tf.modeling.int8 import OVERFLOW_FREE
from bert_tf.modeling.models import BertForPreTraining
from bert_tf.tasks.base import MIN_SEQ_LENGTH, Task
from bert_tf.tasks.load import load_task, make_task
from bert_tf.tasks.token_classification import NUM_SPECIAL_TOKENS, TokenClassificationTask
from bert_tf.tokenization import FullTokenizer, load_tokenizer
from bert_tf.training.strategy import INT8_FLAGS, int8_instruction


@dataclass(frozen=True)
class TrainedModel:
    """A model, its tokenizer and its task."""

    network: Any
    tokenizer: FullTokenizer
    task: Task | None
    max_seq_length: int
    source: str = "this model"
    checkpoint: str = ""
    unused_head: str = ""

    @property
    def model(self) -> keras.Model:
        """The network with its weights; ValueError for an export, which has none."""
        if not isinstance(self.network, keras.Model):
            raise ValueError(f"{self.source} is an export: name the folder of its model.")
        return self.network


_MASKED_LM = "cls/predictions/transform/dense/kernel"


def load_model(
    path: str,
    *,
    head: str | None = None,
    dtype: str | None = None,
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
) -> TrainedModel:
    """Return the model in a folder or checkpoint, with its tokenizer; `task` is None if unknown."""
    path = local_path(path)
    checkpoint = read_checkpoint(path)
    config = find_config(bert_config_file, checkpoint)
    tokenizer = load_tokenizer(vocab_file, do_lower_case, checkpoint, config)
    task, problem = None, ""
    if head is None:
        task, problem = load_task(replace(checkpoint, config=config))
        if task is not None and checkpoint.task is None and task.is_pretrained:
            task = None
    dtype = dtype or "float32"  # not Keras' global policy
    unused: tuple[str, ...] = ()
    if task is not None:
        config.check_sequence_length(task.max_seq_length)
        length, model = task.max_seq_length, task.build_model(config, dtype=dtype)
        needed = ("",)
        unused = () if task.uses_pooler else ("bert/pooler/",)
    else:
        if head is None:
            untied = explain_untied_decoder(checkpoint)
            problem = problem or untied
            head = "encoder" if untied or _MASKED_LM not in checkpoint.arrays else "masked_lm"
        model_class = BertModel if head == "encoder" else BertForPreTraining
        length, model = checkpoint.longest_input(config), model_class(config, dtype=dtype)
        needed = ("cls/predictions/",)
    model.load_report = report = initialize(model, checkpoint)
    missing = [name for name in report.missing if name.startswith(needed)]
    if missing := [name for name in missing if not name.startswith(unused)]:
        remedy = "copy it again" if task is not None else "use head=encoder"
        raise DataError(report.source, f"lacks {join_names(missing, 3)}: {remedy}.")
    model.task = None if task is None else task.values()  # for save_pretrained
    return TrainedModel(
        *(model, tokenizer, task, length, path), checkpoint=checkpoint.source, unused_head=problem
    )


def with_settings(
    trained: TrainedModel, max_seq_length: int | None = None, doc_stride: int | None = None
) -> TrainedModel:
    """Return the model with other lengths than in training; a stride that is too long is reduced."""
    if max_seq_length is not None:
        trained.network.config.check_sequence_length(max_seq_length, MIN_SEQ_LENGTH)
    given = {"max_seq_length": max_seq_length, "doc_stride": doc_stride}
    given = {name: value for name, value in given.items() if value is not None}
    task = trained.task
    if isinstance(task, TokenClassificationTask) and task.doc_stride and max_seq_length is not None:
        # As in the served graph; a given stride has precedence.
        given.setdefault("doc_stride", min(task.doc_stride, max_seq_length - NUM_SPECIAL_TOKENS))
    if doc_stride is not None and (task is None or "doc_stride" not in vars(task)):
        raise ValueError(f"doc_stride is for windows of long texts, unlike {trained.source}.")
    if task is not None and given:
        task = type(task)(**{**task.arguments(), **given})
        if isinstance(trained.network, keras.Model):
            trained.network.task = task.values()  # for save_pretrained
    length = trained.max_seq_length if max_seq_length is None else max_seq_length
    return replace(trained, task=task, max_seq_length=length)


# ------------------------------------------------------------------------------------------- exports

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
    """An export with the call of the Keras model that was exported. `outputs`: name -> dtype."""

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
    paths = (os.path.join(folder, METADATA_FILE), os.path.join(folder, EXTRA, METADATA_FILE))
    return any(map(tf.io.gfile.exists, paths))


def load_export(folder: str) -> TrainedModel:
    """Return the export in a folder."""
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
