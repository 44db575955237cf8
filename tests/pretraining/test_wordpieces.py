"""A WordPiece vocabulary, learned from a corpus."""

import random
from collections import Counter
from itertools import pairwise

import pytest

from bert_tf.options import OptionError
from bert_tf.pretraining.create_vocab import (
    count_words,
    first_tokens,
    learn_wordpieces,
    measure_coverage,
    merge_pairs,
)
from bert_tf.tokenization import BasicTokenizer
from bert_tf.vocabulary import vocab_is_cased

LINES = [
    "The lowest of the low tides.",
    "Newer, lower, wider: Zürich's widest tide!",
    "",
    "the tide\x0bs are low\u2028now",  # U+000B is deleted, U+2028 separates
    "低い潮 2024",
]


def random_words(seed, num_words=60):
    generator = random.Random(seed)
    words = ("".join(generator.choices("abc", k=generator.randint(1, 7))) for _ in range(num_words))
    return {word: generator.randint(1, 9) for word in words}


# Counting


def test_words_are_counted_as_the_tokenizer_splits_them():
    for do_lower_case in (True, False):
        tokenizer = BasicTokenizer(do_lower_case)
        expected = Counter(word for line in LINES for word in tokenizer.tokenize(line))
        assert count_words(LINES, do_lower_case) == expected
        assert expected["tides"] == 2


def test_counting_stays_exact_however_often_chunks_are_split():
    expected = count_words(LINES * 3)
    assert expected["the"] == 9
    assert count_words(LINES * 3, max_chunks=3) == expected


def test_forgetting_takes_no_more_than_it_must():
    lines = [*(f"a a b b c{i}" for i in range(9)), *(f"a a d d e{i}" for i in range(9))]
    counts = count_words(lines, max_chunks=4, max_words=6)
    # However often the words seen once are forgotten, those seen twice are not.
    assert {word: counts[word] for word in "abd"} == {"a": 36, "b": 18, "d": 18}


def test_a_word_longer_than_the_tokenizer_takes_is_cut_and_stays_unknown():
    counts = count_words(["x" * 1_000_000, "y" * 200])
    assert counts == {"x" * 201: 1, "y" * 200: 1}
    tokens = ["[UNK]", "x", "##x", "y", "##y"]
    assert measure_coverage(tokens, counts).unknown_share == 0.5


# Merging


def plain_merges(counts, num_pieces):
    """The same algorithm with everything counted anew in each step."""
    words = {w: [c if i == 0 else "##" + c for i, c in enumerate(w)] for w in counts}
    known = {piece for pieces in words.values() for piece in pieces}
    merges = []
    while len(merges) < num_pieces:
        frequency = Counter()
        for word, pieces in words.items():
            for pair in pairwise(pieces):
                frequency[pair] += counts[word]
        if not frequency:
            break
        left, right = min(frequency, key=lambda pair: (-frequency[pair], pair))
        merged = left + right[2:]
        if merged not in known:
            known.add(merged)
            merges.append(merged)
        for pieces in words.values():
            i = 0
            while i < len(pieces) - 1:
                if (pieces[i], pieces[i + 1]) == (left, right):
                    pieces[i : i + 2] = [merged]
                i += 1
    return merges


def test_merges_equal_those_of_the_plain_algorithm():
    for seed in range(8):
        counts = random_words(seed)
        merges = plain_merges(counts, 1000)
        assert len(merges) > 50
        assert merge_pairs(counts, 1000) == merges, seed
        assert merge_pairs(counts, 17) == merges[:17], seed


def test_a_pair_that_is_too_rare_is_not_merged():
    assert merge_pairs({"ab": 2, "cd": 1}, 9, min_frequency=2) == ["ab"]


# The whole vocabulary


def test_special_tokens_have_the_ids_of_the_published_models():
    vocab = learn_wordpieces(random_words(1), 120)
    assert vocab[0] == "[PAD]"
    assert vocab[1:100] == [f"[unused{i}]" for i in range(99)]
    assert vocab[100:104] == ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert vocab[104:106] == ["[unused99]", "[unused100]"]
    assert vocab[106:112] == ["a", "b", "c", "##a", "##b", "##c"]


def test_the_size_is_exact_and_no_token_stands_twice():
    for vocab_size in (112, 113, 119, 142):
        vocab = learn_wordpieces(random_words(2), vocab_size)
        assert len(vocab) == len(set(vocab)) == vocab_size


def test_longer_pieces_are_those_that_the_tokenizer_uses_most():
    counts = {"abcd": 50, "xbcd": 30, "yb": 3, "yc": 2}
    assert merge_pairs(counts, 5) == ["##bc", "##bcd", "abcd", "xbcd", "yb"]
    # Five are learned for four. With both words whole, neither "##bc" nor "##bcd" is needed.
    vocab = learn_wordpieces(counts, len(first_tokens()) + 12 + 4)
    assert vocab[-4:] == ["abcd", "xbcd", "yb", "##bc"]


def test_punctuation_and_ideographs_have_no_continuation():
    vocab = learn_wordpieces({"a": 1, "!": 1, "低": 1, "い": 1}, len(first_tokens()) + 6)
    assert vocab[len(first_tokens()) :] == ["!", "a", "い", "低", "##a", "##い"]


def test_every_word_is_covered_but_those_with_the_rarest_characters():
    counts = {"ab": 990, "bq": 10}
    assert measure_coverage(learn_wordpieces(counts, 113), counts).unknown_share == 0
    vocab = learn_wordpieces(counts, 111, character_coverage=0.995)
    assert "q" not in vocab and "##q" not in vocab
    assert measure_coverage(vocab, counts).unknown_share == 0.01


def test_a_word_longer_than_the_tokenizer_takes_teaches_nothing():
    counts = {"ab": 2, "x" * 201: 1000}
    vocab = learn_wordpieces(counts, len(first_tokens()) + 5)
    assert vocab[-5:] == ["a", "b", "##a", "##b", "ab"]


def test_a_learned_vocabulary_tells_whether_it_is_cased():
    lines = ["".join(random.Random(i).choices("ABcdeÉfg h", k=60)) for i in range(99)]
    for do_lower_case in (True, False):
        vocab = learn_wordpieces(count_words(lines, do_lower_case), 400)
        assert vocab_is_cased(vocab) is not do_lower_case


def test_the_error_of_a_size_names_one_that_fits():
    for counts, wrong, right in (
        (random_words(4), 105, 112),
        ({"学": 3, "是": 3, "pi": 2}, 999, 113),
    ):
        with pytest.raises(OptionError, match=str(right)) as error:
            learn_wordpieces(counts, wrong)
        assert error.value.option == "vocab_size"
        assert len(learn_wordpieces(counts, right)) == right


def test_coverage_counts_occurrences():
    tokens = ["[UNK]", "a", "##b", "ab"]
    coverage = measure_coverage(tokens, {"ab": 3, "abb": 1, "c": 4})
    assert coverage == (8, 0.5, (3 * 1 + 1 * 2 + 4 * 1) / 8)
