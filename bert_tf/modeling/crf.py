"""A linear-chain conditional random field (CRF) over the labels of a sentence's words.

    p(y | x) = exp(sum_t emission[t, y_t] + sum_t transition[y_t-1, y_t]) / Z

The sums run over the words and over the borders between words, the two ends of the sentence included. Z
is the sum over all sequences of labels. A row may contain several sentences, each a chain of its own,
and a part of one, which has no score for an end that is not in it.

All numbers are float32. The loops have no arrays of TensorFlow, so XLA compiles them, and they convert
to ONNX, OpenVINO and TFLite. The schemes of labels are pictured in data/label_schemes.py.

Shapes: B rows, W words, L labels.

Source: Lafferty et al. 2001; Lample et al. 2016, arXiv 1603.01360, section 2.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

NEVER = -1e30  # score of a forbidden transition, and of a label that a word cannot have

IOB2 = "iob2"
WORDS = "words"  # labels of words, such as parts of speech: each may follow each
OUTSIDE = "O"


def entity_type(label: str) -> str | None:
    """Return the part after the prefix, "" without a type; None for O."""
    return None if label == OUTSIDE else label.partition("-")[2]


def allowed_transitions(labels: Sequence[str], scheme: str = IOB2) -> list[list[bool]]:
    """Return which label may follow which, and the border of a sentence: [L + 1][L + 1].

    In IOB2 an I- follows only a label of the same type. Row i is for the label before, column j for the
    label after. The last ones are for the border.
    """
    any_may_follow = {IOB2: False, WORDS: True}[scheme]
    names = [*labels, OUTSIDE]
    return [
        [
            any_may_follow or label[0] != "I" or entity_type(before) == entity_type(label)
            for label in names
        ]
        for before in names
    ]


class Crf(keras.layers.Layer):
    """The scores of the transitions between labels; those that the scheme forbids are `NEVER`."""

    def __init__(self, labels: Sequence[str], scheme: str):
        super().__init__(name="crf", dtype="float32")
        self.scheme = scheme
        self.allowed = np.array(allowed_transitions(labels, scheme))
        self.transitions = self.add_weight(
            name="transitions", shape=self.allowed.shape, initializer="zeros"
        )
        self.built = True

    def call(self, logits):
        """Return the transitions for each row of `logits` [B, ...]: float32 [B, L + 1, L + 1]."""
        scores = ops.where(self.allowed, ops.convert_to_tensor(self.transitions), NEVER)
        return ops.broadcast_to(scores, (ops.shape(logits)[0], *self.allowed.shape))


class Chains(NamedTuple):
    """Scores of the sentences in B rows.

    words: float32 [B, W, L], of each label of a word.
    pairs: float32 [B, L, L], of a label after another in the same sentence.
    is_joined: bool [B, W, 1], True if a word follows another of its sentence.
    """

    words: Any
    pairs: Any
    is_joined: Any


def make_chains(logits, transitions, is_word, starts, ends) -> Chains:
    """Return the chains of rows of words.

    `logits` float [B, W, L] are the emissions, `transitions` float32 [B, L + 1, L + 1] from `Crf`.
    `is_word`, `starts`, `ends` [B, W] are 1 at words, and at the first and last word of a sentence.
    """
    is_word, starts, ends = (
        ops.greater(ops.expand_dims(flags, 2), 0) for flags in (is_word, starts, ends)
    )
    # Equal for all labels of a word, so without effect; sums over long sentences stay near zero.
    words = ops.log_softmax(ops.cast(logits, "float32"))
    words += ops.where(starts, transitions[:, -1:, :-1], 0.0)
    words += ops.where(ends, ops.expand_dims(transitions[:, :-1, -1], 1), 0.0)
    first_label = ops.equal(ops.arange(ops.shape(words)[-1], dtype="int32"), 0)
    nothing = ops.where(first_label, 0.0, NEVER)  # padding: a word that has only the first label
    words = ops.where(is_word, words, nothing)
    is_first = ops.equal(ops.arange(ops.shape(words)[1], dtype="int32"), 0)[:, None]
    is_joined = ops.logical_and(is_word, ops.logical_not(ops.logical_or(starts, is_first)))
    return Chains(words, transitions[:, :-1, :-1], is_joined)


def sentence_chains(logits, transitions, counts) -> Chains:
    """Return the chains of rows that are one sentence each, of `counts` int [B] words."""
    number = ops.arange(ops.shape(logits)[1], dtype="int32")[None]
    counts = ops.cast(counts, "int32")[:, None]
    is_word = ops.cast(number < counts, "int32")
    starts = ops.cast(ops.logical_and(ops.equal(number, 0), number < counts), "int32")
    return make_chains(
        logits, transitions, is_word, starts, ops.cast(ops.equal(number, counts - 1), "int32")
    )


def log_likelihood(chains: Chains, label_ids, is_known):
    """Return log p(labels of the known words | x) of each row, float32 [B].

    `is_known` [B, W] is 0 where a word may have any label, as context and padding.
    """
    labels = ops.arange(ops.shape(chains.words)[-1], dtype="int32")
    is_label = ops.equal(ops.cast(label_ids, "int32")[:, :, None], labels)
    is_possible = ops.logical_or(is_label, ops.equal(is_known, 0)[:, :, None])
    both = Chains(
        ops.concatenate([ops.where(is_possible, chains.words, NEVER), chains.words], axis=0),
        *(ops.concatenate([part, part], axis=0) for part in chains[1:]),
    )
    with_labels, of_all = ops.split(_log_partition(both), 2, axis=0)
    return with_labels - of_all


def _log_partition(chains: Chains):
    """Return the logarithm of the sum over all paths of each row, float32 [B]."""
    scores, _ = _scan(_after, _nothing_before(chains), chains, keep=False)
    return ops.logsumexp(scores, axis=-1)


def marginals(chains: Chains):
    """Return the probability of each label of each word, float32 [B, W, L]."""
    return ops.softmax(_sums_by_label(chains))


def log_marginals(chains: Chains):
    """Return the logarithms of `marginals`, at least -20, so that forbidden labels have a number too."""
    return ops.maximum(ops.log_softmax(_sums_by_label(chains)), -20.0)


def _sums_by_label(chains: Chains):
    """Return the logarithms of the sums over the paths through each label, float32 [B, W, L]."""
    _, until = _scan(_after, _nothing_before(chains), chains)

    def before(scores, word, pairs):
        return ops.logsumexp(pairs + (word + scores)[:, None], axis=-1)

    _, rest = _scan(before, _zeros(chains), chains, reverse=True)
    return ops.swapaxes(until + rest, 0, 1)


def viterbi_decode(chains: Chains):
    """Return the labels with the highest score, int32 [B, W]; 0 for padding.

    The path is found from its beginning, so that ties never take a label that may not follow.
    """

    def before(scores, word, pairs):
        return ops.max(pairs + (word + scores)[:, None], axis=-1)

    count = ops.shape(chains.words)[-1]
    numbers = ops.arange(count, dtype="int32")

    def following(label, word, pairs, rest):
        is_label = ops.equal(label[:, None], numbers)
        scores = ops.sum(ops.where(is_label[:, :, None], pairs, 0.0), axis=1)
        scores += word + rest
        is_best = ops.equal(scores, ops.max(scores, axis=-1, keepdims=True))
        best = ops.min(ops.where(is_best, numbers, count), axis=-1)
        return ops.minimum(best, count - 1)  # if all scores are NaN, none is the best

    nothing = _zeros(chains)
    _, rest = _scan(before, nothing, chains, reverse=True)
    first = ops.cast(nothing[:, 0], "int32")
    _, labels = _scan(following, first, chains, rest)
    return ops.swapaxes(labels, 0, 1)


def best_labels(chains: Chains) -> tuple[Any, Any]:
    """Return `viterbi_decode`, and the probability of each label, float32 [B, W]; 1 for padding."""
    labels, numbers = viterbi_decode(chains), ops.arange(ops.shape(chains.words)[-1], dtype="int32")
    is_label = ops.equal(ops.expand_dims(labels, 2), numbers)
    return labels, ops.sum(ops.where(is_label, marginals(chains), 0.0), axis=-1)


def _nothing_before(chains: Chains):
    """Return the logarithms of the sums before the first word, [B, L]: one path, of score 0."""
    is_first = ops.equal(ops.arange(ops.shape(chains.words)[-1], dtype="int32"), 0)
    return ops.where(is_first, _zeros(chains), NEVER)


def _zeros(chains: Chains):
    """Return zeros [B, L], also if there are no words."""
    return ops.zeros_like(chains.pairs[:, 0])


def _after(scores, word, pairs):
    """Return the logarithms of the sums over the paths up to a word, from those before it."""
    return ops.logsumexp(scores[:, :, None] + pairs, axis=1) + word


def _scan(
    step: Callable[..., Any],
    state: Any,
    chains: Chains,
    *more: Any,
    reverse: bool = False,
    keep: bool = True,
) -> tuple[Any, Any]:
    """Go through the words of all rows, with `reverse` from the last.

    `step`: (state [B, ...], scores of a word [B, L], pairs [B, L, L], `more` at the word) -> state.
    Returns the last state, and with `keep` that at each word, [W, B, ...]; reversed: that before.
    """
    words, is_joined = ops.swapaxes(chains.words, 0, 1), ops.swapaxes(chains.is_joined, 0, 1)
    count = ops.shape(words)[0]

    def at_word(number, state, *states):
        index = count - 1 - number if reverse else number
        word, joined, *more_at_word = (values[index] for values in (words, is_joined, *more))
        pairs = ops.where(ops.expand_dims(joined, 2), chains.pairs, 0.0)
        new = step(state, word, pairs, *more_at_word)
        updates = (state if reverse else new)[None]
        index = ops.reshape(index, (1, 1))
        return new, *(ops.scatter_update(values, index, updates) for values in states)

    empty = (ops.broadcast_to(state, (count, *ops.shape(state))),) if keep else ()
    state, *states = _repeat(count, at_word, (state, *empty))
    return state, states[0] if keep else None


def _repeat(count: Any, body: Callable[..., tuple], values: tuple) -> Sequence[Any]:
    """Return the values after `values = body(number, *values)` for each number below `count`."""
    if keras.config.backend() == "jax":  # its while_loop has no gradient
        return ops.fori_loop(0, count, lambda number, values: body(number, *values), values)
    _, *values = ops.while_loop(
        lambda *_: True,
        lambda number, *values: (number + 1, *body(number, *values)),
        (0, *values),
        maximum_iterations=count,
    )
    return values
