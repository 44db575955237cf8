"""OpenVINO files: the model on ids, for OpenVINO Runtime and OpenVINO Model Server.

    model.xml, model.bin     input_ids, input_mask, segment_ids: int32 [B, S] -> the numeric outputs of
                             `tokens`
    export.json, task.json, bert_config.json, vocab.txt, labels.txt     next to them

Like a TFLite file (lite.py), they contain no tokenizer. OpenVINO converts the model, and NNCF quantizes
it: both are in the extra [openvino].

On a processor with bfloat16 instructions, OpenVINO computes in bfloat16 unless the program that loads a
file sets INFERENCE_PRECISION_HINT. A float32 file contains the hint "f32", which our runtime obeys
(prediction/runtimes.py). OpenVINO 2026.4 itself ignores it in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.prediction.runtimes import logging_kept, openvino_name
from bert_tf.serving.saved_model import write_file
from bert_tf.serving.served import Served

_HINT = ("runtime_options", "INFERENCE_PRECISION_HINT")


def write_openvino(
    served: Served,
    export_dir: str,
    precision: str = "float32",
    calibration: Sequence[Mapping[str, np.ndarray]] = (),
    check: Callable[[str], Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Write a folder with OpenVINO's files; return its metadata. The folder appears when complete.

    Args:
        served: the model, in float32.
        export_dir: missing or empty.
        precision: "float32". "bfloat16": weights in 16 bits (as float16, which has more digits);
            computed in bfloat16 if the processor has it, else in float32. "int8": 8-bit weights and
            inputs of the products, whose ranges NNCF measures.
        calibration: for "int8", batches of ids, as `calibration.calibration_ids` returns them.
        check: gets the file before its folder appears; returns more metadata, or raises.
    """
    served.prepare("formula")
    function = served.numeric_tokens()
    with logging_kept():
        import openvino

        model = openvino.convert_model(function)
    if precision == "int8":
        nothing = {name: np.zeros((1, 1), np.int32) for name in served.ids_specs()}
        model = _quantized(model, [{**nothing, **batch} for batch in calibration])
    elif precision == "float32":
        model.set_rt_info("f32", list(_HINT))
    for port in (*model.inputs, *model.outputs):  # servers use any of several names
        port.get_tensor().set_names({openvino_name(port)})
    signature = function.get_concrete_function()

    def save(path: str) -> None:
        openvino.save_model(model, path, compress_to_fp16=precision == "bfloat16")

    return write_file(served, export_dir, "openvino", precision, signature, save, check)


def _quantized(model: Any, calibration: Sequence[Mapping[str, np.ndarray]]) -> Any:
    """Return the model with 8-bit products."""
    import nncf

    return nncf.quantize(
        model,
        nncf.Dataset(list(calibration)),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(calibration),
    )
