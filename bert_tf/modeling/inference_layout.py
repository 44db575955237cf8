"""Keras' Dense and LayerNormalization, with a second variable layout for inference.

`prepare_to_answer` changes a model to that layout. It computes the same, but faster:

* The kernels of query, key and value are one variable instead of concatenated in every call.
* For TensorFlow on a CPU in bfloat16, kernels are [out, in], which oneDNN packs faster for AMX. A
  product of 32 rows takes 0.66 of the time. In float32 packing takes longer (1.6 to 2.2 times the whole
  time of one short text).
* On such a CPU LayerNorm is one batch normalization over the rows. TensorFlow's optimizer makes it
  one oneDNN operation (a tenth of the time at 4,096 rows), if there is oneDNN. Its start takes longer
  than the whole formula for few rows, so the graph chooses by their number.
* On such a CPU heads are transposed as 8-byte integers (half the time).

Shapes: R rows (B*S), H hidden.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import keras
from keras import ops

if keras.config.backend() == "tensorflow":
    import tensorflow as tf

Layout = Literal["plain", "onednn", "formula"]

# TensorFlow's variable to make oneDNN pack each kernel once instead of in every product. It is read
# when the first product is computed.
KEEP_KERNELS = "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"

WORDS = "word_embeddings"  # name of the table next to those of `products`
FEW_ROWS = 100  # up to which TensorFlow's own operations are faster than oneDNN's


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
    """x W + b (+ addend) with a kernel [in, out], or [out, in] if `transposed`."""

    kernel: keras.Variable
    bias: keras.Variable
    transposed: bool = False

    def __call__(self, inputs, addend=None):
        kernel, bias = ops.convert_to_tensor(self.kernel), ops.convert_to_tensor(self.bias)
        if self.transposed:
            outputs = tf.nn.bias_add(tf.matmul(inputs, kernel, transpose_b=True), bias)
        else:
            outputs = ops.add(ops.matmul(inputs, kernel), bias)
        return outputs if addend is None else outputs + addend


class Dense(keras.layers.Dense):
    """Keras' Dense, computed by `affine` on [R, in] once that is set."""

    affine: Callable[..., Any] | None = None

    def call(self, inputs, training=None):
        if self.affine is None:
            return super().call(inputs, training=training)
        return self.activation(self.affine(inputs))


class LayerNorm(keras.layers.LayerNormalization):
    """Keras' LayerNormalization over the last axis.

    Attributes:
        layout: "onednn" computes one batch normalization; "formula" computes the formula, operation for
            operation, which runtimes fuse.
    """

    layout: Layout = "plain"

    def call(self, inputs):
        if self.layout == "formula":
            return self._formula(inputs)
        if self.layout == "plain":
            return super().call(inputs)
        rows = tf.reshape(inputs, (-1, inputs.shape[-1]))
        return tf.reshape(by_rows(rows, self._formula, self._batch_norm), tf.shape(inputs))

    def _formula(self, inputs):
        x, gamma, beta = (ops.cast(v, "float32") for v in (inputs, self.gamma, self.beta))
        centered = x - ops.mean(x, axis=(-1,), keepdims=True)
        # OpenVINO fuses these operations only if the axes are a list.
        variance = ops.mean(ops.power(centered, 2.0), axis=(-1,), keepdims=True)
        outputs = centered / ops.sqrt(variance + self.epsilon) * gamma + beta
        return ops.cast(outputs, inputs.dtype)

    def _batch_norm(self, inputs):
        """Compute [R, H] with a channel per row: the statistics of the "batch" are those of the row."""
        rows, size = tf.shape(inputs)[0], inputs.shape[1]
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
        return tf.reshape(normalized, tf.shape(inputs)) * gamma + beta


def by_rows(inputs, few, many):
    """Return few(inputs) for at most FEW_ROWS rows, else many(inputs): chosen when the graph runs."""
    return tf.cond(tf.shape(inputs)[0] <= FEW_ROWS, lambda: few(inputs), lambda: many(inputs))


def transpose_in_units(inputs, axes: Sequence[int]):
    """Transpose [..., D] as 8-byte integers, if D values are a whole number of them.

    Args:
        axes: of the result; D stays last.
    """
    size, per_unit = inputs.shape[-1], 8 // inputs.dtype.size
    if size % per_unit:
        return tf.transpose(inputs, axes)
    in_units = tf.reshape(inputs, (*ops.shape(inputs)[:-1], size // per_unit, per_unit))
    values = tf.bitcast(tf.transpose(tf.bitcast(in_units, tf.int64), axes), inputs.dtype)
    return tf.reshape(values, (*ops.shape(values)[:-2], size))


def in_shape_of(example, inputs):
    """Reshape `inputs` like `example`, so that TensorFlow can fuse their sum with a product."""
    # It fuses equal shapes only, and numbers of rows that are computed separately count as different.
    if keras.config.backend() == "tensorflow":
        return tf.reshape(inputs, tf.shape(example))
    return ops.reshape(inputs, ops.shape(example))


@dataclass(frozen=True)
class Product:
    """A product of the encoder.

    Args:
        layer: its `affine` computes the product, if set.
        dense: Keras' layers with its weights; three for query, key and value.
    """

    layer: Any
    dense: Sequence[keras.layers.Dense]

    def joined(self, transposed: bool = False) -> Affine:
        """Return the layers as one product in new variables."""
        kernel = ops.concatenate([layer.kernel.value for layer in self.dense], axis=1)
        bias = ops.concatenate([layer.bias.value for layer in self.dense], axis=0)
        names = [layer.path.split("/")[-1] for layer in self.dense]
        with ExitStack() as scopes:
            for name in (*self.dense[0].path.split("/")[:-1], "_".join(names)):
                scopes.enter_context(keras.name_scope(name))
            kernel, bias = (
                keras.Variable(value, dtype=self.dense[0].kernel.dtype, name=name)
                for name, value in (
                    ("kernel", ops.transpose(kernel) if transposed else kernel),
                    ("bias", bias),
                )
            )
            return Affine(kernel, bias, transposed)


def products(model: keras.Model) -> dict[str, Product]:
    """Return the products of the encoder by name, in the order of their computation.

    Args:
        model: a BERT with or without a head.
    """
    found = {}
    for number, block in enumerate(getattr(model, "bert", model).encoder_layers):
        attention = block.self_attention
        joined = (attention.query, attention.key, attention.value)
        found[f"layer_{number}/query_key_value"] = Product(attention, joined)
        for name, dense in (
            ("attention_output", block.attention_output.dense),
            ("intermediate", block.intermediate),
            ("output", block.feed_forward_output.dense),
        ):
            found[f"layer_{number}/{name}"] = Product(dense, (dense,))
    return found


def prepare_to_answer(
    model: keras.Model,
    layout: Layout = "plain",
    quantized: Mapping[str, Any] | None = None,
) -> list[keras.Variable]:
    """Change a model for faster inference. It can no longer be trained or saved.

    Args:
        model: a BERT with or without a head.
        layout: "plain" only joins query, key and value, which helps every runtime. "onednn" is for
            TensorFlow on a CPU in bfloat16. "formula" is "plain" with LayerNorms as their formula, for
            converters to ONNX and OpenVINO.
        quantized: name in `products`, or `WORDS` -> its replacement of quantized.py.

    Returns:
        The variables that the model now uses.
    """
    bert, quantized = getattr(model, "bert", model), quantized or {}
    replaced: set[int] = set()
    added: list[keras.Variable] = []
    if (table := quantized.get(WORDS)) is not None:
        bert.embeddings.table = table
        replaced.add(id(bert.embeddings.word_embeddings))
        added.extend([table.rows, table.scales])
    for name, product in products(model).items():
        affine = quantized.get(name)
        if affine is not None:
            if affine.fused:
                product.layer.activation = keras.activations.linear
        elif layout == "onednn" or len(product.dense) > 1:
            affine = product.joined(transposed=layout == "onednn")
        product.layer.affine = affine
        if affine is not None:
            replaced.update(id(variable) for layer in product.dense for variable in layer.weights)
            added.extend([affine.kernel, affine.bias])
    for block in bert.encoder_layers:
        for half in (block.attention_output, block.feed_forward_output):
            half.layer_norm.layout = layout
        block.self_attention.layout = layout
    bert.embeddings.layer_norm.layout = layout
    return [variable for variable in model.weights if id(variable) not in replaced] + added
