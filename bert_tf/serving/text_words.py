"""Words of texts, their positions and windows, as TensorFlow operations.

Shapes: B texts, C code points, L letters (parts of words), P pieces, S longest window. N words and W
windows are of all texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from bert_tf.serving.text_tokenizer import (
    CODE_POINT,
    PUNCTUATION,
    SEPARATOR,
    rules,
    split_letters,
)


def replace_invalid_utf8(texts: tf.Tensor) -> tf.Tensor:
    """Replace bytes that are not UTF-8 by U+FFFD, one character each, as in the offsets."""
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")


class LocatedWords(NamedTuple):
    """Words of texts, with positions."""

    words: tf.RaggedTensor  # string [B, None]
    starts: tf.Tensor  # int64 [N], in characters of the word's text
    ends: tf.Tensor


def split_words(
    texts: tf.Tensor, rule: str = "basic", whole_words: Sequence[str] = ()
) -> LocatedWords:
    """Split texts, string [B], as `word_splitting.split_words`. Invalid UTF-8 counts as U+FFFD."""
    with tf.device("/CPU:0"):
        decoded = tf.strings.unicode_decode(tf.strings.join([texts, " "]), "UTF-8")
        bits = decoded.values + rules(do_lower_case=False).first_offset.look_up(decoded.values)
        bits -= tf.bitwise.bitwise_and(bits, CODE_POINT)
        separators = tf.bitwise.bitwise_and(bits, SEPARATOR)
        indexes, ends = tf.range(tf.size(bits, tf.int64)), decoded.row_splits[1:] - 1
        if rule == "characters":
            bits = tf.where(separators == 0, PUNCTUATION, SEPARATOR)
        elif rule == "whitespace":
            bits = separators
        elif rule == "outer_punctuation":
            chunks = split_letters(tf.bitwise.bitwise_or(decoded.values, separators), ends, indexes)
            marks = tf.gather(tf.bitwise.bitwise_and(bits, PUNCTUATION), chunks.source)
            marks = tf.where(
                _is_outer_mark(chunks.letters, marks != 0, whole_words), PUNCTUATION, 0
            )
            bits = tf.tensor_scatter_nd_update(separators, chunks.source[:, None], marks)
        split = split_letters(tf.bitwise.bitwise_or(decoded.values, bits), ends, indexes)
        words = tf.strings.unicode_encode(split.letters, "UTF-8")
        words = tf.RaggedTensor.from_row_splits(words, split.splits, validate=False)
        text_starts = tf.gather(decoded.row_starts(), words.value_rowids())
        starts = tf.gather(split.source, split.letters.row_starts())
        ends = tf.gather(split.source, split.letters.row_limits() - 1) + 1
        return LocatedWords(words, starts - text_starts, ends - text_starts)


def _is_outer_mark(
    letters: tf.RaggedTensor, is_mark: tf.Tensor, whole_words: Sequence[str]
) -> tf.Tensor:
    """Return which letters are outer punctuation, bool [L], of chunks between whitespace [N, None]."""
    chunk, number = letters.value_rowids(), letters.nrows()
    index = tf.ragged.range(letters.row_lengths()).values
    last = tf.math.unsorted_segment_max(
        tf.where(is_mark, tf.zeros_like(index), index + 1), chunk, number
    )
    first = tf.math.unsorted_segment_min(tf.where(is_mark, index.dtype.max, index), chunk, number)
    first = tf.minimum(first, last)  # 0, 0 without a letter
    if whole_words:
        texts = tf.strings.unicode_encode(letters, "UTF-8")
        known = tf.sort(_hashes(whole_words))

        def is_whole(start, end):
            hashes = _hashes(tf.strings.substr(texts, start, end - start, unit="UTF8_CHAR"))
            index = tf.minimum(tf.searchsorted(known, hashes), len(whole_words) - 1)
            return tf.cast(tf.gather(known, index) == hashes, tf.int64)

        last += is_whole(first, last + 1)
        first -= is_whole(tf.maximum(first - 1, 0), last) * tf.sign(first)
    return (index < tf.gather(first, chunk)) | (index >= tf.gather(last, chunk))


def _hashes(words) -> tf.Tensor:
    return tf.strings.to_hash_bucket_fast(words, 2**63 - 1)


class WordWindows(NamedTuple):
    """Windows of texts."""

    pieces: tf.RaggedTensor  # int32 [W, None]
    window: tf.Tensor  # int64 [N], window in which each word is predicted
    position: tf.Tensor  # int64 [N], index of the word's first piece in that window


def graph_word_windows(
    pieces: tf.RaggedTensor, splits: tf.Tensor, max_tokens: int, stride: int | None = None
) -> WordWindows:
    """Make the windows of `windows.word_windows`. A text without words has one empty window.

    Args:
        pieces: int32 ragged [N, None], 1 to `max_tokens` for each word.
        splits: int64 [B + 1], number of words before each text.
        max_tokens: pieces per window.
        stride: pieces between the starts of windows. Default: half a window.
    """
    stride = max(1, max_tokens // 2) if stride is None else stride
    offsets = pieces.row_splits  # pieces before each word, and the total
    first_word, last_word = splits[:-1], splits[1:]
    starts, ends, is_window = _window_bounds(offsets, first_word, last_word, max_tokens, stride)
    counts = tf.reduce_sum(tf.cast(is_window, tf.int64), axis=1)
    owner = tf.repeat(tf.range(tf.size(counts, tf.int64)), counts)  # int64 [W]
    starts, ends = tf.boolean_mask(starts, is_window), tf.boolean_mask(ends, is_window)

    # Two windows share their overlap equally. The first and the last get the rest.
    both = tf.gather(offsets, starts[1:]) + tf.gather(offsets, ends[:-1])
    middle = _first_at_least(2 * offsets, both)
    same_text = tf.equal(owner[1:], owner[:-1])
    border = tf.where(same_text, middle, tf.gather(last_word, owner[:-1]))
    border = tf.concat([border, last_word[-1:]], axis=0)[: tf.size(owner)]
    predicted = border - tf.concat([[0], border], axis=0)[: tf.size(owner)]  # words of each window
    window = tf.repeat(tf.range(tf.size(owner, tf.int64)), predicted)
    position = offsets[:-1] - tf.gather(offsets, tf.gather(starts, window))
    indexes = tf.ragged.range(tf.gather(offsets, starts), tf.gather(offsets, ends))
    values = tf.gather(pieces.values, indexes.values)
    return WordWindows(indexes.with_values(values), window, position)


def _window_bounds(offsets, first_word, last_word, max_tokens: int, stride: int):
    """Return starts and ends of windows in words, int64 [B, windows], and a mask of them."""

    def step(number, start, is_open, starts, ends, are_windows):
        piece = tf.gather(offsets, start)
        total = tf.gather(offsets, last_word)
        is_last = total - piece <= max_tokens
        # The last window begins as far left as fits.
        leftmost = tf.maximum(first_word, _first_at_least(offsets, total - max_tokens))
        end = tf.where(is_last, last_word, _first_at_least(offsets, piece + max_tokens + 1) - 1)
        starts = starts.write(number, tf.where(is_last, leftmost, start))
        ends = ends.write(number, end)
        are_windows = are_windows.write(number, is_open)
        following = tf.maximum(start + 1, _first_at_least(offsets, piece + stride))
        is_open &= ~is_last
        start = tf.where(is_open, tf.minimum(end, following), start)
        return number + 1, start, is_open, starts, ends, are_windows

    arrays = [
        tf.TensorArray(dtype, size=0, dynamic_size=True, element_shape=[None])
        for dtype in (tf.int64, tf.int64, tf.bool)
    ]
    state = (0, first_word, tf.ones_like(first_word, tf.bool), *arrays)
    state = tf.while_loop(  # at least once, because arrays cannot be empty
        lambda number, _, is_open, *__: tf.equal(number, 0) | tf.reduce_any(is_open), step, state
    )
    batch = tf.size(first_word)
    return [tf.transpose(tf.reshape(array.stack(), [-1, batch])) for array in state[3:]]


def _first_at_least(values: tf.Tensor, bounds: tf.Tensor) -> tf.Tensor:
    """Return `bisect_left` of each bound."""
    return tf.searchsorted(values, bounds, out_type=tf.int64)
