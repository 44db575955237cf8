"""A long passage in windows that fit the model, and the way from tokens back to characters.

    question: who won ?                           passage: denver beat carolina in the final
    [CLS] who won ? [SEP] denver beat carolina [SEP]
    [CLS] who won ? [SEP] carolina in the final [SEP]          doc_stride = 2, passage tokens 3 to 4

A token of the passage may be in several windows. It has "max context" in the one where the smaller of
its left and its right context is largest, and an answer may begin only there.

Source: google-research/bert, run_squad.py, `convert_examples_to_features`, `_improve_answer_span`,
`_check_is_max_context`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bert_tf.data.packing import PackedSequence, pack, sliding_windows
from bert_tf.data.question_answering import Passage, SquadAnswer
from bert_tf.data.word_windows import word_pieces
from bert_tf.tokenization import FullTokenizer

FIRST_UNIQUE_ID = 1_000_000_000


class TokenSpan(NamedTuple):
    """Word pieces of a passage, from the first to the last, both inside."""

    start: int
    end: int


@dataclass(frozen=True, eq=False)
class TokenizedPassage:
    """A passage as word pieces.

    Args:
        passage: the text.
        ids: of the word pieces, which are made word by word.
        word_of: the word that each piece is of.
        first_piece: of each word; a word that the tokenizer drops has that of the next.
    """

    passage: Passage
    ids: list[int]
    word_of: list[int]
    first_piece: list[int]

    def span_of(self, answer: SquadAnswer, answer_ids: Sequence[int]) -> TokenSpan | None:
        """The pieces of an answer; None where the tokenizer leaves nothing of it.

        First all pieces of its words ("(1895-1943)."), then within them, if they are there, exactly
        those of the answer ("1895").

        Args:
            answer_ids: the word pieces of the answer's text.
        """
        first_word, last_word = self.passage.words_of(answer)
        start = self.first_piece[first_word]
        is_last = last_word + 1 == len(self.first_piece)
        end = (len(self.ids) if is_last else self.first_piece[last_word + 1]) - 1
        if end < start:
            return None
        answer_ids = list(answer_ids)
        for first in range(start, end - len(answer_ids) + 2):
            if answer_ids and self.ids[first : first + len(answer_ids)] == answer_ids:
                return TokenSpan(first, first + len(answer_ids) - 1)
        return TokenSpan(start, end)

    def span_at(self, answer: SquadAnswer, tokenizer: FullTokenizer) -> TokenSpan | None:
        """Return the fewest pieces that contain all characters of an answer; None without pieces."""
        begin, end = answer.start, answer.start + len(answer.text)
        first_word, last_word = self.passage.words_of(answer)
        pieces = []
        for word in range(first_word, last_word + 1):
            word_start = self.passage.word_starts[word]
            offsets = piece_offsets(tokenizer, self.passage.words[word])
            for piece, (start, stop) in enumerate(offsets, self.first_piece[word]):
                if word_start + start < end and word_start + stop > begin:
                    pieces.append(piece)
        return TokenSpan(pieces[0], pieces[-1]) if pieces else None

    def characters(self, span: TokenSpan, tokenizer: FullTokenizer) -> tuple[int, int]:
        """Where pieces stand in the text: the answer is `text[start:end]`."""
        (start, _), (_, end) = (
            self._piece_characters(piece, tokenizer) for piece in (span.start, span.end)
        )
        return start, end

    def _piece_characters(self, piece: int, tokenizer: FullTokenizer) -> tuple[int, int]:
        word = self.word_of[piece]
        offsets = piece_offsets(tokenizer, self.passage.words[word])
        start, end = offsets[piece - self.first_piece[word]]
        word_start = self.passage.word_starts[word]
        return word_start + start, word_start + end


def tokenize_passage(passage: Passage, tokenizer: FullTokenizer) -> TokenizedPassage:
    """The word pieces of a passage, word by word."""
    return TokenizedPassage(passage, *word_pieces(tokenizer, passage.words))


def piece_offsets(tokenizer: FullTokenizer, text: str) -> list[tuple[int, int]]:
    """Where each word piece of `text` stands in it, as (start, end) in characters.

    The pieces hold what is left of the characters after cleaning, lower-casing and decomposing, one
    after the other; how much is left of a character does not depend on its neighbours. Marks that the
    tokenizer strips belong to the letter before them.

    >>> piece_offsets(FullTokenizer(["[UNK]", "el", "##an", "!"]), "Élan!")
    [(0, 2), (2, 4), (4, 5)]
    """
    basic, wordpiece = tokenizer.basic_tokenizer, tokenizer.wordpiece_tokenizer
    lengths = [sum(map(len, basic.tokenize(char))) for char in text]
    origin = [index for index, length in enumerate(lengths) for _ in range(length)]
    offsets, position = [], 0
    for word in basic.tokenize(text):
        pieces = wordpiece.tokenize(word)
        for index, piece in enumerate(pieces):
            length = len(piece) - (2 if index else 0)
            if piece == wordpiece.unk_token:  # stands for the whole word
                length = len(word)
            start, end = origin[position], origin[position + length - 1] + 1
            while end < len(text) and not lengths[end] and unicodedata.category(text[end]) == "Mn":
                end += 1
            offsets.append((start, end))
            position += length
    return offsets


class Span(NamedTuple):
    """A part of a passage, in tokens."""

    start: int
    length: int


def passage_spans(num_tokens: int, max_tokens: int, doc_stride: int) -> list[Span]:
    """Parts of a passage that cover it, each `doc_stride` after the one before.

    Args:
        num_tokens: of the passage; without any there is no window.
        max_tokens: of a window.
        doc_stride: tokens; windows that would leave some out begin at the end of the one before.

    Raises:
        ValueError: `max_tokens` or `doc_stride` is below 1.

    >>> passage_spans(6, max_tokens=3, doc_stride=2)
    [Span(start=0, length=3), Span(start=2, length=3), Span(start=4, length=2)]
    """
    windows = sliding_windows(num_tokens, max_tokens, doc_stride)
    return [Span(start, end - start) for start, end in windows if end > start]


def max_context(spans: Sequence[Span], num_tokens: int) -> list[np.ndarray]:
    """Which tokens have their max context in which window: bool [length] for each window.

    The context of a token in a window is min(tokens to its left, tokens to its right) + 0.01 * length of
    the window; of equals the first wins.
    """
    best = np.full(num_tokens, -1.0)
    owner = np.zeros(num_tokens, np.int64)
    for index, (start, length) in enumerate(spans):
        left = np.arange(length)
        score = np.minimum(left, length - 1 - left) + 0.01 * length
        part = slice(start, start + length)
        better = score > best[part]
        best[part][better] = score[better]
        owner[part][better] = index
    return [owner[start : start + length] == index for index, (start, length) in enumerate(spans)]


@dataclass(frozen=True, eq=False)
class Window:
    """One input of the model: a question and a part of its passage.

    Args:
        unique_id: names it in records and results.
        example_index: which question it is of.
        query_ids: the question's tokens.
        passage: whose tokens `span` are in it.
        is_max_context: bool [span.length].
        answer: to the question, wherever in the passage it stands; None where there is none or it is
            not known.
    """

    unique_id: int
    example_index: int
    query_ids: Sequence[int]
    passage: TokenizedPassage
    span: Span
    is_max_context: np.ndarray
    answer: TokenSpan | None = None

    @property
    def offset(self) -> int:
        """Position of the passage's first token, after [CLS] question [SEP]."""
        return len(self.query_ids) + 2

    @property
    def num_tokens(self) -> int:
        """With [CLS] and [SEP], without padding."""
        return self.offset + self.span.length + 1

    @property
    def answer_positions(self) -> tuple[int, int]:
        """Where the answer begins and ends in the input; (0, 0), [CLS], if it is not wholly there."""
        if self.answer is None:
            return 0, 0
        start, end = (token - self.span.start for token in self.answer)
        if start < 0 or end >= self.span.length:
            return 0, 0
        return start + self.offset, end + self.offset

    def passage_token(self, position: int) -> int:
        """The token of the passage that stands at a position of the input."""
        return self.span.start + position - self.offset

    @property
    def passage_ids(self) -> list[int]:
        """The part of the passage that is in it."""
        start, length = self.span
        return self.passage.ids[start : start + length]

    def pack(self, max_seq_length: int, cls_id: int, sep_id: int) -> PackedSequence:
        """The input itself."""
        return pack(
            self.query_ids,
            self.passage_ids,
            max_seq_length=max_seq_length,
            cls_id=cls_id,
            sep_id=sep_id,
        )


def make_windows(
    query_ids: Sequence[int],
    passage: TokenizedPassage,
    *,
    max_seq_length: int,
    doc_stride: int,
    answer: TokenSpan | None = None,
    example_index: int = 0,
    first_unique_id: int = FIRST_UNIQUE_ID,
) -> Iterator[Window]:
    """The windows of one question; none for an empty passage.

    Args:
        query_ids: already cut to --max_query_length.
        answer: tokens of the passage, where there is one to learn.
    """
    num_tokens = len(passage.ids)
    spans = passage_spans(num_tokens, max_seq_length - len(query_ids) - 3, doc_stride)
    contexts = max_context(spans, num_tokens)
    for index, (span, context) in enumerate(zip(spans, contexts, strict=True)):
        yield Window(
            first_unique_id + index, example_index, query_ids, passage, span, context, answer
        )
