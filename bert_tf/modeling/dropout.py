"""Dropout whose mask is a function of (seed, layer, position), so that a step number is its state.

In a training loop that knows its step, masks come from a counter-based hash:

    with dropout_seed(seed_of_this_step_and_replica):
        outputs = model(inputs, training=True)

Nothing else has to be saved to resume exactly, replicas differ when their seeds differ, and two runs
with one seed drop the same values. Outside such a scope (`Model.fit`) the layer is Keras' own Dropout.
"""

from __future__ import annotations

import contextlib
import threading
import zlib
from collections.abc import Iterator

import keras
from keras import ops

_GOLDEN_RATIO = 0x9E3779B1  # 2^32 divided by the golden ratio
_SCOPE = threading.local()  # replicas of one step run in threads of their own


@contextlib.contextmanager
def dropout_seed(seed) -> Iterator[None]:
    """Dropout layers called inside draw their masks from `seed`.

    Args:
        seed: uint32 scalar tensor (or int), different for each step and replica.
    """
    previous = getattr(_SCOPE, "seed", None)
    _SCOPE.seed = seed
    try:
        yield
    finally:
        _SCOPE.seed = previous


@keras.saving.register_keras_serializable(package="bert_tf")
class Dropout(keras.layers.Dropout):
    """Sets a share `rate` of the values to 0 and divides the rest by 1 - `rate`, in training only."""

    def call(self, inputs, training=False):
        if getattr(_SCOPE, "seed", None) is None or not training or self.rate == 0:
            return super().call(inputs, training=training)
        return _drop(inputs, self.key(), self.rate)

    def key(self):
        """Of the mask that this layer has within `dropout_seed`, uint32 scalar."""
        # The path tells layers apart and is the same in every process; a layer that nobody has built
        # has only its name.
        salt = zlib.crc32((self.path or self.name).encode())
        return mix(ops.bitwise_xor(ops.cast(_SCOPE.seed, "uint32"), _uint32(salt)))


def fold_in(seed, number):
    """A new uint32 seed from `seed` and `number`: step, replica or micro-batch."""
    return mix(ops.bitwise_xor(mix(ops.cast(seed, "uint32")), ops.cast(number, "uint32")))


def mix(x):
    """Bijective scrambling of uint32 values: each bit of the input changes half of the output.

    The constants are those of MurmurHash3's 32-bit finalizer (public domain).
    """
    x = ops.bitwise_xor(x, ops.right_shift(x, _uint32(16)))
    x = x * _uint32(0x85EBCA6B)
    x = ops.bitwise_xor(x, ops.right_shift(x, _uint32(13)))
    x = x * _uint32(0xC2B2AE35)
    return ops.bitwise_xor(x, ops.right_shift(x, _uint32(16)))


def _uint32(value: int):
    return ops.convert_to_tensor(value, dtype="uint32")


def scaled_mask(shape, key, rate: float, dtype):
    """0 where a value is dropped, else 1 / (1 - rate). Same shape for the same key: same mask."""
    size = 1
    for length in shape:
        size = size * length
    position = ops.cast(ops.reshape(ops.arange(size, dtype="int32"), shape), "uint32")
    # Every key has a stride of its own: with one for all, two masks could be shifted copies of each
    # other. Then two rounds of a multiplication and a shift, since only the high bits are compared.
    stride = ops.bitwise_or(mix(ops.bitwise_xor(key, _uint32(_GOLDEN_RATIO))), _uint32(1))
    bits = position * stride + key
    bits = ops.bitwise_xor(bits, ops.right_shift(bits, _uint32(16))) * _uint32(0x7FEB352D)
    bits = ops.bitwise_xor(bits, ops.right_shift(bits, _uint32(15))) * _uint32(0x846CA68B)
    kept = bits >= _uint32(round(rate * 2**32))
    return ops.cast(kept, dtype) * ops.cast(1.0 / (1.0 - rate), dtype)


def _plain_drop(x, key, rate: float):
    return x * scaled_mask(ops.shape(x), key, rate, x.dtype)


if keras.config.backend() == "tensorflow":
    import tensorflow as tf

    # A dozen small operations over every element: one compiled pass instead of a dozen.
    _compiled_drop = tf.function(_plain_drop, jit_compile=True, autograph=False)

    def _drop(x, key, rate: float):
        @tf.custom_gradient
        def drop(x):
            # Linear in x: the gradient is dropped like the values, from the key, not from memory.
            return _compiled_drop(x, key, rate), lambda upstream: _compiled_drop(
                upstream, key, rate
            )

        return drop(x)

else:
    _drop = _plain_drop
