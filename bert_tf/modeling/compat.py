"""Private names of TensorFlow and Keras without a public equivalent, with version and reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.python.framework import op_def_library, op_def_registry


def stored_value(variable: keras.Variable) -> tf.Tensor:
    """Return the value of a variable as it is stored. Reading it in a layer would round it to bfloat16.

    Keras (3.15) casts a variable in every read or in none: keras-team/keras#19391.
    """
    return tf.convert_to_tensor(variable._value)


def has_operation(name: str) -> bool:
    """Return True if this TensorFlow (2.21) knows the operation; `tf.raw_ops` has no private ones."""
    return op_def_registry.get(name) is not None


def apply_operation(operation_name: str, **arguments: Any) -> tf.Tensor:
    """Return the first output of an operation that `tf.raw_ops` (TensorFlow 2.21) does not have.

    `_QuantizedMatMul` has no function in Python: tensorflow/tensorflow#66087.
    """
    *_, operation, _ = op_def_library._apply_op_helper(operation_name, **arguments)
    return operation.outputs[0]


def call_module(
    module: str, operands: Sequence[Any], results: Sequence[tuple[Any, Any]], platform: str
) -> Sequence[tf.Tensor]:
    """Return the results of a StableHLO module, as text, within a compiled function.

    `tf.raw_ops` does not have the operation, which is made for `jax2tf` (TensorFlow 2.21).

    Args:
        results: dtype and shape of each.
        platform: "CUDA" or "CPU"; on another one the compilation fails.
    """
    dtypes, shapes = zip(*results, strict=True)
    return xla.call_module(
        operands,
        version=9,
        module=module,
        Tout=dtypes,
        Sout=[tf.TensorShape(shape) for shape in shapes],
        platforms=[platform],
    )
