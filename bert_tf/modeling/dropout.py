"""Dropout whose mask is a function of (seed, layer, position), so that the step number is its state.

    with dropout_seed(seed_of_this_step_and_replica):
        outputs = model(inputs, training=True)

A counter-based hash makes the masks. Outside such a scope (`Model.fit`) the layer is Keras' Dropout.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import keras
from keras import ops

from bert_tf.modeling.layers import current_form, has_forms, layer_forms

_GOLDEN_RATIO = 0x9E3779B1  # 2^32 divided by the golden ratio


@contextlib.contextmanager
def dropout_seed(seed, compiled: bool = True) -> Iterator[None]:
    """Make dropout layers that are called inside draw their masks from `seed`, a uint32 scalar.

    Without `compiled` the masks have the same bits, computed without XLA and more slowly.
    """
    form = _SeededDropout(seed, _compiled_drop if compiled else _plain_drop)
    with layer_forms({Dropout: form}, training=True):
        yield


class Dropout(keras.layers.Dropout):
    """Layer that drops a fraction `rate` of the values in training and rescales the others."""

    call = has_forms(keras.layers.Dropout.call)

    def key(self):
        """Return the key of this layer's mask within `dropout_seed`, a uint32 scalar."""
        # The path is unique and the same in every process. A layer that is not built has only a name.
        salt = zlib.crc32((self.path or self.name).encode())
        seed = current_form(Dropout, training=True).seed
        return mix(ops.bitwise_xor(ops.cast(seed, "uint32"), _uint32(salt)))


@dataclass(frozen=True, eq=False)
class _SeededDropout:
    seed: Any
    drop: Callable  # (values, key, rate) -> values

    def __call__(self, layer: Dropout, x):
        if layer.rate == 0:
            return x
        drop, key, rate = self.drop, layer.key(), layer.rate

        @ops.custom_gradient
        def apply(x):
            # Dropout is linear in x. The key gives the gradient's mask, so the mask need not be kept.
            # (XLA keeps it where it compiles both passes as one function.)
            return drop(x, key, rate), lambda upstream: drop(upstream, key, rate)

        return apply(x)


def fold_in(seed, number):
    """Return a new uint32 seed from `seed` and `number`: step, replica or micro-batch."""
    return mix(ops.bitwise_xor(mix(ops.cast(seed, "uint32")), ops.cast(number, "uint32")))


def mix(x):
    """Scramble uint32 values bijectively, with the constants of MurmurHash3 (public domain)."""
    x = ops.bitwise_xor(x, ops.right_shift(x, _uint32(16)))
    x = x * _uint32(0x85EBCA6B)
    x = ops.bitwise_xor(x, ops.right_shift(x, _uint32(13)))
    x = x * _uint32(0xC2B2AE35)
    return ops.bitwise_xor(x, ops.right_shift(x, _uint32(16)))


def _uint32(value: int):
    return ops.convert_to_tensor(value, dtype="uint32")


def scaled_mask(shape, key, rate: float, dtype):
    """Return 0 for dropped values, else 1 / (1 - rate). Key and shape determine the mask."""
    # Each key has its own stride. With one stride for all, two masks could be shifted copies of each
    # other. Two rounds of shift and multiplication suffice because only the high bits are compared.
    stride = ops.bitwise_or(mix(ops.bitwise_xor(key, _uint32(_GOLDEN_RATIO))), _uint32(1))
    steps = _uint32(0)  # stride times the position
    for length in shape:
        # One range for each axis: TensorFlow makes ranges on the host, also if there is a GPU. No
        # other constant, as XLA would compute an array of all positions while it compiles.
        along = ops.cast(ops.arange(length, dtype="int32"), "uint32")
        steps = ops.expand_dims(steps, -1) * ops.cast(length, "uint32") + along * stride
    bits = steps + key
    bits = ops.bitwise_xor(bits, ops.right_shift(bits, _uint32(16))) * _uint32(0x7FEB352D)
    bits = ops.bitwise_xor(bits, ops.right_shift(bits, _uint32(15))) * _uint32(0x846CA68B)
    is_kept = bits >= _uint32(round(rate * 2**32))
    return ops.cast(is_kept, dtype) * ops.cast(1.0 / (1.0 - rate), dtype)


def _plain_drop(x, key, rate: float):
    return x * scaled_mask(ops.shape(x), key, rate, x.dtype)


if keras.config.backend() == "tensorflow":
    import tensorflow as tf

    # One compiled pass over the elements instead of a dozen.
    _compiled_drop = tf.function(_plain_drop, jit_compile=True, autograph=False)
else:
    _compiled_drop = _plain_drop
