"""Any bytes to the tokenizers, which agree with an independent statement of the rules, and to the served
model: an answer, and the one that the Python classes give."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (operations of the exported model)
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.predictor import Predictor
from bert_tf.text_ops.tokenizer import GraphTokenizer
from bert_tf.tokenization import FullTokenizer
from reference import wordpiece_rules

pytestmark = pytest.mark.night

WORDS = [b"the", b"happy", b"owl", b"barn", b"."]
SNAGS = [b"\x00", b"\xff", b"\xed\xa0\x80", b"\xe2\x80\xa8"]
LABELS = ("bad", "good")
TEXTS = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(st.sampled_from([*WORDS, *SNAGS, b" "]), max_size=30).map(b" ".join),
)


# Letters with marks, signs and spaces of every kind, and words that are next to those of the vocabulary.
LETTERS = (
    "aAbßÉéİıΣσς\u0301\u0345\u0307漢한\u1100\u1161😀1½.,'’-_[]#\t\n\r\x00\x0b\x1c\x85\xa0\xad\u200b\u2028"
    "\ufeff\ufffd "
)
UNICODE = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
    st.text(st.sampled_from(LETTERS), max_size=60),
    st.lists(
        st.sampled_from(["unaffable", "Hello,", "[MASK]", "##ing", "ing", "x" * 201]), max_size=9
    ).map(" ".join),
)


@pytest.fixture(scope="module")
def tokenizers():
    """(Python, graph) of each case, with pieces of all that may come and of some words."""
    letters = [chr(code) for code in range(32, 0x3000) if chr(code).isprintable()]
    found = {}
    for do_lower_case in (True, False):
        parts = wordpiece_rules.basic_tokens(" ".join([*letters, *LETTERS]), do_lower_case)
        single = dict.fromkeys("".join(parts))
        words = ("una", "##ffa", "##ff", "##able", "hello", "ing", "##ing", "a\u0301", "##bé")
        tokens = dict.fromkeys(["[UNK]", *single, *(f"##{letter}" for letter in single), *words])
        python = FullTokenizer(list(tokens), do_lower_case)
        found[do_lower_case] = python, GraphTokenizer(python.vocab, do_lower_case)
    return found


@pytest.mark.parametrize("do_lower_case", [True, False])
@given(texts=st.lists(st.one_of(TEXTS, UNICODE.map(str.encode)), min_size=8, max_size=40))
@settings(max_examples=20, deadline=None)
def test_python_graph_and_the_rules_say_the_same_of_any_bytes(tokenizers, do_lower_case, texts):
    python, graph = tokenizers[do_lower_case]
    for text, ids in zip(texts, graph(tf.constant(texts)).to_list(), strict=True):
        words = text.decode("utf-8", "ignore")  # what is not UTF-8 is left out
        expected = wordpiece_rules.word_pieces(words, python.vocab, do_lower_case)
        assert python.tokenize(text) == expected
        assert ids == python.encode(text) == python.convert_tokens_to_ids(expected)


@pytest.fixture(scope="module")
def both(sentence_model, exported):
    served = tf.saved_model.load(str(exported.single))
    return served, Predictor(str(sentence_model))


@given(texts=st.lists(TEXTS, min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_any_bytes_are_answered_as_in_python(both, texts):
    served, predictor = both
    found = served.signatures["serving_default"](tf.constant(texts))["probabilities"].numpy()
    answers = predictor.predict([text.decode("utf-8", "replace") for text in texts])
    expected = [[answer["probabilities"][label] for label in LABELS] for answer in answers]
    # Another tokenization would be far beyond this; other sums in LayerNorm are not.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
    assert np.isfinite(found).all()
