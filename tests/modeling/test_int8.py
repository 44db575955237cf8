"""Products of 8-bit integers next to float64 arithmetic on the rounded values."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling.inference import FEW_ROWS
from bert_tf.modeling.int8 import (
    ACTIVATIONS,
    OVERFLOW_FREE,
    QuantizedAffine,
    QuantizedTable,
    quantize_inputs,
    quantize_kernel,
    round_range,
)
from bert_tf.modeling.layers import get_activation
from bert_tf.training.strategy import int8_instruction, precision_for_cpu

# The sums of 8 bits overflow on processors without an instruction for these.
MOST = 127 if int8_instruction() != "" else OVERFLOW_FREE
RNG = np.random.default_rng(3)
KERNEL = RNG.normal(size=(24, 40)).astype(np.float32)
BIAS = RNG.normal(size=40).astype(np.float32)
LOW, HIGH = round_range(-1.5, 4.0)
INPUTS = RNG.uniform(LOW - 0.2, HIGH + 0.2, (5, 24)).astype(np.float32)  # some are clipped


def affine(factors=None, **settings):
    scale = np.float32(1) if factors is None else factors
    integers, largest = quantize_kernel((KERNEL.T / scale).T, MOST)
    shift = LOW * (integers * (largest / 127)).sum(axis=0)
    kernel = keras.Variable(integers, dtype="int8", trainable=False)
    return QuantizedAffine(
        kernel, keras.Variable(BIAS + shift), largest, LOW, HIGH, factors, **settings
    )


def expected(factors=None):
    scale = np.float32(1) if factors is None else factors
    integers, largest = quantize_kernel((KERNEL.T / scale).T, MOST)
    rows = quantize_inputs((INPUTS * scale).astype(np.float64), LOW, HIGH)
    return rows @ (integers * (largest.astype(np.float64) / 127)) + BIAS


def run(product, dtype="float32", **arguments):
    call = tf.function(lambda x: product(x, **arguments), autograph=False)
    outputs = call(tf.cast(INPUTS, dtype))
    assert outputs.dtype == dtype
    return tf.cast(outputs, tf.float32).numpy()


def test_the_rounded_values_are_near():
    integers, largest = quantize_kernel(KERNEL)
    assert integers.dtype == np.int8
    assert np.abs(integers).max(axis=0).tolist() == [127] * 40
    np.testing.assert_allclose(integers * largest / 127, KERNEL, atol=largest.max() / 254 + 1e-6)
    rounded = quantize_inputs(INPUTS, LOW, HIGH)
    half = (HIGH - LOW) / 255 / 2
    np.testing.assert_allclose(rounded, np.clip(INPUTS, LOW, HIGH), atol=half + 1e-6)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-4), ("bfloat16", 0.2)])
def test_a_product_is_that_of_the_rounded_values(dtype, tolerance):
    if dtype == "bfloat16" and precision_for_cpu() == "float32":
        pytest.skip("the operation ends the process on a processor without bfloat16")
    np.testing.assert_allclose(run(affine(), dtype), expected(), atol=tolerance)


def test_factors_of_the_columns_are_undone_by_the_kernel():
    # A seed without a value half-way between two integers.
    factors = np.exp(np.random.default_rng(5).normal(size=24) / 8).astype(np.float32)
    np.testing.assert_allclose(run(affine(factors)), expected(factors), atol=1e-4)


def test_activations_are_those_of_the_layers():
    for name, kernel in ACTIVATIONS.items():
        found = run(affine(fused=(kernel,)))
        expectation = get_activation(name)(expected())
        np.testing.assert_allclose(found, expectation, atol=5e-3, err_msg=name)


def test_zero_is_one_of_the_values_of_a_range():
    for low, high in ((-1.5, 4.0), (-0.17, 3.0), (0.0, 2.0), (-7.0, 0.0)):
        found = round_range(low, high)
        step = (high - low) / 255
        assert found == pytest.approx((low, high), abs=step)
        assert found[1] - found[0] == pytest.approx(high - low)
        assert found[0] / step == pytest.approx(round(found[0] / step), abs=1e-9)


def test_few_and_many_rows_have_the_same_integers():
    """Each number of rows has its own operation."""
    rows = RNG.uniform(LOW, HIGH, (FEW_ROWS + 30, 24)).astype(np.float32)
    product = affine()
    call = tf.function(lambda x: product(x), autograph=False)
    whole, part = call(rows).numpy(), call(rows[:FEW_ROWS]).numpy()
    largest_step = (HIGH - LOW) / 255 * np.abs(KERNEL).max()
    # A value half-way between two integers may become either.
    assert np.abs(whole[:FEW_ROWS] - part).max() <= 1.01 * largest_step
    assert (whole[:FEW_ROWS] == part).mean() > 0.9


def test_a_product_writes_the_integers_that_the_next_one_reads():
    result = round_range(-0.2, float(np.max(expected())))
    floats = run(affine(fused=("GeluExact",)))
    found = tf.function(affine(fused=("GeluExact",), result=result))(INPUTS)
    assert found.dtype == tf.uint8
    step = (result[1] - result[0]) / 255
    wanted = np.round((np.clip(floats, *result) - result[0]) / step)
    assert np.abs(found.numpy().astype(int) - wanted).max() <= 1
    assert (found.numpy() == wanted).mean() > 0.99

    following, bias = np.ones((40, 3), np.float32), keras.Variable(np.zeros(3, np.float32))
    integers, largest = quantize_kernel(following, MOST)
    bias.assign(result[0] * (integers * (largest / 127)).sum(axis=0))
    kernel = keras.Variable(integers, dtype="int8", trainable=False)
    after = QuantizedAffine(kernel, bias, largest, *result)
    addend = np.ones((5, 3), np.float32)
    sums = tf.function(after)(found, addend).numpy()
    read = found.numpy() * step + result[0]
    np.testing.assert_allclose(sums, read @ following + 1, rtol=1e-4, atol=1e-3)


def test_rows_of_a_table_have_their_own_scales():
    table = RNG.normal(size=(7, 24)).astype(np.float32) * np.logspace(-3, 3, 7)[:, None]
    columns, largest = quantize_kernel(table.T)
    scales = keras.Variable((largest / 127)[:, None])
    words = QuantizedTable(keras.Variable(columns.T, dtype="int8", trainable=False), scales)
    ids = np.array([[6, 0], [3, 3]], np.int32)
    found = words(tf.constant(ids)).numpy()
    assert found.shape == (2, 2, 24)
    errors = np.abs(found - table[ids]).max(axis=-1)
    assert (errors <= largest[ids] / 254 * 1.001).all()


def test_a_column_of_zeros_stays_zero():
    integers, largest = quantize_kernel(np.zeros((3, 2), np.float32))
    assert integers.tolist() == [[0, 0]] * 3
    assert np.isfinite(largest).all()
