"""Losses of embeddings against loops over single texts."""

import math

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.embeddings.losses import embedding_loss

RNG = np.random.default_rng(5)
VECTORS = RNG.normal(size=(6, 3, 8)).astype("float32")
NEAR = VECTORS[:, :2] + 3 * VECTORS[:, :1]  # pairs with cosines near 1
NUMBERS = np.arange(1, 19).reshape(6, 3)
SCORES = np.array([0.1, 0.9, 0.4, 0.4, 1.0, 0.0], "float32")


def features(vectors=VECTORS, numbers=NUMBERS, labels=SCORES):
    count = len(vectors)
    numbers = np.asarray(numbers)[:, : vectors.shape[1]] if vectors.ndim == 3 else numbers
    return {
        "text_numbers": tf.constant(numbers, tf.int32),
        "label_ids": tf.constant(labels[:count], tf.float32),
    }


def value(name, vectors=VECTORS, *, numbers=NUMBERS, labels=SCORES, **settings):
    given = features(vectors, numbers, labels)
    loss = embedding_loss(name, **settings)
    total = loss.total({"embedding": tf.constant(vectors)}, given)
    return float(total / loss.weight(given))


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def ranking_by_hand(anchors, candidates, own, allowed):
    losses = []
    for i, anchor in enumerate(anchors):
        scores = [cosine(anchor, c) / 0.05 for c in candidates]
        kept = [s for j, s in enumerate(scores) if allowed(i, j)]
        losses.append(math.log(sum(map(math.exp, kept))) - scores[own(i)])
    return float(np.mean(losses))


def test_ranking_is_the_cross_entropy_of_the_own_positive():
    candidates = [*VECTORS[:, 1], *VECTORS[:, 2]]
    expected = ranking_by_hand(VECTORS[:, 0], candidates, lambda i: i, lambda i, j: True)
    assert value("multiple_negatives_ranking") == pytest.approx(expected, rel=1e-5)


def test_equal_texts_are_no_negatives_of_each_other():
    numbers = NUMBERS.copy()
    numbers[3, 1] = numbers[0, 1]  # two anchors with one positive
    numbers[4, 0] = numbers[2, 0]  # one anchor with two positives
    numbers[5, 2] = numbers[1, 1]  # a negative that is another anchor's positive
    numbers[0, 2] = 0  # no negative

    def allowed(i, j):
        if j >= 6:
            return (j != 6) and (i, j) != (1, 11)
        pairs = {(0, 3), (3, 0), (2, 4), (4, 2)}
        return (i, j) not in pairs

    candidates = [*VECTORS[:, 1], *VECTORS[:, 2]]
    expected = ranking_by_hand(VECTORS[:, 0], candidates, lambda i: i, allowed)
    found = value("multiple_negatives_ranking", numbers=numbers)
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_text_that_is_a_positive_of_the_same_anchor_in_any_example_is_no_negative():
    numbers = NUMBERS.copy()
    numbers[1, 0] = numbers[0, 0]  # one anchor with the positives 0 and 1
    numbers[2, 1] = numbers[1, 1]  # of which 1 is also that of another anchor
    numbers[3, 2] = numbers[1, 1]  # and a negative

    def allowed(i, j):
        left_out = {(0, 1), (1, 0), (0, 2), (1, 2), (2, 1), (0, 9), (1, 9), (2, 9)}
        return (i, j) not in left_out

    candidates = [*VECTORS[:, 1], *VECTORS[:, 2]]
    expected = ranking_by_hand(VECTORS[:, 0], candidates, lambda i: i, allowed)
    found = value("multiple_negatives_ranking", numbers=numbers)
    assert found == pytest.approx(expected, rel=1e-5)


def test_symmetric_ranking_is_the_mean_of_both_directions():
    first, second = VECTORS[:, 0], VECTORS[:, 1]
    own, every = (lambda i: i), (lambda i, j: True)
    forward = ranking_by_hand(first, [*second, *VECTORS[:, 2]], own, every)
    backward = ranking_by_hand(second, first, own, every)
    found = value("multiple_negatives_symmetric_ranking")
    assert found == pytest.approx((forward + backward) / 2, rel=1e-5)


def test_cosent_counts_pairs_in_the_wrong_order():
    cosines = [cosine(a, b) for a, b in NEAR]
    total = 1 + sum(
        math.exp(20 * (cosines[i] - cosines[j]))
        for i in range(6)
        for j in range(6)
        if SCORES[i] < SCORES[j]
    )
    assert value("cosent", NEAR) == pytest.approx(math.log(total), rel=1e-5)


def test_cosine_similarity_and_contrastive_are_means_over_the_pairs():
    cosines = np.array([cosine(a, b) for a, b in NEAR])
    expected = np.mean((cosines - SCORES) ** 2)
    assert value("cosine_similarity", NEAR) == pytest.approx(expected, rel=1e-5)
    labels = np.array([1, 0, 0, 1, 0, 1], "float32")
    distances = 1 - cosines
    expected = np.mean(
        0.5 * (labels * distances**2 + (1 - labels) * np.maximum(0.5 - distances, 0) ** 2)
    )
    found = value("contrastive", NEAR, labels=labels)
    assert found == pytest.approx(expected, rel=1e-5)


def test_triplets_want_the_positive_nearer_by_the_margin():
    terms = [max(cosine(a, n) - cosine(a, p) + 0.5, 0) for a, p, n in VECTORS]
    assert value("triplet") == pytest.approx(np.mean(terms), rel=1e-5)


def test_a_negative_that_is_missing_or_one_of_the_pair_does_not_count():
    numbers = np.array(NUMBERS)
    numbers[0, 2], numbers[1, 2] = 0, numbers[1, 1]
    terms = [max(cosine(a, n) - cosine(a, p) + 0.5, 0) for a, p, n in VECTORS[2:]]
    found = value("triplet", numbers=numbers)
    assert found == pytest.approx(np.sum(terms) / len(VECTORS), rel=1e-5)
    # Of two negatives, of which one is missing, the other counts alone.
    vectors, numbers = (np.concatenate([x, x[:, 2:][::-1]], axis=1) for x in (VECTORS, NUMBERS))
    numbers[:, 2] = 0
    terms = [max(cosine(a, n) - cosine(a, p) + 0.5, 0) for a, p, _, n in vectors]
    assert value("triplet", vectors, numbers=numbers) == pytest.approx(np.mean(terms), rel=1e-5)


def test_triplets_of_examples_without_room_for_a_negative_are_an_error():
    features = {"text_numbers": tf.constant([[1, 2]]), "label_ids": tf.zeros(1)}
    with pytest.raises(ValueError, match="num_texts"):
        embedding_loss("triplet").total({"embedding": tf.ones((1, 2, 4))}, features)


def test_matryoshka_adds_the_loss_of_the_first_numbers():
    name = "multiple_negatives_ranking"
    parts = [value(name, VECTORS[..., :width]) for width in (8, 4, 2)]
    assert value(name, widths=(4, 2)) == pytest.approx(sum(parts), rel=1e-5)
