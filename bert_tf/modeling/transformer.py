"""One block of the encoder: attention and feed-forward, each followed by residual and LayerNorm.

Shapes: B batch, S sequence, N heads, H hidden, I intermediate.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.modeling.attention import SelfAttention
from bert_tf.modeling.dropout import Dropout
from bert_tf.modeling.layers import current_form, dense, has_forms, layer_forms, layer_norm


class ResidualOutput(keras.layers.Layer):
    """LayerNorm(residual + dropout(x W + b)), the end of both halves of a block."""

    def __init__(self, config: BertConfig, input_size: int, name: str = "output", **kwargs):
        super().__init__(name=name, **kwargs)
        self.config = config
        self.input_size = input_size
        self.dense = dense(config, config.hidden_size, self.dtype_policy)
        self.dropout = Dropout(config.hidden_dropout_prob, name="dropout", dtype=self.dtype_policy)
        self.layer_norm = layer_norm(config, self.dtype_policy)

    def build(self, input_shape=None):
        self.dense.build((None, self.input_size))
        self.dropout.build((None, self.config.hidden_size))
        self.layer_norm.build((None, self.config.hidden_size))

    def call(self, inputs, residual, training=False):
        """[B*S, input_size] and [B*S, H] -> [B*S, H]."""
        outputs = self.dropout(self.dense(inputs), training=training)
        return self.layer_norm(outputs + residual)


class TransformerBlock(keras.layers.Layer):
    """Self-attention and feed-forward, "post-norm" as in the paper.

    Source: google-research/bert, modeling.py, `transformer_model`.
    """

    def __init__(self, config: BertConfig, name: str, **kwargs):
        super().__init__(name=name, **kwargs)
        self.config = config
        policy = self.dtype_policy
        self.self_attention = SelfAttention(config, dtype=policy)
        self.attention_output = ResidualOutput(config, config.hidden_size, dtype=policy)
        self.intermediate = dense(
            config, config.intermediate_size, policy, activation=config.hidden_act
        )
        self.feed_forward_output = ResidualOutput(config, config.intermediate_size, dtype=policy)

    def build(self, input_shape=None):
        with keras.name_scope("attention"):
            self.self_attention.build()
            self.attention_output.build()
        with keras.name_scope("intermediate"):
            self.intermediate.build((None, self.config.hidden_size))
        self.feed_forward_output.build()

    @has_forms
    def call(self, hidden, bias, training=False):
        """[B, S, H] and float32 [B, 1, 1 or S, S] -> [B, S, H], attention probabilities [B, N, S, S]."""
        context, probabilities = self.self_attention(hidden, bias, training=training)
        # Positions become rows because products on [B*S, H] fuse.
        rows = ops.reshape(hidden, (-1, self.config.hidden_size))  # [B*S, H]
        context = ops.reshape(context, ops.shape(rows))
        attended = self.attention_output(context, rows, training=training)  # [B*S, H]
        intermediate = self.intermediate(attended)  # [B*S, I]
        outputs = self.feed_forward_output(intermediate, attended, training=training)  # [B*S, H]
        return ops.reshape(outputs, ops.shape(hidden)), probabilities


@contextlib.contextmanager
def recomputed_blocks(used: bool) -> Iterator[None]:
    """Let blocks called inside in training keep only their inputs, and compute the rest again backward.

    Open it within `dropout_seed` and `fused_parts`. The blocks return None for the probabilities.
    """
    form = current_form(TransformerBlock, training=True)  # None: the plain `call`

    def recompute(block: TransformerBlock, hidden, bias):
        def call(hidden):
            with layer_forms({TransformerBlock: form}, training=True):
                return block(hidden, bias, training=True)[0]

        # The gradient is computed outside, but needs the same forms and the same masks of dropout.
        context = contextvars.copy_context()
        return keras.remat(lambda hidden: context.run(call, hidden))(hidden), None

    with layer_forms({TransformerBlock: recompute} if used else {}, training=True):
        yield
