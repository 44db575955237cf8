"""Tokenization: literal cases, every code point and random texts against the written-down rules."""

import functools
import sys

import pytest
from helpers import cause_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bert_tf import tokenization
from bert_tf.tokenization import (
    BasicTokenizer,
    FullTokenizer,
    WordpieceTokenizer,
    convert_to_unicode,
    load_vocab,
    printable_text,
    whitespace_tokenize,
)
from reference import wordpiece_rules

# Characters with rules of their own, and those that change what stands beside them.
TRICKY = (
    "aAbZ1 .,:'’-_#$^`|~¡¿…½²ß\t\n\r\x00\x0b\x0c\x1c\x1f\x7f\x85\xa0\xad\u200b\u200d\u2028\u2029\u3000"
    "\ufeff\ufffdÉéİıẞΣσςΩ\u2126\u212a\u037e\u1fef\u0301\u0307\u0345\u0344\u0e31\u0f73漢字\uf900\ufadb"
    "\U0002f800\U0002ceb0한각\u1100\u1161\u11a8\u302e\u302f\u1b44\U0001d160\U0001d165\u0ddd\u0903𐐀😀"
)
tricky_texts = st.text(st.sampled_from(TRICKY), max_size=40)
texts = st.one_of(tricky_texts, st.text(st.characters(exclude_categories=["Cs"]), max_size=20))

PIECES = ["[UNK]", "[CLS]", "[SEP]", "want", "##want", "##ed", "wa", "un", "runn", "##ing", ","]


@functools.cache
def tricky_tokenizer(do_lower_case):
    """With every character that the tricky ones become, alone and as a continuation, some together."""
    tokens = [*wordpiece_rules.basic_tokens(" ".join(TRICKY), do_lower_case), "ab", "σa", "aς"]
    letters = dict.fromkeys([*tokens, *"".join(tokens)])
    vocab = ["[PAD]", "[UNK]", "[MASK]", *letters, *("##" + letter for letter in letters)]
    return FullTokenizer(vocab, do_lower_case)


def test_full_tokenizer_lowers_strips_splits_and_covers():
    tokenizer = FullTokenizer(PIECES)
    tokens = tokenizer.tokenize("UNwant\u00e9d,running")  # the reference's own example
    assert tokens == ["un", "##want", "##ed", ",", "runn", "##ing"]
    assert tokenizer.convert_tokens_to_ids(tokens) == [7, 4, 5, 10, 8, 9]
    assert tokenizer.convert_ids_to_tokens([7, 4, 5, 10, 8, 9]) == tokens
    assert tokenizer.encode("UNwant\u00e9d,running") == [7, 4, 5, 10, 8, 9]


def test_wordpiece_tokenizer_gives_unk_for_a_word_not_covered():
    tokenizer = WordpieceTokenizer({token: i for i, token in enumerate(PIECES)})
    assert tokenizer.tokenize("") == []
    assert tokenizer.tokenize("unwanted running") == ["un", "##want", "##ed", "runn", "##ing"]
    assert tokenizer.tokenize("unwantedX running") == ["[UNK]", "runn", "##ing"]


def test_basic_tokenizer_by_rule():
    for text, uncased, cased in (
        (" \tHeLLo!how  \n Are yoU?  ", "hello ! how are you ?", "HeLLo ! how Are yoU ?"),
        ("ah博推zz", "ah 博 推 zz", "ah 博 推 zz"),
        ("a\x0bb\x1c\x85c\xadd\u200be\ufefff\ufffdg\x00h", "abcdefgh", "abcdefgh"),
        ("a\u2028b\u2029c\u3000d\xa0e\rf", "a b c d e f", "a b c d e f"),
        ("Ça coûte 5$^2", "ca coute 5 $ ^ 2", "Ça coûte 5 $ ^ 2"),
        ("ΟΔΟΣ ΟΔΟΣ.Α Σ ΑΣ\u0301", "οδος οδοσ . α σ ας", "ΟΔΟΣ ΟΔΟΣ . Α Σ ΑΣ\u0301"),
        ("İSTANBUL Kelvin:\u212a", "istanbul kelvin : k", "İSTANBUL Kelvin : \u212a"),
        ("ß ﬁ … ½ ２", "ß ﬁ … ½ ２", "ß ﬁ … ½ ２"),
        ("각", "\u1100\u1161\u11a8", "각"),
        ("a\u037eb", "a ; b", "a \u037e b"),
        ("x\u302e\u1b44\u0301y", "x\u1b44\u302ey", "x\u302e\u1b44\u0301y"),
        ("[MASK]", "[ mask ]", "[ MASK ]"),
        ("\u0301 \u0301", "", "\u0301 \u0301"),
        ("", "", ""),
    ):
        assert BasicTokenizer(do_lower_case=True).tokenize(text) == uncased.split()
        assert BasicTokenizer(do_lower_case=False).tokenize(text) == cased.split()
    assert whitespace_tokenize(" a\u2028b\x1fc \n") == ["a", "b", "c"]


def test_a_word_may_have_200_characters_without_accents():
    tokenizer = WordpieceTokenizer({"ж": 0, "##ж": 1, "[UNK]": 2})
    assert tokenizer.tokenize("ж" * 200) == ["ж"] + ["##ж"] * 199
    assert tokenizer.tokenize("ж" * 201) == ["[UNK]"]
    assert WordpieceTokenizer({"ж": 0}, "?", max_input_chars_per_word=3).tokenize("жжжж") == ["?"]
    tokenizer = FullTokenizer(["[UNK]", "e", "##e"])
    assert tokenizer.encode("é" * 200) == [1] + [2] * 199
    assert tokenizer.encode("e\u0301" * 200) == [1] + [2] * 199
    assert tokenizer.encode("é" * 201) == [0]


def test_bytes_are_utf8_and_what_is_not_is_left_out():
    assert convert_to_unicode(b"a\xffb\xc3\xa9") == printable_text(b"a\xffb\xc3\xa9") == "abé"
    tokenizer = FullTokenizer(PIECES)
    assert tokenizer.tokenize(b"un\xff, wa") == ["un", ",", "wa"]
    assert tokenizer.encode(b"un\xff, wa") == [7, 10, 6]
    with pytest.raises(ValueError):
        convert_to_unicode(5)


# ------------------------------------------------------------------- against the written-down rules


@pytest.mark.parametrize("do_lower_case", [True, pytest.param(False, marks=pytest.mark.weekly)])
@pytest.mark.night
def test_every_code_point_is_treated_as_the_rules_say(do_lower_case):
    tokenize = BasicTokenizer(do_lower_case).tokenize
    # All of the planes that have characters; the first of the unassigned and private ones.
    planes = (0, 1, 2, 3, 14)
    starts = range(0, sys.maxunicode + 1, 4096)
    for start in (s for s in starts if s >> 16 in planes or s % 0x10000 == 0):
        # Behind a cased letter and in front of a combining mark, both of which may matter.
        text = "".join(f" A{chr(code)}\u302e" for code in range(start, start + 4096))
        expected = wordpiece_rules.basic_tokens(text, do_lower_case)
        assert tokenize(text) == expected, f"between U+{start:04X} and U+{start + 4095:04X}"


@pytest.mark.parametrize("do_lower_case", [True, False])
@settings(max_examples=100, deadline=None)
@given(text=texts)
@example(text="ΑΣ\u0301:\xad.Σ ΑΣ\x0bΑ")
def test_texts_are_tokenized_as_the_rules_say(text, do_lower_case):
    tokenizer = tricky_tokenizer(do_lower_case)
    tokens = tokenizer.tokenize(text)
    assert tokens == wordpiece_rules.word_pieces(text, tokenizer.vocab, do_lower_case)
    assert tokenizer.encode(text) == tokenizer.convert_tokens_to_ids(tokens)


@given(
    pieces=st.lists(st.text("abé", min_size=1, max_size=4)),
    continuations=st.lists(st.text("abé", min_size=1, max_size=4)),
    word=st.text("abé", min_size=1, max_size=20),
)
def test_words_are_covered_as_the_rules_say(pieces, continuations, word):
    tokens = dict.fromkeys(["[UNK]", *pieces, *("##" + c for c in continuations)])
    vocab = {token: index for index, token in enumerate(tokens)}
    assert WordpieceTokenizer(vocab).tokenize(word) == wordpiece_rules.cover(word, vocab)


# ------------------------------------------------------------------------ special tokens, the cache


def test_special_tokens_stay_whole_on_request():
    tokenizer = FullTokenizer([*PIECES, "[MASK]"], preserve_special_tokens=True)
    text = "Un[MASK],[mask] [SEP]\x0bwanted[MASK]"
    assert tokenizer.tokenize("un[MASK],") == ["un", "[MASK]", ","]
    assert tokenizer.tokenize("[mask]") == ["[UNK]"] * 3
    assert tokenizer.encode(text) == tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))


def test_a_special_token_that_the_vocabulary_lacks_is_text():
    tokenizer, plain = (FullTokenizer(PIECES, preserve_special_tokens=n) for n in (True, False))
    text = "un[PAD]wanted"
    assert tokenizer.tokenize(text) == plain.tokenize(text)
    assert tokenizer.encode(text) == plain.encode(text)
    with pytest.raises(KeyError):
        tokenizer.convert_tokens_to_ids(["[PAD]"])


# ------------------------------------------------------------------------------- vocabulary files


@pytest.fixture
def vocab_file(tmp_path):
    def write(data):
        path = tmp_path / "vocab.txt"
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return str(path)

    return write


def test_load_vocab_strips_blanks_and_a_byte_order_mark(vocab_file):
    for data in ("a\n##b\nc\n", "a\n##b\nc", "a\r\n##b\r\nc\r\n", "\ufeffa\n##b\n c\t\n"):
        assert load_vocab(vocab_file(data)) == {"a": 0, "##b": 1, "c": 2}
    path = vocab_file("a\n\u2028\n##\u2028\nb\x0bc\n")  # lines end at line feeds only
    for each in (path, f"file://{path}"):
        assert load_vocab(each) == {"a": 0, "": 1, "##": 2, "b\x0bc": 3}


def test_load_vocab_refuses_files_by_line(vocab_file):
    path = vocab_file("[PAD]\n[UNK]\n[SEP]\na\n")
    assert load_vocab(path) == {"[PAD]": 0, "[UNK]": 1, "[SEP]": 2, "a": 3}
    for data, required, line in (
        ("a\nb\na \n", (), ":3"),
        (b"a\nb\xe9\n", (), ":2"),
        ("[PAD]\n[UNK]\n[SEP]\na\n", tokenization.SPECIAL_TOKENS, ""),
    ):
        path = vocab_file(data)
        assert cause_of(load_vocab, path, required=required) == path + line
    for bad in (vocab_file("a\n"), ["a", "b"], ["[UNK]", "a", "a"]):
        with pytest.raises(ValueError):
            FullTokenizer(bad)
