"""The fused parts against the plain formulas and against automatic differentiation in float64."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tiny_config import tiny_config

from bert_tf.modeling import fused
from bert_tf.modeling.dropout import dropout_seed, scaled_mask
from bert_tf.modeling.models import BertForPreTraining
from bert_tf.training.losses import cross_entropy_and_correct

R, H, B, N, S = 6, 10, 2, 3, 4
RATE, EPSILON = 0.3, 1e-12
KEY = tf.constant(1234567, tf.uint32)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def mask(*shape):
    return tf.cast(scaled_mask(shape, KEY, RATE, tf.float32), tf.float64)


def norm(x, gamma, beta):
    mean, variance = tf.nn.moments(x, -1, keepdims=True)
    return (x - mean) / tf.sqrt(variance + EPSILON) * gamma + beta


def plain_bias_dropout_norm(inputs, bias, residual, gamma, beta):
    return norm((inputs + bias) * mask(R, H) + residual, gamma, beta)


def both_uses(inputs, bias, residual, gamma, beta):
    """A function of both results, each with a weight of its own."""
    first, second = fused.bias_dropout_norm(
        inputs, bias, residual, gamma, beta, KEY, rate=RATE, epsilon=EPSILON
    )
    return 0.25 * first + 0.75 * second


def softmax_scores(scores):
    return mask(B, N, S, S) * tf.nn.softmax(0.5 * scores + tf.cast(BIAS, tf.float64))


BIAS = np.zeros((B, 1, 1, S), "float32")
BIAS[0, ..., -1] = -10000.0
LABELS = tf.constant([3, 0, 9, 1, 1, 5])

# name: fused function, plain formula in float64, arguments
PARTS = {
    "bias_dropout_norm": (both_uses, plain_bias_dropout_norm, [(R, H), (H,), (R, H), (H,), (H,)]),
    "norm_dropout": (
        lambda x, gamma, beta: fused.norm_dropout(
            x, gamma, beta, KEY, "float32", rate=RATE, epsilon=EPSILON
        ),
        lambda x, gamma, beta: norm(x, gamma, beta) * mask(R, H),
        [(R, H), (H,), (H,)],
    ),
    "gelu": (
        lambda x, bias: fused.bias_activation(x, bias, activation="gelu"),
        lambda x, bias: tf.nn.gelu(x + bias, approximate=True),
        [(R, H), (H,)],
    ),
    "gelu_erf": (
        lambda x, bias: fused.bias_activation(x, bias, activation="gelu_erf"),
        lambda x, bias: tf.nn.gelu(x + bias, approximate=False),
        [(R, H), (H,)],
    ),
    "add_bias": (fused.add_bias, lambda x, bias: x + bias, [(R, H), (H,)]),
    "masked_softmax_dropout": (
        lambda scores: fused.masked_softmax_dropout(scores, BIAS, KEY, factor=0.5, rate=RATE),
        softmax_scores,
        [(B, N, S, S)],
    ),
    "cross_entropy": (
        lambda product, bias: fused.cross_entropy(fused.Logits(product, bias), LABELS)[0],
        lambda product, bias: tf.nn.sparse_softmax_cross_entropy_with_logits(
            LABELS, product + bias
        ),
        [(R, H), (H,)],
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_fused_part_and_its_gradient_are_those_of_the_plain_formula(name):
    function, plain, shapes = PARTS[name]
    arguments = [numbers(*shape, seed=index) for index, shape in enumerate(shapes)]
    weights = None

    def run(formula, dtype):
        nonlocal weights
        tensors = [tf.constant(argument, dtype) for argument in arguments]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            outputs = formula(*tensors)
            if weights is None:
                weights = numbers(*outputs.shape, seed=99)
            total = tf.reduce_sum(outputs * tf.cast(weights, dtype))
        return [outputs, *tape.gradient(total, tensors)]

    for found, expected in zip(run(function, tf.float32), run(plain, tf.float64), strict=True):
        assert found.dtype == tf.float32
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def test_masked_positions_get_no_probability_and_no_gradient():
    scores = tf.constant(numbers(B, N, S, S))
    with tf.GradientTape() as tape:
        tape.watch(scores)
        probabilities = fused.masked_softmax_dropout(scores, BIAS, KEY, factor=0.5, rate=0.0)
        total = tf.reduce_sum(probabilities * numbers(B, N, S, S, seed=1))
    assert not np.any(probabilities[0, ..., -1])
    assert not np.any(tape.gradient(total, scores)[0, ..., -1])


def test_a_hit_is_a_label_whose_logit_no_other_exceeds():
    logits = np.array([[1.0, 3.0, 2.0], [1.0, 3.0, 2.0], [5.0, 5.0, 0.0]], "float32")
    bias = np.array([0.0, 0.0, 4.0], "float32")  # makes the last one the largest of the first two
    labels = tf.constant([1, 2, 0])
    of_parts = fused.cross_entropy(fused.Logits(tf.constant(logits), tf.constant(bias)), labels)
    plain = cross_entropy_and_correct(tf.constant(logits + bias), labels)
    np.testing.assert_array_equal(of_parts[1], [0.0, 1.0, 1.0])
    np.testing.assert_array_equal(plain[1], [0.0, 1.0, 1.0])
    np.testing.assert_allclose(of_parts[0], plain[0], rtol=1e-5)


def loss_and_gradients(hidden_act: str, dtype: str, used: bool, compiled: bool | None = False):
    """Of a tiny pre-training model with dropout; `compiled` is None for an eager one."""
    keras.utils.set_random_seed(3)
    config = tiny_config(vocab_size=31, hidden_size=16, hidden_act=hidden_act)
    model = BertForPreTraining(config, dtype=dtype)
    rng = np.random.default_rng(0)
    inputs = {
        "input_ids": rng.integers(31, size=(B, 8)).astype("int32"),
        "input_mask": np.array([[1] * 8, [1] * 5 + [0] * 3], "int32"),
        "segment_ids": np.array([[0] * 4 + [1] * 4] * B, "int32"),
        "masked_lm_positions": np.array([[1, 2, 3], [0, 4, 2]], "int32"),
    }
    variables = model.trainable_variables

    def run():
        with (
            tf.GradientTape() as tape,
            dropout_seed(tf.constant(5, tf.uint32)),
            fused.fused_parts(used),
        ):
            outputs = model(inputs, training=True)
            words, _ = cross_entropy_and_correct(
                outputs["masked_lm_logits"], tf.constant([[1, 2, 30], [4, 0, 7]])
            )
            pairs, _ = cross_entropy_and_correct(
                outputs["next_sentence_logits"], tf.constant([1, 0])
            )
            loss = tf.reduce_mean(words) + tf.reduce_mean(pairs)
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]

    run = run if compiled is None else tf.function(run, jit_compile=compiled)
    loss, gradients = run()
    return float(loss), {v.path: g.numpy() for v, g in zip(variables, gradients, strict=True)}


@pytest.mark.parametrize(
    "hidden_act, compiled",
    [("gelu", None), ("relu", None), pytest.param("gelu_erf", True, marks=pytest.mark.night)],
)
def test_a_whole_model_has_the_loss_and_gradients_of_the_plain_layers(hidden_act, compiled):
    loss, gradients = loss_and_gradients(hidden_act, "float32", True, compiled)
    expected_loss, expected = loss_and_gradients(hidden_act, "float32", False, None)
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    for path, gradient in gradients.items():
        np.testing.assert_allclose(gradient, expected[path], rtol=2e-3, atol=2e-6, err_msg=path)


@pytest.mark.weekly
def test_in_bfloat16_the_gradients_are_no_worse_than_those_of_the_plain_layers():
    _, exact = loss_and_gradients("gelu", "float32", used=False)

    def error(used):
        _, gradients = loss_and_gradients("gelu", "mixed_bfloat16", used)
        return sum(np.square(g - exact[path]).sum() for path, g in gradients.items()) ** 0.5

    size = sum(np.square(gradient).sum() for gradient in exact.values()) ** 0.5
    assert error(used=True) < 1.2 * error(used=False) < 0.05 * size


def test_fused_parts_do_not_change_evaluation():
    model = BertForPreTraining(tiny_config(initializer_range=0.5))
    ids = np.arange(6).reshape(2, 3)
    inputs = {"input_ids": ids, "input_mask": ids * 0 + 1, "segment_ids": ids * 0}
    inputs["masked_lm_positions"] = ids % 3
    plain = model(inputs, training=False)
    with fused.fused_parts(True):
        found = model(inputs, training=False)
    for name, output in plain.items():
        np.testing.assert_array_equal(found[name], output, err_msg=name)
