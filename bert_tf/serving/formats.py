"""Files for other runtimes: TFLite, ONNX and OpenVINO.

    model.tflite, model.onnx, or model.xml with model.bin
        input_ids, input_mask, segment_ids: int32 [B, S] -> the numeric outputs of `tokens`
    export.json, task.json, bert_config.json, vocab.txt, labels.txt     next to it

The files contain no tokenizer: clients make the ids with `FullTokenizer` (standard library only) or any
other WordPiece tokenizer with the same vocabulary and rules.

On a processor with bfloat16 instructions, OpenVINO computes in bfloat16 unless the program that loads a
file sets INFERENCE_PRECISION_HINT. A float32 file contains the hint "f32", which our runtime obeys
(prediction/loading.py). OpenVINO 2026.4 itself ignores it in a file.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.files import atomic_folder
from bert_tf.modeling.inference import InferenceEncoder
from bert_tf.prediction.loading import FILES, TOKENS, openvino_name, preserve_logging
from bert_tf.serving.saved_model import describe, metadata, write_files
from bert_tf.serving.served import Outputs, Served


def write_file(
    served: Served,
    export_dir: str,
    format: str,
    precision: str = "float32",
    calibration: Sequence[Mapping[str, np.ndarray]] = (),
    source: Mapping[str, Any] | None = None,
    check: Callable[[str], Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Write a folder with a file on ids; return its metadata. The folder appears when complete.

    Args:
        served: the model, in float32.
        precision: "float32". Of TFLite "float16": half-size weights, computed in float32; "int8": 8-bit
            weights of the products, whose inputs are quantized at run time. Of OpenVINO "bfloat16":
            weights as float16, computed in bfloat16 if the processor has it; "int8": 8-bit weights and
            inputs of the products, whose ranges NNCF measures.
    """
    convert = {"tflite": _to_tflite, "onnx": _to_onnx, "openvino": _to_openvino}[format]
    with atomic_folder(export_dir, "export_dir") as folder, tempfile.TemporaryDirectory() as local:
        path = os.path.join(local, FILES[format])
        function = convert(served, path, precision, calibration)
        signature = describe(function.get_concrete_function())
        # Inputs other than ids are weights, which the file contains.
        signature["inputs"] = {name: signature["inputs"][name] for name in served.ids_specs()}
        values = metadata(served, precision, source) | {"format": format, "file": FILES[format]}
        values["signatures"] = {TOKENS: signature}
        if check is not None:
            values |= check(path)
        for name in os.listdir(local):  # runtimes read local files, but export_dir may be gs://
            tf.io.gfile.copy(os.path.join(local, name), os.path.join(folder, name))
        write_files(served, folder, values)
    return values


def numeric_tokens(
    served: Served, encoder: InferenceEncoder, weights_are_inputs: bool = False
) -> Any:
    """Return `tokens`, computed by `encoder`, as a graph without strings and variables.

    It takes the inputs of `ids_specs` by position, then the weights, which are else constants.
    """
    served, weights = replace(served, network=encoder), encoder.variables
    ids_specs = served.ids_specs()
    specs = list(ids_specs.values())
    arrays = [] if weights_are_inputs else [weight.numpy() for weight in weights]
    if weights_are_inputs:
        specs += [
            tf.TensorSpec(variable.shape, variable.dtype, f"weight_{number}")
            for number, variable in enumerate(weights)
        ]

    @tf.function(input_signature=specs, autograph=False)
    def tokens(*values: tf.Tensor) -> Outputs:
        tensors = values[len(ids_specs) :] or [tf.constant(array) for array in arrays]
        with keras.StatelessScope(list(zip(weights, tensors, strict=True))):
            outputs = served.tokens(**dict(zip(ids_specs, values, strict=False)))
        return {name: value for name, value in outputs.items() if value.dtype != tf.string}

    return tokens


def _to_tflite(served: Served, path: str, precision: str, _: Any) -> Any:
    """Write the file; return `tokens` as it computes it, as the other two functions do."""
    function = numeric_tokens(served, InferenceEncoder(served.model))
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(tf.Module(), folder, signatures={TOKENS: function})
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=[TOKENS])
        if precision != "float32":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if precision == "float16":
            converter.target_spec.supported_types = [tf.float16]
        Path(path).write_bytes(converter.convert())
    return function


def _to_onnx(served: Served, path: str, *_: Any) -> Any:
    """Convert a graph whose weights are inputs, and make these initializers.

    tf2onnx copies each array of a graph many times (21.7 GB for BERT-Base, which has 0.4).
    """
    import tf2onnx
    from onnx import numpy_helper

    encoder = InferenceEncoder(served.model, "formula")
    function = numeric_tokens(served, encoder, weights_are_inputs=True)
    model, _ = tf2onnx.convert.from_function(
        function,
        input_signature=function.input_signature,
        opset=18,  # the newest that tf2onnx 1.17 supports
        custom_op_handlers={"Erfc": (_replace_erfc, [])},
    )
    weights = {f"weight_{number}": variable for number, variable in enumerate(encoder.variables)}
    inputs = list(model.graph.input)
    del model.graph.input[:]
    for value in inputs:
        if value.name in weights:
            array = numpy_helper.from_array(weights[value.name].numpy(), value.name)
            model.graph.initializer.append(array)
        else:
            model.graph.input.append(value)
    Path(path).write_bytes(model.SerializeToString())
    return function


def _replace_erfc(graph: Any, node: Any, name: str, _: Any) -> None:
    """Replace erfc(-x / sqrt(2)) of "gelu_erf" by 1 + erf(x / sqrt(2)), because ONNX has no erfc.

    Runtimes recognize this form, with a division, as GELU.
    """
    (scaled,), (output,) = node.inputs, node.output
    negative = next(node for node in scaled.inputs if node.type == "Neg")
    of_output = {"shapes": [graph.get_shape(output)], "dtypes": [graph.get_dtype(output)]}
    graph.remove_node(name)
    root = graph.make_const(f"{name}/root", np.array(math.sqrt(2.0), np.float32))
    ratio = graph.make_node("Div", [negative.input[0], root.output[0]], **of_output)
    erf = graph.make_node("Erf", [ratio.output[0]], **of_output)
    one = graph.make_const(f"{name}/one", np.array(1.0, np.float32))
    graph.make_node("Add", [erf.output[0], one.output[0]], name=name, outputs=[output], **of_output)


def _to_openvino(
    served: Served, path: str, precision: str, calibration: Sequence[Mapping[str, np.ndarray]]
) -> Any:
    function = numeric_tokens(served, InferenceEncoder(served.model, "formula"))
    with preserve_logging():
        import openvino

        model = openvino.convert_model(function)
    if precision == "int8":
        import nncf

        model = nncf.quantize(
            model,
            nncf.Dataset(calibration),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(calibration),
        )
    elif precision == "float32":
        model.set_rt_info("f32", ["runtime_options", "INFERENCE_PRECISION_HINT"])
    for port in (*model.inputs, *model.outputs):  # servers use any of several names
        port.get_tensor().set_names({openvino_name(port)})
    openvino.save_model(model, path, compress_to_fp16=precision == "bfloat16")
    return function
