"""Windows of texts that are too long for the model.

A passage, with a question before each part:

    question: who won ?                           passage: denver beat carolina in the final
    [CLS] who won ? [SEP] denver beat carolina [SEP]
    [CLS] who won ? [SEP] carolina in the final [SEP]          doc_stride = 2, passage tokens 3 to 4

A token of the passage may be in several windows. It has "max context" in the window where the smaller of
its left and right context is largest. An answer may begin only there.

Labelled words, each of which is predicted once, where the shorter side of its context is longest:

    words       a b c d e f g h i j
    window 1    a b c d e f             predicted: a b c d
    window 2        c d e f g h         predicted: e f
    window 3            e f g h i j     predicted: g h i j

Source: google-research/bert, run_squad.py, `convert_examples_to_features`, `_improve_answer_span`,
`_check_is_max_context`.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from bert_tf.packing import PackedSequence, pack, sliding_windows
from bert_tf.tokenization import FullTokenizer

# Fewer characters separate words than in the tokenizer. A no-break space, for example, does not.
_WORD = re.compile("[^ \t\r\n\u202f]+")


class SquadAnswer(NamedTuple):
    """An answer, and its start in the passage (characters from 0)."""

    text: str
    start: int


@dataclass(frozen=True, eq=False)
class Passage:
    """A text with questions, and its words, separated by whitespace."""

    text: str

    @cached_property
    def words(self) -> list[str]:
        """The reference's `doc_tokens`."""
        return _WORD.findall(self.text)

    @cached_property
    def word_starts(self) -> list[int]:
        """Start of each word, in characters."""
        return [match.start() for match in _WORD.finditer(self.text)]

    def word_at(self, character: int) -> int:
        """Return the index of the word at a character; at whitespace, the word before or the first."""
        return max(0, bisect_right(self.word_starts, character) - 1)

    def find_words(self, answer: SquadAnswer) -> tuple[int, int]:
        """Return the indexes of the first and the last word of an answer."""
        end = answer.start + len(answer.text)
        return self.word_at(answer.start), self.word_at(end - 1)

    def locate(self, answer: SquadAnswer) -> SquadAnswer:
        """Return the occurrence of an answer in its words that is nearest to `answer.start`.

        Return `answer` unchanged if its start is exact or its words do not contain the text.
        """
        if self.text.startswith(answer.text, answer.start):
            return answer
        first, last = self.find_words(answer)
        begin, end = self.word_starts[first], self.word_starts[last] + len(self.words[last])
        pattern = re.compile(r"\s+".join(map(re.escape, answer.text.split())))
        matches = pattern.finditer(self.text, begin, end)
        answers = (SquadAnswer(match.group(), match.start()) for match in matches)
        return min(answers, key=lambda other: abs(other.start - answer.start), default=answer)


def word_pieces(
    tokenizer: FullTokenizer, words: Sequence[str]
) -> tuple[list[int], list[int], list[int]]:
    """Return the ids of the words' pieces, the word of each piece, and the first piece of each word.

    A word that the tokenizer drops has the first piece of the next.
    """
    ids: list[int] = []
    words_of_pieces: list[int] = []
    first_pieces = []
    for index, word in enumerate(words):
        pieces = tokenizer.encode(word)
        first_pieces.append(len(ids))
        ids += pieces
        words_of_pieces += [index] * len(pieces)
    return ids, words_of_pieces, first_pieces


class TokenSpan(NamedTuple):
    """First and last word piece of a part of a passage."""

    start: int
    end: int


@dataclass(frozen=True, eq=False)
class TokenizedPassage:
    """A passage as `word_pieces`."""

    passage: Passage
    ids: list[int]  # of the word pieces, word by word
    word_of: list[int]  # the word of each piece
    first_piece: list[int]  # of each word; a word that the tokenizer drops has that of the next

    def find_span(self, answer: SquadAnswer, answer_ids: Sequence[int]) -> TokenSpan | None:
        """Return the pieces of an answer ("1895"), else of its words ("(1895-1943)."), or None."""
        first_word, last_word = self.passage.find_words(answer)
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

    def find_exact_span(self, answer: SquadAnswer, tokenizer: FullTokenizer) -> TokenSpan | None:
        """Return the fewest pieces that contain all characters of an answer; None without pieces."""
        begin, end = answer.start, answer.start + len(answer.text)
        first_word, last_word = self.passage.find_words(answer)
        pieces: list[int] = []
        for word in range(first_word, last_word + 1):
            word_start = self.passage.word_starts[word]
            offsets = piece_offsets(tokenizer, self.passage.words[word])
            for piece, (start, stop) in enumerate(offsets, self.first_piece[word]):
                if word_start + start < end and word_start + stop > begin:
                    pieces.append(piece)
        return TokenSpan(pieces[0], pieces[-1]) if pieces else None

    def characters(self, span: TokenSpan, tokenizer: FullTokenizer) -> tuple[int, int]:
        """Return the position of pieces in the text, which is `text[start:end]`."""
        bounds = []
        for side, piece in enumerate(span):
            word = self.word_of[piece]
            offsets = piece_offsets(tokenizer, self.passage.words[word])
            offset = offsets[piece - self.first_piece[word]][side]
            bounds.append(self.passage.word_starts[word] + offset)
        return bounds[0], bounds[1]


def tokenize_passage(passage: Passage, tokenizer: FullTokenizer) -> TokenizedPassage:
    return TokenizedPassage(passage, *word_pieces(tokenizer, passage.words))


def piece_offsets(tokenizer: FullTokenizer, text: str) -> list[tuple[int, int]]:
    """Return (start, end) of each word piece of `text`, in characters.

    Pieces consist of cleaned, lower-cased and decomposed characters, whose lengths do not depend on
    their neighbours. Marks that the tokenizer strips belong to the letter before them.
    """
    basic, wordpiece = tokenizer.basic_tokenizer, tokenizer.wordpiece_tokenizer
    lengths = [sum(map(len, basic.tokenize(char))) for char in text]
    sources = [index for index, length in enumerate(lengths) for _ in range(length)]
    offsets, position = [], 0
    for word in basic.tokenize(text):
        pieces = wordpiece.tokenize(word)
        for index, piece in enumerate(pieces):
            length = len(piece) - (2 if index else 0)
            if piece == wordpiece.unk_token:  # replaces the whole word
                length = len(word)
            start, end = sources[position], sources[position + length - 1] + 1
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
    """Return parts of a passage that cover it, one every `doc_stride` tokens.

    A stride above `max_tokens` counts as `max_tokens`. An empty passage has no parts.
    """
    windows = sliding_windows(num_tokens, max_tokens, doc_stride)
    return [Span(start, end - start) for start, end in windows if end > start]


def max_context(spans: Sequence[Span], num_tokens: int) -> list[np.ndarray]:
    """Return for each window a mask of the tokens that have their max context there, bool [length].

    The context in a window is min(tokens to the left, tokens to the right) + 0.01 * window length. The
    first of equal windows wins.
    """
    best = np.full(num_tokens, -1.0)
    owner = np.zeros(num_tokens, np.int64)
    for index, (start, length) in enumerate(spans):
        left = np.arange(length)
        score = np.minimum(left, length - 1 - left) + 0.01 * length
        window = slice(start, start + length)
        is_better = score > best[window]
        best[window][is_better] = score[is_better]
        owner[window][is_better] = index
    return [owner[start : start + length] == index for index, (start, length) in enumerate(spans)]


@dataclass(frozen=True, eq=False)
class Window:
    """One input of the model: a question and a part of its passage."""

    unique_id: int  # its name in records and results
    query_ids: Sequence[int]  # the question's tokens
    passage: TokenizedPassage  # the whole passage
    span: Span  # tokens of the passage in this window
    is_max_context: np.ndarray  # bool [span.length]
    answer: TokenSpan | None = None  # anywhere in the passage; None if missing or unknown

    @property
    def offset(self) -> int:
        """Position of the passage's first token, after [CLS] question [SEP]."""
        return len(self.query_ids) + 2

    @property
    def num_tokens(self) -> int:
        """Number of tokens with [CLS] and [SEP], without padding."""
        return self.offset + self.span.length + 1

    @property
    def answer_positions(self) -> tuple[int, int]:
        """First and last position of the answer in the input; (0, 0), [CLS], unless it is all there."""
        if self.answer is None:
            return 0, 0
        start, end = (token - self.span.start for token in self.answer)
        if start < 0 or end >= self.span.length:
            return 0, 0
        return start + self.offset, end + self.offset

    def passage_token(self, position: int) -> int:
        """Return the index of the passage's token at a position of the input."""
        return self.span.start + position - self.offset

    @property
    def passage_ids(self) -> list[int]:
        start, length = self.span
        return self.passage.ids[start : start + length]

    def pack(self, max_seq_length: int, cls_id: int, sep_id: int) -> PackedSequence:
        lengths = {"max_seq_length": max_seq_length, "cls_id": cls_id, "sep_id": sep_id}
        return pack(self.query_ids, self.passage_ids, **lengths)


FIRST_UNIQUE_ID = 1_000_000_000


def make_windows(
    query_ids: Sequence[int],
    passage: TokenizedPassage,
    *,
    max_seq_length: int,
    doc_stride: int,
    answer: TokenSpan | None = None,
    first_unique_id: int = FIRST_UNIQUE_ID,
) -> Iterator[Window]:
    """Yield the windows of one question. An empty passage has none."""
    num_tokens = len(passage.ids)
    spans = passage_spans(num_tokens, max_seq_length - len(query_ids) - 3, doc_stride)
    contexts = max_context(spans, num_tokens)
    for index, (span, context) in enumerate(zip(spans, contexts, strict=True)):
        yield Window(first_unique_id + index, query_ids, passage, span, context, answer)


# ------------------------------------------------------------------------------- labelled words


class WordWindow(NamedTuple):
    """Words `start` to `end` - 1 of a text, of which `first` to `last` - 1 are predicted here."""

    start: int
    end: int
    first: int
    last: int


def word_windows(
    lengths: Sequence[int], max_tokens: int, stride: int | None = None
) -> list[WordWindow]:
    """Return the windows of a text."""
    stride = max(1, max_tokens // 2) if stride is None else stride
    assert max(lengths) <= max_tokens and stride >= 1  # noqa: S101
    offsets = [0, *accumulate(lengths)]  # pieces before each word, and the total
    num_words, total = len(lengths), offsets[-1]
    bounds = []  # (start, end) of each window
    start = 0
    while True:
        if total - offsets[start] <= max_tokens:  # the last window begins as far left as fits
            bounds.append((bisect_left(offsets, total - max_tokens), num_words))
            break
        end = bisect_left(offsets, offsets[start] + max_tokens + 1) - 1
        bounds.append((start, end))
        start = min(end, max(start + 1, bisect_left(offsets, offsets[start] + stride)))
    # Two windows share their overlap equally.
    borders = [0]
    for (_, end), (start, _) in pairwise(bounds):
        middle = bisect_left(offsets, (offsets[start] + offsets[end]) / 2)
        borders.append(max(borders[-1], middle))
    borders.append(num_words)
    return [
        WordWindow(start, end, first, last)
        for (start, end), first, last in zip(bounds, borders, borders[1:], strict=False)
        if first < last
    ]


def encode_words(
    tokenizer: FullTokenizer, words: Sequence[str], max_pieces: int
) -> list[list[int]]:
    """Return the first `max_pieces` ids of each word, at least one.

    A word that the tokenizer drops (only marks, controls or joiners) becomes [UNK].
    """
    (unk_id,) = tokenizer.convert_tokens_to_ids(["[UNK]"])
    return [tokenizer.encode(word)[:max_pieces] or [unk_id] for word in words]
