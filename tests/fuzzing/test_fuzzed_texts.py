"""Any bytes to the tokenizers, which agree with an independent statement of the rules, and to the served
model: an answer, and the one that the Python classes give."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (operations of the exported model)
from fuzz_cases import COUNTS, SNAGS, cases
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.predictor import Predictor
from bert_tf.text_ops.tokenizer import GraphTokenizer
from bert_tf.tokenization import FullTokenizer
from reference import wordpiece_rules

WORDS = [b"the", b"happy", b"owl", b"barn", b"."]
LABELS = ("bad", "good")
TEXTS = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(st.sampled_from([*WORDS, *SNAGS[:9], b" "]), max_size=30).map(b" ".join),
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
@cases(20)
def test_python_graph_and_the_rules_say_the_same_of_any_bytes(tokenizers, do_lower_case, texts):
    COUNTS["tokenizers: texts"] += len(texts)
    python, graph = tokenizers[do_lower_case]
    for text, ids in zip(texts, graph(tf.constant(texts)).to_list(), strict=True):
        words = text.decode("utf-8", "ignore")  # what is not UTF-8 is left out
        expected = wordpiece_rules.word_pieces(words, python.vocab, do_lower_case)
        assert python.tokenize(text) == expected
        assert ids == python.encode(text) == python.convert_tokens_to_ids(expected)


@pytest.fixture(scope="module")
def onnx_tokenizers(tokenizers):
    """Case -> the function of texts that the tokenizer of ONNX files is."""
    onnx_text = pytest.importorskip("bert_tf.serving.onnx_text")
    pytest.importorskip("onnx")
    ort, extensions = map(pytest.importorskip, ("onnxruntime", "onnxruntime_extensions"))
    options = ort.SessionOptions()
    options.register_custom_ops_library(extensions.get_library_path())
    found = {}
    for do_lower_case, (python, _) in tokenizers.items():
        model = onnx_text.tokenizer_model(python.vocab, do_lower_case).SerializeToString()
        found[do_lower_case] = ort.InferenceSession(model, options)
    return found


@pytest.mark.parametrize("do_lower_case", [True, False])
@given(texts=st.lists(st.one_of(TEXTS, UNICODE.map(str.encode)), min_size=8, max_size=40))
@cases(20)
def test_the_tokenizer_of_onnx_files_says_the_same_of_any_text(
    tokenizers, onnx_tokenizers, do_lower_case, texts
):
    """Strings of ONNX are UTF-8, so clients decode bytes."""
    COUNTS["tokenizer of ONNX: texts"] += len(texts)
    decoded = [text.decode("utf-8", "ignore") for text in texts]
    inputs = {"text_a": np.array(decoded, object)}
    pieces, splits = onnx_tokenizers[do_lower_case].run(None, inputs)
    python = tokenizers[do_lower_case][0]
    for text, ids in zip(decoded, np.split(pieces, splits[1:-1]), strict=True):
        assert ids.tolist() == python.encode(text)


@pytest.fixture(scope="module")
def both(sentence_model, exported):
    served = tf.saved_model.load(str(exported.single))
    return served, Predictor(str(sentence_model))


@given(texts=st.lists(TEXTS, min_size=1, max_size=8))
@cases(40)
def test_any_bytes_are_answered_as_in_python(both, texts):
    COUNTS["served model: texts"] += len(texts)
    served, predictor = both
    found = served.signatures["serving_default"](tf.constant(texts))["probabilities"].numpy()
    answers = predictor.predict([text.decode("utf-8", "replace") for text in texts])
    expected = [[answer["probabilities"][label] for label in LABELS] for answer in answers]
    # Another tokenization would be far beyond this; other sums in LayerNorm are not.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
    assert np.isfinite(found).all()
