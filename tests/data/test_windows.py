"""Windows of passages, max context and offsets of pieces; windows of words, each predicted once."""

import random
import unicodedata
from itertools import accumulate

import pytest
import tensorflow as tf

from bert_tf.data.windows import (
    Passage,
    SquadAnswer,
    TokenSpan,
    WordWindow,
    encode_words,
    make_windows,
    max_context,
    passage_spans,
    piece_offsets,
    tokenize_passage,
    word_windows,
)
from bert_tf.serving.text_packing import graph_word_windows
from bert_tf.tokenization import FullTokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyzσςß0189éĳ한ᄒ"
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *LETTERS, *(f"##{c}" for c in LETTERS)]
TOKENS += ["the", "##an", "japan", "##ese", "1895", *'()-.,!?"', "東", "京", "denver", "won"]
TOKENIZER = FullTokenizer(TOKENS)


def owner_by_brute_force(spans, token):
    """The window in which a token has the largest smaller context."""
    scores = []
    for number, (start, length) in enumerate(spans):
        if start <= token < start + length:
            context = min(token - start, start + length - 1 - token) + 0.01 * length
            scores.append((-context, number))
    return min(scores)[1]


def test_passage_spans_stop_at_the_end():
    assert passage_spans(10, max_tokens=4, doc_stride=3) == [(0, 4), (3, 4), (6, 4)]
    assert passage_spans(4, max_tokens=4, doc_stride=1) == [(0, 4)]
    assert passage_spans(5, max_tokens=2, doc_stride=9) == [(0, 2), (2, 2), (4, 1)]
    assert passage_spans(0, max_tokens=4, doc_stride=2) == []


def test_max_context_is_in_the_window_of_brute_force():
    rng = random.Random(5)
    for _ in range(300):
        num_tokens = rng.randint(1, 60)
        spans = passage_spans(num_tokens, rng.randint(1, 20), rng.randint(1, 25))
        for token in range(num_tokens):
            owner = owner_by_brute_force(spans, token)
            for number, contexts in enumerate(max_context(spans, num_tokens)):
                inside = 0 <= token - spans[number].start < spans[number].length
                assert not inside or contexts[token - spans[number].start] == (number == owner)


def test_make_windows_packs_question_and_part_of_the_passage():
    passage = tokenize_passage(Passage("a b c d e f"), TOKENIZER)
    arguments = {"max_seq_length": 8, "doc_stride": 2, "answer": TokenSpan(3, 4)}  # d e
    windows = list(make_windows(TOKENIZER.encode("won ?"), passage, **arguments))
    texts = []
    for window in windows:
        packed = window.pack(8, *TOKENIZER.convert_tokens_to_ids(["[CLS]", "[SEP]"]))
        texts.append(" ".join(TOKENIZER.convert_ids_to_tokens(packed.input_ids)))
        segments = [0] * 4 + [1] * (window.span.length + 1)
        assert packed.segment_ids == segments + [0] * (8 - window.num_tokens)
        assert sum(packed.input_mask) == window.num_tokens
    assert texts == [
        "[CLS] won ? [SEP] a b c [SEP]",
        "[CLS] won ? [SEP] c d e [SEP]",
        "[CLS] won ? [SEP] e f [SEP] [PAD]",
    ]
    assert [window.answer_positions for window in windows] == [(0, 0), (5, 6), (0, 0)]
    assert [window.unique_id for window in windows] == [1_000_000_000 + i for i in range(3)]
    assert windows[1].passage_token(5) == 3


def test_find_span_is_its_own_pieces_or_all_of_its_words():
    for text, answer, expected in (
        ("he (1895-1990).", "1895", ["1895"]),
        ("the Denver won", "Den", ["denver"]),  # no piece ends within the word
        ("the Japanese won", "Japanese won", ["japan", "##ese", "won"]),
        ("Denver, Denver!", "Denver", ["denver"]),
    ):
        passage = tokenize_passage(Passage(text), TOKENIZER)
        span = passage.find_span(SquadAnswer(answer, text.index(answer)), TOKENIZER.encode(answer))
        ids = passage.ids[span.start : span.end + 1]
        assert TOKENIZER.convert_ids_to_tokens(ids) == expected


THAI = "เมืองหลวงคือกรุงเทพมหานคร 2325"
ARABIC = "باريس والعاصمة كبيرة"


def test_find_exact_span_finds_an_answer_inside_a_word():
    thai = ["เมือง", "##หลวง", "##คือ", "##กรุง", "กรุง", "##เทพ", "##มหานคร", "##ทพ", "##มหา"]
    arabic = ["باريس", "و", "##العاصمة", "العاصمة", "كبيرة"]
    tokenizer = FullTokenizer(["[UNK]", "2325", *thai, *arabic], do_lower_case=False)
    for text, answer, expected in (
        (THAI, "กรุงเทพ", ["##กรุง", "##เทพ"]),
        (THAI, "กรุงเทพมหานคร 2325", ["##กรุง", "##เทพ", "##มหานคร", "2325"]),
        (ARABIC, "العاصمة", ["##العاصمة"]),
        (ARABIC, "والعاصمة", ["و", "##العاصمة"]),
        (THAI, "ทพมหา", ["##เทพ", "##มหานคร"]),  # no pieces fit: the fewest that hold it
    ):
        passage = tokenize_passage(Passage(text), tokenizer)
        span = passage.find_exact_span(SquadAnswer(answer, text.index(answer)), tokenizer)
        ids = passage.ids[span.start : span.end + 1]
        assert tokenizer.convert_ids_to_tokens(ids) == expected
    passage = tokenize_passage(Passage("a bb"), TOKENIZER)
    for start in (2, 3):  # tells one occurrence from another
        span = passage.find_exact_span(SquadAnswer("b", start), TOKENIZER)
        assert span == TokenSpan(start - 1, start - 1)


def test_piece_offsets_include_stripped_marks():
    text = "Ja\u0301pane\u0301se \u0416\u0418\u0416! \u200bwon"
    words = [text[start:end] for start, end in piece_offsets(TOKENIZER, text)]
    assert words == ["Ja\u0301pan", "e\u0301se", "\u0416\u0418\u0416", "!", "won"]


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_piece_offsets_rise_and_each_slice_has_its_piece(do_lower_case):
    tokenizer = FullTokenizer(TOKENS, do_lower_case)
    rng = random.Random(11)
    alphabet = LETTERS + "ABΣÉÅİ,.!? \t\u00a0\u0301\u200b\u3000東Ω½①\u302e\ufffd"
    for _ in range(400):
        text = "".join(rng.choice(alphabet) for _ in range(rng.randint(0, 14)))
        pieces, offsets = tokenizer.tokenize(text), piece_offsets(tokenizer, text)
        assert len(offsets) == len(pieces)
        position = 0
        for piece, (start, end) in zip(pieces, offsets, strict=True):
            assert position <= end and 0 <= start < end <= len(text)
            position = start
            words = tokenizer.basic_tokenizer.tokenize(text[start:end])
            if piece != "[UNK]" and "Σ" not in text and "한" not in text:
                # the slice alone may be a prefix (a letter that decomposes into several)
                normalized = unicodedata.normalize("NFC", "".join(words))
                assert unicodedata.normalize("NFC", piece.removeprefix("##")) == normalized


# -------------------------------------------------------------------------------- words


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
