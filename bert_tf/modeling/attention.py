"""Multi-head self-attention.

Shapes: B batch, S sequence (F from, T to), N heads, D size per head, H = N * D hidden.
"""

from __future__ import annotations

import math

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.modeling.dropout import Dropout
from bert_tf.modeling.layers import dense, has_forms

MASKED_SCORE = -10000.0


def attention_bias(mask, left_to_right=False):
    """Return the bias of the scores: 0 where attention is allowed, else the reference's -10000.

    `mask`: [B, T] (1 = real token, 0 = padding), or [B, F, T] (1 = F may attend to T); `left_to_right`:
    only T <= F. Returns float32 [B, 1, 1, T] or [B, 1, F, T]. A completely masked row stays finite.
    """
    mask = ops.cast(mask, "float32")
    # As a slice TFLite has no operation.
    mask = ops.expand_dims(mask, (1, 2) if len(mask.shape) == 2 else 1)
    if left_to_right:
        position = ops.arange(ops.shape(mask)[-1], dtype="int32")
        mask = mask * ops.cast(position[:, None] >= position, "float32")  # [B, 1, F, T]
    return (1.0 - mask) * MASKED_SCORE


class SelfAttention(keras.layers.Layer):
    """softmax(Q K^T / sqrt(D) + bias) V, with dropout on the probabilities.

    Source: google-research/bert, modeling.py, `attention_layer`.
    """

    def __init__(self, config: BertConfig, name: str = "self", **kwargs):
        super().__init__(name=name, **kwargs)
        self.config = config
        self.query, self.key, self.value = (
            dense(config, config.hidden_size, self.dtype_policy, projection)
            for projection in ("query", "key", "value")
        )
        self.dropout = Dropout(
            config.attention_probs_dropout_prob, name="dropout", dtype=self.dtype_policy
        )

    def build(self, input_shape=None):
        for projection in (self.query, self.key, self.value):
            projection.build((None, self.config.hidden_size))
        self.dropout.build((None, self.config.num_attention_heads, None, None))

    @has_forms
    def call(self, hidden, bias, training=False):
        """[B, S, H] and float32 [B, 1, 1 or S, S] -> context [B, S, H], probabilities [B, N, F, T]."""
        query, key, value = (
            ops.transpose(heads, (0, 2, 1, 3)) for heads in self.project(hidden)
        )  # [B, N, S, D]
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))  # [B, N, F, T]
        scores = scores * ops.cast(1.0 / math.sqrt(self.config.size_per_head), scores.dtype)
        scores = scores + ops.cast(bias, scores.dtype)
        probabilities = self.dropout(ops.softmax(scores), training=training)
        context = ops.matmul(probabilities, value)  # [B, N, F, D]
        context = ops.transpose(context, (0, 2, 1, 3))  # [B, F, N, D]
        return ops.reshape(context, ops.shape(hidden)), probabilities

    def project(self, hidden):
        """[B, S, H] -> query, key and value of each head, [B, S, N, D]."""
        batch, length, width = ops.shape(hidden)
        rows = ops.reshape(hidden, (-1, width))  # [B*S, H]
        shape = batch, length, self.config.num_attention_heads, self.config.size_per_head
        return [ops.reshape(layer(rows), shape) for layer in (self.query, self.key, self.value)]
