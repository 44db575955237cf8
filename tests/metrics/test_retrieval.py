"""Metrics of retrieval by hand, against scikit-learn and trec_eval, and exact search."""

import numpy as np
import pytest

from bert_tf.finetuning.rankings import Ranking
from bert_tf.metrics.retrieval import (
    mine_negatives,
    pair_metrics,
    score_metrics,
    search,
    search_others,
)

RNG = np.random.default_rng(2)


def metrics_of(ranked, relevant):
    return Ranking.of_lists([], [], ranked, ranked, relevant).metrics()


def test_unknown_scores_are_not_counted():
    found, right = RNG.normal(size=5), np.array([0.1, np.nan, 0.9, 0.3, np.nan])
    known = [0, 2, 3]
    assert score_metrics(found, right) == score_metrics(found[known], right[known])
    assert score_metrics(found, np.full(5, np.nan)) == {}


def test_metrics_of_two_queries_by_hand():
    ranked = np.array([[3, 1, 2, 0], [0, 2, 1, 3]])
    found = metrics_of(ranked, [[1], [0, 3]])
    assert found["eval_mrr@10"] == pytest.approx((1 / 2 + 1) / 2)
    first, second = 1 / np.log2(3), (1 + 1 / np.log2(5)) / (1 + 1 / np.log2(3))
    assert found["eval_ndcg@10"] == pytest.approx((first + second) / 2)
    assert found["eval_map@100"] == pytest.approx((1 / 2 + (1 + 2 / 4) / 2) / 2)
    assert found["eval_recall@1"] == pytest.approx((0 + 1 / 2) / 2)
    assert found["eval_recall@10"] == 1


@pytest.mark.parametrize("block", [1, 7, 100])
def test_search_equals_a_sort_of_all_products(block):
    queries, documents = RNG.normal(size=(20, 5)), RNG.normal(size=(33, 5))
    scores, indexes = search(queries, documents, k=9, block=block)
    products = queries @ documents.T
    np.testing.assert_array_equal(indexes, np.argsort(-products, axis=1, kind="stable")[:, :9])
    np.testing.assert_allclose(scores, -np.sort(-products, axis=1)[:, :9])


def test_of_equal_scores_the_document_with_the_lower_index_is_first(monkeypatch):
    documents = np.array([[0.5]] * 30 + [[0.9]] * 30)
    assert search(np.ones((1, 1)), documents, k=5)[1].tolist() == [[30, 31, 32, 33, 34]]
    expected = np.argsort(-documents[:, 0], kind="stable")[None, :40].tolist() * 7
    monkeypatch.setattr("bert_tf.metrics.retrieval._MOST_SCORES", 120)  # two queries at once
    assert search(np.ones((7, 1)), documents, k=40)[1].tolist() == expected


def test_a_query_does_not_find_itself():
    vectors = RNG.normal(size=(6, 3))
    vectors[3] = vectors[1]  # equal texts
    scores, indexes = search_others(vectors, vectors, np.arange(6), k=5)
    for row, (values, found) in enumerate(zip(scores, indexes, strict=True)):
        assert sorted(found) == [other for other in range(6) if other != row]
        np.testing.assert_allclose(values, vectors[found] @ vectors[row])
        assert (np.diff(values) <= 0).all()
    assert search_others(vectors, vectors, np.full(6, -1), k=2)[1].tolist() == (
        search(vectors, vectors, k=2)[1].tolist()
    )
    _, indexes = search_others(np.eye(2), np.eye(2), np.array([0, -1]), k=9)
    assert indexes.tolist() == [[1, -1], [1, 0]]


def test_the_average_precision_does_not_depend_on_the_order_of_equal_scores():
    for labels in ([1, 1, 0, 0], [0, 0, 1, 1]):
        found = score_metrics(np.zeros(4), np.array(labels, float))
        assert found["eval_average_precision"] == 0.5
    labels, scores = np.array([1.0, 0, 1, 1, 0, 0]), np.array([0.9, 0.9, 0.5, 0.2, 0.2, 0.2])
    found = score_metrics(scores, labels)["eval_average_precision"]
    assert found == pytest.approx((1 / 2 + 2 / 3 + 3 / 6) / 3)


def test_pairs_with_labels_have_an_average_precision():
    metrics = pytest.importorskip("sklearn.metrics")
    first, second = RNG.normal(size=(30, 4)), RNG.normal(size=(30, 4))
    labels = RNG.integers(0, 2, 30)
    found = pair_metrics(first, second, labels)
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosines = (first * second).sum(1) / lengths
    expected = metrics.average_precision_score(labels, cosines)
    assert found["eval_average_precision"] == pytest.approx(expected, abs=1e-12)
    assert "eval_average_precision" not in pair_metrics(first, second, labels / 2)


def test_the_metrics_equal_those_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    scores = RNG.normal(size=(40, 90))
    relevant = [RNG.choice(90, RNG.integers(1, 15), replace=False).tolist() for _ in scores]
    is_relevant = np.array([np.isin(np.arange(90), row) for row in relevant])
    found = metrics_of(np.argsort(-scores, axis=1), relevant)
    expected = metrics.ndcg_score(is_relevant, scores, k=10)
    assert found["eval_ndcg@10"] == pytest.approx(expected, abs=1e-12)
    precisions = map(metrics.average_precision_score, is_relevant, scores)
    assert found["eval_map@100"] == pytest.approx(np.mean(list(precisions)), abs=1e-12)


def test_the_metrics_equal_those_of_trec_eval():
    pytrec_eval = pytest.importorskip("pytrec_eval")
    scores = RNG.normal(size=(40, 150))
    relevant = [RNG.choice(150, RNG.integers(1, 15), replace=False).tolist() for _ in scores]
    judgments = {str(q): dict.fromkeys(map(str, row), 1) for q, row in enumerate(relevant)}
    runs = {
        str(query): {str(document): float(score) for document, score in enumerate(row)}
        for query, row in enumerate(scores)
    }
    # Its reciprocal rank has no depth, so the first ten documents are a run of their own.
    firsts = {
        query: dict(sorted(run.items(), key=lambda each: -each[1])[:10])
        for query, run in runs.items()
    }
    measures = {"ndcg_cut.10", "map_cut.100", "recall.1,10,100"}
    results = pytrec_eval.RelevanceEvaluator(judgments, measures).evaluate(runs)
    ranks = pytrec_eval.RelevanceEvaluator(judgments, {"recip_rank"}).evaluate(firsts)

    def mean(found, name):
        return np.mean([row[name] for row in found.values()])

    expected = {
        "eval_mrr@10": mean(ranks, "recip_rank"),
        "eval_ndcg@10": mean(results, "ndcg_cut_10"),
        "eval_map@100": mean(results, "map_cut_100"),
        **{f"eval_recall@{k}": mean(results, f"recall_{k}") for k in (1, 10, 100)},
    }
    _, ranked = search(scores, np.eye(150), k=100)
    found = metrics_of(ranked, relevant)
    assert found == pytest.approx(expected, abs=1e-9)


# Cosines with every anchor: 1.0, 0.98, 0.9, 0.6, 0.0 in this order.
ANGLES = {"p": 0.0, "near": 0.2, "other": 0.45, "far": 0.927, "never": np.pi / 2}
PAIRS = [("q", "p"), ("q1", "near"), ("q2", "other"), ("q3", "far"), ("q4", "never")]


def embed(texts, as_query=False):
    angles = [0.0 if as_query else ANGLES[text] for text in texts]
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


@pytest.mark.parametrize(
    "pairs, settings, expected",
    [
        (PAIRS, {}, ["other", "far"]),  # "near" is within the margin
        (PAIRS, {"margin": 0.0}, ["near", "other"]),
        (PAIRS, {"margin": 0.0, "depth": 2}, ["near"]),
        ([*PAIRS, ("q", "other")], {}, ["far", "never"]),
        ([("far", "p"), ("q1", "far"), ("q2", "never")], {}, ["never"]),  # not the anchor itself
        ([("q", "p"), ("q1", "p")], {}, []),
    ],
)
def test_mine_negatives(pairs, settings, expected):
    first, *others = mine_negatives(pairs, embed, num_negatives=2, **settings)
    assert first == expected and len(others) == len(pairs) - 1
