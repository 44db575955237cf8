"""ONNX files: the model on ids or on text, for ONNX Runtime and others.

    model.onnx     input_ids, input_mask, segment_ids: int32 [B, S], or texts: string [B]
                   -> the numeric outputs of the signature
    export.json, task.json, bert_config.json, vocab.txt, labels.txt     next to it

tf2onnx converts the model, and ONNX Runtime's tools fuse LayerNorms: both are in the extra [onnx].
onnx_int8.py makes 8-bit weights, and onnx_text.py adds the tokenizer.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.data.files import new_folder
from bert_tf.prediction.exports import FILES
from bert_tf.serving.onnx_int8 import quantize
from bert_tf.serving.onnx_text import add_tokenizer
from bert_tf.serving.saved_model import described, file_sizes, metadata, write_beside
from bert_tf.serving.served import TOKENS, Served

ONNX_PRECISIONS = ("float32", "int8")
_OPSET = 18  # the newest that tf2onnx 1.17 supports


def write_onnx(
    served: Served,
    export_dir: str,
    precision: str = "float32",
    signature: str = TOKENS,
    check: Callable[[str], Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Write a folder with an ONNX file; return its metadata. The folder appears when complete.

    Args:
        served: the model, in float32.
        export_dir: missing or empty.
        precision: "float32"; "int8", 8-bit weights of the encoder and the word embeddings, whose inputs
            are quantized at run time (dynamic range).
        signature: `tokens`, or one of the model's `packed_signatures`. The latter needs the library of
            onnxruntime-extensions to run.
        check: gets the file before its folder appears; returns more metadata, or raises.

    Raises:
        ImportError: the extra is not installed.
        ValueError: the precision or signature is unknown, or the folder is not empty.
    """
    if precision not in ONNX_PRECISIONS:
        raise ValueError(
            f"precision is {precision!r}, but for an ONNX file it must be one of "
            f"{', '.join(ONNX_PRECISIONS)}."
        )
    if signature not in (TOKENS, *served.packed_signatures):
        raise ValueError(
            f"signature is {signature!r}, but an ONNX file of this model can have only "
            f"{' or '.join((TOKENS, *served.packed_signatures))}: classifiers without doc_stride, "
            "embedding models without prefixes, and encoders can take text. Use signature=tokens, or "
            "format=saved_model."
        )
    try:
        import onnx
        import onnxruntime  # noqa: F401
        import tf2onnx  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"format=onnx needs tf2onnx and onnxruntime ({error}). Install them with "
            "`pip install -e '.[onnx]'` in the checkout of bert_tf."
        ) from error
    served.prepare("formula")
    function = served.numeric_tokens_of_weights()
    values = metadata(served, precision) | {"format": "onnx", "file": FILES["onnx"]}
    signature_values = described(function.get_concrete_function())
    inputs = {name: signature_values["inputs"][name] for name in served.ids_specs()}
    model = _fused(_converted(served, function))
    if precision == "int8":
        quantize(model)
    if signature != TOKENS:
        names = [spec.name for spec in served.text_functions()[signature][1]]
        inputs = {name: {"dtype": "string", "shape": [None]} for name in names}
        values["custom_ops"] = add_tokenizer(model, names, served)
    onnx.checker.check_model(model)  # tf2onnx only logs unknown operations
    values["signatures"] = {signature: signature_values | {"inputs": inputs}}
    with new_folder(export_dir, "export_dir") as folder:
        path = os.path.join(folder, FILES["onnx"])
        with tf.io.gfile.GFile(path, "wb") as file:
            file.write(model.SerializeToString())
        if check is not None:
            values |= check(path)
        values["file_sizes"] = file_sizes(folder)
        write_beside(served, folder, values)
    return values


def _converted(served: Served, function: Any) -> Any:
    """Return the ModelProto.

    tf2onnx copies each array of a graph many times (21.7 GB for BERT-Base, which has 0.4). It gets a
    graph whose weights are inputs, which become initializers afterwards.
    """
    import tf2onnx
    from onnx import numpy_helper

    model, _ = tf2onnx.convert.from_function(
        function,
        input_signature=function.input_signature,
        opset=_OPSET,
        custom_op_handlers={"Erfc": (_without_erfc, [])},
    )
    of_input = {f"weight_{number}": variable for number, variable in enumerate(served.parameters)}
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            if name in of_input:
                node.input[place] = of_input[name].path
    ids = [value for value in model.graph.input if value.name not in of_input]
    used = [of_input[value.name] for value in model.graph.input if value.name in of_input]
    del model.graph.input[:]
    model.graph.input.extend(ids)
    for variable in used:
        model.graph.initializer.append(numpy_helper.from_array(variable.numpy(), variable.path))
    return model


def _without_erfc(graph: Any, node: Any, name: str, _: Any) -> None:
    """Replace erfc(-x / sqrt(2)) of "gelu_erf" by 1 + erf(x / sqrt(2)), because ONNX has no erfc.

    Runtimes recognize this form, with a division, as GELU.
    """
    (scaled,), (output,) = node.inputs, node.output
    negative = next(each for each in scaled.inputs if each.type == "Neg")
    of_output = {"shapes": [graph.get_shape(output)], "dtypes": [graph.get_dtype(output)]}
    graph.remove_node(name)
    root = graph.make_const(f"{name}/root", np.array(math.sqrt(2.0), np.float32))
    ratio = graph.make_node("Div", [negative.input[0], root.output[0]], **of_output)
    erf = graph.make_node("Erf", [ratio.output[0]], **of_output)
    one = graph.make_const(f"{name}/one", np.array(1.0, np.float32))
    graph.make_node("Add", [erf.output[0], one.output[0]], name=name, outputs=[output], **of_output)


def _fused(model: Any) -> Any:
    """Return the model with each LayerNorm as one operation of ONNX, by ONNX Runtime's pattern."""
    from onnxruntime.transformers.fusion_layernorm import FusionLayerNormalization
    from onnxruntime.transformers.onnx_model import OnnxModel

    wrapped = OnnxModel(model)
    FusionLayerNormalization(wrapped).apply()
    wrapped.topological_sort()
    return wrapped.model
