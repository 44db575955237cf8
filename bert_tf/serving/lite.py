"""TFLite files: the model on ids, for devices without TensorFlow.

    model.tflite     input_ids, input_mask, segment_ids: int32 [B, S] -> the numeric outputs of `tokens`
    export.json, task.json, bert_config.json, vocab.txt, labels.txt     next to it

The file contains no tokenizer: finding WordPieces needs an operation of tensorflow-text, and TFLite has
no operations for the code points of strings. Clients make the ids with `FullTokenizer` (standard library
only) or any other WordPiece tokenizer with the same vocabulary and rules.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from bert_tf.options import OptionError
from bert_tf.serving.saved_model import write_file
from bert_tf.serving.served import TOKENS, Served


def write_lite(
    served: Served,
    export_dir: str,
    precision: str = "float32",
    check: Callable[[str], Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Write a folder with a TFLite file; return its metadata. The folder appears when complete.

    Args:
        served: the model, in float32.
        export_dir: missing or empty.
        precision: "float32". "float16": half-size weights, computed in float32. "int8": 8-bit weights
            of the products, whose inputs are quantized at run time (dynamic range).
        check: gets the file before its folder appears; returns more metadata, or raises.

    Raises:
        ValueError: the model has a BiLSTM, or the folder is not empty.
    """
    if any("bilstm_" in weight.path for weight in served.model.weights):
        raise OptionError(
            "format", "TFLite does not convert a BiLSTM. Use onnx, openvino or saved_model."
        )
    served.prepare()
    function = served.numeric_tokens()
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(served, folder, signatures={TOKENS: function})
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=[TOKENS])
        if precision != "float32":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if precision == "float16":
            converter.target_spec.supported_types = [tf.float16]
        content = converter.convert()
    signature = function.get_concrete_function()
    return write_file(
        served,
        export_dir,
        "tflite",
        precision,
        signature,
        lambda path: Path(path).write_bytes(content),
        check,
    )
