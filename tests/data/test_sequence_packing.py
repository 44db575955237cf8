"""Packed batches hold every token once, in order, and a model cannot tell them from padded ones."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.batching import PACKED_FEATURES, first_fit, pack_batch
from bert_tf.modeling.models import BertForPreTraining

S = 12


def examples(lengths, seed=0):
    rng = np.random.default_rng(seed)
    mask = (np.arange(S) < np.array(lengths)[:, None]).astype("int32")
    return {
        "input_ids": rng.integers(1, 40, size=mask.shape).astype("int32") * mask,
        "input_mask": mask,
        "segment_ids": rng.integers(2, size=mask.shape).astype("int32") * mask,
        "label_ids": np.arange(len(lengths), dtype="int32"),
    }


def packed(features, row_length=16, parts=1):
    tensors = {name: tf.constant(value) for name, value in features.items()}
    return {n: v.numpy() for n, v in pack_batch(tensors, row_length, parts).items()}


LENGTHS = [3, 12, 7, 1, 5, 9, 2, 11]


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_every_token_of_an_example_stands_where_its_packed_position_says(parts):
    features = examples(LENGTHS)
    rows = packed(features, parts=parts)
    num_rows = len(rows["input_ids"]) // parts
    size = len(LENGTHS) // parts
    for example, length in enumerate(LENGTHS):
        part = slice(example // size * num_rows, (example // size + 1) * num_rows)
        places = rows["packed_positions"][example]
        assert (places[length:] == places[0]).all()
        for name in ("input_ids", "segment_ids"):
            found = rows[name][part].ravel()[places[:length]]
            np.testing.assert_array_equal(found, features[name][example, :length])
        of_tokens = rows["position_ids"][part].ravel()[places[:length]]
        np.testing.assert_array_equal(of_tokens, np.arange(length))
        assert len(set(rows["sequence_ids"][part].ravel()[places[:length]])) == 1


def test_no_row_is_fuller_than_it_may_be_and_no_example_is_left_out():
    rng = np.random.default_rng(0)
    for _ in range(50):
        lengths = rng.integers(1, 33, size=rng.integers(1, 40)).tolist()
        rows = first_fit(lengths, 32)
        assert sorted(example for row in rows for example in row) == list(range(len(lengths)))
        assert all(sum(lengths[example] for example in row) <= 32 for row in rows)
        # First fit leaves no two rows that are half empty.
        assert sum(sum(lengths[example] for example in row) <= 16 for row in rows) <= 1


def config(**changes):
    return BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.2,
        **changes,
    )


@pytest.mark.parametrize("attention_direction", ["bidirectional", "left_to_right"])
def test_the_logits_and_gradients_of_a_packed_batch_are_those_of_the_padded_one(
    attention_direction,
):
    keras.utils.set_random_seed(0)
    model = BertForPreTraining(config(attention_direction=attention_direction))
    features = examples([n for n in LENGTHS if n > 2])
    features["masked_lm_positions"] = np.tile(np.array([[0, 2]], "int32"), (6, 1))
    names = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions")

    def run(inputs):
        with tf.GradientTape() as tape:
            outputs = model({n: inputs[n] for n in (*names, *PACKED_FEATURES) if n in inputs})
            loss = sum(tf.reduce_mean(tf.square(value)) for value in outputs.values())
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        return outputs, [tf.convert_to_tensor(gradient) for gradient in gradients]

    expected, expected_gradients = run(features)
    found, gradients = run(packed(features))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
    for variable, gradient, wanted in zip(
        model.trainable_variables, gradients, expected_gradients, strict=True
    ):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-3, atol=1e-5, err_msg=variable.path)
