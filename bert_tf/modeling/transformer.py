"""One block of the encoder: attention and feed-forward, each followed by residual and LayerNorm.

Shapes: B batch, S sequence, H hidden, I intermediate.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.modeling import fused
from bert_tf.modeling.activations import get_activation
from bert_tf.modeling.attention import SelfAttention
from bert_tf.modeling.dropout import Dropout
from bert_tf.modeling.embeddings import ConfiguredLayer, layer_norm, truncated_normal
from bert_tf.modeling.inference_layout import Dense, in_shape_of


@keras.saving.register_keras_serializable(package="bert_tf")
class ResidualOutput(ConfiguredLayer):
    """LayerNorm(residual + dropout(dense(x))), the end of both halves of a block."""

    def __init__(self, config: BertConfig, input_size: int, name: str = "output", **kwargs):
        super().__init__(name=name, **kwargs)
        self.config = config
        self.input_size = input_size
        self.dense = Dense(
            config.hidden_size,
            kernel_initializer=truncated_normal(config),
            name="dense",
            dtype=self.dtype_policy,
        )
        self.dropout = Dropout(config.hidden_dropout_prob, name="dropout", dtype=self.dtype_policy)
        self.layer_norm = layer_norm(config, self.dtype_policy)

    def build(self, input_shape=None):
        self.dense.build((None, self.input_size))
        self.dropout.build((None, self.config.hidden_size))
        self.layer_norm.build((None, self.config.hidden_size))

    def call(self, inputs, residual, training=False):
        """[B*S, input_size] and [B*S, H] -> [B*S, H], twice: for the next product and residual."""
        if training and fused.are_used():
            return fused.bias_dropout_norm(
                ops.matmul(inputs, ops.convert_to_tensor(self.dense.kernel)),
                fused.float32(self.dense.bias),
                residual,
                fused.float32(self.layer_norm.gamma),
                fused.float32(self.layer_norm.beta),
                self.dropout.key(),
                rate=self.dropout.rate,
                epsilon=self.layer_norm.epsilon,
            )
        if self.dense.affine is not None:  # for inference
            outputs = self.dense.affine(inputs, residual)
        else:
            outputs = self.dropout(self.dense(inputs), training=training) + residual
        outputs = self.layer_norm(outputs)
        return outputs, outputs

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "input_size": self.input_size}


@keras.saving.register_keras_serializable(package="bert_tf")
class TransformerBlock(ConfiguredLayer):
    """Self-attention and feed-forward, "post-norm" as in the paper.

    Source: google-research/bert, modeling.py, `transformer_model`.
    """

    def __init__(self, config: BertConfig, name: str, **kwargs):
        super().__init__(name=name, **kwargs)
        self.config = config
        policy = self.dtype_policy
        self.self_attention = SelfAttention(config, dtype=policy)
        self.attention_output = ResidualOutput(config, config.hidden_size, dtype=policy)
        self.intermediate = Dense(
            config.intermediate_size,
            activation=get_activation(config.hidden_act),
            kernel_initializer=truncated_normal(config),
            name="dense",
            dtype=policy,
        )
        self.feed_forward_output = ResidualOutput(config, config.intermediate_size, dtype=policy)

    def build(self, input_shape=None):
        with keras.name_scope("attention"):
            self.self_attention.build()
            self.attention_output.build()
        with keras.name_scope("intermediate"):
            self.intermediate.build((None, self.config.hidden_size))
        self.feed_forward_output.build()

    def call(self, hidden, bias, training=False):
        """[B, S, H] and float32 [B, 1, 1 or S, S] -> [B, S, H], attention probabilities."""
        shape = ops.shape(hidden)
        context, probabilities = self.self_attention(hidden, bias, training=training)
        # Positions become rows because products on [B*S, H] fuse.
        hidden = ops.reshape(hidden, (-1, self.config.hidden_size))
        context = in_shape_of(hidden, context)
        attended, residual = self.attention_output(context, hidden, training=training)
        intermediate = self._intermediate(attended, training)
        outputs, _ = self.feed_forward_output(intermediate, residual, training=training)
        return ops.reshape(outputs, shape), probabilities

    def _intermediate(self, attended, training):
        """Compute the feed-forward activation: [B*S, H] -> [B*S, I]."""
        activation = self.config.hidden_act
        if not (training and fused.are_used() and activation in fused.ACTIVATIONS):
            return self.intermediate(attended)
        return fused.bias_activation(
            ops.matmul(attended, ops.convert_to_tensor(self.intermediate.kernel)),
            fused.float32(self.intermediate.bias),
            activation=activation,
        )
