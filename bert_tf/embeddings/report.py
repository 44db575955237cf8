"""Sections of report.html for embeddings: the hardest queries or pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bert_tf.report.page import Section
from bert_tf.report.sections import MOST_ERRORS, hardest_errors, shortened


def query_sections(
    queries: Sequence[str],
    documents: Sequence[str],
    indexes: np.ndarray,
    relevant: np.ndarray,
    is_relevant: np.ndarray,
) -> list[Section]:
    """Return the queries whose first relevant document has the lowest place.

    Args:
        indexes: int [Q, k], of the documents found, the best first.
        relevant: int [Q], index of a relevant document, for queries that found none.
        is_relevant: bool [Q, k], of the documents found.
    """
    k = is_relevant.shape[1]
    places = np.where(is_relevant.any(axis=1), is_relevant.argmax(axis=1), k)
    wrong = [index for index in np.argsort(-places, kind="stable") if places[index]]
    shown = np.column_stack([indexes, relevant])[np.arange(len(places)), places]
    rows = [
        [
            shortened(queries[index]),
            shortened(documents[shown[index]]),
            shortened(documents[indexes[index, 0]]),
            f"beyond {k}" if places[index] == k else str(places[index] + 1),
        ]
        for index in wrong[:MOST_ERRORS]
    ]
    header = ["query", "relevant", "found first", "place of the relevant one"]
    return [hardest_errors(header, rows, len(wrong), "the lowest place first")]


def pair_sections(
    pairs: Sequence[Sequence[str]], found: np.ndarray, scores: np.ndarray
) -> list[Section]:
    """Return the pairs whose place by found score differs most from that by score.

    Pairs with equal scores share their places.
    """
    count, ascending = len(pairs), np.sort(scores)
    places = np.argsort(np.argsort(found, kind="stable"))
    first, last = (np.searchsorted(ascending, scores, side) for side in ("left", "right"))
    gaps = np.maximum(first - places, 0) + np.maximum(places - (last - 1), 0)
    wrong = [index for index in np.argsort(-gaps, kind="stable") if gaps[index]]
    rows = [
        [*map(shortened, pairs[i]), f"{scores[i]:.3g}", f"{found[i]:.3f}"]
        for i in wrong[:MOST_ERRORS]
    ]
    header = ["first text", "second text", "score", "score of the model"]
    order = f"the largest difference of the places among {count} pairs first"
    return [hardest_errors(header, rows, len(wrong), order)]
