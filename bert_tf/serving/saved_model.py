"""The SavedModel, and the files next to it for people and servers.

saved_model.pb, variables/
assets.extra/
  export.json                   description: inputs, outputs, labels, lengths, hash of the vocabulary,
                                operations that TensorFlow lacks
  task.json, bert_config.json, vocab.txt, labels.txt (of a model with labels)
  tf_serving_warmup_requests    requests with which TensorFlow Serving warms up
"""

from __future__ import annotations

import hashlib
import json
import os
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from bert_tf import __version__
from bert_tf.data.files import new_folder, write_text
from bert_tf.model_folder import TASK_FILE, task_text
from bert_tf.serving.served import TOKENS, Served, Signature
from bert_tf.serving.warmup import write_warmup_requests

EXTRA = "assets.extra"  # TensorFlow's name for a folder that loading ignores
METADATA_FILE = "export.json"


def write_saved_model(
    served: Served,
    export_dir: str,
    signatures: Sequence[str] | None = None,
    *,
    precision: str = "float32",
    warm_up: bool = True,
    for_cpu: bool = True,
) -> dict[str, Any]:
    """Write a SavedModel; return its metadata. The folder appears when complete.

    Args:
        export_dir: missing or empty.
        signatures: names; None exports all.
        precision: of the weights.
        warm_up: whether to write requests for TensorFlow Serving.
        for_cpu: whether to use the graph that oneDNN computes fastest (modeling/inference_layout.py).
            In float32 that is the plain graph.

    Raises:
        ValueError: a signature does not exist, or the folder is not empty.
    """
    served.prepare(for_onednn=for_cpu and precision == "bfloat16")
    found = served.signatures(signatures or [*served.text_functions(), TOKENS])
    with new_folder(export_dir, "export_dir") as folder:
        tf.saved_model.save(served, folder, signatures=found)
        extra = os.path.join(folder, EXTRA)
        values = metadata(served, precision) | {
            "format": "saved_model",
            "signatures": {name: described(function) for name, function in found.items()},
            "custom_ops": custom_operations(os.path.join(folder, "saved_model.pb")),
        }
        write_beside(served, extra, values)
        if warm_up:
            _write_warm_up(served, extra, _model_name(export_dir), found)
    return values


def metadata(served: Served, precision: str) -> dict[str, Any]:
    """Return the metadata that all export formats have."""
    return {
        "bert_tf_version": __version__,
        "tensorflow_version": tf.__version__,
        "unicode_version": unicodedata.unidata_version,  # of the tokenizer's tables
        "kind": type(served).__name__.removeprefix("Served").lower(),
        "labels": list(served.labels),
        "max_seq_length": served.max_seq_length,
        "do_lower_case": served.do_lower_case,
        "precision": precision,
        "vocab_size": len(served.vocabulary),
        "vocab_sha256": hashlib.sha256(_vocabulary_text(served).encode()).hexdigest(),
        "config": served.config.to_dict(),
        "task": None if served.task is None else json.loads(task_text(served.task)),
    }


def write_beside(served: Served, folder: str, values: Mapping[str, Any]) -> None:
    """Write files for people and clients; the served functions do not read them."""
    tf.io.gfile.makedirs(folder)
    write_text(os.path.join(folder, METADATA_FILE), json.dumps(values, indent=2) + "\n")
    write_text(os.path.join(folder, "vocab.txt"), _vocabulary_text(served))
    write_text(os.path.join(folder, "bert_config.json"), served.config.to_json_string())
    if served.task is not None:
        write_text(os.path.join(folder, TASK_FILE), task_text(served.task))
    if hasattr(served.task, "labels"):
        write_text(os.path.join(folder, "labels.txt"), "".join(f"{n}\n" for n in served.labels))


def custom_operations(saved_model_file: str) -> list[str]:
    """Return the operations of a SavedModel that TensorFlow lacks, sorted."""
    with tf.io.gfile.GFile(saved_model_file, "rb") as file:
        graph = SavedModel.FromString(file.read()).meta_graphs[0].graph_def
    nodes = [graph.node, *(function.node_def for function in graph.library.function)]
    used = {node.op for some in nodes for node in some}
    functions = {function.signature.name for function in graph.library.function}
    return sorted(name for name in used - functions if not hasattr(tf.raw_ops, name))


def described(function: Signature) -> dict[str, Any]:
    """Return names, dtypes and shapes of the inputs and outputs of a signature."""

    def spec(tensor: tf.TensorSpec) -> dict[str, Any]:
        return {"dtype": tensor.dtype.name, "shape": tensor.shape.as_list()}

    inputs, outputs = function.structured_input_signature[1], function.structured_outputs
    if not inputs:  # the function has positional arguments
        inputs = {each.name: each for each in function.structured_input_signature[0]}
    return {
        "inputs": {name: spec(each) for name, each in inputs.items()},
        "outputs": {name: spec(each) for name, each in outputs.items()},
    }


def _write_warm_up(
    served: Served, folder: str, model_name: str, signatures: Mapping[str, Signature]
) -> None:
    examples = dict(served.examples())
    rank = len(served.ids_shape)
    lengths = (16, served.max_seq_length)
    shapes = [[1] * (rank - 1) + [length] for length in lengths]
    names = list(served.ids_specs())
    examples[TOKENS] = [
        {name: tf.ones(shape, tf.int32).numpy() for name in names} for shape in shapes
    ]
    dtypes = {
        signature: {
            name: tf.as_dtype(spec["dtype"]) for name, spec in described(function)["inputs"].items()
        }
        for signature, function in signatures.items()
    }
    asked = {name: requests for name, requests in examples.items() if name in signatures}
    write_warmup_requests(folder, model_name, asked, dtypes)


def _model_name(export_dir: str) -> str:
    """Return `mrpc` for served/mrpc/1 and served/mrpc."""
    parts = [part for part in export_dir.split("/") if part]
    return parts[-2] if parts[-1].isdigit() and len(parts) > 1 else parts[-1]


def _vocabulary_text(served: Served) -> str:
    tokens = sorted(served.vocabulary, key=served.vocabulary.__getitem__)
    return "".join(f"{token}\n" for token in tokens)
