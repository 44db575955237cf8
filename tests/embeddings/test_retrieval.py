"""Metrics of retrieval by hand and by their definitions, and exact search."""

import numpy as np
import pytest

from bert_tf.embeddings.retrieval import (
    mine_negatives,
    pair_metrics,
    retrieval_metrics,
    score_metrics,
    search,
    search_others,
)

RNG = np.random.default_rng(2)


def test_unknown_scores_are_not_counted():
    found, right = RNG.normal(size=5), np.array([0.1, np.nan, 0.9, 0.3, np.nan])
    known = [0, 2, 3]
    assert score_metrics(found, right) == score_metrics(found[known], right[known])
    assert score_metrics(found, np.full(5, np.nan)) == {}


def test_retrieval_metrics_of_two_queries_by_hand():
    ranked = np.array([[3, 1, 2, 0], [0, 2, 1, 3]])
    found = retrieval_metrics(ranked, [[1], [0, 3]])
    assert found["eval_mrr@10"] == pytest.approx((1 / 2 + 1) / 2)
    first, second = 1 / np.log2(3), (1 + 1 / np.log2(5)) / (1 + 1 / np.log2(3))
    assert found["eval_ndcg@10"] == pytest.approx((first + second) / 2)
    assert found["eval_map@100"] == pytest.approx((1 / 2 + (1 + 2 / 4) / 2) / 2)
    assert found["eval_recall@1"] == pytest.approx((0 + 1 / 2) / 2)
    assert found["eval_recall@10"] == 1


@pytest.mark.weekly
def test_retrieval_metrics_equal_those_of_trec_eval():
    pytrec_eval = pytest.importorskip("pytrec_eval")
    scores = RNG.normal(size=(40, 150))
    relevant = [RNG.choice(150, RNG.integers(1, 15), replace=False).tolist() for _ in scores]
    judgments = {str(q): dict.fromkeys(map(str, row), 1) for q, row in enumerate(relevant)}
    _, ranked = search(scores, np.eye(150), k=100)

    def mean(measure, name, depth):  # the reciprocal rank has no depth of its own
        runs = {
            str(q): {str(i): float(scores[q, i]) for i in row[:depth]}
            for q, row in enumerate(ranked)
        }
        found = pytrec_eval.RelevanceEvaluator(judgments, {measure}).evaluate(runs)
        return np.mean([row[name] for row in found.values()])

    expected = {
        "eval_mrr@10": mean("recip_rank", "recip_rank", 10),
        "eval_ndcg@10": mean("ndcg_cut.10", "ndcg_cut_10", 100),
        "eval_map@100": mean("map_cut.100", "map_cut_100", 100),
        **{f"eval_recall@{k}": mean(f"recall.{k}", f"recall_{k}", 100) for k in (1, 10, 100)},
    }
    assert retrieval_metrics(ranked, relevant) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("block", [1, 7, 100])
def test_search_equals_a_sort_of_all_products(block):
    queries, documents = RNG.normal(size=(20, 5)), RNG.normal(size=(33, 5))
    scores, indexes = search(queries, documents, k=9, block=block)
    products = queries @ documents.T
    np.testing.assert_array_equal(indexes, np.argsort(-products, axis=1, kind="stable")[:, :9])
    np.testing.assert_allclose(scores, -np.sort(-products, axis=1)[:, :9])
    documents = np.array([[0.5]] * 30 + [[0.9]] * 30)  # of equal scores the lower index is first
    expected = np.argsort(-documents[:, 0], kind="stable")
    for k in (5, 40):
        assert (
            search(np.ones((9, 1)), documents, k, block)[1].tolist() == [expected[:k].tolist()] * 9
        )


def test_search_others_leaves_out_the_query_itself():
    vectors = RNG.normal(size=(6, 3))
    vectors[3] = vectors[1]  # equal texts
    scores, indexes = search_others(vectors, vectors, np.arange(6), k=5)
    for row, (values, found) in enumerate(zip(scores, indexes, strict=True)):
        assert sorted(found) == [other for other in range(6) if other != row]
        np.testing.assert_allclose(values, vectors[found] @ vectors[row])
        assert (np.diff(values) <= 0).all()
    _, indexes = search_others(vectors, vectors, np.full(6, -1), k=2)
    assert indexes.tolist() == search(vectors, vectors, k=2)[1].tolist()
    _, indexes = search_others(np.eye(2), np.eye(2), np.array([0, -1]), k=9)
    assert indexes.tolist() == [[1, -1], [1, 0]]


def test_average_precision_ignores_the_order_of_equal_scores():
    for labels in ([1, 1, 0, 0], [0, 0, 1, 1]):
        found = score_metrics(np.zeros(4), np.array(labels, float))
        assert found["eval_average_precision"] == 0.5
    labels, scores = np.array([1.0, 0, 1, 1, 0, 0]), np.array([0.9, 0.9, 0.5, 0.2, 0.2, 0.2])
    found = score_metrics(scores, labels)["eval_average_precision"]
    assert found == pytest.approx((1 / 2 + 2 / 3 + 3 / 6) / 3)


def test_pair_metrics_are_those_of_cosines():
    first, second = RNG.normal(size=(30, 4)), RNG.normal(size=(30, 4))
    labels = RNG.integers(0, 2, 30)
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    found = pair_metrics(first, second, labels)
    assert found == pytest.approx(score_metrics((first * second).sum(1) / lengths, labels))
    assert "eval_average_precision" in found
    assert "eval_average_precision" not in pair_metrics(first, second, labels / 2)


# Cosines with every anchor: 1.0, 0.98, 0.9, 0.6, 0.0 in this order.
ANGLES = {"p": 0.0, "near": 0.2, "other": 0.45, "far": 0.927, "never": np.pi / 2}
PAIRS = [("q", "p"), ("q1", "near"), ("q2", "other"), ("q3", "far"), ("q4", "never")]


def embed(texts, as_query=False):
    angles = [0.0 if as_query else ANGLES[text] for text in texts]
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def test_mine_negatives_leaves_out_positives_and_near_ones():
    for pairs, settings, expected in (
        (PAIRS, {}, ["other", "far"]),  # "near" is within the margin
        (PAIRS, {"margin": 0.0}, ["near", "other"]),
        (PAIRS, {"margin": 0.0, "depth": 2}, ["near"]),
        ([*PAIRS, ("q", "other")], {}, ["far", "never"]),
        ([("far", "p"), ("q1", "far"), ("q2", "never")], {}, ["never"]),  # not the anchor itself
        ([("q", "p"), ("q1", "p")], {}, []),
    ):
        first, *others = mine_negatives(pairs, embed, num_negatives=2, **settings)
        assert first == expected and len(others) == len(pairs) - 1
