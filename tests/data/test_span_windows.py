"""Windows of passages and their max context by brute force; tokens back to characters."""

import random
import unicodedata

import pytest

from bert_tf.data.windows import (
    Passage,
    SquadAnswer,
    TokenSpan,
    make_windows,
    max_context,
    passage_spans,
    piece_offsets,
    tokenize_passage,
)
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
    windows = list(make_windows(TOKENIZER.encode("won ?"), passage, example_index=7, **arguments))
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
    assert {window.example_index for window in windows} == {7}
    assert windows[1].passage_token(5) == 3


def test_span_of_answer_is_its_own_pieces_or_all_of_its_words():
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


def test_span_at_finds_an_answer_inside_a_word():
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


def test_characters_of_tokens_are_those_of_the_text():
    text = "  In (1895-1990),\u202fthe Japanese won!"
    passage = tokenize_passage(Passage(text), TOKENIZER)
    tokens = TOKENIZER.convert_ids_to_tokens(passage.ids)
    for expected, first, last in (
        ("1895-1990", "1895", "##0"),
        ("Japanese won", "japan", "won"),
        ("Japan", "japan", "japan"),
    ):
        span = TokenSpan(tokens.index(first), len(tokens) - 1 - tokens[::-1].index(last))
        start, end = passage.characters(span, TOKENIZER)
        assert text[start:end] == expected
