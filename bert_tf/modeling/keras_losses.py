"""Check of the loss that a model gets in Keras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

# Functions of Keras that take probabilities by default; losses of their classes have `from_logits`, or
# should be replaced by a cross-entropy that has it.
_OF_PROBABILITIES = (
    keras.losses.binary_crossentropy,
    keras.losses.binary_focal_crossentropy,
    keras.losses.categorical_crossentropy,
    keras.losses.categorical_focal_crossentropy,
    keras.losses.categorical_generalized_cross_entropy,
    keras.losses.kl_divergence,
    keras.losses.dice,
    keras.losses.tversky,
    keras.losses.sparse_categorical_crossentropy,
)


def check_loss(loss: Any, outputs: Any) -> None:
    """Raise ValueError if a loss of Keras takes the logits in a model's outputs for probabilities."""
    names = sorted(outputs) if isinstance(outputs, Mapping) else []
    if isinstance(loss, list | tuple):
        loss = dict(zip(names, loss, strict=False))  # in the order of Keras
    for output in filter(lambda name: name.endswith("logits"), names):
        given = loss.get(output) if isinstance(loss, Mapping) else loss
        given = keras.losses.get(given) if isinstance(given, str) else given
        takes_logits = isinstance(given, keras.losses.Loss) and given.get_config().get(
            "from_logits"
        )
        if getattr(given, "fn", given) in _OF_PROBABILITIES and not takes_logits:
            raise ValueError(
                f"`loss` takes the logits in `{output}` for probabilities. Compile with a loss of "
                "keras.losses that has from_logits=True."
            )
