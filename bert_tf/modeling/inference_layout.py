"""Keras' Dense and LayerNormalization, with a second variable layout for inference.

`prepare_to_answer` changes a model to that layout. It computes the same, but faster:

* The kernels of query, key and value are one variable instead of concatenated in every call.
* For TensorFlow on a CPU in bfloat16, kernels are [out, in], which oneDNN packs faster for AMX. A
  product of 32 rows takes 0.66 of the time. In float32 packing takes longer (1.6 to 2.2 times the whole
  time of one short text).
* On such a CPU LayerNorm is one batch normalization over the rows. TensorFlow's optimizer makes it
  one oneDNN operation (a tenth of the time at 4,096 rows), if there is oneDNN.

Shapes: R rows (B*S), H hidden.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import keras
from keras import ops

if keras.config.backend() == "tensorflow":
    import tensorflow as tf

# TensorFlow's variable to make oneDNN pack each kernel once instead of in every product. It is read
# when the first product is computed.
KEEP_KERNELS = "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"


def keep_packed_kernels() -> None:
    """Let oneDNN keep packed kernels, for a process whose weights never change.

    A value that the user set in the environment is kept. Later changes of weights have no effect.
    """
    os.environ.setdefault(KEEP_KERNELS, "1")


def check_no_kept_kernels() -> None:
    """Raise ValueError if the environment keeps packed kernels, for a process that trains."""
    value = os.environ.get(KEEP_KERNELS, "")
    if value.lower() not in ("", "0", "false"):
        raise ValueError(
            f"The environment variable {KEEP_KERNELS} is {value!r}, so TensorFlow would keep using the "
            "initial weights during training. It is for inference only (docs/serving.md). "
            f"Run `unset {KEEP_KERNELS}` first."
        )


@dataclass(frozen=True, eq=False)
class Affine:
    """x W + b with a kernel [in, out], or [out, in] if `transposed`."""

    kernel: keras.Variable
    bias: keras.Variable
    transposed: bool = False

    def __call__(self, inputs):
        kernel, bias = ops.convert_to_tensor(self.kernel), ops.convert_to_tensor(self.bias)
        if not self.transposed:
            return ops.add(ops.matmul(inputs, kernel), bias)
        return tf.nn.bias_add(tf.matmul(inputs, kernel, transpose_b=True), bias)


class Dense(keras.layers.Dense):
    """Keras' Dense, computed by `affine` on [R, in] once that is set."""

    affine: Affine | None = None

    def call(self, inputs, training=None):
        if self.affine is None:
            return super().call(inputs, training=training)
        return self.activation(self.affine(inputs))


class LayerNorm(keras.layers.LayerNormalization):
    """Keras' LayerNormalization over the last axis.

    Attributes:
        in_one_operation: compute it as one batch normalization.
        as_formula: compute it by the formula, operation for operation, which runtimes of ONNX fuse.
    """

    in_one_operation = False
    as_formula = False

    def call(self, inputs):
        if self.as_formula:
            centered = inputs - ops.mean(inputs, axis=-1, keepdims=True)
            variance = ops.mean(ops.power(centered, 2.0), axis=-1, keepdims=True)
            return centered / ops.sqrt(variance + self.epsilon) * self.gamma + self.beta
        if not self.in_one_operation:
            return super().call(inputs)
        size, shape = self.gamma.shape[0], tf.shape(inputs)
        rows = tf.size(inputs) // size
        # A channel per row, so that the statistics of the "batch" are those of the row.
        normalized = tf.raw_ops.FusedBatchNormV3(
            x=tf.reshape(inputs, tf.stack([1, rows, size, 1])),
            scale=tf.fill([rows], tf.constant(1.0)),
            offset=tf.fill([rows], tf.constant(0.0)),
            mean=tf.constant([], tf.float32),
            variance=tf.constant([], tf.float32),
            epsilon=self.epsilon,
            data_format="NCHW",
            is_training=True,
        ).y
        gamma, beta = (tf.cast(v, inputs.dtype) for v in (self.gamma, self.beta))
        return tf.reshape(normalized, shape) * gamma + beta


def in_shape_of(example, inputs):
    """Reshape `inputs` like `example`, so that TensorFlow can fuse their sum with a product."""
    # It fuses equal shapes only, and numbers of rows that are computed separately count as different.
    if keras.config.backend() == "tensorflow":
        return tf.reshape(inputs, tf.shape(example))
    return ops.reshape(inputs, ops.shape(example))


def prepare_to_answer(
    model: keras.Model, *, for_onednn: bool, for_onnx: bool = False
) -> list[keras.Variable]:
    """Change a model for faster inference. It can no longer be trained or saved.

    Args:
        model: a BERT with or without a head.
        for_onednn: whether TensorFlow will run it on a CPU in bfloat16. Otherwise only query, key and
            value are joined, which helps every runtime.
        for_onnx: whether the graph will be converted to ONNX, so LayerNorms are the formula.

    Returns:
        The variables that the model now uses.
    """
    bert = getattr(model, "bert", model)
    replaced: set[int] = set()
    added: list[keras.Variable] = []

    def replace(layers: Sequence[keras.layers.Dense]) -> Affine:
        affine = _joined(layers, transposed=for_onednn)
        replaced.update(id(variable) for layer in layers for variable in layer.weights)
        added.extend([affine.kernel, affine.bias])
        return affine

    def set_norm(norm: LayerNorm) -> None:
        norm.in_one_operation, norm.as_formula = for_onednn, for_onnx

    set_norm(bert.embeddings.layer_norm)
    for block in bert.encoder_layers:
        attention, halves = (
            block.self_attention,
            (block.attention_output, block.feed_forward_output),
        )
        attention.affine = replace([attention.query, attention.key, attention.value])
        for half in halves:
            set_norm(half.layer_norm)
        for dense in (block.intermediate, *(half.dense for half in halves)):
            dense.affine = replace([dense]) if for_onednn else None
    return [variable for variable in model.weights if id(variable) not in replaced] + added


def _joined(layers: Sequence[keras.layers.Dense], transposed: bool) -> Affine:
    """Return the products of these layers as one."""
    kernel = ops.concatenate([layer.kernel.value for layer in layers], axis=1)
    bias = ops.concatenate([layer.bias.value for layer in layers], axis=0)
    names = [layer.path.split("/")[-1] for layer in layers]
    with ExitStack() as scopes:
        for name in (*layers[0].path.split("/")[:-1], "_".join(names)):
            scopes.enter_context(keras.name_scope(name))
        kernel, bias = (
            keras.Variable(value, dtype=layers[0].kernel.dtype, name=name)
            for name, value in (
                ("kernel", ops.transpose(kernel) if transposed else kernel),
                ("bias", bias),
            )
        )
        return Affine(kernel, bias, transposed)
