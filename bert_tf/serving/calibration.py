"""Ids with which a quantizer measures the ranges of a model's products.

Shapes: B batch, S sequence, K choices.
"""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from bert_tf.serving.served import TEXT, Served
from bert_tf.training.progress import Progress

logger = logging.getLogger(__name__)

MOST_TEXTS = 300  # NNCF's usual number of samples
FEWEST_TEXTS = 16  # fewer are reported
MOST_UNKNOWN = 0.5  # fraction of the WordPieces
MANY_UNKNOWN = 0.05  # this fraction is reported
# Fraction of the WordPieces that the training did not have, before it is reported. The training set of
# SST-2 has 88 % of the pieces of the dev set in 2,000 records, 60 % in 100, and 1 % of those of Russian.
MOST_NEW = 0.5
NUM_COMPARED = 2000  # records of the training

Ids = dict[str, np.ndarray]
Item = TypeVar("Item")


def calibration_ids(
    served: Served, requests: Iterable[Mapping[str, Any]], source: str
) -> list[Ids]:
    """Return the ids of at most MOST_TEXTS requests. The sample is the same in every call.

    Args:
        served: takes text.
        requests: inputs of `serving_default` by name, one row each.
        source: their origin, for messages.

    Returns:
        Inputs of the model by name: int32 [1, S] or [1, K, S], trimmed to the (longest) text. Long
        texts have a row for each window, and at most MOST_TEXTS rows are returned.

    Raises:
        ValueError: the texts have no words, or most of their WordPieces are [UNK].
    """
    texts, count = _sample(requests)
    return _checked_rows(served, recorded_ids(served, texts), count, source)


def ids_of_records(served: Served, batches: Iterable[Ids], source: str) -> list[Ids]:
    """Return the ids of at most MOST_TEXTS records, like `calibration_ids`.

    Args:
        batches: inputs of the model by name, one row each.
        source: their origin, for messages.

    Raises:
        ValueError: see `calibration_ids`.
    """
    return _checked_rows(served, *_sample(batches), source)


def _checked_rows(served: Served, batches: Sequence[Ids], count: int, source: str) -> list[Ids]:
    """Return the rows of the batches, at most MOST_TEXTS.

    Args:
        count: texts or records at the source.
    """
    rows = [row for inputs in batches for row in _rows(inputs)]
    most = min(len(rows), MOST_TEXTS)
    rows = [rows[place * len(rows) // most] for place in range(most)]
    pieces = _pieces(served, rows)
    if not pieces.size:
        raise ValueError(
            f"{source} contains no words. Give texts like those that the model will get, about "
            f"{MOST_TEXTS} of them."
        )
    unknown = float(np.mean(pieces == served.unk_id))
    if unknown > MOST_UNKNOWN:
        raise ValueError(
            f"{source}: {unknown:.0%} of the WordPieces are [UNK], but at most {MOST_UNKNOWN:.0%} may "
            "be. Give texts in the language of the model."
        )
    if unknown >= MANY_UNKNOWN:
        logger.warning(
            "%s: %.0f %% of the WordPieces are [UNK]. If the texts of your users have fewer, the ranges "
            "are wrong for them. Give texts in the language of the model.",
            *(source, 100 * unknown),
        )
    different = min(count, len({row["input_ids"].tobytes() for row in rows}))
    if different < FEWEST_TEXTS:
        logger.warning(
            "%s contains only %d different texts. The ranges measured on them may be too narrow: give "
            "%d or more, better %d.",
            *(source, different, FEWEST_TEXTS, MOST_TEXTS),
        )
    logger.info("Calibration with %d rows, from %d texts of %s", len(rows), count, source)
    return rows


def warn_of_other_words(
    served: Served, rows: Sequence[Ids], records: Iterable[Ids], source: str
) -> None:
    """Warn if most WordPieces of the texts are not in the records of the training.

    Args:
        rows: from `calibration_ids`.
        records: of the training. At most NUM_COMPARED are read.
        source: the origin of the texts.
    """
    trained = _pieces(served, list(itertools.islice(records, NUM_COMPARED)))
    new = float(np.mean(~np.isin(_pieces(served, rows), trained)))
    if new > MOST_NEW:
        logger.warning(
            "%s: %.0f %% of the WordPieces are not in the records of the training. If the texts of your "
            "users are not like these, for example in another language, the ranges are wrong for them. "
            "Omit calibration_file to calibrate with the records, and check the result with eval_file.",
            *(source, 100 * new),
        )


def _pieces(served: Served, rows: Sequence[Ids]) -> np.ndarray:
    """Return the ids of all WordPieces except [CLS] and [SEP], int32 [N]."""
    ids = [row["input_ids"][row["input_mask"] == 1] for row in rows]
    pieces = np.concatenate([np.zeros(0, np.int32), *ids])
    return pieces[~np.isin(pieces, (served.cls_id, served.sep_id))]


def recorded_ids(served: Served, requests: Sequence[Mapping[str, Any]]) -> list[Ids]:
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


def _sample(requests: Iterable[Item]) -> tuple[Sequence[Item], int]:
    """Return at most MOST_TEXTS of the requests, each with equal probability, and their number."""
    rng = random.Random(0)
    kept: list[Item] = []
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
