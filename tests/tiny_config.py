"""A configuration for tests."""

from bert_tf.config import BertConfig


def tiny_config(**changes) -> BertConfig:
    """No two sizes are equal."""
    sizes = dict(
        vocab_size=23,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=11,
        max_position_embeddings=9,
        type_vocab_size=2,
    )
    return BertConfig(**{**sizes, **changes})
