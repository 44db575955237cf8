"""Products of 8-bit integers, for inference with TensorFlow on CPUs.

The inputs become unsigned integers in a fixed range. The kernel becomes signed ones, with a scale for
each output:

    q = round((x - low) * 255 / (high - low))
    x W + b  ~  (high - low) / 255 * q W + (low * sum_in W + b)

`_QuantizedMatMul` computes the product, the bias, the activation and the conversion to floats in one
operation of oneDNN. TensorFlow's CPU wheels have it without a public name in Python.

Few columns of the inputs have much larger values than the others. Factors move a part of this difference
into the kernel (SmoothQuant, arXiv 2211.10438), so that one range suits all columns.

Shapes: R rows (B*S).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_library

OPERATION = "_QuantizedMatMul"
# hidden_act -> the same within the product.
ACTIVATIONS = {"gelu": "GeluExact", "gelu_new": "GeluApproximate", "relu": "Relu", "tanh": "Tanh"}


@dataclass(frozen=True, eq=False)
class QuantizedAffine:
    """activation(x W + b) in 8-bit integers, on [R, in].

    Args:
        kernel: int8 [in, out].
        bias: float32 [out], with the effect of `low`.
        largest: float32 [out], the value of 127 in each column of the kernel.
        low, high: range of the inputs; values beyond are clipped.
        factors: float32 [in], multiplied with the inputs before that. The kernel is divided by them.
        fused: operations after the bias, of `ACTIVATIONS`.
    """

    kernel: keras.Variable
    bias: keras.Variable
    largest: np.ndarray
    low: float
    high: float
    factors: np.ndarray | None = None
    fused: Sequence[str] = ()

    @property
    def variables(self) -> list[keras.Variable]:
        return [self.kernel, self.bias]

    def __call__(self, inputs: tf.Tensor, addend: tf.Tensor | None = None) -> tf.Tensor:
        """Return [R, out] in the type of the inputs, float32 or bfloat16.

        Args:
            addend: [R, out], added to the result. Then there must be no activation.
        """
        floats = tf.cast(inputs, tf.float32)
        # MIN_COMBINED is TensorFlow's own kernel. The others are oneDNN's: 80 us more for each call.
        quantized = tf.raw_ops.QuantizeV2(
            input=floats if self.factors is None else floats * self.factors,
            min_range=self.low,
            max_range=self.high,
            T=tf.quint8,
            mode="MIN_COMBINED",
        ).output
        dtype = inputs.dtype
        fused = [*self.fused, *([] if addend is None else ["Add"])]
        # The ranges belong to the key of oneDNN's primitive: constants, so that it is made once.
        ranges = (0.0, self.high - self.low, -self.largest, self.largest)
        arguments = [quantized, tf.bitcast(self.kernel.value, tf.qint8), self.bias.value]
        *_, operation, _ = op_def_library._apply_op_helper(
            OPERATION,
            name="QuantizedMatMul",
            device_inputs=arguments if addend is None else [*arguments, addend],
            host_inputs=[tf.constant(value, tf.float32) for value in ranges],
            Tdevice_outputs=[dtype],
            Thost_outputs=[],
            T1=tf.quint8,
            T2=tf.qint8,
            Tbias=tf.float32,
            U=dtype,
            Tout=dtype,
            transpose_a=False,
            transpose_b=False,
            is_weight_const=True,
            is_bias_const=True,
            fused_ops=["BiasAdd", *fused, "Dequantize"],
            input_quant_mode="SCALED",
            output_quant_mode="SCALED",
            leakyrelu_alpha=0.2,
        )
        outputs = operation.outputs[0]
        outputs.set_shape([inputs.shape[0], self.kernel.shape[1]])
        return outputs


def quantized_kernel(kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a kernel [in, out] as int8, and the value of 127 in each column: float32 [out]."""
    largest = np.maximum(np.abs(kernel).max(axis=0), np.finfo(np.float32).tiny).astype(np.float32)
    return np.round(kernel / largest * 127).astype(np.int8), largest


def quantized_inputs(inputs: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return inputs as the product sees them: rounded to one of 256 values and clipped."""
    step = (high - low) / 255
    return np.round((np.clip(inputs, low, high) - low) / step) * step + low
