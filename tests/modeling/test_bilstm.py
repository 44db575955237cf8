"""The BiLSTM on top of the encoder, the paper's ablation, against NumPy; and how a run gets it."""

import keras
import numpy as np
import pytest

from bert_tf.config import BertConfig
from bert_tf.interop.huggingface import config_values
from bert_tf.interop.initial import assign
from bert_tf.modeling.bert import BertModel
from bert_tf.modeling.feature_based import BertBiLstmForTokenClassification
from bert_tf.modeling.models import BertForSequenceClassification, BertForTokenClassification
from bert_tf.registry import TYPES

pytestmark = pytest.mark.night

PLAIN = BertConfig(
    vocab_size=23,
    hidden_size=6,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=9,
    max_position_embeddings=9,
    type_vocab_size=2,
)
INPUTS = {
    "input_ids": np.int32([[3, 4, 5, 6], [7, 8, 0, 0]]),
    "input_mask": np.int32([[1, 1, 1, 1], [1, 1, 0, 0]]),
}


def with_bilstm(layers=2, **changes):
    return BertConfig.from_dict({**PLAIN.to_dict(), "num_bilstm_layers": layers, **changes})


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(vectors, kernel, recurrent_kernel, bias):
    """Gates in Keras' order: input, forget, cell, output."""
    units = recurrent_kernel.shape[0]
    h = c = np.zeros(units)
    outputs = []
    for x in vectors:
        gates = x @ kernel + h @ recurrent_kernel + bias
        i, f, g, o = np.split(gates, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.array(outputs)


def test_it_reads_the_last_layer_in_both_directions_and_no_padding():
    keras.utils.set_random_seed(1)
    model = BertModel(with_bilstm())
    outputs = model(INPUTS)
    weights = {v.path: np.asarray(v) for v in model.weights if "bilstm" in v.path}
    assert len(weights) == 2 * 2 * 3
    for row, length in enumerate((4, 2)):
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
    assert outputs["sequence_output"].shape == (2, 4, 6)


def test_with_it_the_first_token_of_a_left_to_right_model_depends_on_all():
    keras.utils.set_random_seed(1)
    model = BertModel(with_bilstm(1, attention_direction="left_to_right"))
    changed = {**INPUTS, "input_ids": np.int32([[3, 4, 5, 9], [7, 8, 0, 0]])}
    before, after = (np.asarray(model(x)["pooled_output"]) for x in (INPUTS, changed))
    assert np.abs(before - after)[0].max() > 1e-4
    np.testing.assert_array_equal(before[1], after[1])


@pytest.mark.filterwarnings("error")
def test_layers_after_it_get_no_mask_that_they_do_not_support():
    crf = {"allowed_transitions": [[True] * 3] * 3}
    BertForTokenClassification(with_bilstm(), labels=("O", "X"), **crf)(INPUTS)
    BertBiLstmForTokenClassification(PLAIN, 2, "last_hidden", 4, **crf)(INPUTS)


def test_it_is_new_on_top_of_a_checkpoint_without_one():
    source = BertForSequenceClassification(PLAIN, num_labels=2)
    arrays = {variable.path: np.asarray(variable) for variable in source.weights}
    model = BertForSequenceClassification(with_bilstm(), num_labels=2)
    report = assign(model.weights, arrays)
    assert sorted(report.missing) == sorted(v.path for v in model.weights if "bilstm" in v.path)
    assert "no BiLSTM" in report.notes[0]


def test_hugging_face_has_no_place_for_it():
    with pytest.raises(ValueError, match="BiLSTM"):
        config_values(with_bilstm(), TYPES["encoder"])
