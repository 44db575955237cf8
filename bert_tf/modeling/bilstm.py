"""A bidirectional LSTM on the encoder, for NER with frozen features and the paper's ablation."""

from __future__ import annotations

import keras


class _Bidirectional(keras.layers.Bidirectional):
    """A layer whose outputs have no mask, which the layers after it would not support."""

    def compute_mask(self, _, mask):
        return None


def bidirectional_lstm(
    units: int, name: str, dtype: keras.DTypePolicy
) -> keras.layers.Bidirectional:
    """Return a layer [B, S, F] -> [B, S, 2 * units].

    Args:
        units: of each direction.
    """
    # Keras' default, orthogonal, needs a decomposition that TensorFlow has in float32 only. Models whose
    # weights are of another type are never trained from random weights.
    is_float32 = dtype.variable_dtype == "float32"
    lstm = keras.layers.LSTM(
        units,
        return_sequences=True,
        recurrent_initializer="orthogonal" if is_float32 else "glorot_uniform",
        dtype=dtype,
        name="lstm",
    )
    return _Bidirectional(lstm, name=name, dtype=dtype)
