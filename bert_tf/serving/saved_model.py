"""The SavedModel, and the files next to it for people and servers.

saved_model.pb, variables/
assets.extra/
  export.json                   `metadata`, and the signatures
  task.json, bert_config.json, vocab.txt, labels.txt (of a model with labels)
  tf_serving_warmup_requests    requests with which TensorFlow Serving warms up
"""

from __future__ import annotations

import hashlib
import json
import os
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from bert_tf import __version__
from bert_tf.checkpoints.write import model_files
from bert_tf.data.parallel import varint
from bert_tf.files import atomic_folder, write_text
from bert_tf.modeling.inference import InferenceEncoder, Layout
from bert_tf.prediction.loading import EXTRA, METADATA_FILE, TEXT, TOKENS
from bert_tf.serving.check import sample_requests
from bert_tf.serving.quantization import Quantization
from bert_tf.serving.served import (
    HUGGING_FACE,
    TF_EXAMPLE,
    ConcreteFunction,
    Served,
    trace_signatures,
)


def write_saved_model(
    served: Served,
    export_dir: str,
    names: Sequence[str] | None = None,
    *,
    precision: str = "float32",
    quantization: Quantization | None = None,
    source: Mapping[str, Any] | None = None,
    check: Callable[[str], Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Write a SavedModel; return its metadata. The folder appears when complete.

    In bfloat16 the graph is the one that oneDNN computes fastest, unless this machine has a GPU, for
    which TensorFlow lacks its LayerNorm.
    """
    is_bfloat16 = served.model.dtype_policy.name == "bfloat16"
    for_cpu = quantization is not None or not tf.config.list_physical_devices("GPU")
    replacements = {} if quantization is None else quantization.replacements
    layout: Layout = "onednn" if for_cpu and is_bfloat16 else "plain"
    encoder = InferenceEncoder(served.model, layout, replacements)
    served = replace(served, network=encoder)
    functions = trace_signatures(served, names or served.signature_names())
    of_others = [functions[name] for name in functions if name in (TF_EXAMPLE, HUGGING_FACE)]
    # Their clients often name no signature.
    default = {TEXT: of_others[0]} if of_others and TEXT not in functions else {}
    module = tf.Module()
    # TensorFlow's own variables: of Keras' it would restore copies that no function reads, and servers
    # and the C API would find variables without values (Keras 3.15, `_export_to_saved_model_graph`).
    module.weights = [variable.value for variable in encoder.variables]
    if not functions.keys() <= {TOKENS, HUGGING_FACE}:
        module.tokenizer = served.tokenizer
    with atomic_folder(export_dir, "export_dir") as folder:
        tf.saved_model.save(module, folder, signatures=default | functions)
        extra = os.path.join(folder, EXTRA)
        values = metadata(served, precision, source) | {
            "format": "saved_model",
            "signatures": {n: describe(function) for n, function in (default | functions).items()},
            "custom_ops": custom_operations(os.path.join(folder, "saved_model.pb")),
        }
        if quantization is not None:
            values["largest_weight"] = quantization.largest_weight
            values["quantization"] = {
                name: {"error": error, "precision": precision if name in replacements else "float"}
                for name, error in quantization.errors.items()
            }
        if check is not None:
            values |= check(folder)
        write_files(served, extra, values)
        requests = sample_requests(served)
        with tf.io.TFRecordWriter(os.path.join(extra, WARMUP_FILE)) as writer:
            for name, request in [(n, request) for n in functions for request in requests[n]]:
                writer.write(prediction_log(_model_name(export_dir), name, request))
    return values


def metadata(served: Served, precision: str, source: Mapping[str, Any] | None) -> dict[str, Any]:
    trained = served.trained
    return {
        "bert_tf_version": __version__,
        "tensorflow_version": tf.__version__,
        "unicode_version": unicodedata.unidata_version,  # of the tokenizer's tables
        "kind": served.kind,
        "labels": list(served.labels),
        "max_seq_length": trained.max_seq_length,
        "do_lower_case": trained.tokenizer.do_lower_case,
        "precision": precision,
        "vocab_size": len(served.pieces),
        "vocab_sha256": hashlib.sha256(_vocabulary_text(served).encode()).hexdigest(),
        "config": served.config.to_dict(),
        "task": None if served.task is None else served.task.values(),
        "answer_settings": asdict(served.settings) if hasattr(served, "settings") else {},
        "source": source,
    }


def write_files(served: Served, folder: str, values: Mapping[str, Any]) -> None:
    tf.io.gfile.makedirs(folder)
    texts = {
        METADATA_FILE: json.dumps(values, indent=2) + "\n",
        "vocab.txt": _vocabulary_text(served),
        "bert_config.json": served.config.to_json_string(),
        **model_files(task=values["task"]),
    }
    if hasattr(served.task, "labels"):
        texts["labels.txt"] = "".join(f"{name}\n" for name in served.labels)
    for name, text in texts.items():
        write_text(os.path.join(folder, name), text)


def custom_operations(saved_model_file: str) -> list[str]:
    """Return the operations of a SavedModel that TensorFlow lacks, sorted."""
    with tf.io.gfile.GFile(saved_model_file, "rb") as file:
        used = SavedModel.FromString(file.read()).meta_graphs[0].meta_info_def.stripped_op_list
    names = [op.name for op in used.op if not op.name.startswith("_")]  # TensorFlow's own
    return sorted(name for name in names if not hasattr(tf.raw_ops, name))


def describe(function: ConcreteFunction) -> dict[str, Any]:
    """Return names, dtypes and shapes of the inputs and outputs of a signature."""

    def spec(tensor: tf.TensorSpec) -> dict[str, Any]:
        return {"dtype": tensor.dtype.name, "shape": tensor.shape.as_list()}

    inputs = tf.nest.flatten(function.structured_input_signature)
    return {
        "inputs": {tensor.name: spec(tensor) for tensor in inputs},
        "outputs": {name: spec(tensor) for name, tensor in function.structured_outputs.items()},
    }


def _model_name(export_dir: str) -> str:
    """Return `mrpc` for served/mrpc/1 and served/mrpc."""
    parts = [part for part in export_dir.split("/") if part]
    return parts[-2] if parts[-1].isdigit() and len(parts) > 1 else parts[-1]


def _vocabulary_text(served: Served) -> str:
    return "".join(f"{token}\n" for token in served.pieces)


# TensorFlow Serving reads this file when it loads a model: TFRecords, each a `PredictionLog`.
#
#     PredictionLog    6: PredictLog
#     PredictLog       1: PredictRequest
#     PredictRequest   1: ModelSpec    2: map of input name -> TensorProto
#     ModelSpec        1: name         3: signature_name
#     entry of a map   1: key          2: value
#
# Source: tensorflow_serving/apis/prediction_log.proto, predict.proto and model.proto.
WARMUP_FILE = "tf_serving_warmup_requests"


def prediction_log(model_name: str, signature: str, inputs: Mapping[str, Any]) -> bytes:
    """Serialize a `PredictionLog` of one request: arrays or lists by name."""
    model_spec = _field(1, model_name.encode()) + _field(3, signature.encode())
    request = _field(1, model_spec)
    for name, value in inputs.items():
        tensor = tf.make_tensor_proto(value).SerializeToString()
        request += _field(2, _field(1, name.encode()) + _field(2, tensor))
    return _field(6, _field(1, request))


def _field(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload
