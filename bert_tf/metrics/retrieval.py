"""Exact nearest neighbours of vectors, and the metrics of retrieval and of similarity.

Shapes: Q queries, D documents, E embedding, k results, N pairs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bert_tf.metrics.basic import pearson, spearman

RECALLS = (1, 10, 100)
_DEPTH = 10  # of MRR and nDCG, as in BEIR and MTEB
RANKED = 100  # documents of a query in a ranking
_BLOCK = 1024  # most queries whose scores are in memory at once
_MOST_SCORES = 1 << 25  # in memory at once


def unit(vectors: np.ndarray) -> np.ndarray:
    """Return vectors of length 1; zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)


def search(
    queries: np.ndarray, documents: np.ndarray, k: int, block: int = _BLOCK
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k largest products of each query with the documents: scores and indexes [Q, k].

    Every document is compared. The best is first; of equal scores, the document with the lower index.

    Args:
        queries: float [Q, E].
        documents: float [D, E].
        k: results; D if there are fewer documents.
        block: most queries at once; fewer for many documents, to limit the memory.

    >>> search(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0], [0.6, 0.8], [1.0, 0.0]]), k=2)
    (array([[1. , 0.6]]), array([[2, 1]]))
    """
    k = min(k, len(documents))
    block = max(1, min(block, _MOST_SCORES // max(1, len(documents))))
    scores, indexes = np.zeros((len(queries), k)), np.zeros((len(queries), k), int)
    for start in range(0, len(queries) if k else 0, block):
        found = queries[start : start + block] @ documents.T
        least = np.partition(found, -k, axis=1)[:, -k]
        for number, row in enumerate(found):
            near = np.flatnonzero(~(row < least[number]))  # the k best, and all that equal the last
            best = near[np.argsort(-row[near], kind="stable")[:k]]
            indexes[start + number], scores[start + number] = best, row[best]
    return scores, indexes


def search_others(
    queries: np.ndarray, documents: np.ndarray, own: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return what `search` returns without one document of each query, the query itself.

    Args:
        own: int [Q], index of that document; -1 for none.

    Returns:
        Scores and indexes [Q, k]; the index is -1 after the last document.
    """
    scores, indexes = search(queries, documents, k + 1)
    is_own = indexes == own[:, None]
    order = np.argsort(is_own, axis=1, kind="stable")[:, :k]  # the query itself is last
    indexes = np.where(is_own, -1, indexes)
    return np.take_along_axis(scores, order, 1), np.take_along_axis(indexes, order, 1)


def retrieval_metrics(is_relevant: np.ndarray, num_relevant: np.ndarray) -> dict[str, float]:
    """Return MRR@10, nDCG@10, MAP@100 and Recall@1, 10 and 100, means over the queries.

    A document is relevant or not. Recall is the fraction of a query's relevant documents that are found.

    Args:
        is_relevant: bool [Q, k], of the documents found, the best first.
        num_relevant: int [Q], relevant documents of each query, found or not; at least one.

    >>> round(retrieval_metrics(np.array([[False, True]]), np.array([1]))["eval_mrr@10"], 3)
    0.5

    Source: Järvelin and Kekäläinen 2002 (nDCG); the depths are those of BEIR (arXiv 2104.08663).
    """
    found = list(zip(is_relevant, num_relevant, strict=True))
    metrics = {
        f"eval_mrr@{_DEPTH}": _mean(_reciprocal_rank(hits[:_DEPTH]) for hits in is_relevant),
        f"eval_ndcg@{_DEPTH}": _mean(
            _dcg(hits[:_DEPTH]) / _dcg(np.ones(min(count, _DEPTH))) for hits, count in found
        ),
        "eval_map@100": _mean(
            _sum_of_precisions(hits[:100]) / min(count, 100) for hits, count in found
        ),
    }
    for k in RECALLS:
        metrics[f"eval_recall@{k}"] = _mean(hits[:k].sum() / count for hits, count in found)
    return metrics


def pair_metrics(first: np.ndarray, second: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """Return the `score_metrics` of the cosines of N pairs.

    Args:
        first, second: float [N, E].
        scores: [N].
    """
    return score_metrics((unit(first) * unit(second)).sum(-1), scores)


def score_metrics(found_scores: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """Return the correlations of N found scores with the right ones; of 0 and 1 also AP.

    A right score of nan is unknown, and not counted.
    """
    known = ~np.isnan(scores)
    found_scores, scores = found_scores[known], scores[known]
    if not len(scores):
        return {}
    found = {
        "eval_spearman": spearman(found_scores, scores),
        "eval_pearson": pearson(found_scores, scores),
    }
    if set(np.unique(scores)) == {0, 1}:
        order = np.argsort(-found_scores)
        hits, falling = scores[order] == 1, -found_scores[order]
        last = np.searchsorted(falling, falling, side="right")  # equal scores are one threshold
        precisions = np.cumsum(hits)[last - 1] / last
        found["eval_average_precision"] = float(precisions[hits].mean())
    return found


def ranking_metrics(vectors: np.ndarray, numbers: np.ndarray) -> dict[str, float]:
    """Return `retrieval_metrics` of anchors that find their positives among all texts but anchors.

    Args:
        vectors: unit vectors, float [N, K, E], of an anchor, its positive and perhaps negatives.
        numbers: int [N, K], equal for equal texts, 0 for no text.
    """
    queries, first_query, query = np.unique(numbers[:, 0], return_index=True, return_inverse=True)
    others, of_others = numbers[:, 1:].ravel(), vectors[:, 1:].reshape(-1, vectors.shape[-1])
    documents, first = np.unique(others, return_index=True)
    documents, first = documents[documents > 0], first[documents > 0]
    relevant: list[set[int]] = [set() for _ in queries]
    for number, positive in zip(query, numbers[:, 1], strict=True):
        relevant[number].add(int(positive))
    own = np.array([-1 if n in row else n for n, row in zip(queries, relevant, strict=True)])
    places = np.searchsorted(documents, own).clip(max=len(documents) - 1)
    places = np.where(documents[places] == own, places, -1)  # of the query among the documents
    _, found = search_others(vectors[first_query, 0], of_others[first], places, RANKED)
    hits = [
        [index >= 0 and documents[index] in row for index in of_query]
        for of_query, row in zip(found, relevant, strict=True)
    ]
    return retrieval_metrics(np.array(hits), np.array([len(row) for row in relevant]))


def class_metrics(vectors: np.ndarray, classes: np.ndarray) -> dict[str, float]:
    """Return `retrieval_metrics` of texts that find the others of their class; {} if none has others.

    Args:
        vectors: unit vectors, float [N, E].
        classes: [N], nan for an unknown one.
    """
    count = len(classes)
    _, found = search_others(vectors, vectors, np.arange(count), min(RANKED, count - 1))
    _, number, sizes = np.unique(classes, return_inverse=True, return_counts=True)
    num_relevant = np.where(np.isnan(classes), 0, sizes[number] - 1)
    kept = num_relevant > 0
    if not kept.any():
        return {}
    is_relevant = classes[found] == classes[:, None]
    return retrieval_metrics(is_relevant[kept], num_relevant[kept])


def _mean(values: Iterator[float]) -> float:
    return float(np.mean(list(values)))


def _reciprocal_rank(hits: np.ndarray) -> float:
    return float(1.0 / (np.argmax(hits) + 1)) if hits.any() else 0.0


def _dcg(hits: np.ndarray) -> float:
    return float((hits / np.log2(np.arange(2, len(hits) + 2))).sum())


def _sum_of_precisions(hits: np.ndarray) -> float:
    return float((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].sum())
