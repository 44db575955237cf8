"""Token, segment and position embeddings: their normalized sum.

Shapes: B batch, S sequence, H hidden, V vocabulary.
"""

from __future__ import annotations

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.modeling.dropout import Dropout
from bert_tf.modeling.layers import has_forms, layer_norm, truncated_normal


class Embeddings(keras.layers.Layer):
    """dropout(LayerNorm(word + segment + position embeddings)).

    Source: google-research/bert, modeling.py, `embedding_lookup` and `embedding_postprocessor`.
    """

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

    @has_forms
    def call(self, input_ids, segment_ids, position_ids=None, training=False):
        """int32 [B, S] each -> [B, S, H]. Default positions are 0, 1, 2, ..."""
        words = ops.take(
            ops.convert_to_tensor(self.word_embeddings), input_ids, axis=0
        )  # [B, S, H]
        # A product with a one-hot matrix has a dense gradient, and the table is tiny.
        one_hot = ops.one_hot(segment_ids, self.config.type_vocab_size, dtype=self.compute_dtype)
        segments = ops.matmul(one_hot, self.token_type_embeddings)  # [B, S, H]
        table = ops.convert_to_tensor(self.position_embeddings)
        positions = rows_of_positions(table, position_ids, ops.shape(input_ids)[1])
        embeddings = self.layer_norm(words + segments + positions)
        return self.dropout(embeddings, training=training)


def rows_of_positions(table, position_ids, length):
    """Return rows of a table [M, H] for ids [B, S], or without ids its first S rows, [S, H]."""
    if position_ids is not None:
        return ops.take(table, position_ids, axis=0)
    if isinstance(length, int) or ops.is_tensor(length):
        return table[:length]
    # An unknown length of JAX, which does not slice by it.
    return ops.take(table, ops.arange(length, dtype="int32")[None], axis=0)
