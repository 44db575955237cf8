"""The encoder for inference answers like the layers of the model, and leaves them as they are."""

import numpy as np
import pytest
import tensorflow as tf
from tiny_config import tiny_config

from bert_tf.modeling.inference import FEW_ROWS, InferenceEncoder
from bert_tf.modeling.models import BertForSequenceClassification

S, LABELS = 7, 3


@pytest.mark.parametrize("layout", ["plain", "formula", "onednn"])
def test_inference_encoder_answers_like_the_layers(layout):
    model = BertForSequenceClassification(tiny_config(initializer_range=0.2), LABELS)
    encoder = InferenceEncoder(model, layout)

    @tf.function(autograph=False)
    def served(ids):
        return encoder({"input_ids": ids})["logits"]

    for batch_size in (2, FEW_ROWS // S + 1):
        ids = np.random.default_rng(0).integers(1, 23, (batch_size, S)).astype("int32")
        expected = model({"input_ids": ids})["logits"].numpy()
        np.testing.assert_allclose(served(tf.constant(ids)), expected, atol=2e-5)
        np.testing.assert_array_equal(model({"input_ids": ids})["logits"], expected)
    kernels = [v for v in encoder.variables if v.path.endswith("query_key_value_kernel")]
    assert len(kernels) == model.config.num_hidden_layers
    assert not set(map(id, kernels)) & set(map(id, model.weights))
