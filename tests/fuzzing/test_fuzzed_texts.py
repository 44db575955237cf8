"""Any bytes to the served model: an answer, and the one that the Python classes give."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (operations of the exported model)
from hypothesis import given, settings
from hypothesis import strategies as st
from models import golden

from bert_tf.predictor import Predictor

WORDS = [b"the", b"happy", b"owl", b"barn", b"."]
SNAGS = [b"\x00", b"\xff", b"\xed\xa0\x80", b"\xe2\x80\xa8"]
LABELS = ("bad", "good")
TEXTS = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(st.sampled_from([*WORDS, *SNAGS, b" "]), max_size=30).map(b" ".join),
)


@pytest.mark.night
def test_any_bytes_are_answered_as_in_python(exported):
    served = tf.saved_model.load(str(exported.single)).signatures["serving_default"]
    predictor = Predictor(str(golden("classifier")))

    @given(texts=st.lists(TEXTS, min_size=1, max_size=8))
    @settings(max_examples=40, deadline=None)
    def check(texts):
        found = served(tf.constant(texts))["probabilities"].numpy()
        answers = predictor.predict([text.decode("utf-8", "replace") for text in texts])
        expected = [[answer["probabilities"][label] for label in LABELS] for answer in answers]
        # Another tokenization would be far beyond this; other sums in LayerNorm are not.
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
        assert np.isfinite(found).all()

    check()
