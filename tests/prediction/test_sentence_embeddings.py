"""Sentence embeddings: poolings against NumPy, and cosines."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny_text_models as tiny
from tiny_text_models import TEXTS, alone, run_alone

from bert_tf.modeling.pooling import sentence_embedding
from bert_tf.predictor import Predictor, SentenceEncoder, cosine_similarity
from bert_tf.programs.predict import PredictionOptions, choose_model
from bert_tf.tasks.embeddings import EmbeddingTask

FOUR_LAYERS = dataclasses.replace(tiny.CONFIG, num_hidden_layers=4)


def outputs_alone(trained, text):
    return run_alone(getattr(trained.model, "bert", trained.model), alone(text))


def pooled(outputs, pooling):
    """By the definition, from the layers of the text alone."""
    if pooling == "pooled":
        return outputs["pooled_output"].numpy()[0]
    layers = [layer.numpy()[0] for layer in outputs["all_encoder_layers"]]
    if pooling == "cls":
        return layers[-1][0]
    if pooling == "mean":
        return layers[-1].mean(axis=0)
    if pooling == "max":
        return layers[-1].max(axis=0)
    return np.concatenate(layers[-4:], axis=-1).mean(axis=0)


@pytest.fixture(scope="module")
def four_layers():
    """A model, and its outputs for each text alone."""
    trained = tiny.trained(None, FOUR_LAYERS)
    return trained, [outputs_alone(trained, text) for text in TEXTS]


@pytest.mark.weekly_cases("1")
@pytest.mark.parametrize("pooling", ["mean", "max", "cls", "pooled", "concat_last_four"])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_padding_and_neighbours_cannot_be_seen_in_an_embedding(four_layers, pooling, batch_size):
    trained, outputs = four_layers
    expected = np.stack([pooled(each, pooling) for each in outputs])
    plain = SentenceEncoder(trained, pooling, normalize=False, batch_size=batch_size).encode(TEXTS)
    assert plain.dtype == np.float32
    np.testing.assert_allclose(plain, expected, atol=1e-5)
    normalized = SentenceEncoder(trained, pooling, batch_size=batch_size).encode(TEXTS)
    lengths = np.linalg.norm(expected, axis=-1, keepdims=True)
    np.testing.assert_allclose(normalized, expected / lengths, atol=1e-5)


@pytest.mark.parametrize("make", [tiny.classifier, tiny.chooser, tiny.pretrained])
def test_any_model_has_the_embeddings_of_its_encoder(make):
    trained = make()
    found = SentenceEncoder(trained, normalize=False).encode(["the cat sat"])
    expected = pooled(outputs_alone(trained, "the cat sat"), "mean")
    np.testing.assert_allclose(found[0], expected, atol=1e-5)


def test_an_embedding_in_a_dict_holds_the_same_float32_numbers():
    encoder = SentenceEncoder(tiny.trained(None))
    listed = [answer["embedding"] for answer in encoder.answers(TEXTS)]
    np.testing.assert_array_equal(np.array(listed, np.float32), encoder.encode(TEXTS))


def test_texts_that_lose_their_end_are_counted():
    encoder = SentenceEncoder(tiny.trained(None))
    encoder.encode(TEXTS)
    assert encoder.num_cut == 1


def test_the_encoder_for_queries_puts_their_prefix_before_each_text():
    prefixes = {"query_prefix": "who ? ", "document_prefix": "a mat , "}
    encoder = SentenceEncoder(tiny.trained(EmbeddingTask(tiny.MAX_SEQ_LENGTH, **prefixes)))
    plain = SentenceEncoder(tiny.trained(EmbeddingTask(tiny.MAX_SEQ_LENGTH)))
    for found, prefix in ((encoder.for_queries(), "who ? "), (encoder, "a mat , ")):
        expected = plain.encode([f"{prefix}owls"])
        np.testing.assert_allclose(found.encode(["owls"]), expected, atol=1e-6)


@pytest.mark.parametrize("as_query, kind", [(False, "documents"), (True, "queries")])
def test_predict_logs_the_prefix_once(as_query, kind, caplog):
    prefixes = {"query_prefix": "who ? ", "document_prefix": "a mat , "}
    trained = tiny.trained(EmbeddingTask(tiny.MAX_SEQ_LENGTH, **prefixes))
    caplog.set_level("INFO")
    model = choose_model(
        Predictor(trained), PredictionOptions(model_dir="unused", as_query=as_query)
    )
    assert isinstance(model, SentenceEncoder)
    (message,) = [line for line in caplog.messages if " puts " in line]
    assert message.endswith(f" before {kind}")


@pytest.mark.parametrize("pooling", ["pooled", "concat_last_four"])
def test_no_texts_have_no_embeddings_of_the_right_width(pooling):
    encoder = SentenceEncoder(tiny.trained(None, FOUR_LAYERS), pooling)
    empty = encoder.encode([])
    assert empty.dtype == np.float32
    assert empty.shape == (0, encoder.encode(["owls"]).shape[1])


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
def test_a_sequence_without_tokens_gives_zeros_and_no_gradient(pooling):
    """Such a sequence is a negative that an example does not have."""
    layer = keras.Variable(np.random.default_rng(1).normal(size=(2, 5, 4)).astype("float16"))
    mask = np.array([[1, 1, 0, 0, 0], [0] * 5], "int32")
    with tf.GradientTape() as tape:
        found = sentence_embedding({"all_encoder_layers": [layer]}, mask, pooling)
        total = tf.reduce_sum(tf.cast(found, "float16"))
    gradient = tape.gradient(total, layer.value).numpy()
    assert np.isfinite(found).all() and np.isfinite(gradient).all()
    assert not found[1].numpy().any() and not gradient[1].any() and gradient[0, :2].any()


def test_a_pooling_that_does_not_exist_or_fit_is_rejected():
    with pytest.raises(ValueError, match="`pooling` is 'sum', but must be one of mean, max"):
        SentenceEncoder(tiny.trained(None), "sum")
    with pytest.raises(ValueError, match="pooling"):
        SentenceEncoder(tiny.trained(None), "concat_last_four")
