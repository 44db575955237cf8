"""Ids with which a quantizer measures the ranges of a model's products.

Shapes: B batch, S sequence, K choices.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.serving.served import TEXT, Served
from bert_tf.training.progress import Progress

logger = logging.getLogger(__name__)

MOST_TEXTS = 300  # NNCF's usual number of samples

Ids = dict[str, np.ndarray]


def calibration_ids(served: Served, requests: Iterable[Mapping[str, Any]]) -> list[Ids]:
    """Return the ids of at most MOST_TEXTS requests. The sample is the same in every call.

    Args:
        served: takes text.
        requests: inputs of `serving_default` by name, one row each.

    Returns:
        Inputs of the model by name: int32 [1, S] or [1, K, S], trimmed to the (longest) text. Long
        texts have a row for each window, and at most MOST_TEXTS rows are returned.
    """
    texts, count = _sample(requests)
    rows = [row for inputs in recorded_ids(served, texts) for row in _rows(inputs)]
    most = min(len(rows), MOST_TEXTS)
    rows = [rows[place * len(rows) // most] for place in range(most)]
    different = min(count, len({row["input_ids"].tobytes() for row in rows}))
    logger.info(
        "Calibration with %d different texts of %d; about %d are needed",
        *(different, count, MOST_TEXTS),
    )
    return rows


def recorded_ids(served: Served, requests: list[Mapping[str, Any]]) -> list[Ids]:
    """Return the ids that the model gets for each request, windows of long texts included.

    Args:
        served: takes text.
        requests: inputs of `serving_default` by name.

    Returns:
        Inputs of the model by name: int32 [B, S] or [B, K, S].
    """
    function, specs = served.text_functions()[TEXT]
    recorded: list[Ids] = []

    @tf.function(autograph=False, reduce_retracing=True)
    def prepare(*texts: tf.Tensor) -> None:
        function(*texts)  # the model itself is not computed, because its outputs are not used

    served.record = recorded.append
    progress = Progress("tokenize", len(requests), unit="texts")
    try:
        for number, request in enumerate(requests, start=1):
            prepare(*(tf.constant(request[spec.name], spec.dtype) for spec in specs))
            progress.update(number)
    finally:
        served.record = None
    return recorded


def _sample(requests: Iterable[Any]) -> tuple[list[Any], int]:
    """Return at most MOST_TEXTS of the requests, each with equal probability, and their number."""
    rng = random.Random(0)
    kept: list[Any] = []
    count = 0
    for count, request in enumerate(requests, start=1):
        if len(kept) < MOST_TEXTS:
            kept.append(request)
        elif (place := rng.randrange(count)) < MOST_TEXTS:
            kept[place] = request
    return kept, count


def _rows(inputs: Ids) -> Iterator[Ids]:
    """Yield the rows of a batch without padding. Rows of padding only are left out."""
    masks = inputs["input_mask"]
    for row, mask in enumerate(masks):
        length = int(mask.sum(axis=-1).max())
        if length:
            yield {
                name: value[row : row + 1, ..., :length]
                if value.shape == masks.shape
                else value[row : row + 1]
                for name, value in inputs.items()
            }
