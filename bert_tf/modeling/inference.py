"""The encoder for inference: made from a model's weights, in the form that is fastest in a runtime.

    encoder = InferenceEncoder(model, "onednn")
    outputs = encoder(inputs)     # those of model(inputs, training=False)

* The kernels of query, key and value are one variable.
* For TensorFlow on a CPU in bfloat16, kernels are [out, in], which oneDNN packs faster for AMX (a
  product of 32 rows takes 0.66 of the time; in float32 it takes longer), LayerNorm is a batch
  normalization over the rows, which is one oneDNN operation (a tenth of the time at 4,096 rows), and
  heads are transposed as 8-byte integers (half the time).

Shapes: B batch, S sequence (F from, T to), N heads, D size per head, R rows (B*S), H hidden,
I intermediate.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import keras
import tensorflow as tf
from keras import ops

from bert_tf.modeling.embeddings import Embeddings, rows_of_positions
from bert_tf.modeling.layers import get_activation, layer_forms
from bert_tf.modeling.transformer import TransformerBlock

# plain: helps every runtime. onednn: for TensorFlow on a CPU in bfloat16. formula: "plain" with
# LayerNorms operation for operation, which converters to ONNX and OpenVINO fuse.
Layout = Literal["plain", "onednn", "formula"]
_PARTS = ("query_key_value", "attention_output", "intermediate", "output")  # in a block
WORDS = "word_embeddings"  # name of the table next to those of `products`
FEW_ROWS = 100  # up to which TensorFlow's own operations are faster than oneDNN's

# TensorFlow's environment variable that makes oneDNN pack each kernel once instead of in every product,
# for a process whose weights never change. It is read when the first product is computed.
KEEP_KERNELS = "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"


def check_no_kept_kernels() -> None:
    """Raise ValueError if the environment keeps packed kernels, for a process that trains."""
    value = os.environ.get(KEEP_KERNELS, "")
    if value.lower() not in ("", "0", "false"):
        raise ValueError(
            f"{KEEP_KERNELS} is {value!r}, so TensorFlow would train with packed initial weights: run "
            f"`unset {KEEP_KERNELS}` first."
        )


@dataclass(frozen=True, eq=False)
class Affine:
    """x W + b (+ addend) with a kernel [in, out], or [out, in] if `transposed`."""

    kernel: keras.Variable
    bias: keras.Variable
    transposed: bool = False

    @classmethod
    def join(cls, layers: Sequence[keras.layers.Dense], transposed: bool = False) -> Affine:
        """Return the products of several layers with the same inputs as one, in new variables."""
        kernel = ops.concatenate([layer.kernel.value for layer in layers], axis=1)
        bias = ops.concatenate([layer.bias.value for layer in layers], axis=0)
        name, dtype = "_".join(layer.name for layer in layers), layers[0].kernel.dtype
        kernel = ops.transpose(kernel) if transposed else kernel
        return cls(
            keras.Variable(kernel, dtype=dtype, name=f"{name}_kernel"),
            keras.Variable(bias, dtype=dtype, name=f"{name}_bias"),
            transposed,
        )

    def __call__(self, inputs, addend=None):
        kernel, bias = ops.convert_to_tensor(self.kernel), ops.convert_to_tensor(self.bias)
        if self.transposed:
            outputs = tf.nn.bias_add(tf.matmul(inputs, kernel, transpose_b=True), bias)
        else:
            outputs = ops.add(ops.matmul(inputs, kernel), bias)
        return outputs if addend is None else outputs + addend


def products(model: keras.Model) -> dict[str, tuple[keras.layers.Dense, ...]]:
    """Return the products of a BERT's encoder in their order: name -> the layers with its weights."""
    layers: dict[str, tuple[keras.layers.Dense, ...]] = {}
    for block in getattr(model, "bert", model).encoder_layers:
        attention = block.self_attention
        layers[f"{block.name}/query_key_value"] = attention.query, attention.key, attention.value
        layers[f"{block.name}/attention_output"] = (block.attention_output.dense,)
        layers[f"{block.name}/intermediate"] = (block.intermediate,)
        layers[f"{block.name}/output"] = (block.feed_forward_output.dense,)
    return layers


class InferenceEncoder:
    """The encoder of a model for inference, in a `Layout`. The model itself is not changed.

    `replacements`: name in `products`, or `WORDS` -> what computes in its place, as those of int8.py.
    """

    def __init__(
        self,
        model: keras.Model,
        layout: Layout = "plain",
        replacements: Mapping[str, Any] | None = None,
    ):
        self._model, self._layout = model, layout
        replacements = replacements or {}
        self._table = replacements.get(WORDS)
        self._affines = {}
        for name, layers in products(model).items():
            affine = replacements.get(name)
            if affine is None and (layout == "onednn" or len(layers) > 1):
                affine = Affine.join(layers, transposed=layout == "onednn")
            self._affines[name] = affine or Affine(layers[0].kernel, layers[0].bias)

    @property
    def variables(self) -> list[keras.Variable]:
        """What the model computes with: its weights that are not replaced, and the replacements'."""
        replaced: list[keras.Variable] = []
        added: list[keras.Variable] = []
        if self._table is not None:
            replaced.append(getattr(self._model, "bert", self._model).embeddings.word_embeddings)
            added += [self._table.rows, self._table.scales]
        for name, layers in products(self._model).items():
            affine = self._affines[name]
            if affine.kernel is not layers[0].kernel:
                replaced += [variable for layer in layers for variable in layer.weights]
                added += [affine.kernel, affine.bias]
        ids = set(map(id, replaced))
        return [variable for variable in self._model.weights if id(variable) not in ids] + added

    def __call__(self, inputs: Mapping[str, Any]) -> Any:
        """Return the outputs of the model, computed with this encoder."""
        forms: dict[type, Callable] = {Embeddings: self._embeddings, TransformerBlock: self._block}
        with layer_forms(forms, training=False):
            return self._model(inputs, training=False)

    def _embeddings(self, layer: Embeddings, input_ids, segment_ids, position_ids=None):
        if self._table is None:
            words = ops.take(ops.convert_to_tensor(layer.word_embeddings), input_ids, axis=0)
        else:
            words = ops.cast(self._table(input_ids), layer.compute_dtype)  # [B, S, H]
        one_hot = ops.one_hot(segment_ids, layer.config.type_vocab_size, dtype=layer.compute_dtype)
        segments = ops.matmul(one_hot, layer.token_type_embeddings)  # [B, S, H]
        positions = ops.convert_to_tensor(layer.position_embeddings)
        positions = rows_of_positions(positions, position_ids, ops.shape(input_ids)[1])
        return self._norm(layer.layer_norm, words + segments + positions)

    def _block(self, block: TransformerBlock, hidden, bias):
        product = {part: self._affines[f"{block.name}/{part}"] for part in _PARTS}
        heads, size = block.config.num_attention_heads, block.config.size_per_head
        batch, length, width = ops.shape(hidden)
        transpose = transpose_in_units if self._layout == "onednn" else ops.transpose
        rows = ops.reshape(hidden, (-1, width))  # [R, H]

        joined = product["query_key_value"](rows)  # [R, 3H]
        joined = ops.reshape(joined, (batch, length, 3, heads, size))
        query, key, value = ops.unstack(transpose(joined, (2, 0, 3, 1, 4)), 3)  # [B, N, S, D]
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))  # [B, N, F, T]
        scores = scores * ops.cast(1.0 / math.sqrt(size), scores.dtype)
        probabilities = ops.softmax(scores + ops.cast(bias, scores.dtype))
        context = transpose(ops.matmul(probabilities, value), (0, 2, 1, 3))  # [B, F, N, D]
        context = tf.reshape(context, tf.shape(rows))  # [R, H]; equal shapes can be fused

        attended = product["attention_output"](context, rows)  # [R, H]
        attended = self._norm(block.attention_output.layer_norm, attended)
        intermediate = product["intermediate"](attended)  # [R, I]
        if not getattr(product["intermediate"], "fused", ()):  # else it contains the activation
            intermediate = get_activation(block.config.hidden_act)(intermediate)
        outputs = product["output"](intermediate, attended)  # [R, H]
        outputs = self._norm(block.feed_forward_output.layer_norm, outputs)
        return ops.reshape(outputs, (batch, length, width)), probabilities

    def _norm(self, layer: keras.layers.LayerNormalization, inputs):
        if self._layout == "plain":
            return layer(inputs)
        if self._layout == "formula":
            return _norm_formula(layer, inputs)
        rows = tf.reshape(inputs, (-1, inputs.shape[-1]))
        outputs = by_rows(
            rows, lambda few: _norm_formula(layer, few), lambda many: _batch_norm(layer, many)
        )
        return tf.reshape(outputs, tf.shape(inputs))


def _norm_formula(layer: keras.layers.LayerNormalization, inputs):
    x, gamma, beta = (ops.cast(v, "float32") for v in (inputs, layer.gamma, layer.beta))
    centered = x - ops.mean(x, axis=(-1,), keepdims=True)
    # OpenVINO fuses these operations only if the axes are a list.
    variance = ops.mean(ops.power(centered, 2.0), axis=(-1,), keepdims=True)
    outputs = centered / ops.sqrt(variance + layer.epsilon) * gamma + beta
    return ops.cast(outputs, inputs.dtype)


def _batch_norm(layer: keras.layers.LayerNormalization, inputs):
    """Compute [R, H] with a channel per row: the statistics of the "batch" are those of the row."""
    rows, size = tf.shape(inputs)[0], inputs.shape[1]
    normalized = tf.raw_ops.FusedBatchNormV3(
        x=tf.reshape(inputs, tf.stack([1, rows, size, 1])),
        scale=tf.fill([rows], tf.constant(1.0)),
        offset=tf.fill([rows], tf.constant(0.0)),
        mean=tf.constant([], tf.float32),
        variance=tf.constant([], tf.float32),
        epsilon=layer.epsilon,
        data_format="NCHW",
        is_training=True,
    ).y
    gamma, beta = (tf.cast(v, inputs.dtype) for v in (layer.gamma, layer.beta))
    return tf.reshape(normalized, tf.shape(inputs)) * gamma + beta


def by_rows(inputs, few, many):
    """Return few(inputs) for at most FEW_ROWS rows, else many(inputs): chosen when the graph runs."""
    return tf.cond(tf.shape(inputs)[0] <= FEW_ROWS, lambda: few(inputs), lambda: many(inputs))


def transpose_in_units(inputs, axes: Sequence[int]):
    """Transpose [..., D], which stays last, as 8-byte integers if D values are whole ones."""
    size, per_unit = inputs.shape[-1], 8 // inputs.dtype.size
    if size % per_unit:
        return tf.transpose(inputs, axes)
    in_units = tf.reshape(inputs, (*ops.shape(inputs)[:-1], size // per_unit, per_unit))
    values = tf.bitcast(tf.transpose(tf.bitcast(in_units, tf.int64), axes), inputs.dtype)
    return tf.reshape(values, (*ops.shape(values)[:-2], size))
