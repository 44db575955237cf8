"""The CRF against brute force over all sequences of labels."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.data.label_schemes import complete_labels, to_iob2
from bert_tf.modeling.crf import (
    NEVER,
    Chains,
    Crf,
    allowed_transitions,
    best_labels,
    log_likelihood,
    make_chains,
    marginals,
    sentence_chains,
    viterbi_decode,
)

L = 5
LENGTHS = range(1, 7)
IOB2 = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


def random_scores(seed, rows=1, words=6, allowed=None):
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=2.0, size=(rows, words, L)).astype(np.float32)
    scores = rng.normal(scale=2.0, size=(L + 1, L + 1)).astype(np.float32)
    scores = scores if allowed is None else np.where(allowed, scores, NEVER).astype(np.float32)
    return logits, scores


def paths(logits, scores, starts=True, ends=True):
    """All sequences of labels, int [P, W], and their scores, float64 [P]."""
    border, words = len(scores) - 1, len(logits)
    found = np.array(list(itertools.product(range(border), repeat=words)))
    logits, scores = logits.astype(np.float64), scores.astype(np.float64)
    total = logits[range(words), found].sum(axis=1)
    total += scores[found[:, :-1], found[:, 1:]].sum(axis=1)
    total += scores[border, found[:, 0]] * starts + scores[found[:, -1], border] * ends
    return found, total


def rows_of(scores, rows):
    return np.broadcast_to(scores, (rows, *scores.shape))


def check(chains, row, place, logits, scores, **ends):
    """Compare a part of a row, a whole chain, with brute force. Return sequence -> log p."""
    found, total = paths(logits, scores, **ends)
    log_p = total - np.logaddexp.reduce(total)
    expected = np.zeros((len(logits), len(scores) - 1))
    for word, label in np.ndindex(expected.shape):
        expected[word, label] = np.exp(log_p[found[:, word] == label]).sum()
    np.testing.assert_allclose(marginals(chains)[row, place], expected, atol=2e-5)
    np.testing.assert_array_equal(viterbi_decode(chains)[row, place], found[np.argmax(total)])
    return dict(zip(map(tuple, found.tolist()), log_p, strict=True))


@pytest.mark.parametrize("scheme", [None, "iob2"])
def test_likelihood_marginals_and_viterbi_path_are_those_of_all_sequences(scheme):
    allowed = None if scheme is None else np.array(allowed_transitions(IOB2, scheme))
    for length in LENGTHS:
        logits, scores = random_scores(length, words=length, allowed=allowed)
        chains = sentence_chains(logits, scores[None], [length])
        log_p = check(chains, 0, slice(None), logits[0], scores)
        ids = np.array(list(log_p))
        all_of_it = Chains(*(np.repeat(part, len(ids), axis=0) for part in chains))
        values = log_likelihood(all_of_it, ids, np.ones_like(ids)).numpy()
        expected = np.array(list(log_p.values()))
        is_allowed = expected > -1e29
        assert is_allowed.all() == (scheme is None)
        np.testing.assert_allclose(values[is_allowed], expected[is_allowed], atol=1e-4)
        assert (values[~is_allowed] < -1e29).all()
        labels, probabilities = best_labels(chains)
        picked = np.take_along_axis(marginals(chains).numpy(), labels.numpy()[..., None], axis=-1)
        np.testing.assert_array_equal(probabilities, picked[..., 0])


def test_rows_of_other_lengths_and_padding_do_not_matter():
    logits, scores = random_scores(7, rows=len(LENGTHS))
    counts = np.array(LENGTHS)
    logits[np.arange(6) >= counts[:, None]] = 1e9  # padding
    chains = sentence_chains(logits, rows_of(scores, len(counts)), counts)
    is_word = np.arange(6) < counts[:, None]
    ids = np.random.default_rng(1).integers(L, size=is_word.shape)
    values = log_likelihood(chains, ids, is_word.astype(np.int32)).numpy()
    for row, count in enumerate(counts):
        log_p = check(chains, row, slice(count), logits[row, :count], scores)
        np.testing.assert_allclose(values[row], log_p[tuple(ids[row, :count])], atol=1e-4)
        assert not viterbi_decode(chains)[row, count:].numpy().any()


def test_several_sentences_in_a_row_are_chains_of_their_own():
    """A window of a document: the end of a sentence, a whole one, and the beginning of the next."""
    logits, scores = random_scores(3, words=8)
    starts, ends = np.zeros((2, 1, 8))
    starts[0, [2, 5]] = ends[0, [1, 4]] = 1
    is_word = np.float32([[1] * 7 + [0]])
    chains = make_chains(logits, scores[None], is_word, starts, ends)
    known, ids = np.ones((1, 8)), np.array([[4, 1, 0, 2, 2, 3, 1, 0]])
    expected = 0.0
    for place, cut in (
        (slice(0, 2), {"starts": False}),
        (slice(2, 5), {}),
        (slice(5, 7), {"ends": False}),
    ):
        log_p = check(chains, 0, place, logits[0, place], scores, **cut)
        expected += log_p[tuple(ids[0, place])]
    np.testing.assert_allclose(log_likelihood(chains, ids, known), [expected], atol=1e-4)


def test_unknown_labels_of_context_are_summed_over():
    logits, scores = random_scores(4, words=5)
    chains = sentence_chains(logits, scores[None], [5])
    ids, known = np.array([[0, 3, 1, 2, 0]]), np.array([[0, 1, 1, 0, 0]])
    found, total = paths(logits[0], scores)
    fits = (found[:, 1] == 3) & (found[:, 2] == 1)
    expected = np.logaddexp.reduce(total[fits]) - np.logaddexp.reduce(total)
    np.testing.assert_allclose(log_likelihood(chains, ids, known), [expected], atol=1e-4)
    nothing = log_likelihood(chains, ids, np.zeros_like(known))
    np.testing.assert_allclose(nothing, [0.0], atol=1e-5)


def test_gradients_are_finite_differences():
    allowed = np.array(allowed_transitions(IOB2, "iob2"))
    logits, _ = random_scores(5, words=4)
    layer = Crf(IOB2, "iob2")
    layer.transitions.assign(np.random.default_rng(6).normal(size=(L + 1, L + 1)))
    ids, step = np.array([[3, 4, 0, 1]]), 1e-2

    def losses(logits, transitions):
        rows = len(logits)
        chains = sentence_chains(logits, transitions, [4] * rows)
        return -log_likelihood(chains, np.repeat(ids, rows, axis=0), np.ones((rows, 4)))

    def slopes(values, allowed=True):
        """Both sides of each value, one value a row; (values, slope of their losses)."""
        changes = step * np.eye(values.size, dtype=np.float32).reshape(-1, *values.shape[1:])
        both = values + np.concatenate([changes, -changes])
        return np.where(allowed, both, NEVER), lambda f: np.subtract(*np.split(f, 2)) / (2 * step)

    with tf.GradientTape() as tape:
        inputs = tf.constant(logits)
        tape.watch(inputs)
        value = tf.reduce_sum(losses(inputs, layer(inputs)))
    by_logits, by_transitions = tape.gradient(value, [inputs, layer.transitions.value])
    rows, slope = slopes(logits)
    expected = slope(losses(rows, rows_of(layer(logits)[0], len(rows))).numpy())
    np.testing.assert_allclose(np.ravel(by_logits), expected, atol=2e-3)
    rows, slope = slopes(layer.transitions.numpy()[None], allowed)
    expected = slope(losses(np.repeat(logits, len(rows), axis=0), rows).numpy())
    np.testing.assert_allclose(np.ravel(by_transitions), expected, atol=2e-3)
    assert not by_transitions.numpy()[~allowed].any() and by_transitions.numpy().any()


def test_10_000_sentences_have_no_forbidden_transition():
    rng = np.random.default_rng(0)
    labels = complete_labels(["B-LOC", "B-PER", "B-ORG"])
    layer = Crf(labels, "iob2")
    layer.transitions.assign(rng.normal(scale=3.0, size=layer.transitions.shape))
    scale = 10.0 ** rng.integers(-3, 4, size=(10_000, 1, 1))  # from ties to 1,000
    logits = (rng.normal(size=(10_000, 7, len(labels))) * scale).astype(np.float32)
    logits[:1000] = np.round(logits[:1000])  # many equal scores
    counts = rng.integers(1, 8, size=10_000)
    found = tf.function(viterbi_decode)(sentence_chains(logits, layer(logits), counts)).numpy()
    kept = {tuple(row[:count]) for row, count in zip(found, counts, strict=True)}
    sentences = [[labels[i] for i in path] for path in kept]
    assert [row for row in sentences if to_iob2(row) != row] == []
    assert len({tuple(row) for row in found}) > 1000


def test_the_layer_is_float32_in_every_policy():
    keras.config.set_dtype_policy("mixed_bfloat16")
    layer = Crf(IOB2, "iob2")
    keras.config.set_dtype_policy("float32")
    assert layer.compute_dtype == layer.transitions.dtype == "float32"
    assert layer.transitions.path == "crf/transitions"
