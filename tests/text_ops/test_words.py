"""Windows of words in a graph are those of Python."""

import random
from itertools import accumulate

import pytest
import tensorflow as tf

from bert_tf.data import word_windows
from bert_tf.text_ops.words import graph_word_windows


@pytest.mark.parametrize("seed", range(4))
def test_each_word_is_in_the_window_that_python_gives_it(seed):
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
        assert [
            (windows[window], position)
            for window, position in zip(found.window.numpy(), found.position.numpy(), strict=True)
        ] == [place for text in places(texts, most, stride) for place in text]


def places(texts, most, stride):
    """Of each word: the pieces of its window, and which of them is its first."""
    first = 0
    for lengths in texts:
        offsets = [*accumulate(lengths, initial=first)]
        first = offsets[-1]
        if lengths:
            yield [
                ([*range(offsets[w.start], offsets[w.end])], offsets[word] - offsets[w.start])
                for w in word_windows.word_windows(lengths, most, stride)
                for word in range(w.first, w.last)
            ]
