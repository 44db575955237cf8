"""Any bytes to the served model: an answer, and the one that the Python classes give."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (operations of the exported model)
from fuzz_cases import COUNTS, SNAGS, cases
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.predictor import Predictor

WORDS = [b"the", b"happy", b"owl", b"barn", b"."]
LABELS = ("bad", "good")
TEXTS = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(st.sampled_from([*WORDS, *SNAGS[:9], b" "]), max_size=30).map(b" ".join),
)


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
