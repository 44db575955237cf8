"""The SavedModel, and the files next to it for people and servers.

saved_model.pb, variables/
assets/                         vocab.txt, labels.txt; only with signatures of ids for other libraries
assets.extra/
  export.json                   description: inputs, outputs, labels, lengths, hash of the vocabulary,
                                operations that TensorFlow lacks, versions of TensorFlow proven,
                                checkpoint and command
  task.json, bert_config.json, vocab.txt, labels.txt (of a model with labels)
  tf_serving_warmup_requests    requests with which TensorFlow Serving warms up

With the signature `tf_hub`, a second folder contains the preprocessing (preprocessing.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from bert_tf import __version__
from bert_tf.data.files import new_folder, write_text
from bert_tf.model_files import TASK_FILE, task_text
from bert_tf.prediction.exports import EXTRA, METADATA_FILE
from bert_tf.serving.other_names import (
    EXAMPLES,
    INPUTS,
    OTHER_NAMES,
    TF_EXAMPLE,
    TF_HUB,
    object_to_save,
    serialized,
)
from bert_tf.serving.preprocessing import PREPROCESSING, preprocessing_dir, preprocessor
from bert_tf.serving.quantization import Quantization
from bert_tf.serving.served import IDS_SIGNATURES, INPUT_NAMES, TEXT, TOKENS, Served, Signature
from bert_tf.serving.server_versions import PROVEN
from bert_tf.serving.warmup import write_warmup_requests

_SEGMENTS = [names[2] for names in (INPUT_NAMES, *INPUTS.values())]


def write_saved_model(
    served: Served,
    export_dir: str,
    signatures: Sequence[str] | None = None,
    *,
    precision: str = "float32",
    warm_up: bool = True,
    for_cpu: bool = True,
    quantization: Quantization | None = None,
    check: Callable[[str], Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Write a SavedModel; return its metadata. The folder appears when complete.

    With the signature `tf_hub`, the folder `preprocessing_dir(export_dir)` is written as well.

    Args:
        export_dir: missing or empty.
        signatures: names; None exports those on text and `tokens`.
        precision: of the weights.
        warm_up: True to write requests for TensorFlow Serving.
        for_cpu: True to use the graph that oneDNN computes fastest (modeling/inference_layout.py).
            In float32 that is the plain graph.
        quantization: for "int8", products that replace those of the model.
        check: gets the folder before it appears; returns more metadata, or raises.

    Raises:
        ValueError: a signature does not exist, or the folder is not empty.
    """
    is_bfloat16 = served.model.dtype_policy.name == "bfloat16"
    replacements = {} if quantization is None else quantization.replacements
    served.prepare("onednn" if for_cpu and is_bfloat16 else "plain", replacements)
    asked = served.signatures(signatures or [*served.text_functions(), TOKENS])
    others = [asked[name] for name in asked if name in OTHER_NAMES]
    found = {TEXT: others[0], **asked} if others and TEXT not in asked else asked
    with ExitStack() as stack:
        folder = stack.enter_context(new_folder(export_dir, "export_dir"))
        if TF_HUB in found:
            second = stack.enter_context(new_folder(preprocessing_dir(export_dir), PREPROCESSING))
            root = preprocessor(served)
            tf.saved_model.save(root, second, signatures={TEXT: root.__call__})
        assets = stack.enter_context(tempfile.TemporaryDirectory())
        root = object_to_save(served, list(found), texts_beside(served), assets)
        tf.saved_model.save(root, folder, signatures=found)
        extra = os.path.join(folder, EXTRA)
        values = metadata(served, precision) | {
            "format": "saved_model",
            "signatures": {name: described(function) for name, function in found.items()},
            "custom_ops": custom_operations(os.path.join(folder, "saved_model.pb")),
            "oldest_tensorflow_proven": PROVEN[precision][0],
            "tensorflow_proven": list(PROVEN[precision]),
        }
        if quantization is not None:
            values["largest_weight"] = quantization.largest_weight
            values["quantization"] = {
                name: {"error": error, "precision": precision if name in replacements else "float"}
                for name, error in quantization.errors.items()
            }
        if check is not None:
            values |= check(folder)
        write_beside(served, extra, values)
        if warm_up:
            _write_warm_up(served, extra, _model_name(export_dir), asked)
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
        "answer_settings": asdict(served.settings) if hasattr(served, "settings") else {},
        "source": served.source,
    }


def file_sizes(folder: str) -> dict[str, int]:
    """Return name -> size in bytes of each file in a folder."""
    names = sorted(tf.io.gfile.listdir(folder))
    return {name: tf.io.gfile.stat(os.path.join(folder, name)).length for name in names}


def write_beside(served: Served, folder: str, values: Mapping[str, Any]) -> None:
    """Write files for people and clients; the served functions do not read them."""
    tf.io.gfile.makedirs(folder)
    texts = {METADATA_FILE: json.dumps(values, indent=2) + "\n", **texts_beside(served)}
    for name, text in texts.items():
        write_text(os.path.join(folder, name), text)


def texts_beside(served: Served) -> dict[str, str]:
    """Return name -> text of the files for people and clients, except the metadata."""
    texts = {"vocab.txt": _vocabulary_text(served)}
    texts["bert_config.json"] = served.config.to_json_string()
    if served.task is not None:
        texts[TASK_FILE] = task_text(served.task)
    if hasattr(served.task, "labels"):
        texts["labels.txt"] = "".join(f"{name}\n" for name in served.labels)
    return texts


def custom_operations(saved_model_file: str) -> list[str]:
    """Return the operations of a SavedModel that TensorFlow lacks, sorted."""
    with tf.io.gfile.GFile(saved_model_file, "rb") as file:
        graph = SavedModel.FromString(file.read()).meta_graphs[0].graph_def
    nodes = [graph.node, *(function.node_def for function in graph.library.function)]
    used = {node.op for some in nodes for node in some}
    functions = {function.signature.name for function in graph.library.function}
    names = [name for name in used - functions if not name.startswith("_")]  # TensorFlow's own
    return sorted(name for name in names if not hasattr(tf.raw_ops, name))


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
    examples[TF_EXAMPLE] = [{EXAMPLES: serialized(request)} for request in examples[TEXT]]
    rank = len(served.ids_shape)
    lengths = (16, served.max_seq_length)
    shapes = [[1] * (rank - 1) + [length] for length in lengths]
    dtypes = {
        signature: {
            name: tf.as_dtype(spec["dtype"]) for name, spec in described(function)["inputs"].items()
        }
        for signature, function in signatures.items()
    }
    for signature in IDS_SIGNATURES:
        names = dtypes.get(signature, ())
        examples[signature] = [
            {n: np.full(shape, n not in _SEGMENTS, np.int32) for n in names} for shape in shapes
        ]
    asked = {name: requests for name, requests in examples.items() if name in signatures}
    write_warmup_requests(folder, model_name, asked, dtypes)


def _model_name(export_dir: str) -> str:
    """Return `mrpc` for served/mrpc/1 and served/mrpc."""
    parts = [part for part in export_dir.split("/") if part]
    return parts[-2] if parts[-1].isdigit() and len(parts) > 1 else parts[-1]


def _vocabulary_text(served: Served) -> str:
    tokens = sorted(served.vocabulary, key=served.vocabulary.__getitem__)
    return "".join(f"{token}\n" for token in tokens)
