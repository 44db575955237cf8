"""Expected memory of a training step."""

from __future__ import annotations

from bert_tf.config import BertConfig


def training_bytes(
    config: BertConfig, length: int, predictions: int, batch_size: int, precision: str
) -> float:
    width = 4 if precision == "float32" else 2
    hidden, inner = config.hidden_size, config.intermediate_size
    layers = config.num_hidden_layers
    weights = config.vocab_size * hidden + config.max_position_embeddings * hidden
    weights += layers * (4 * hidden * hidden + 2 * hidden * inner)
    per_token = 10 * hidden + 2 * inner + 3 * config.num_attention_heads * length
    tokens = batch_size * length
    return 16 * weights + width * (
        tokens * layers * per_token + 3 * batch_size * predictions * config.vocab_size
    )
