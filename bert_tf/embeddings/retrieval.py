"""Exact nearest neighbours of vectors, and the metrics of retrieval and of similarity.

Shapes: Q queries, D documents, E embedding, k results, N pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from bert_tf.tasks.metrics import l2_normalize, pearson, spearman

RECALLS = (1, 10, 100)
_DEPTH = 10  # of MRR and nDCG, as in BEIR and MTEB
RANKED = 100  # documents of a query in a ranking
_BLOCK = 1024  # queries whose scores are in memory at once
_MAX_SCORES = 1 << 25  # in memory at once

Key = TypeVar("Key", bound=Hashable)  # a text, or the number of one


def search(
    queries: np.ndarray, documents: np.ndarray, k: int, block: int = _BLOCK
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k largest products of each query with the documents: scores and indexes [Q, k].

    Every document is compared. The best is first; of equal scores, the document with the lower index.

    Args:
        queries: float [Q, E].
        documents: float [D, E].

    >>> search(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0], [0.6, 0.8], [1.0, 0.0]]), k=2)
    (array([[1. , 0.6]]), array([[2, 1]]))
    """
    k = min(k, len(documents))
    block = max(1, min(block, _MAX_SCORES // max(1, len(documents))))
    scores, indexes = np.zeros((len(queries), k)), np.zeros((len(queries), k), int)
    for start in range(0, len(queries) if k else 0, block):
        products = queries[start : start + block] @ documents.T
        kth = np.partition(products, -k, axis=1)[:, -k]
        for number, row in enumerate(products):
            near = np.flatnonzero(~(row < kth[number]))  # the k best, and all ties with the last
            best = near[np.argsort(-row[near], kind="stable")[:k]]
            indexes[start + number], scores[start + number] = best, row[best]
    return scores, indexes


def search_others(
    queries: np.ndarray, documents: np.ndarray, own: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k best documents of each query but one, the query itself.

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


def relevance(
    rows: Iterable[Sequence[Key]],
) -> tuple[dict[Key, int], dict[Key, int], list[list[int]]]:
    """Return the queries and the documents, key -> index, and the relevant documents of each query."""
    queries: dict[Key, int] = {}
    documents: dict[Key, int] = {}
    relevant: list[list[int]] = []
    for query, *others in rows:
        number = queries.setdefault(query, len(queries))
        indexes = [documents.setdefault(other, len(documents)) for other in others]
        if number == len(relevant):
            relevant.append([])
        relevant[number].append(indexes[0])
    return queries, documents, relevant


def find_own_documents(
    queries: Mapping[Key, int], documents: Mapping[Key, int], relevant: Sequence[Sequence[int]]
) -> np.ndarray:
    """Return the document that is the query itself, int [Q]; -1 without one, or if it is relevant."""
    own = [documents.get(query, -1) for query in queries]
    return np.array([-1 if i in row else i for i, row in zip(own, relevant, strict=True)])


@dataclass(frozen=True)
class Ranking(Generic[Key]):
    """Documents of each query: `scores`, `indexes` [Q, k], best first; index -1 after the last."""

    queries: Sequence[Key]
    documents: Sequence[Key]
    scores: np.ndarray
    indexes: np.ndarray
    relevant: Sequence[Sequence[int]]

    def metrics(self) -> dict[str, float]:
        return retrieval_metrics(self.indexes, self.relevant)

    def pairs(self) -> list[tuple[Key, Key]]:
        return [
            (query, self.documents[index])
            for query, row in zip(self.queries, self.indexes, strict=True)
            for index in row
            if index >= 0
        ]

    def reorder(self, pair_scores: np.ndarray) -> Ranking[Key]:
        """Return the same documents, ordered by the scores of `pairs`."""
        scores = np.full(self.indexes.shape, -np.inf)
        scores[self.indexes >= 0] = pair_scores
        order = np.argsort(-scores, axis=1, kind="stable")
        scores, indexes = (np.take_along_axis(v, order, 1) for v in (scores, self.indexes))
        return replace(self, scores=scores, indexes=indexes)


def rank(
    rows: Iterable[Sequence[Key]],
    encode_queries: Callable[[list[Key]], np.ndarray],
    encode_documents: Callable[[list[Key]], np.ndarray],
    depth: int = RANKED,
) -> Ranking[Key]:
    """Return the documents of `relevance` that are nearest to each query, but the query itself."""
    queries, documents, relevant = relevance(rows)
    scores, indexes = search_others(
        encode_queries(list(queries)),
        encode_documents(list(documents)),
        find_own_documents(queries, documents, relevant),
        depth,
    )
    return Ranking(list(queries), list(documents), scores, indexes, relevant)


def mine_negatives(
    pairs: Sequence[tuple[str, str]],
    embed: Callable[..., np.ndarray],
    num_negatives: int = 1,
    margin: float = 0.05,
    depth: int = 100,
) -> list[list[str]]:
    """Return for each pair the texts that a model confuses with its positive, the nearest first.

    Candidates are the positives of the other anchors. Left out are the anchor, each of its positives,
    and, as probable positives, texts whose cosine is above that of the pair minus the margin.

    Args:
        pairs: (anchor, positive).
        embed: `embed` of a `Predictor`.
        num_negatives: of each pair, at most.
        margin: difference of cosines, from 0 to 2.
        depth: texts of each anchor that are ranked.

    >>> angles = {"q": 0.0, "right": 0.0, "r": 1.5, "near": 0.2, "s": 2.9, "far": 1.0}
    >>> def embed(texts, as_query=False):
    ...     return np.array([[np.cos(angles[text]), np.sin(angles[text])] for text in texts])
    >>> mine_negatives([("q", "right"), ("r", "near"), ("s", "far")], embed)[0]  # "near" is too near
    ['far']

    Source: Karpukhin et al. 2020, arXiv 2004.04906, section 3.2; the margin as in Moreira et al. 2024,
    arXiv 2407.15831.
    """
    anchors, documents, positives = relevance(pairs)
    texts = list(documents)
    queries, vectors = l2_normalize(embed(list(anchors), as_query=True)), l2_normalize(embed(texts))
    scores, indexes = search(queries, vectors, depth)
    mined = []
    for anchor, positive in pairs:
        number = anchors[anchor]
        max_score = queries[number] @ vectors[documents[positive]] - margin
        left_out = {*positives[number], documents.get(anchor)}
        ranked = zip(indexes[number], scores[number], strict=True)
        far = [texts[i] for i, score in ranked if i not in left_out and score <= max_score]
        mined.append(far[:num_negatives])
    return mined


def retrieval_metrics(indexes: np.ndarray, relevant: Sequence[Sequence[int]]) -> dict[str, float]:
    """Return MRR@10, nDCG@10, MAP@100 and Recall@1, 10 and 100, means over the queries.

    A document is relevant or not. Recall is the fraction of a query's relevant documents that are found.

    Args:
        indexes: [Q, k], of the documents found, the best first.

    Source: Järvelin and Kekäläinen 2002 (nDCG); the depths are those of BEIR (arXiv 2104.08663).
    """
    found = [np.isin(row, own) for row, own in zip(indexes, relevant, strict=True)]
    rows = list(zip(found, (len(set(own)) for own in relevant), strict=True))
    metrics = {
        f"eval_mrr@{_DEPTH}": _mean(row[:_DEPTH].any() / (np.argmax(row) + 1) for row, _ in rows),
        f"eval_ndcg@{_DEPTH}": _mean(
            _dcg(row[:_DEPTH]) / _dcg(np.ones(min(count, _DEPTH))) for row, count in rows
        ),
        f"eval_map@{RANKED}": _mean(
            _sum_of_precisions(row[:RANKED]) / min(count, RANKED) for row, count in rows
        ),
    }
    for k in RECALLS:
        metrics[f"eval_recall@{k}"] = _mean(row[:k].sum() / count for row, count in rows)
    return metrics


def pair_metrics(first: np.ndarray, second: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """Return the `score_metrics` of the cosines of N pairs."""
    return score_metrics((l2_normalize(first) * l2_normalize(second)).sum(-1), scores)


def score_metrics(predicted: np.ndarray, actual: np.ndarray) -> dict[str, float]:
    """Return the correlations of the scores of N pairs with the actual ones; of 0 and 1 also AP.

    An actual score of nan is unknown, and not counted.
    """
    known = ~np.isnan(actual)
    predicted, actual = predicted[known], actual[known]
    if not len(actual):
        return {}
    metrics = {
        "eval_spearman": spearman(predicted, actual),
        "eval_pearson": pearson(predicted, actual),
    }
    if set(np.unique(actual)) == {0, 1}:
        order = np.argsort(-predicted)
        is_correct, falling = actual[order] == 1, -predicted[order]
        last = np.searchsorted(falling, falling, side="right")  # equal scores are one threshold
        precisions = np.cumsum(is_correct)[last - 1] / last
        metrics["eval_average_precision"] = float(precisions[is_correct].mean())
    return metrics


def ranking_metrics(vectors: np.ndarray, numbers: np.ndarray) -> dict[str, float]:
    """Return `retrieval_metrics` of anchors that find their positives among all texts but anchors.

    Args:
        vectors: unit vectors, float [N, K, E], of an anchor, its positive and perhaps negatives.
        numbers: int [N, K], equal for equal texts, 0 for no text.
    """
    rows = [[number for number in row if number] for row in numbers.tolist()]
    of_query = dict(zip(numbers[:, 0].tolist(), vectors[:, 0], strict=True))
    others = vectors[:, 1:].reshape(-1, vectors.shape[-1])
    of_document = dict(zip(numbers[:, 1:].ravel().tolist(), others, strict=True))
    ranking = rank(
        rows,
        lambda keys: np.array([of_query[key] for key in keys]),
        lambda keys: np.array([of_document[key] for key in keys]),
    )
    return ranking.metrics()


def _mean(values: Iterator[float]) -> float:
    return float(np.mean(list(values)))


def _dcg(is_relevant: np.ndarray) -> float:
    return float((is_relevant / np.log2(np.arange(2, len(is_relevant) + 2))).sum())


def _sum_of_precisions(is_relevant: np.ndarray) -> float:
    ranks = np.arange(1, len(is_relevant) + 1)
    return float((np.cumsum(is_relevant) / ranks)[is_relevant].sum())
