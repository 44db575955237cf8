"""Counter-based dropout: its rate, its independence, and that the same seed gives the same mask."""

import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling.dropout import Dropout, dropout_seed, scaled_mask

RATE = 0.3


def layer(name="dropout", rate=RATE):
    made = Dropout(rate, name=name)
    made.build((None, None))
    return made


def kept(seed, name="dropout", shape=(200, 301)):
    """Which values survive, as 0 and 1."""
    with dropout_seed(seed):
        dropped = layer(name)(tf.ones(shape), training=True).numpy()
    assert set(np.unique(dropped)) == {np.float32(0), np.float32(1 / (1 - RATE))}
    return dropped > 0


def test_the_share_of_dropped_values_is_the_rate_and_the_same_seed_gives_the_same_mask():
    # 60,200 draws: the standard deviation of the share is 0.0019.
    for seed in range(5):
        assert kept(seed).mean() == pytest.approx(1 - RATE, abs=0.008)
    np.testing.assert_array_equal(kept(7), kept(7))


def correlation(a, b):
    return abs(np.corrcoef(a.ravel(), b.ravel())[0, 1])


def test_masks_of_other_steps_and_layers_are_independent():
    first = kept(7)
    for other in (kept(8), kept(7, name="other"), kept(7 + 2**31)):
        assert correlation(first, other) < 0.02  # 5 standard deviations


def test_no_constant_is_as_large_as_the_mask():
    # XLA would compute it on the host, which took 54 GB for a training of BERT-Large.
    function = tf.function(
        lambda key: scaled_mask((3, 5, 7), key, RATE, tf.float32), jit_compile=True
    )
    hlo = function.experimental_get_compiler_ir(tf.constant(5, tf.uint32))(stage="hlo")
    shapes = re.findall(r"= \w+\[([\d,]*)\]\S* constant\(", hlo)
    sizes = [np.prod([int(n) for n in shape.split(",") if n]) for shape in shapes]
    assert max(sizes) == 7  # a range for each axis


def test_the_gradient_is_dropped_like_the_values():
    x = tf.random.stateless_normal((5, 6), seed=(1, 2))
    with dropout_seed(3), tf.GradientTape() as tape:
        tape.watch(x)
        dropped = layer()(x, training=True)
    np.testing.assert_allclose(tape.gradient(dropped, x), dropped / x, rtol=1e-6)


def test_masks_are_the_same_inside_and_outside_a_compiled_function():
    made = layer()

    def dropped(x, seed):
        with dropout_seed(seed):
            return made(x, training=True)

    arguments = tf.ones((4, 5)), tf.constant(9, tf.uint32)
    for jit_compile in (False, True):
        found = tf.function(dropped, jit_compile=jit_compile)(*arguments)
        np.testing.assert_allclose(found, dropped(*arguments))


def test_a_mask_depends_on_the_position_in_memory_not_on_the_shape():
    flat = scaled_mask((2 * 3 * 5 * 7,), tf.constant(9, tf.uint32), RATE, "float32").numpy()
    # The values that every version had: a run that resumes needs them.
    assert np.flatnonzero(flat == 0)[:8].tolist() == [0, 2, 10, 20, 22, 23, 25, 27]
    for shape in ((2, 3, 5, 7), (6, 35), (210, 1)):
        mask = scaled_mask(shape, tf.constant(9, tf.uint32), RATE, "float32")
        np.testing.assert_array_equal(mask.numpy().ravel(), flat)


def test_nothing_is_dropped_outside_training_or_at_rate_zero():
    x = tf.random.stateless_normal((5, 6), seed=(1, 2))
    with dropout_seed(3):
        np.testing.assert_array_equal(layer()(x, training=False), x)
        np.testing.assert_array_equal(layer(rate=0.0)(x, training=True), x)
