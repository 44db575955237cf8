"""Floating-point operations of a model, for speed measurements."""

from __future__ import annotations

from bert_tf.config import BertConfig


def flops_per_token(config: BertConfig, length: int, predictions_per_token: float = 0.0) -> float:
    """Count the operations of the matrix products for one token, forward and backward.

    Backward counts twice forward. Element-wise operations are not counted, as usual.

    Args:
        length: tokens that a token attends to.
        predictions_per_token: masked-LM predictions as a fraction of the tokens; 0 without that head.

    >>> base = BertConfig.from_name("base", vocab_size=30522)
    >>> round(flops_per_token(base, 128, 20 / 128) / 1e6)  # millions
    546
    """
    hidden, vocabulary = config.hidden_size, config.vocab_size
    projections = 4 * hidden * hidden + 2 * hidden * config.intermediate_size
    attention = 2 * length * hidden
    head = predictions_per_token * (hidden * hidden + hidden * vocabulary)
    return 6.0 * (config.num_hidden_layers * (projections + attention) + head)
