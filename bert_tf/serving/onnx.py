"""ONNX files: the model on ids, for ONNX Runtime and others.

    model.onnx     input_ids, input_mask, segment_ids: int32 [B, S] -> the numeric outputs of `tokens`
    export.json, task.json, bert_config.json, vocab.txt, labels.txt     next to it

Like a TFLite file (lite.py), it contains no tokenizer. tf2onnx converts the model, and ONNX Runtime
makes 8-bit weights: both are in the extra [onnx].
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.data.files import new_folder
from bert_tf.serving.saved_model import described, metadata, write_beside
from bert_tf.serving.served import TOKENS, Served

ONNX_FILE = "model.onnx"
ONNX_PRECISIONS = ("float32", "int8")
_OPSET = 18  # the newest that tf2onnx 1.17 supports


def write_onnx(served: Served, export_dir: str, precision: str = "float32") -> dict[str, Any]:
    """Write a folder with an ONNX file; return its metadata. The folder appears when complete.

    Args:
        served: the model, in float32.
        export_dir: missing or empty.
        precision: "float32"; "int8", 8-bit weights of the products, whose inputs are quantized at run
            time (dynamic range).

    Raises:
        ImportError: the extra is not installed.
        ValueError: the precision is unknown, or the folder is not empty.
    """
    if precision not in ONNX_PRECISIONS:
        raise ValueError(
            f"precision is {precision!r}, but for an ONNX file it must be one of "
            f"{', '.join(ONNX_PRECISIONS)}."
        )
    try:
        import onnx
        import tf2onnx  # noqa: F401
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError as error:
        raise ImportError(
            f"format=onnx needs tf2onnx and onnxruntime ({error}). Install them with "
            "`pip install -e '.[onnx]'` in the checkout of bert_tf."
        ) from error
    served.prepare(for_onednn=False)
    function = served.numeric_tokens_of_weights()
    model = _converted(served, function)
    onnx.checker.check_model(model)  # tf2onnx only logs unknown operations
    with new_folder(export_dir, "export_dir") as folder:
        values = metadata(served, precision) | {"format": "onnx", "file": ONNX_FILE}
        signature = described(function.get_concrete_function())
        signature["inputs"] = {name: signature["inputs"][name] for name in served.ids_specs()}
        values["signatures"] = {TOKENS: signature}
        write_beside(served, folder, values)
        path = os.path.join(folder, ONNX_FILE)
        with tempfile.TemporaryDirectory() as temporary:
            whole = os.path.join(temporary, ONNX_FILE)
            onnx.save_model(model, whole)
            del model
            if precision == "int8":
                source, whole = whole, os.path.join(temporary, "int8.onnx")
                quantize_dynamic(source, whole, weight_type=QuantType.QInt8)
            tf.io.gfile.copy(whole, path)
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
    """Replace erfc(x) of "gelu_erf" by 1 - erf(x), because ONNX has no erfc."""
    (x,), (output,) = node.input, node.output
    of_output = {"shapes": [graph.get_shape(output)], "dtypes": [graph.get_dtype(output)]}
    graph.remove_node(name)
    erf = graph.make_node("Erf", [x], name=f"{name}/erf", **of_output)
    one = graph.make_const(f"{name}/one", np.array(1.0, np.float32))
    graph.make_node("Sub", [one.output[0], erf.output[0]], name=name, outputs=[output], **of_output)
