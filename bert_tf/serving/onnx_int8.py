"""Weights in integers in an ONNX file, in ONNX's own operations.

Three measures keep most labels as they are in float32, without calibration data:

* A product has a scale for each column of its weights, and one for each row: the root of the row's
  largest weight. The inputs are multiplied by the latter. Rows of small weights keep more of their bits.
* Its inputs are quantized at run time in two parts of 8 bits: the value, and the remainder that the
  first part rounds off. Inputs have outliers, which make one part coarse.
* The table of word embeddings has a scale for each row.

The weights of products have 7 of the 8 bits. With 8, the sums of ONNX Runtime overflow on processors
without an instruction for 8 bits, and the file is for any processor.

The products outside the encoder stay float32.

Shapes: R rows of tokens, K inputs, N outputs, V vocabulary, H hidden.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bert_tf.modeling.quantized import OVERFLOW_FREE

_TINY = 1e-30  # instead of a scale of 0
_ENCODER, _WORDS = "/encoder/layer_", "embeddings/word_embeddings"


def quantize(model: Any) -> None:
    """Replace the encoder's products and the word embeddings of a ModelProto by 8-bit ones."""
    arrays = {array.name: array for array in model.graph.initializer}
    uses = [name for node in model.graph.node for name in node.input]
    nodes, constants, replaced = [], [], set()
    for node in model.graph.node:
        name = next((name for name in node.input if name in arrays), "")
        make = None
        if node.op_type == "MatMul" and name == node.input[1] and _ENCODER in name:
            make = _product
        if node.op_type == "Gather" and name == node.input[0] and name.endswith(_WORDS):
            make = _rows
        if (
            make is None or uses.count(name) > 1
        ):  # a masked LM also multiplies by the word embeddings
            nodes.append(node)
            continue
        replaced.add(name)
        found, arrays_of_node = make(node, name, arrays[name])
        nodes.extend(found)
        constants.extend(arrays_of_node)
    kept = [array for array in model.graph.initializer if array.name not in replaced]
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend([*kept, *constants])


def _product(node: Any, name: str, array: Any) -> tuple[list, list]:
    """Return the nodes of x [R, K] W [K, N], and the constants."""
    from onnx import TensorProto, helper, numpy_helper

    weights = numpy_helper.to_array(array)
    rows = np.sqrt(np.maximum(np.abs(weights).max(axis=1), _TINY))
    values, constants = _int8(name, weights / rows[:, np.newaxis], OVERFLOW_FREE, axis=0)
    constants.append(numpy_helper.from_array(rows.astype(np.float32), f"{name}/rows"))
    x = f"{name}/input"
    nodes = [helper.make_node("Mul", [node.input[0], f"{name}/rows"], [x])]
    results = []
    for part in ("value", "remainder"):
        own = f"{name}/{part}"
        quantized = [f"{own}/{output}" for output in ("uint8", "scale", "zero")]
        product, floats, scale, result = (
            f"{own}/{n}" for n in ("int32", "float", "both", "result")
        )
        nodes += [
            helper.make_node("DynamicQuantizeLinear", [x], quantized),
            helper.make_node("MatMulInteger", [quantized[0], values, quantized[2]], [product]),
            helper.make_node("Cast", [product], [floats], to=TensorProto.FLOAT),
            helper.make_node("Mul", [quantized[1], f"{name}/scale"], [scale]),
            helper.make_node("Mul", [floats, scale], [result]),
        ]
        results.append(result)
        if part == "value":
            rounded, rest = f"{name}/rounded", f"{name}/rest"
            nodes.append(helper.make_node("DequantizeLinear", quantized, [rounded]))
            nodes.append(helper.make_node("Sub", [x, rounded], [rest]))
            x = rest
    nodes.append(helper.make_node("Add", results, node.output, node.name))
    return nodes, constants


def _rows(node: Any, name: str, array: Any) -> tuple[list, list]:
    """Return the nodes that take rows of a table [V, H], and the constants."""
    from onnx import TensorProto, helper, numpy_helper

    values, constants = _int8(name, numpy_helper.to_array(array), 127, axis=1)
    _, ids = node.input
    return [
        helper.make_node("Gather", [values, ids], [f"{name}/rows"]),
        helper.make_node("Cast", [f"{name}/rows"], [f"{name}/float"], to=TensorProto.FLOAT),
        helper.make_node("Gather", [f"{name}/scale", ids], [f"{name}/scales"]),
        helper.make_node("Mul", [f"{name}/float", f"{name}/scales"], node.output, node.name),
    ], constants


def _int8(name: str, weights: np.ndarray, most: int, axis: int) -> tuple[str, list]:
    """Return the name of int8 values, and those values and their scales along `axis` as constants.

    Args:
        most: the largest value.
    """
    from onnx import numpy_helper

    scale = np.maximum(np.abs(weights).max(axis=axis, keepdims=bool(axis)) / most, _TINY)
    values = np.round(weights / scale).astype(np.int8)
    pairs = ((f"{name}/int8", values), (f"{name}/scale", scale.astype(np.float32)))
    return pairs[0][0], [numpy_helper.from_array(value, key) for key, value in pairs]
