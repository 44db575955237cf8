"""Windows of words that fit the model, in which every word is predicted once.

A sentence that fits is one window. A longer text (a long sentence, or a whole document as context)
has overlapping windows. Each word is predicted in the window with the most context on its shorter side:

    words       a b c d e f g h i j
    window 1    a b c d e f             predicted: a b c d
    window 2        c d e f g h         predicted: e f
    window 3            e f g h i j     predicted: g h i j
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from bert_tf.data.packing import PackedSequence, pack
from bert_tf.tokenization import FullTokenizer


class Window(NamedTuple):
    """Words `start` to `end` - 1 of a text, of which `first` to `last` - 1 are predicted here."""

    start: int
    end: int
    first: int
    last: int


class PackedWords(NamedTuple):
    """A window as model input."""

    sequence: PackedSequence
    word_positions: list[int]  # of the first piece of each word


def word_windows(
    lengths: Sequence[int], max_tokens: int, stride: int | None = None
) -> list[Window]:
    """Return the windows of a text.

    Args:
        lengths: pieces of each word, 1 to `max_tokens`.
        max_tokens: pieces per window.
        stride: pieces between the starts of windows, 1 to `max_tokens`. Default: half a window.

    >>> word_windows([1] * 10, max_tokens=6, stride=2)
    [Window(start=0, end=6, first=0, last=4), Window(start=2, end=8, first=4, last=6), \
Window(start=4, end=10, first=6, last=10)]
    """
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
        Window(start, end, first, last)
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


class WordPieces(NamedTuple):
    """Pieces of a text, made word by word."""

    ids: list[int]
    word_of: list[int]  # the word of each piece
    first_piece: list[int]  # of each word; a word that the tokenizer drops has that of the next


def word_pieces(tokenizer: FullTokenizer, words: Sequence[str]) -> WordPieces:
    """Return the pieces of a text's words."""
    ids: list[int] = []
    word_of: list[int] = []
    first_piece = []
    for index, word in enumerate(words):
        pieces = tokenizer.encode(word)
        first_piece.append(len(ids))
        ids += pieces
        word_of += [index] * len(pieces)
    return WordPieces(ids, word_of, first_piece)


def pack_words(
    words: Sequence[Sequence[int]], *, max_seq_length: int, cls_id: int, sep_id: int
) -> PackedWords:
    """Pack words as [CLS] words [SEP], with padding.

    >>> pack_words([[7], [8, 9], [7]], max_seq_length=7, cls_id=1, sep_id=2).word_positions
    [1, 2, 4]
    """
    ids = [piece for word in words for piece in word]
    assert len(ids) <= max_seq_length - 2  # noqa: S101
    sequence = pack(ids, max_seq_length=max_seq_length, cls_id=cls_id, sep_id=sep_id)
    positions = list(accumulate(map(len, words), initial=1))[:-1]
    return PackedWords(sequence, positions)
