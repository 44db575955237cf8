"""Products of 8-bit integers next to float64 arithmetic on the rounded values."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling.activations import get_activation
from bert_tf.modeling.quantized import (
    ACTIVATIONS,
    QuantizedAffine,
    quantized_inputs,
    quantized_kernel,
)

RNG = np.random.default_rng(3)
KERNEL = RNG.normal(size=(24, 40)).astype(np.float32)
BIAS = RNG.normal(size=40).astype(np.float32)
LOW, HIGH = -1.5, 4.0
INPUTS = RNG.uniform(LOW - 0.2, HIGH + 0.2, (5, 24)).astype(np.float32)  # some are clipped


def affine(factors=None, fused=()):
    scale = np.float32(1) if factors is None else factors
    integers, largest = quantized_kernel((KERNEL.T / scale).T)
    shift = LOW * (integers * (largest / 127)).sum(axis=0)
    kernel = keras.Variable(integers, dtype="int8", trainable=False)
    return QuantizedAffine(kernel, keras.Variable(BIAS + shift), largest, LOW, HIGH, factors, fused)


def expected(factors=None):
    scale = np.float32(1) if factors is None else factors
    integers, largest = quantized_kernel((KERNEL.T / scale).T)
    rows = quantized_inputs((INPUTS * scale).astype(np.float64), LOW, HIGH)
    return rows @ (integers * (largest.astype(np.float64) / 127)) + BIAS


def run(product, dtype="float32", **arguments):
    call = tf.function(lambda x: product(x, **arguments), autograph=False)
    outputs = call(tf.cast(INPUTS, dtype))
    assert outputs.dtype == dtype
    return tf.cast(outputs, tf.float32).numpy()


def test_the_rounded_values_are_near():
    integers, largest = quantized_kernel(KERNEL)
    assert integers.dtype == np.int8
    assert np.abs(integers).max(axis=0).tolist() == [127] * 40
    np.testing.assert_allclose(integers * largest / 127, KERNEL, atol=largest.max() / 254 + 1e-6)
    rounded = quantized_inputs(INPUTS, LOW, HIGH)
    half = (HIGH - LOW) / 255 / 2
    np.testing.assert_allclose(rounded, np.clip(INPUTS, LOW, HIGH), atol=half + 1e-6)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-4), ("bfloat16", 0.2)])
def test_a_product_is_that_of_the_rounded_values(dtype, tolerance):
    np.testing.assert_allclose(run(affine(), dtype), expected(), atol=tolerance)


def test_factors_of_the_columns_are_undone_by_the_kernel():
    factors = np.exp(RNG.normal(size=24) / 8).astype(np.float32)
    np.testing.assert_allclose(run(affine(factors)), expected(factors), atol=1e-4)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_those_of_the_layers(name):
    found = run(affine(fused=(ACTIVATIONS[name],)))
    np.testing.assert_allclose(found, get_activation(name)(expected()), atol=5e-3)


def test_an_addend_is_added():
    addend = RNG.normal(size=(5, 40)).astype(np.float32)
    np.testing.assert_allclose(run(affine(), addend=addend), expected() + addend, atol=1e-4)


def test_a_column_of_zeros_stays_zero():
    integers, largest = quantized_kernel(np.zeros((3, 2), np.float32))
    assert integers.tolist() == [[0, 0]] * 3
    assert np.isfinite(largest).all()
