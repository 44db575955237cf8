"""BertModel: token ids in, contextual vectors out.

Shapes: B batch, S sequence, N heads, H hidden. Packed batches have R rows of L tokens instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.modeling.attention import attention_bias
from bert_tf.modeling.configured_model import ConfiguredModel
from bert_tf.modeling.embeddings import Embeddings
from bert_tf.modeling.heads import gather_positions
from bert_tf.modeling.inputs import normalize_inputs
from bert_tf.modeling.layers import dense
from bert_tf.modeling.transformer import TransformerBlock


@keras.saving.register_keras_serializable(package="bert_tf")
class BertModel(ConfiguredModel):
    """The encoder of Devlin et al. 2019.

    >>> import numpy as np
    >>> model = BertModel(BertConfig.from_name("tiny", vocab_size=100))
    >>> outputs = model({"input_ids": np.array([[1, 2, 3]])})
    >>> outputs["sequence_output"].shape
    TensorShape([1, 3, 128])

    Args:
        config: architecture.
        output_attentions: also return the attention probabilities of every layer.
        name: first part of every variable's path. Checkpoints are loaded and written only with "bert".
        **kwargs: `dtype`, a Keras precision policy such as "mixed_bfloat16".

    Call arguments:
        inputs: dict of tensors, int32 [B, S] unless stated otherwise.
            `input_ids`: the tokens.
            `input_mask`: 1 = real, 0 = padding. Default: all 1. May also be [B, F, T], 1 = position
            F may attend to T. Other name: `attention_mask`.
            `segment_ids`: 0 = first sentence, 1 = second. Default: all 0. Other name:
            `token_type_ids`.
            `embedding_output`: floats [B, S, H] instead of the embeddings of `input_ids` and
            `segment_ids`, for gradients with respect to it.
            A packed batch (data/batching.py) has rows [R, L] of several examples in
            `input_ids`, `segment_ids`, `position_ids` and `sequence_ids`. Its `packed_positions`
            and `input_mask` are [B, S], by example.
        training: True if dropout is active.

    Returns:
        dict of tensors.
        `sequence_output` [B, S, H]: the last layer, or the BiLSTM on it if there is one.
        `pooled_output` [B, H]: the tanh layer on [CLS]. A left-to-right model without a BiLSTM pools
        its last real token, the only one that attends to all others.
        `all_encoder_layers`: list of [B, S, H], from the first layer to the last.
        `embedding_output` [B, S, H].
        `attention_probs`: list of [B, N, F, T], with `output_attentions`.

    Raises:
        ValueError: an input is unknown or given twice, or its shape does not fit. S is above
            `max_position_embeddings` (not checked in a graph where S is unknown). Ids or masks in NumPy
            arrays or lists are out of range (checked if the model is called, not in `fit` and
            `predict`).

    Source: google-research/bert, modeling.py, `BertModel`.
    """

    def __init__(
        self,
        config: BertConfig,
        output_attentions: bool = False,
        name: str = "bert",
        **kwargs,
    ):
        super().__init__(config, name=name, **kwargs)
        self.output_attentions = output_attentions
        policy = self.dtype_policy
        self.embeddings = Embeddings(config, dtype=policy)
        self.encoder_layers = [
            TransformerBlock(config, name=f"layer_{index}", dtype=policy)
            for index in range(config.num_hidden_layers)
        ]
        self.bilstm = [
            bidirectional_lstm(config.hidden_size // 2, f"bilstm_{index}", policy)
            for index in range(config.num_bilstm_layers)
        ]
        self.pooler = dense(config, config.hidden_size, policy, activation="tanh")
        with keras.name_scope(self.name):
            self.embeddings.build()
            with keras.name_scope("encoder"):
                for layer in self.encoder_layers:
                    layer.build()
            for layer in self.bilstm:
                layer.build((None, None, config.hidden_size))
            with keras.name_scope("pooler"):
                self.pooler.build((None, config.hidden_size))
        self.built = True

    def call(self, inputs: Mapping[str, Any], training=None) -> dict[str, Any]:
        inputs = normalize_inputs(inputs)
        input_ids = ops.cast(inputs["input_ids"], "int32")
        input_mask = inputs.get("input_mask", ops.ones_like(input_ids))
        segment_ids = inputs.get("segment_ids", ops.zeros_like(input_ids))
        is_packed = "packed_positions" in inputs
        attention_mask = _same_sequence(inputs["sequence_ids"]) if is_packed else input_mask
        embedding_output = inputs.get("embedding_output")
        if embedding_output is None:
            if isinstance(input_ids.shape[1], int):  # JAX traces with a symbol
                self.config.check_sequence_length(input_ids.shape[1])
            embedding_output = self.embeddings(
                input_ids, segment_ids, inputs.get("position_ids"), training=training
            )  # [B, S, H]
        left_to_right = self.config.attention_direction == "left_to_right"
        bias = attention_bias(attention_mask, left_to_right)  # [B, 1, 1 or S, S]
        layers, attention_probs = [embedding_output], []
        for block in self.encoder_layers:
            hidden, probabilities = block(layers[-1], bias, training=training)
            layers.append(hidden)  # [B, S, H]
            attention_probs.append(probabilities)  # [B, N, S, S]
        if is_packed:
            layers = [_unpack(rows, inputs["packed_positions"]) for rows in layers]
        embedding_output, *all_encoder_layers = layers
        hidden = layers[-1]
        for layer in self.bilstm:
            hidden = layer(hidden, mask=ops.greater(_token_mask(input_mask), 0), training=training)
        is_last = left_to_right and not self.bilstm  # a BiLSTM reads everything at any position
        summary = _last_token(hidden, input_mask) if is_last else hidden[:, 0]  # [B, H]
        outputs = {
            "sequence_output": hidden,
            "pooled_output": self.pooler(summary),
            "all_encoder_layers": all_encoder_layers,
            "embedding_output": embedding_output,
        }
        if self.output_attentions:
            outputs["attention_probs"] = attention_probs
        return outputs

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "output_attentions": self.output_attentions}


def _same_sequence(sequence_ids):
    """Return 1 where both tokens are in one sequence: int32 [R, L] (0 = padding) -> [R, L, L]."""
    first, second = sequence_ids[:, :, None], sequence_ids[:, None, :]
    same = ops.logical_and(ops.equal(first, second), ops.greater(first, 0))
    return ops.cast(same, "int32")


def _unpack(rows, packed_positions):
    """Return vectors [R, L, H] of packed rows as examples, [B, S, H]. Padding gets those of [CLS]."""
    flat = ops.reshape(rows, (-1, rows.shape[-1]))
    return ops.take(flat, packed_positions, axis=0)


def _token_mask(input_mask):
    """Return 1 for real tokens, which any token may attend to: int32 [B, S]."""
    mask = ops.cast(input_mask, "int32")
    return ops.max(mask, axis=1) if len(mask.shape) == 3 else mask


def _last_token(hidden, input_mask):
    """Return the vector of the last real token, [B, H]."""
    mask = _token_mask(input_mask)
    last = ops.max(mask * ops.arange(ops.shape(mask)[1], dtype="int32"), axis=1)
    return gather_positions(hidden, last[:, None])


class _Bidirectional(keras.layers.Bidirectional):
    """A layer whose outputs have no mask, which the layers after it would not support."""

    def compute_mask(self, _, mask):
        return None


def bidirectional_lstm(
    units: int, name: str, dtype: keras.DTypePolicy
) -> keras.layers.Bidirectional:
    """Return a layer [B, S, F] -> [B, S, 2 * units]."""
    # Keras' default, orthogonal, needs a decomposition that TensorFlow has in float32 only. Models whose
    # weights are of another type are never trained from random weights.
    is_float32 = dtype.variable_dtype == "float32"
    lstm = keras.layers.LSTM(
        units,
        return_sequences=True,
        recurrent_initializer="orthogonal" if is_float32 else "glorot_uniform",
        dtype=dtype,
        name="lstm",
    )
    return _Bidirectional(lstm, name=name, dtype=dtype)


def flops_per_token(config: BertConfig, length: int, predictions_per_token: float = 0.0) -> float:
    """Count the operations of the matrix products for one token, forward and backward (twice forward).

    `length`: tokens that a token attends to. `predictions_per_token`: of the masked-LM head.

    >>> base = BertConfig.from_name("base", vocab_size=30522)
    >>> round(flops_per_token(base, 128, 20 / 128) / 1e6)  # millions
    546
    """
    hidden, vocabulary = config.hidden_size, config.vocab_size
    projections = 4 * hidden * hidden + 2 * hidden * config.intermediate_size
    attention = 2 * length * hidden
    head = predictions_per_token * (hidden * hidden + hidden * vocabulary)
    return 6.0 * (config.num_hidden_layers * (projections + attention) + head)
