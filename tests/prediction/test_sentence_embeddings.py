"""Sentence embeddings: poolings against NumPy, and cosines."""

import dataclasses
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny_text_models as tiny
from tiny_text_models import TEXTS, alone, run_alone

from bert_tf.embeddings.task import EmbeddingTask
from bert_tf.modeling.heads import sentence_embedding
from bert_tf.options import make_options
from bert_tf.prediction.encoder import EmbeddingPredictor, cosine_similarity
from bert_tf.prediction.predict import PredictionOptions, choose_model
from bert_tf.prediction.predictor import Predictor

PREFIXES = {"query_prefix": "who ? ", "document_prefix": "a mat , "}


@functools.cache
def four_layers():
    return tiny.trained(None, dataclasses.replace(tiny.CONFIG, num_hidden_layers=4))


def pooled(trained, text, pooling):
    """By the definition, from the layers of the text alone."""
    outputs = run_alone(getattr(trained.model, "bert", trained.model), alone(text))
    if pooling == "pooled":
        return outputs["pooled_output"].numpy()[0]
    layers = [layer.numpy()[0] for layer in outputs["all_encoder_layers"]]
    last = layers[-1]
    if pooling == "concat_last_four":
        return np.concatenate(layers[-4:], axis=-1).mean(axis=0)
    return {"cls": last[0], "mean": last.mean(axis=0), "max": last.max(axis=0)}[pooling]


@pytest.mark.parametrize("pooling", ["mean", "max", "cls", "pooled", "concat_last_four"])
def test_embedding_is_that_of_the_text_alone(pooling):
    trained = four_layers()
    expected = np.stack([pooled(trained, text, pooling) for text in TEXTS])
    encoder = EmbeddingPredictor(trained, 4, pooling=pooling, normalize=False)
    plain = encoder.encode(TEXTS)
    assert plain.dtype == np.float32 and encoder.num_truncated == 1
    np.testing.assert_allclose(plain, expected, atol=1e-5)
    assert encoder.encode([]).shape == (0, expected.shape[1])
    normalized = EmbeddingPredictor(trained, 4, pooling=pooling).encode(TEXTS)
    lengths = np.linalg.norm(expected, axis=-1, keepdims=True)
    np.testing.assert_allclose(normalized, expected / lengths, atol=1e-5)


def test_any_model_has_the_embeddings_of_its_encoder():
    for trained in (tiny.classifier(), tiny.chooser(), tiny.pretrained()):
        encoder = EmbeddingPredictor(trained, normalize=False)
        found = encoder.encode(["the cat sat"])
        np.testing.assert_allclose(found[0], pooled(trained, "the cat sat", "mean"), atol=1e-5)
        ((listed,),) = [answer.values() for answer in encoder.predict(["the cat sat"])]
        np.testing.assert_array_equal(np.array(listed, np.float32), found[0])


def test_encoder_puts_the_prefix_before_each_text():
    trained = tiny.trained(EmbeddingTask(tiny.MAX_SEQ_LENGTH, **PREFIXES))
    plain = EmbeddingPredictor(tiny.trained(EmbeddingTask(tiny.MAX_SEQ_LENGTH)))
    for as_query, prefix in ((True, "who ? "), (False, "a mat , ")):
        found = EmbeddingPredictor(trained, as_query=as_query).encode(["owls"])
        np.testing.assert_allclose(found, plain.encode([f"{prefix}owls"]), atol=1e-6)


def test_choose_model_embeds_by_default_with_a_model_of_run_embeddings():
    predictor = Predictor(tiny.trained(EmbeddingTask(tiny.MAX_SEQ_LENGTH)))
    options = make_options(PredictionOptions, model_dir="unused")
    assert isinstance(choose_model(predictor, options), EmbeddingPredictor)


def test_cosines_are_those_of_all_pairs():
    first, second = np.random.default_rng(1).normal(size=(2, 3, 5))
    found = cosine_similarity(first, second[:2])
    for row in range(3):
        for column in range(2):
            a, b = first[row], second[column]
            expected = a @ b / np.sqrt((a @ a) * (b @ b))
            assert found[row, column] == pytest.approx(expected)
    assert cosine_similarity(np.zeros((1, 5)), second).tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_sequence_without_tokens_gives_zeros_and_no_gradient(pooling):
    """Such a sequence is a negative that an example does not have."""
    layer = keras.Variable(np.random.default_rng(1).normal(size=(2, 5, 4)).astype("float16"))
    mask = np.array([[1, 1, 0, 0, 0], [0] * 5], "int32")
    with tf.GradientTape() as tape:
        found = sentence_embedding({"all_encoder_layers": [layer]}, mask, pooling)
        total = tf.reduce_sum(tf.cast(found, "float16"))
    gradient = tape.gradient(total, layer.value).numpy()
    assert np.isfinite(found).all() and np.isfinite(gradient).all()
    assert not found[1].numpy().any() and not gradient[1].any() and gradient[0, :2].any()


def test_encoder_refuses_a_pooling_that_does_not_fit():
    for pooling in ("sum", "concat_last_four"):
        with pytest.raises(ValueError, match="`pooling`"):
            EmbeddingPredictor(tiny.pretrained(), pooling=pooling)
