"""Check of the losses that a model is compiled with in Keras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

# Functions of Keras, which take probabilities by default, and their classes.
_CROSS_ENTROPIES = (
    (keras.losses.binary_crossentropy, "BinaryCrossentropy"),
    (keras.losses.categorical_crossentropy, "CategoricalCrossentropy"),
    (keras.losses.sparse_categorical_crossentropy, "SparseCategoricalCrossentropy"),
)


def check_loss(loss: Any, outputs: Any) -> None:
    """Raise ValueError if a loss of Keras takes the logits in a model's outputs for probabilities."""
    for output in outputs if isinstance(outputs, Mapping) else ():
        given = loss.get(output) if isinstance(loss, Mapping) else loss
        given = keras.losses.get(given) if isinstance(given, str) else given
        name = next((name for function, name in _CROSS_ENTROPIES if function is given), None)
        if isinstance(given, keras.losses.Loss) and given.get_config().get("from_logits") is False:
            name = type(given).__name__
        if output.endswith("logits") and name is not None:
            raise ValueError(
                f"The output `{output}` has logits, but the loss expects probabilities. Compile with "
                f"keras.losses.{name}(from_logits=True)."
            )
