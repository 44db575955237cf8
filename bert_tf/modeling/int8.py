"""Products and tables of 8-bit integers, for inference with TensorFlow on CPUs.

    q = round((x - low) * 255 / (high - low))
    x W + b  ~  (high - low) / 255 * q W + (low * sum_in W + b)

`_QuantizedMatMul` computes the product, the bias, the activation and the conversion to floats in one
operation of oneDNN. TensorFlow's CPU wheels have it without a public name in Python (compat.py).

A few columns of the inputs have much larger values than the others. Factors move a part of this
difference into the kernel (SmoothQuant, arXiv 2211.10438), so that one range suits all columns.

Shapes: R rows (B*S).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from bert_tf.modeling.compat import apply_operation
from bert_tf.modeling.inference import by_rows

OPERATION = "_QuantizedMatMul"
# Processors without an instruction for 8 bits add two products in 16 bits, which has room for
# 2 * 255 * 64 and not for 2 * 255 * 127.
OVERFLOW_FREE = 63
# hidden_act -> the same within the product.
ACTIVATIONS = {"gelu": "GeluApproximate", "gelu_erf": "GeluExact", "relu": "Relu", "tanh": "Tanh"}


@dataclass(frozen=True, eq=False)
class QuantizedAffine:
    """activation(x W + b) in 8-bit integers, on [R, in].

    Args:
        kernel: int8 [in, out].
        bias: float32 [out], with the effect of `low`.
        largest: float32 [out], the magnitude in each column of the kernel that is stored as 127.
        low, high: range of the inputs, with 0 among its 256 values; values beyond are clipped.
        factors: float32 [in], multiplied with the inputs, by which the kernel is divided.
        fused: operations after the bias, of `ACTIVATIONS`.
        result: range of 8-bit outputs, the inputs of the next product. None: they are floats.
    """

    kernel: keras.Variable
    bias: keras.Variable
    largest: np.ndarray
    low: float
    high: float
    factors: np.ndarray | None = None
    fused: Sequence[str] = ()
    result: tuple[float, float] | None = None

    def __call__(self, inputs: tf.Tensor, addend: tf.Tensor | None = None) -> tf.Tensor:
        """[R, in], or uint8 of a product with `result` -> [R, out], like the addend or the inputs.

        With an addend [R, out] there must be no activation. With `result` the outputs are uint8.
        """
        if inputs.dtype == tf.uint8:
            quantized = tf.bitcast(inputs, tf.quint8)
        else:
            quantized = self._quantize(inputs)
        floats = inputs.dtype if addend is None else addend.dtype
        # The ranges belong to the key of oneDNN's primitive: constants, so that it is made once.
        ranges = [0.0, self.high - self.low, -self.largest, self.largest, *(self.result or ())]
        arguments = [quantized, tf.bitcast(self.kernel.value, tf.qint8), self.bias.value]
        dtype = floats if self.result is None else tf.quint8
        fused = [*self.fused, *([] if addend is None else ["Add"])]
        outputs = apply_operation(
            OPERATION,
            name="QuantizedMatMul",
            device_inputs=arguments if addend is None else [*arguments, addend],
            host_inputs=[tf.constant(value, tf.float32) for value in ranges],
            Tdevice_outputs=[dtype],
            Thost_outputs=[] if self.result is None else [tf.float32, tf.float32],
            T1=tf.quint8,
            T2=tf.qint8,
            Tbias=tf.float32,
            U=floats,
            Tout=dtype,
            transpose_a=False,
            transpose_b=False,
            is_weight_const=True,
            is_bias_const=True,
            fused_ops=["BiasAdd", *fused, "Dequantize" if self.result is None else "Requantize"],
            input_quant_mode="SCALED",
            output_quant_mode="MIN_FIRST",
            leakyrelu_alpha=0.2,
        )
        outputs.set_shape([inputs.shape[0], self.kernel.shape[1]])
        return outputs if self.result is None else tf.bitcast(outputs, tf.uint8)  # a type of Keras

    def _quantize(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return quint8 [R, in]."""
        floats = tf.cast(inputs, tf.float32)
        if self.factors is not None:
            floats *= self.factors
        quantize = functools.partial(
            tf.raw_ops.QuantizeV2, min_range=self.low, max_range=self.high, T=tf.quint8
        )
        # The same values: 0 is one of the 256. The second is oneDNN's.
        return by_rows(
            floats,
            lambda rows: quantize(input=rows, mode="MIN_COMBINED").output,
            lambda rows: quantize(input=rows, mode="MIN_FIRST").output,
        )


@dataclass(frozen=True, eq=False)
class QuantizedTable:
    """Rows of 8-bit integers [V, H], each with its float32 scale [V, 1]."""

    rows: keras.Variable
    scales: keras.Variable

    def __call__(self, ids: tf.Tensor) -> tf.Tensor:
        """int32 [...] -> float32 [..., H]."""
        rows, scales = (tf.gather(part.value, ids) for part in (self.rows, self.scales))
        return tf.cast(rows, tf.float32) * scales


def quantize_kernel(kernel: np.ndarray, max_weight: int = 127) -> tuple[np.ndarray, np.ndarray]:
    """Return a kernel [in, out] as int8 up to `max_weight`, and each column's magnitude of 127."""
    largest = np.maximum(np.abs(kernel).max(axis=0), np.finfo(np.float32).tiny).astype(np.float32)
    largest *= np.float32(127 / max_weight)
    return np.round(kernel / largest * 127).astype(np.int8), largest


def round_range(low: float, high: float) -> tuple[float, float]:
    """Return a range low <= 0 <= high, moved by at most half a step, with 0 among its 256 values."""
    if low == high:  # all measured inputs are 0
        high = 1.0
    step = (high - low) / 255
    low = round(low / step) * step
    return low, low + 255 * step


def quantize_inputs(inputs: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return inputs as the product sees them: rounded to one of 256 values and clipped."""
    step = (high - low) / 255
    return np.round((np.clip(inputs, low, high) - low) / step) * step + low
