"""GraphTokenizer equals FullTokenizer: every code point, random texts, any bytes, any surroundings."""

import functools

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.data.windows import piece_offsets
from bert_tf.serving.text_tokenizer import GraphTokenizer
from bert_tf.tokenization import BasicTokenizer, FullTokenizer

TRICKY = (
    "aAbZ1 .,:'’-$~…½ß\t\n\r\x00\x0b\x1c\x1f\x85\xa0\xad\u200b\u2028\ufeff\ufffdÉéİıẞΣσςΩ\u2126\u212a"
    "\u037e\u1fef\u0301\u0307\u0345\u0344\u0e31\u0f73漢字\uf900\ufadb\U0002f800\U0002ceb0한각\u1100\u1161\u11a8"
    "\u302e\u302f\u1b44\U00016ff0\U0001d160\U0001d165\U0001d16d\u0ddd\u0903𐐀😀[]MASK"
)
texts = st.lists(
    st.one_of(
        st.text(st.sampled_from(TRICKY), max_size=40),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    ),
    max_size=7,
)
any_bytes = st.lists(
    st.lists(st.one_of(st.binary(max_size=3), st.text("aé漢😀 ").map(str.encode))).map(b"".join),
    max_size=7,
)
both_cases = pytest.mark.parametrize("do_lower_case", [True, False])


@functools.cache
def tokenizers(do_lower_case, end=0x3000):
    """Both tokenizers, with the printable characters below `end` as pieces."""
    chars = [chr(code) for code in range(end) if chr(code).isprintable()]
    letters = "".join(BasicTokenizer(do_lower_case).tokenize(" ".join([*chars, *TRICKY])))
    letters = dict.fromkeys(letters)
    tokens = ["[UNK]", *letters, *("##" + letter for letter in letters), "ab", "##a\u0301"]
    full = FullTokenizer(tokens, do_lower_case)
    return full, GraphTokenizer(list(full.vocab), do_lower_case)


def assert_equal(pair, texts):
    full, graph = pair
    for text, ids in zip(texts, graph(tf.constant(texts, tf.string)).to_list(), strict=True):
        assert ids == full.encode(text), repr(text)[:200]


@pytest.mark.parametrize("do_lower_case", [True, pytest.param(False, marks=pytest.mark.weekly)])
@pytest.mark.night
def test_every_code_point_has_the_ids_of_python(do_lower_case):
    """All of the planes that have characters, and one in 97 of the unassigned and private planes.

    (`benchmarks/tokenization.py --verify` takes all, in nine surroundings.)
    """
    codes = []
    for plane in range(17):
        step = 1 if plane in (0, 1, 2, 3, 14) else 97
        codes += range(plane << 16, (plane + 1) << 16, step)
    # Behind a sigma, on which it may have an effect, and before a mark that may change places.
    words = [f"AΣ{chr(code)}\u302e" for code in codes if not 0xD800 <= code < 0xE000]
    texts = [" ".join(words[start : start + 256]) for start in range(0, len(words), 256)]
    assert_equal(tokenizers(do_lower_case, 0x20000), texts)


@both_cases
@settings(max_examples=40, deadline=None)
@given(texts=texts, others=any_bytes)
def test_texts_and_bytes_have_the_ids_of_python(do_lower_case, texts, others):
    assert_equal(tokenizers(do_lower_case), [text.encode() for text in texts] + others)


@pytest.mark.parametrize("letter", ["a", "é", "e\u0301", "ж", "한", "\u0e01", "𐐀", "\xada"])
def test_a_word_may_have_200_characters_however_many_bytes(letter):
    words = [letter * count for count in (66, 67, 100, 199, 200, 201, 399, 400, 401, 900)]
    for do_lower_case in (True, False):
        assert_equal(tokenizers(do_lower_case), [*words, " ".join(words), ".".join(words)])


def test_sigma_at_the_end_of_a_word_is_final():
    tokenizer = GraphTokenizer(["[UNK]", "σ", "ας", "ασα", "ασ", "ς"])
    texts = ["Σ", "ΑΣ", "ΑΣΑ", "ΑΣ\u0301", "ΑΣ\xadΑ", "ΑΣ Α", "ΑΣ漢", "Α \xadΣ"]
    ids = tokenizer(tf.constant(texts)).to_list()
    assert ids == [[1], [2], [3], [2], [3], [2, 0], [2, 0], [0, 1]]


def test_empty_texts_have_no_ids():
    _, graph = tokenizers(True)
    assert graph(tf.constant([], tf.string)).to_list() == []
    assert graph(tf.constant(["", " \n", "\u0301"])).to_list() == [[], [], []]


def test_graph_tokenizer_refuses_vocabularies():
    for vocab in (["a", "b"], ["[UNK]", "b", "b"]):
        with pytest.raises(ValueError, match="vocabulary"):
            GraphTokenizer(vocab)


@both_cases
@settings(deadline=None, max_examples=30)
@given(texts=texts)
def test_offsets_are_those_of_the_python_tokenizer(do_lower_case, texts):
    python, graph = tokenizers(do_lower_case)
    texts = [*texts, "é" * 201 + " ab", "\u0301a\u0327\u0301b"]
    ids, starts, ends = graph.with_offsets(tf.constant(texts))
    for row, text in enumerate(texts):
        assert ids[row].numpy().tolist() == python.encode(text)
        found = list(zip(starts[row].numpy(), ends[row].numpy(), strict=True))
        assert found == piece_offsets(python, text), text
