"""Multi-head self-attention.

Shapes: B batch, S sequence (F from, T to), N heads, D size per head, H = N * D hidden.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.modeling import fused
from bert_tf.modeling.dropout import Dropout
from bert_tf.modeling.embeddings import ConfiguredLayer, truncated_normal
from bert_tf.modeling.inference_layout import Dense, Layout, transpose_in_units

MASKED_SCORE = -10000.0


def attention_bias(mask, left_to_right=False):
    """Return the bias of the attention scores: 0 where attention is allowed, else -10000.

    -10000 is the reference's value. It keeps a completely masked row finite.

    Args:
        mask: [B, T] (1 = real token, 0 = padding), or [B, F, T] (1 = F may attend to T).
        left_to_right: additionally restrict attention to T <= F.

    Returns:
        float32 [B, 1, 1, T] or [B, 1, F, T].
    """
    mask = ops.cast(mask, "float32")
    # As a slice TFLite has no operation.
    mask = ops.expand_dims(mask, (1, 2) if len(mask.shape) == 2 else 1)
    if left_to_right:
        position = ops.arange(ops.shape(mask)[-1], dtype="int32")
        mask = mask * ops.cast(position[:, None] >= position, "float32")  # [B, 1, F, T]
    return (1.0 - mask) * MASKED_SCORE


def _softmax(scores):
    """Return the softmax over the last axis. Keras would warn of inputs of one token."""
    if scores.shape[-1] == 1:
        return ops.exp(scores - scores)  # 1, with a gradient of 0
    return ops.softmax(scores, axis=-1)


@keras.saving.register_keras_serializable(package="bert_tf")
class SelfAttention(ConfiguredLayer):
    """softmax(Q K^T / sqrt(D) + bias) V, with dropout on the probabilities.

    The three projections are one matrix product. Their variables keep the reference's names `query`,
    `key` and `value`. Every call concatenates them; inference_layout.py does so once.

    Source: google-research/bert, modeling.py, `attention_layer`.
    """

    # The three projections as one, in inference models.
    affine: Callable[..., Any] | None = None
    layout: Layout = "plain"

    def __init__(self, config: BertConfig, name: str = "self", **kwargs):
        super().__init__(name=name, **kwargs)
        self.config = config
        self.query, self.key, self.value = (
            Dense(
                config.hidden_size,
                kernel_initializer=truncated_normal(config),
                name=projection,
                dtype=self.dtype_policy,
            )
            for projection in ("query", "key", "value")
        )
        self.dropout = Dropout(
            config.attention_probs_dropout_prob, name="dropout", dtype=self.dtype_policy
        )

    def build(self, input_shape=None):
        for projection in (self.query, self.key, self.value):
            projection.build((None, self.config.hidden_size))
        self.dropout.build((None, self.config.num_attention_heads, None, None))

    def call(self, hidden, bias, training=False):
        """[B, S, H] and float32 [B, 1, 1 or S, S] -> context [B, S, H], probabilities [B, N, F, T]."""
        config = self.config
        heads, size = config.num_attention_heads, config.size_per_head
        batch, length = ops.shape(hidden)[0], ops.shape(hidden)[1]

        flat = ops.reshape(hidden, (-1, config.hidden_size))  # [B*S, H]
        is_fused = training and fused.are_used()
        joined = self._project(flat, is_fused)
        joined = ops.reshape(joined, (batch, length, 3, heads, size))
        transpose = transpose_in_units if self.layout == "onednn" else ops.transpose
        query, key, value = ops.unstack(transpose(joined, (2, 0, 3, 1, 4)), 3)  # [B, N, S, D]

        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))  # [B, N, F, T]
        factor = 1.0 / math.sqrt(size)
        if is_fused:
            probabilities = fused.masked_softmax_dropout(
                scores, bias, self.dropout.key(), factor=factor, rate=self.dropout.rate
            )
        else:
            scores = scores * ops.cast(factor, scores.dtype) + ops.cast(bias, scores.dtype)
            probabilities = self.dropout(_softmax(scores), training=training)

        context = ops.matmul(probabilities, value)  # [B, N, F, D]
        context = transpose(context, (0, 2, 1, 3))  # [B, F, N, D]
        return ops.reshape(context, (batch, length, config.hidden_size)), probabilities

    def _project(self, flat, is_fused):
        """Return query, key and value side by side: [B*S, H] -> [B*S, 3H]."""
        if self.affine is not None:
            return self.affine(flat)
        projections = (self.query, self.key, self.value)
        kernel = ops.concatenate([ops.convert_to_tensor(p.kernel) for p in projections], axis=1)
        joined = ops.matmul(flat, kernel)
        if is_fused:
            offset = ops.concatenate([fused.float32(p.bias) for p in projections], axis=0)
            return fused.add_bias(joined, offset)
        offset = [ops.convert_to_tensor(p.bias) for p in projections]
        return ops.add(joined, ops.concatenate(offset, axis=0))
