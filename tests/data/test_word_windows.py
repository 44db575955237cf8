"""Windows of words: each word once, with the most context on its poorer side."""

import random

import pytest

from bert_tf.data.word_windows import Window, encode_words, pack_words, word_windows
from bert_tf.tokenization import FullTokenizer

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "##b", "c"]


def test_what_fits_is_one_window():
    assert word_windows([3, 1, 2], max_tokens=6) == [Window(0, 3, 0, 3)]


@pytest.mark.parametrize("seed", range(20))
def test_every_word_is_predicted_once_in_order_and_every_window_fits(seed):
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


def test_a_word_is_predicted_where_the_poorer_of_its_sides_is_the_richest():
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


def test_a_word_has_at_least_one_piece_and_no_more_than_fit():
    tokenizer = FullTokenizer(VOCAB)
    words = ["abb", "\u200d", "c", "\ufe0f", "abbbbb"]
    assert encode_words(tokenizer, words, max_pieces=4) == [
        [4, 5, 5],
        [1],
        [6],
        [1],
        [4, 5, 5, 5],
    ]


def test_words_are_packed_and_the_position_of_each_first_piece_is_known():
    packed = pack_words([[4, 5], [6], [4]], max_seq_length=8, cls_id=2, sep_id=3)
    assert packed.sequence.input_ids == [2, 4, 5, 6, 4, 3, 0, 0]
    assert packed.sequence.input_mask == [1] * 6 + [0] * 2
    assert packed.word_positions == [1, 3, 4]
