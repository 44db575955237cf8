"""Documents to next-sentence pairs, and the record that one pre-training instance becomes.

A document is cut into chunks of whole sentences, each about one sequence long. The first sentences
of a chunk are A. B is the rest of the chunk (the next sentence), or, half of the time, sentences of
another document (a random one); the rest of the chunk then goes into the next chunk.

    chunk            s3 s4 s5 | s6 s7           | cut at random
    is next          A = s3 s4 s5, B = s6 s7        next chunk starts at s8
    is random        A = s3 s4 s5, B = r2 r3        next chunk starts at s6

Everything random comes from the given `random.Random`, drawn as often and in the same order as in
the reference. S is `max_seq_length`, P is `max_predictions_per_seq`.

Source: Devlin et al. 2019, appendix A.2; google-research/bert, create_pretraining_data.py,
`create_instances_from_document`.
"""

from __future__ import annotations

import random
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bert_tf.data import packing
from bert_tf.data.features import FeatureSpec

# [CLS], [SEP], [SEP], and one token each for A and B.
MIN_SEQ_LENGTH = 5

# How often another random document is drawn when it is the one that A comes from.
_MAX_DRAWS = 10


class Document:
    """Token ids of the sentences of one text.

    The sentences stand one after the other in one flat array: a run of sentences is then a slice,
    and a token takes four bytes.
    """

    __slots__ = ("_bounds", "_token_ids")

    def __init__(self, sentences: Sequence[Sequence[int]] = ()):
        self._token_ids = array("i")
        self._bounds = array("q", [0])  # sentence i is token_ids[bounds[i]:bounds[i + 1]]
        for sentence in sentences:
            self.append(sentence)

    def append(self, sentence: Sequence[int]) -> None:
        """Adds a sentence; one without tokens is none."""
        if len(sentence):
            self._token_ids.extend(sentence)
            self._bounds.append(len(self._token_ids))

    def __len__(self) -> int:
        """Number of sentences."""
        return len(self._bounds) - 1

    @property
    def num_tokens(self) -> int:
        return len(self._token_ids)

    def tokens(self, first: int, end: int) -> array:
        """Token ids of the sentences `first` to `end - 1`."""
        return self._token_ids[self._bounds[first] : self._bounds[end]]

    def end_of_run(self, first: int, num_tokens: int) -> int:
        """Where a run of sentences from `first` on ends.

        Returns:
            Number of the sentence after the run: the run holds at least one sentence, and then as
            many as it takes to reach `num_tokens`, or all that there are.
        """
        end = bisect_left(self._bounds, self._bounds[first] + num_tokens, lo=first + 1)
        return min(end, len(self))


class SentencePair(NamedTuple):
    """Token ids of A and B, at most S - 3 together and at least one each."""

    ids_a: Sequence[int]
    ids_b: Sequence[int]
    is_random_next: bool


def sentence_pairs(
    documents: Sequence[Document],
    document_index: int,
    *,
    max_seq_length: int,
    short_seq_prob: float,
    rng: random.Random,
) -> Iterator[SentencePair]:
    """The pairs of one document.

    Draws happen while iterating. Whoever masks with the same `rng` has to mask each pair before
    taking the next, which is the order of the reference.

    Args:
        documents: all of the corpus; random sentences come from these.
        document_index: the document to cut up.
        max_seq_length: S, at least `MIN_SEQ_LENGTH`.
        short_seq_prob: share of documents cut for a random, shorter length (0-1), as fine-tuning
            meets short sequences too.
        rng: the source of randomness.
    """
    document = documents[document_index]
    max_tokens = max_seq_length - 3  # [CLS], [SEP], [SEP]
    target_length = max_tokens
    if rng.random() < short_seq_prob:
        target_length = rng.randint(2, max_tokens)

    start = 0
    while start < len(document):
        end = document.end_of_run(start, target_length)
        # At least one sentence goes to A and, if there are two, one to B.
        end_a = start + (rng.randint(1, end - start - 1) if end - start > 1 else 1)
        ids_a = document.tokens(start, end_a)
        is_random_next = end - start == 1 or rng.random() < 0.5
        if is_random_next:
            target_length_b = target_length - len(ids_a)
            ids_b = _random_sentences(documents, document_index, target_length_b, rng)
            start = end_a
        else:
            ids_b = document.tokens(end_a, end)
            start = end
        ids_a, ids_b = packing.truncate_pair_at_random(ids_a, ids_b, max_tokens, rng)
        yield SentencePair(ids_a, ids_b, is_random_next)


def _random_sentences(
    documents: Sequence[Document], not_this_one: int, target_length: int, rng: random.Random
) -> array:
    """Token ids of a run of sentences from another document (if ten draws find another)."""
    for _ in range(_MAX_DRAWS):
        index = rng.randrange(len(documents))
        if index != not_this_one:
            break
    document = documents[index]
    first = rng.randrange(len(document))
    return document.tokens(first, document.end_of_run(first, target_length))


class PretrainingInstance(NamedTuple):
    """One masked pair, not yet padded."""

    token_ids: Sequence[int]  # [CLS] A [SEP] B [SEP], with masks
    masked_lm_positions: Sequence[int]
    masked_lm_ids: Sequence[int]
    segment_ids: Sequence[int]
    is_random_next: bool

    def to_features(self, max_seq_length: int, max_predictions_per_seq: int) -> dict[str, Any]:
        """Values for `pretraining_features`, padded to S and P."""
        num_tokens, num_predictions = len(self.token_ids), len(self.masked_lm_ids)
        return {
            "input_ids": packing.pad(self.token_ids, max_seq_length),
            "input_mask": packing.pad([1] * num_tokens, max_seq_length),
            "segment_ids": packing.pad(self.segment_ids, max_seq_length),
            "masked_lm_positions": packing.pad(self.masked_lm_positions, max_predictions_per_seq),
            "masked_lm_ids": packing.pad(self.masked_lm_ids, max_predictions_per_seq),
            "masked_lm_weights": packing.pad([1.0] * num_predictions, max_predictions_per_seq, 0.0),
            "next_sentence_labels": int(self.is_random_next),
        }


def pretraining_features(
    max_seq_length: int, max_predictions_per_seq: int
) -> tuple[FeatureSpec, ...]:
    """The record of a pre-training instance, under the reference's names.

    `masked_lm_weights` is 1 for a prediction and 0 for padding; `next_sentence_labels` is 0 if B
    follows A and 1 if B is random.
    """
    sequence, predictions = (max_seq_length,), (max_predictions_per_seq,)
    return (
        FeatureSpec("input_ids", sequence),
        FeatureSpec("input_mask", sequence),
        FeatureSpec("segment_ids", sequence),
        FeatureSpec("masked_lm_positions", predictions),
        FeatureSpec("masked_lm_ids", predictions, role="label", output="masked_lm_logits"),
        FeatureSpec(
            "masked_lm_weights", predictions, "float32", role="weight", output="masked_lm_logits"
        ),
        FeatureSpec("next_sentence_labels", role="label", output="next_sentence_logits"),
    )
