"""Sentence embeddings from the encoder's outputs.

Shapes: B batch, S sequence, H hidden.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from keras import ops

# Name -> number of last layers that it uses.
POOLINGS = {"mean": 1, "max": 1, "cls": 1, "pooled": 1, "concat_last_four": 4}


def check_pooling(pooling: str, num_hidden_layers: int) -> None:
    """Raise ValueError if the pooling is unknown or the encoder has too few layers."""
    valid = [name for name, needed in POOLINGS.items() if needed <= num_hidden_layers]
    if pooling not in valid:
        raise ValueError(
            f"`pooling` is {pooling!r}, but must be one of {', '.join(valid)} in this model."
        )


def check_pooler(pooling: str, model: Any) -> None:
    """Raise ValueError if the pooling needs the pooler, and the model's checkpoint has none."""
    report: Any = getattr(model, "load_report", None)
    missing = () if report is None else report.missing
    if pooling == "pooled" and any(name.startswith("bert/pooler/") for name in missing):
        raise ValueError(
            f"pooling=pooled needs a pooler, but {report.source} has none: use pooling=mean."
        )


def sentence_embedding(outputs: Mapping[str, Any], input_mask, pooling: str):
    """Return the embedding of each sequence.

    Args:
        outputs: of `BertModel`.
        input_mask: int32 [B, S], 1 = real.
        pooling: "cls": the last layer at [CLS]. "pooled": the tanh layer on it. "mean": the mean of
            the last layer over real tokens with [CLS] and [SEP], as in sentence-transformers.
            "max": the largest of each number over the same. "concat_last_four": the concatenated
            means of the last four layers.

    Returns:
        float32 [B, H], or [B, 4 * H] for "concat_last_four". Zeros for "mean" and "max" of a sequence
            without tokens.
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


def parse_layers(layers: str, num_layers: int | None = None, name: str = "layers") -> list[int]:
    """Return the numbers in a comma list of layers; -1 is the last.

    Args:
        name: of the option, for messages.

    >>> parse_layers("-1,-2", num_layers=12)
    [-1, -2]

    Raises:
        ValueError: a part is not a whole number, or not a layer of a model with `num_layers`.
    """
    limit = math.inf if num_layers is None else num_layers
    parts = layers.split(",")
    are_numbers = all(re.fullmatch(r" *[+-]?\d+ *", part) for part in parts)
    if not are_numbers or not all(-limit <= int(part) < limit for part in parts):
        raise ValueError(
            f"{name} is {layers!r}, but must be a comma list of numbers, at least {-limit} (the first "
            f"layer) and below {limit}."
        )
    return [int(part) for part in parts]
