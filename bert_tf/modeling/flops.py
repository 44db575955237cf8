"""How much a model computes, for figures of speed."""

from __future__ import annotations

from bert_tf.config import BertConfig


def flops_per_token(config: BertConfig, length: int, predictions_per_token: float = 0.0) -> float:
    """Floating-point operations of the matrix products for a token, forward and backward.

    Backward is counted as twice forward. Element-wise parts are not counted, as usual.

    Args:
        config: architecture.
        length: tokens that a token attends to.
        predictions_per_token: masked-LM predictions, as a share of the tokens; 0 without that head.

    >>> base = BertConfig.from_name("base", vocab_size=30522)
    >>> round(flops_per_token(base, 128, 20 / 128) / 1e6)  # millions
    546
    """
    hidden, vocabulary = config.hidden_size, config.vocab_size
    projections = 4 * hidden * hidden + 2 * hidden * config.intermediate_size
    attention = 2 * length * hidden
    head = predictions_per_token * (hidden * hidden + hidden * vocabulary)
    return 3.0 * 2.0 * (config.num_hidden_layers * (projections + attention) + head)
