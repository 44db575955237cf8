"""The feature-based model and the BiLSTM on top of the encoder, the paper's ablations."""

import keras
import numpy as np
import pytest
from tiny_config import tiny_config

from bert_tf.checkpoints.heads import HEADS
from bert_tf.checkpoints.huggingface import config_values
from bert_tf.checkpoints.initial import assign
from bert_tf.modeling.bert import BertModel
from bert_tf.modeling.feature_based import (
    FEATURE_LAYERS,
    BertBiLstmForTokenClassification,
    LayerFeatures,
)
from bert_tf.modeling.models import BertForSequenceClassification

B, S, H, L, N = 3, 7, 8, 5, 6  # N layers
LABELS = "VWXYZ"
DROPOUT = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.5)
CONFIG = tiny_config(num_hidden_layers=N, **DROPOUT)


def model(feature_layers="last_hidden", **kwargs):
    return BertBiLstmForTokenClassification(CONFIG, LABELS, feature_layers, units=4, **kwargs)


def inputs(seed=0):
    rng = np.random.default_rng(seed)
    lengths = np.array([S, 4, 2])
    return {
        "input_ids": rng.integers(23, size=(B, S)).astype("int32"),
        "input_mask": (np.arange(S) < lengths[:, None]).astype("int32"),
        "segment_ids": np.zeros((B, S), "int32"),
    }


def random_outputs():
    rng = np.random.default_rng(0)
    layers = [rng.normal(size=(B, S, H)).astype("float32") for _ in range(N)]
    return {"embedding_output": layers[0] + 1, "all_encoder_layers": layers}


def test_each_choice_of_table_7_reads_its_layers_of_a_model_with_six():
    outputs = random_outputs()
    layers = outputs["all_encoder_layers"]
    expected = {
        "embeddings": outputs["embedding_output"],
        "second_to_last_hidden": layers[4],
        "last_hidden": layers[5],
        "weighted_sum_last_four_hidden": (layers[2] + layers[3] + layers[4] + layers[5]) / 4,
        "concat_last_four_hidden": np.concatenate(layers[2:], axis=-1),
        "weighted_sum_all_layers": sum(layers) / 6,  # as long as nothing is learned
    }
    assert expected.keys() == set(FEATURE_LAYERS)
    for name, values in expected.items():
        np.testing.assert_allclose(LayerFeatures(name, N)(outputs), values, atol=1e-6, err_msg=name)


def test_a_weighted_sum_is_gamma_times_the_softmax_of_its_weights():
    layer = LayerFeatures("weighted_sum_last_four_hidden", N)
    layer.build()
    layer.layer_weights.assign(np.log([1.0, 2.0, 3.0, 4.0]))
    layer.gamma.assign(5.0)
    outputs = random_outputs()
    parts = outputs["all_encoder_layers"][2:]
    expected = 0.5 * (parts[0] + 2 * parts[1] + 3 * parts[2] + 4 * parts[3])
    np.testing.assert_allclose(layer(outputs), expected, rtol=1e-4, atol=1e-5)


def test_layers_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match="feature_layers"):
        LayerFeatures("concat_last_four_hidden", 3)


def test_padding_cannot_be_seen():
    built, full = model("concat_last_four_hidden"), inputs()
    logits = built(full)["logits"]
    assert logits.shape == (B, S, L)
    short = {key: value[1:, :4] for key, value in full.items()}
    found = built(short)["logits"]
    np.testing.assert_allclose(found[0], logits[1, :4], atol=1e-5)
    np.testing.assert_allclose(found[1, :2], logits[2, :2], atol=1e-5)


def test_the_encoder_is_not_trained_and_its_dropout_is_never_on():
    built = model()
    built.dropout.rate = 0.0
    trained = {v.path.split("/")[0] for v in built.trainable_variables}
    assert trained == {"bilstm_0", "bilstm_1", "classifier"}
    assert len(built.weights) == len({v.path for v in built.weights})
    first, second = (built(inputs(), training=True)["logits"] for _ in range(2))
    np.testing.assert_array_equal(first, second)


# ---- The BiLSTM of a configuration --------------------------------------------------------------


def lstm(vectors, kernel, recurrent_kernel, bias):
    """Gates in Keras' order: input, forget, cell, output."""

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    h = c = np.zeros(len(recurrent_kernel))
    outputs = []
    for x in vectors:
        gates = x @ kernel + h @ recurrent_kernel + bias
        i, f, g, o = np.split(gates, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.array(outputs)


@pytest.mark.night
def test_a_bilstm_reads_the_last_layer_in_both_directions_and_no_padding():
    keras.utils.set_random_seed(1)
    model = BertModel(tiny_config(num_bilstm_layers=2))
    given = inputs()
    outputs = model(given)
    weights = {v.path: np.asarray(v) for v in model.weights if "bilstm" in v.path}
    assert len(weights) == 2 * 2 * 3
    for row, length in enumerate(given["input_mask"].sum(axis=1)):
        hidden = np.asarray(outputs["all_encoder_layers"][-1][row, :length])
        for index in range(2):
            forward, backward = (
                [
                    weights[f"bert/bilstm_{index}/{way}_lstm/lstm_cell/{part}"]
                    for part in ("kernel", "recurrent_kernel", "bias")
                ]
                for way in ("forward", "backward")
            )
            there, back = lstm(hidden, *forward), lstm(hidden[::-1], *backward)[::-1]
            hidden = np.concatenate([there, back], axis=-1)
        found = np.asarray(outputs["sequence_output"][row, :length])
        np.testing.assert_allclose(found, hidden, rtol=0, atol=1e-5)
    assert outputs["sequence_output"].shape == (B, S, H)


@pytest.mark.night
def test_a_bilstm_is_new_on_top_of_a_checkpoint_and_hugging_face_has_no_place_for_it():
    source = BertForSequenceClassification(tiny_config(), num_labels=2)
    arrays = {variable.path: np.asarray(variable) for variable in source.weights}
    model = BertForSequenceClassification(tiny_config(num_bilstm_layers=2), num_labels=2)
    report = assign(model.weights, arrays)
    assert sorted(report.missing) == sorted(v.path for v in model.weights if "bilstm" in v.path)
    assert len(report.notes) == 1
    with pytest.raises(ValueError):
        config_values(tiny_config(num_bilstm_layers=2), HEADS["encoder"])
