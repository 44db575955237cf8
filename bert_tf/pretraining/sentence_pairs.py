"""Documents to the sequences of pre-training: pairs for next-sentence prediction, and others.

A document is cut into chunks of whole sentences, each about one sequence long. The first sentences
of a chunk are A. B is the rest of the chunk (the next sentence) half of the time. Otherwise B is
sentences of another, random document, and the rest of the chunk goes into the next chunk.

    chunk            s3 s4 s5 | s6 s7           | cut at random
    is next          A = s3 s4 s5, B = s6 s7        next chunk starts at s8
    is random        A = s3 s4 s5, B = r2 r3        next chunk starts at s6

That is the objective `mlm_nsp`. With `mlm_sop` a chunk is cut in the same way, and the two parts are
swapped half of the time. With `mlm` a chunk stays whole.

Pairs use the same random draws as the reference, so that one seed gives the reference's pairs. S is
`max_seq_length`.

Source: Devlin et al. 2019, appendix A.2; google-research/bert, create_pretraining_data.py,
`create_instances_from_document`, `truncate_seq_pair`. `mlm_sop`: Lan et al. 2020 (ALBERT). `mlm`: the
paper's "No NSP".
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from bert_tf.pretraining.python_random import RandomWords

Tokens = TypeVar("Tokens", list, array)

OBJECTIVES = ("mlm_nsp", "mlm", "mlm_sop")

# [CLS], [SEP], [SEP], and one token each for A and B.
MIN_PAIR_LENGTH = 5

# of a random document that is not the one of A
_MAX_DRAWS = 10


class Document:
    """Token ids of the sentences of one text, in one flat array, so that a run of them is a slice."""

    __slots__ = ("_bounds", "_token_ids")

    def __init__(self, sentences: Sequence[Sequence[int]] = ()):
        self._token_ids = array("i")
        self._bounds = array("q", [0])  # sentence i is token_ids[bounds[i]:bounds[i + 1]]
        for sentence in sentences:
            self.append(sentence)

    def append(self, sentence: Sequence[int]) -> None:
        """Append a sentence. Empty sentences are ignored."""
        if len(sentence):
            self._token_ids.extend(sentence)
            self._bounds.append(len(self._token_ids))

    def __len__(self) -> int:
        return len(self._bounds) - 1

    @property
    def num_tokens(self) -> int:
        return len(self._token_ids)

    def count(self, token_id: int) -> int:
        return self._token_ids.count(token_id)

    def tokens(self, first: int, end: int) -> array:
        """Return the token ids of the sentences `first` to `end - 1`."""
        return self._token_ids[self._bounds[first] : self._bounds[end]]

    def end_of_run(self, first: int, num_tokens: int) -> int:
        """Return the end of the shortest run of sentences from `first` that has `num_tokens`, if any."""
        end = bisect_left(self._bounds, self._bounds[first] + num_tokens, lo=first + 1)
        return min(end, len(self))


class SentencePair(NamedTuple):
    """Token ids of A and B, at most S - 3 together (A alone: S - 2), and at least one each."""

    ids_a: array
    ids_b: array | None  # None for `mlm`
    next_sentence_label: int  # 0: B follows A. 1: B is random (`mlm_nsp`) or precedes A.


def make_sequences(
    objective: str,
    documents: Sequence[Document],
    document_index: int,
    *,
    max_seq_length: int,
    short_seq_prob: float,
    rng: RandomWords,
) -> Iterator[SentencePair]:
    """Yield the sequences of one document.

    Draws happen while iterating. Callers that mask with the same `rng` mask each sequence before they
    take the next, which is the order of the reference.

    Args:
        short_seq_prob: probability of a random, shorter length, because fine-tuning has short sequences
            too.
    """
    max_tokens = max_seq_length - (2 if objective == "mlm" else 3)  # [CLS] and each [SEP]
    target_length = max_tokens
    if rng.random() < short_seq_prob:
        target_length = rng.randint(2, max_tokens)
    if objective == "mlm_nsp":
        return _next_sentence_pairs(documents, document_index, max_tokens, target_length, rng)
    if objective == "mlm_sop":
        return _ordered_pairs(documents[document_index], max_tokens, target_length, rng)
    return _single_sequences(documents[document_index], max_tokens, target_length, rng)


def _next_sentence_pairs(
    documents: Sequence[Document],
    document_index: int,
    max_tokens: int,
    target_length: int,
    rng: RandomWords,
) -> Iterator[SentencePair]:
    document = documents[document_index]
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
        ids_a, ids_b = truncate_pair_at_random(ids_a, ids_b, max_tokens, rng)
        yield SentencePair(ids_a, ids_b, int(is_random_next))


def _ordered_pairs(
    document: Document, max_tokens: int, target_length: int, rng: RandomWords
) -> Iterator[SentencePair]:
    """Yield two neighbouring stretches of a document, swapped half of the time.

    A chunk of one sentence is cut within it; one of a single token is left out.
    """
    start = 0
    while start < len(document):
        end = document.end_of_run(start, target_length)
        if end - start > 1:
            end_a = start + rng.randint(1, end - start - 1)
            first, second = document.tokens(start, end_a), document.tokens(end_a, end)
        else:
            sentence = document.tokens(start, end)
            cut = rng.randint(1, len(sentence) - 1) if len(sentence) > 1 else 1
            first, second = sentence[:cut], sentence[cut:]
        start = end
        if len(second):
            first, second = truncate_pair_at_random(first, second, max_tokens, rng)
            is_swapped = rng.random() < 0.5
            ids_a, ids_b = (second, first) if is_swapped else (first, second)
            yield SentencePair(ids_a, ids_b, int(is_swapped))


def _single_sequences(
    document: Document, max_tokens: int, target_length: int, rng: RandomWords
) -> Iterator[SentencePair]:
    """Yield stretches of whole sentences, truncated at random at the front or the back."""
    start = 0
    while start < len(document):
        end = document.end_of_run(start, target_length)
        ids, _ = truncate_pair_at_random(document.tokens(start, end), _NOTHING, max_tokens, rng)
        start = end
        yield SentencePair(ids, None, 0)


_NOTHING = array("i")


def truncate_pair_at_random(
    tokens_a: Tokens, tokens_b: Tokens, max_tokens: int, rng: RandomWords
) -> tuple[Tokens, Tokens]:
    """Truncate as `truncate_pair`, but remove each token from the front or back with probability 0.5.

    So the ends of sentences are not always lost. Draws one `rng.random()` per removed token.
    """
    start_a, end_a = 0, len(tokens_a)
    start_b, end_b = 0, len(tokens_b)
    excess = end_a + end_b - max_tokens
    if excess <= 0:
        return tokens_a, tokens_b
    for coin in rng.coins(excess):
        from_front = coin < 1 << 31
        if end_a - start_a > end_b - start_b:
            if from_front:
                start_a += 1
            else:
                end_a -= 1
        elif from_front:
            start_b += 1
        else:
            end_b -= 1
    return tokens_a[start_a:end_a], tokens_b[start_b:end_b]


def _random_sentences(
    documents: Sequence[Document], document_index: int, target_length: int, rng: RandomWords
) -> array:
    """Return a run of sentences of another document, or of the same one if ten draws find no other."""
    for _ in range(_MAX_DRAWS):
        index = rng.randrange(len(documents))
        if index != document_index:
            break
    document = documents[index]
    first = rng.randrange(len(document))
    return document.tokens(first, document.end_of_run(first, target_length))
