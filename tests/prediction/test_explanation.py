"""Attention probabilities against the NumPy BERT; attributions that add up."""

import numpy as np
import pytest
import tensorflow as tf
import tiny_text_models as tiny
from tiny_text_models import CONFIG, TEXTS, alone, run_alone

from bert_tf.prediction.visualize import attention, attributions
from reference import numpy_bert


def test_attention_is_that_of_every_layer_and_head():
    trained = tiny.classifier()
    sequence = alone(TEXTS[0])
    variables = {v.path: v.numpy() for v in trained.model.bert.weights}
    arrays = [np.array([values]) for values in sequence]
    expected = numpy_bert.encode(CONFIG, variables, *arrays).attention_probs
    found = attention(trained.model.bert, sequence)
    assert found.shape == (2, 3, 9, 9)
    np.testing.assert_allclose(found, np.stack([layer[0] for layer in expected]), atol=1e-5)
    assert "attention_probs" not in run_alone(trained.model.bert, sequence)  # as it was before


def test_attributions_add_up_to_what_the_words_change():
    trained = tiny.classifier()
    sequence = alone(TEXTS[0])
    found = attributions(
        trained.model.bert,
        sequence,
        trained.tokenizer,
        lambda inputs: trained.model(inputs, training=False)["logits"][:, 2],
    )
    mask = trained.tokenizer.vocab["[MASK]"]
    blank = sequence._replace(
        input_ids=[sequence.input_ids[0], *[mask] * 7, sequence.input_ids[-1]]
    )
    output = float(run_alone(trained.model, sequence)["logits"][0, 2])
    baseline = float(run_alone(trained.model, blank)["logits"][0, 2])
    assert (found.output, found.baseline) == pytest.approx((output, baseline), abs=1e-5)
    assert abs(found.values.sum() - (output - baseline)) <= 0.01 * abs(output - baseline)
    assert (found.values[0], found.values[-1]) == (0, 0)  # [CLS] and [SEP] stay as they are
    assert np.abs(found.values).max() > 0.01


def test_of_a_linear_output_attributions_are_known_exactly():
    """The mean over the embeddings times a vector: each token counts for its own part."""
    trained = tiny.trained(None)
    sequence, weights = alone("the cat sat"), np.arange(12.0)

    def linear(inputs):
        mean = tf.reduce_mean(inputs["embedding_output"], axis=1)
        return (mean @ weights[:, None].astype("float32"))[:, 0]

    found = attributions(trained.model, sequence, trained.tokenizer, linear)
    embed = trained.model.embeddings
    ids, segments = np.array([sequence.input_ids]), np.array([sequence.segment_ids])
    mask = trained.tokenizer.vocab["[MASK]"]
    blank = np.array([[ids[0, 0], mask, mask, mask, ids[0, -1]]])
    difference = (embed(ids, segments) - embed(blank, segments)).numpy()[0]
    np.testing.assert_allclose(found.values, difference @ weights / 5, atol=1e-5)
