"""Windows of words: each word once, with the most context on its poorer side."""

import random
from itertools import accumulate

import pytest
import tensorflow as tf

from bert_tf.data.windows import WordWindow, encode_words, word_windows
from bert_tf.serving.text_words import graph_word_windows
from bert_tf.tokenization import FullTokenizer


def test_word_windows_predict_each_word_once_and_fit():
    assert word_windows([3, 1, 2], max_tokens=6) == [WordWindow(0, 3, 0, 3)]
    for seed in range(40):
        rng = random.Random(seed)
        max_tokens = rng.randint(1, 12)
        lengths = [rng.randint(1, min(4, max_tokens)) for _ in range(rng.randint(1, 60))]
        stride = rng.choice([None, rng.randint(1, max_tokens)])
        windows = word_windows(lengths, max_tokens, stride)
        predicted = [word for window in windows for word in range(window.first, window.last)]
        assert predicted == list(range(len(lengths)))
        for window in windows:
            assert window.start <= window.first < window.last <= window.end
            assert sum(lengths[window.start : window.end]) <= max_tokens


def test_word_windows_predict_where_the_poorer_side_is_richest():
    """By looking at all windows that hold the word, which were laid out by the rule of the docstring."""
    num_words, max_tokens, stride = 50, 12, 4
    starts = [*range(0, num_words - max_tokens, stride), num_words - max_tokens]

    def context(word, start):  # what the text itself lacks is not missed
        left = float("inf") if start == 0 else word - start
        end = start + max_tokens
        return min(left, float("inf") if end == num_words else end - 1 - word)

    for window in word_windows([1] * num_words, max_tokens, stride):
        assert window.start in starts
        for word in range(window.first, window.last):
            best = max(context(word, s) for s in starts if s <= word < s + max_tokens)
            assert best - context(word, window.start) <= 1  # the middle may fall between two words


def test_encode_words_gives_as_many_pieces_as_fit():
    tokenizer = FullTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "##b", "c"])
    words = ["abb", "\u200d", "c", "\ufe0f", "abbbbb"]
    expected = [[4, 5, 5], [1], [6], [1], [4, 5, 5, 5]]
    assert encode_words(tokenizer, words, max_pieces=4) == expected


def places(texts, most, stride):
    """Of each word: the pieces of its window, and which of them is its first."""
    first = 0
    for lengths in texts:
        offsets = [*accumulate(lengths, initial=first)]
        first = offsets[-1]
        for w in word_windows(lengths, most, stride) if lengths else ():
            pieces = [*range(offsets[w.start], offsets[w.end])]
            yield from ((pieces, offsets[word] - pieces[0]) for word in range(w.first, w.last))


@pytest.mark.parametrize("seed", range(2))
def test_graph_word_windows_equal_those_of_python(seed):
    rng = random.Random(seed)
    for _ in range(12):
        most = rng.randint(1, 9)
        stride = rng.choice([None, rng.randint(1, most)])
        texts = [
            [rng.randint(1, min(most, 3)) for _ in range(rng.choice([0, 1, 3, 8, 20, 40]))]
            for _ in range(rng.randint(0, 4))
        ]
        lengths = tf.constant([length for text in texts for length in text], tf.int64)
        pieces = tf.RaggedTensor.from_row_lengths(tf.range(tf.reduce_sum(lengths)), lengths)
        splits = tf.constant([0, *accumulate(map(len, texts))], tf.int64)
        found = graph_word_windows(pieces, splits, most, stride)
        windows = found.pieces.to_list()
        assert list(places(texts, most, stride)) == [
            (windows[window], position)
            for window, position in zip(found.window.numpy(), found.position.numpy(), strict=True)
        ]
