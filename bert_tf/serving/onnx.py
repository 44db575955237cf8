"""ONNX files: the model on ids, for ONNX Runtime and others.

    model.onnx     input_ids, input_mask, segment_ids: int32 [B, S] -> the numeric outputs of `tokens`
    export.json, task.json, bert_config.json, vocab.txt, labels.txt     next to it

Like a TFLite file (lite.py), it contains no tokenizer. tf2onnx converts the model, and ONNX Runtime's
tools fuse LayerNorms: both are in the extra [onnx].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_tf.serving.saved_model import write_file
from bert_tf.serving.served import Served

_OPSET = 18  # the newest that tf2onnx 1.17 supports


def write_onnx(
    served: Served,
    export_dir: str,
    check: Callable[[str], Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Write a folder with an ONNX file; return its metadata. The folder appears when complete.

    Args:
        served: the model, in float32.
        export_dir: missing or empty.
        check: gets the file before its folder appears; returns more metadata, or raises.
    """
    import onnx

    served.prepare("formula")
    function = served.numeric_tokens_of_weights()
    model = _fused(_converted(served, function))
    onnx.checker.check_model(model)  # tf2onnx only logs unknown operations
    signature = function.get_concrete_function()
    return write_file(
        served,
        export_dir,
        "onnx",
        "float32",
        signature,
        lambda path: Path(path).write_bytes(model.SerializeToString()),
        check,
    )


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
