"""Heads on top of the encoder, one layer for each task type, and the pooling of sentence embeddings.

Shapes: B batch, S sequence, H hidden, V vocabulary, P predictions, L labels.

Logits are float32. Weights are stored [out, in], under the reference's names: the classifier's at the
root (`output_weights`, `output_bias`), the others below `cls/`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.modeling.dropout import Dropout
from bert_tf.modeling.layers import dense, has_forms, layer_norm, truncated_normal


class LinearHead(keras.layers.Layer):
    """A linear layer, [..., input_size] -> float32 logits [..., num_outputs].

    The paths of its variables begin with `scope` instead of its own name, which `add_weight` would use.
    """

    scope = ""
    initializer: str | None = None  # default: that of the encoder

    def __init__(
        self, config: BertConfig, num_outputs: int, input_size: int | None = None, **kwargs
    ):
        super().__init__(**kwargs)
        self.config = config
        self.num_outputs = num_outputs
        self.input_size = input_size or config.hidden_size
        with contextlib.ExitStack() as scopes:
            for part in filter(None, self.scope.split("/")):
                scopes.enter_context(keras.name_scope(part))
            self.build_variables()
        self.built = True

    def build_variables(self):
        shape = (self.num_outputs, self.input_size)
        initializer = self.initializer or truncated_normal(self.config)
        self.output_weights = self.variable("output_weights", shape, initializer)
        self.output_bias = self.variable("output_bias", (self.num_outputs,), "zeros")

    def variable(self, name: str, shape: tuple[int, ...], initializer) -> keras.Variable:
        """Return a variable. Logits are float32, so a bias that is added to them is not rounded."""
        return keras.Variable(
            initializer,
            shape=shape,
            dtype=self.variable_dtype,
            autocast=name != "output_bias",
            name=name,
        )

    def call(self, hidden):
        logits = ops.matmul(hidden, ops.transpose(ops.convert_to_tensor(self.output_weights)))
        return ops.cast(logits, "float32") + ops.cast(self.output_bias, "float32")


class NextSentenceHead(LinearHead):
    """pooled_output [B, H] -> next_sentence_logits [B, 2]; class 0 = is next, 1 = random."""

    scope = "cls/seq_relationship"


class SpanHead(LinearHead):
    """sequence_output [B, S, H] -> start_logits [B, S], end_logits [B, S]."""

    scope = "cls/squad"

    def call(self, sequence_output):
        logits = super().call(sequence_output)  # [B, S, 2]
        return logits[..., 0], logits[..., 1]


class ClassificationHead(LinearHead):
    """Dropout and one linear layer, for vectors of sequences or tokens: [..., H] -> [..., L].

    The dropout rate is 0.1 in any configuration, as in the reference's run_classifier.py.
    """

    def __init__(self, config: BertConfig, num_labels: int, **kwargs):
        super().__init__(config, num_outputs=num_labels, **kwargs)
        self.dropout = Dropout(0.1, name="dropout", dtype=self.dtype_policy)
        self.dropout.build((None, config.hidden_size))

    def call(self, hidden, training=False):
        return super().call(self.dropout(hidden, training=training))


class ProjectionHead(LinearHead):
    """pooled vector [B, input_size] -> embedding [B, E]."""

    scope = "cls/embedding"
    initializer = "glorot_uniform"


class MaskedLMHead(LinearHead):
    """Scores over the vocabulary at the masked positions.

    dense, activation, LayerNorm, then a product with the ("tied") word embeddings.

    Source: google-research/bert, run_pretraining.py, `get_masked_lm_output`.
    """

    scope = "cls/predictions"

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(config, num_outputs=config.vocab_size, **kwargs)

    def build_variables(self):
        config = self.config
        self.output_bias = self.variable("output_bias", (config.vocab_size,), "zeros")
        self.dense = dense(
            config, config.hidden_size, self.dtype_policy, activation=config.hidden_act
        )
        self.layer_norm = layer_norm(config, self.dtype_policy)
        with keras.name_scope("transform"):
            self.dense.build((None, config.hidden_size))
            self.layer_norm.build((None, config.hidden_size))

    @has_forms
    def call(self, sequence_output, masked_lm_positions, word_embeddings, training=False):
        """[B, S, H], int32 [B, P], [V, H] -> float32 [B, P, V]."""
        hidden = gather_positions(sequence_output, masked_lm_positions)  # [B*P, H]
        hidden = self.layer_norm(self.dense(hidden))
        table = ops.cast(word_embeddings, hidden.dtype)
        logits = ops.matmul(hidden, ops.transpose(table))  # [B*P, V]
        logits = ops.cast(logits, "float32") + ops.cast(self.output_bias, "float32")
        return ops.reshape(logits, (*ops.shape(masked_lm_positions), self.config.vocab_size))


def gather_positions(sequence, positions):
    """Return the vectors of `sequence` [B, S, H] at `positions` int32 [B, P], as [B*P, H]."""
    batch, length, width = ops.shape(sequence)
    first = ops.arange(batch, dtype="int32")[:, None] * length  # row of each example's position 0
    flat = ops.reshape(ops.cast(positions, "int32") + first, (-1,))
    return ops.take(ops.reshape(sequence, (-1, width)), flat, axis=0)


# Name -> number of last layers that it uses.
POOLINGS = {"mean": 1, "max": 1, "cls": 1, "pooled": 1, "concat_last_four": 4}


def check_pooling(pooling: str, model: Any) -> None:
    """Raise ValueError if the pooling needs layers or a pooler that the model does not have."""
    limit = model.config.num_hidden_layers
    valid = [name for name, needed in POOLINGS.items() if needed <= limit]
    if any(name.startswith("bert/pooler/") for name in getattr(model.load_report, "missing", ())):
        valid.remove("pooled")
    if pooling not in valid:
        raise ValueError(f"`pooling` is {pooling!r}, but this model has {', '.join(valid)}.")


def sentence_embedding(outputs: Mapping[str, Any], input_mask, pooling: str):
    """Return the embedding of each sequence, float32 [B, H], or [B, 4 * H] for "concat_last_four".

    "cls": the last layer at [CLS]. "pooled": the tanh layer on it. "mean", "max": of the last layer over
    real tokens with [CLS] and [SEP], as in sentence-transformers; zeros without tokens.
    "concat_last_four": the concatenated means of the last four layers.
    """
    if pooling == "pooled":
        return ops.cast(outputs["pooled_output"], "float32")
    if pooling == "cls":
        return ops.cast(outputs["sequence_output"][:, 0], "float32")
    layers = outputs["all_encoder_layers"][-POOLINGS[pooling] :]
    weights = ops.expand_dims(ops.cast(input_mask, "float32"), 2)  # as a slice TFLite has no op
    if pooling == "max":
        vectors = ops.cast(layers[0], "float32")
        largest = ops.max(ops.where(weights > 0, vectors, -1e9), axis=1)
        return ops.where(ops.max(weights, axis=1) > 0, largest, 0.0)
    count = ops.maximum(ops.sum(weights, axis=1), 1.0)
    means = [ops.sum(ops.cast(layer, "float32") * weights, axis=1) / count for layer in layers]
    return ops.concatenate(means, axis=-1)
