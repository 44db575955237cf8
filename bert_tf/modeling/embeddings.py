"""Token, segment and position embeddings: their normalised sum.

Shapes: B batch, S sequence, H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.modeling import fused
from bert_tf.modeling.dropout import Dropout
from bert_tf.modeling.inference_layout import LayerNorm


def truncated_normal(config: BertConfig) -> keras.initializers.Initializer:
    """Return the initializer of kernels and tables: normal, cut at two standard deviations."""
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range)


def layer_norm(config: BertConfig, dtype) -> LayerNorm:
    """Return a LayerNorm over the last axis, computed in float32 under every precision."""
    return LayerNorm(epsilon=config.layer_norm_eps, name="LayerNorm", dtype=dtype)


class ConfiguredLayer(keras.layers.Layer):
    """A layer with a `BertConfig`, which Keras saves as a dict."""

    config: BertConfig

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "config": self.config.to_dict()}

    @classmethod
    def from_config(cls, config: dict[str, Any]):
        return cls(**{**config, "config": BertConfig.from_dict(config["config"])})


@keras.saving.register_keras_serializable(package="bert_tf")
class Embeddings(ConfiguredLayer):
    """word + segment + position embeddings, LayerNorm, dropout.

    Source: google-research/bert, modeling.py, `embedding_lookup` and `embedding_postprocessor`.
    """

    table: Callable[..., Any] | None = None  # of the words, in inference models

    def __init__(self, config: BertConfig, name: str = "embeddings", **kwargs):
        super().__init__(name=name, **kwargs)
        self.config = config
        self.layer_norm = layer_norm(config, self.dtype_policy)
        self.dropout = Dropout(config.hidden_dropout_prob, name="dropout", dtype=self.dtype_policy)

    def build(self, input_shape=None):
        config = self.config
        self.word_embeddings = self._table("word_embeddings", config.vocab_size)
        self.token_type_embeddings = self._table("token_type_embeddings", config.type_vocab_size)
        self.position_embeddings = self._table(
            "position_embeddings", config.max_position_embeddings
        )
        self.layer_norm.build((None, None, config.hidden_size))
        self.dropout.build((None, None, config.hidden_size))

    def _table(self, name: str, rows: int):
        return self.add_weight(
            name=name,
            shape=(rows, self.config.hidden_size),
            initializer=truncated_normal(self.config),
        )

    def call(self, input_ids, segment_ids, position_ids=None, training=False):
        """int32 [B, S] each -> [B, S, H]. Default positions are 0, 1, 2, ..."""
        length = input_ids.shape[1]
        limit = self.config.max_position_embeddings
        if isinstance(length, int) and length > limit:
            raise ValueError(
                f"The sequence length is {length}, but `max_position_embeddings` in the model's "
                f"configuration is {limit}. Use max_seq_length={limit} or less, or a checkpoint "
                "with a longer table."
            )
        if training and fused.are_used():
            return self._fused(input_ids, segment_ids, position_ids)
        if self.table is not None:
            words = ops.cast(self.table(input_ids), self.compute_dtype)
        else:
            words = ops.take(ops.convert_to_tensor(self.word_embeddings), input_ids, axis=0)
        # A product with a one-hot matrix has a dense gradient, and the table is tiny.
        one_hot = ops.one_hot(segment_ids, self.config.type_vocab_size, dtype=self.compute_dtype)
        segments = ops.matmul(one_hot, self.token_type_embeddings)
        positions = ops.convert_to_tensor(self.position_embeddings)
        positions = _rows_of(positions, position_ids, ops.shape(input_ids)[1])
        embeddings = self.layer_norm(words + segments + positions)
        return self.dropout(embeddings, training=training)

    def _fused(self, input_ids, segment_ids, position_ids):
        words = ops.take(fused.float32(self.word_embeddings), input_ids, axis=0)
        one_hot = ops.one_hot(segment_ids, self.config.type_vocab_size)
        segments = ops.matmul(one_hot, fused.float32(self.token_type_embeddings))
        positions = fused.float32(self.position_embeddings)
        positions = _rows_of(positions, position_ids, ops.shape(input_ids)[1])
        summed = words + segments + positions
        outputs = fused.norm_dropout(
            ops.reshape(summed, (-1, self.config.hidden_size)),
            fused.float32(self.layer_norm.gamma),
            fused.float32(self.layer_norm.beta),
            self.dropout.key(),
            self.compute_dtype,
            rate=self.dropout.rate,
            epsilon=self.layer_norm.epsilon,
        )
        return ops.reshape(outputs, ops.shape(summed))


def _rows_of(table, ids, length):
    """Return rows of a table [M, H] for ids [B, S], or its first S rows without ids."""
    if ids is None and not isinstance(length, int) and not ops.is_tensor(length):
        # An unknown length of JAX, which does not slice by it.
        ids = ops.arange(length, dtype="int32")[None]
    return table[:length] if ids is None else ops.take(table, ids, axis=0)
