"""Loss scaling: keeps small gradients above zero in float16, whose least number is 6e-8.

bfloat16 has the exponents of float32 and needs none of this.

Source: Micikevicius et al. 2018, arXiv 1710.03740, section 3.2; the dynamic rule is that of
`keras.optimizers.LossScaleOptimizer`.
"""

from __future__ import annotations

import keras
import tensorflow as tf

_FIRST = 2.0**15
_STEPS_UNTIL_DOUBLED = 2000


class LossScale:
    """A factor of the loss, halved when gradients overflow and doubled after 2000 steps without it.

    A step whose gradients overflow changes no weight, but counts as a step: its batch is used up.
    """

    def __init__(self) -> None:
        kwargs = {"trainable": False, "aggregation": "only_first_replica"}
        self._value = keras.Variable(_FIRST, dtype="float32", name="loss_scale", **kwargs)
        self._good = keras.Variable(0, dtype="int32", name="good_steps", **kwargs)

    @property
    def value(self) -> tf.Tensor:
        """float32 scalar."""
        return tf.convert_to_tensor(self._value)

    @property
    def variables(self) -> dict[str, keras.Variable]:
        """By their names in a checkpoint."""
        return {"loss_scale/value": self._value, "loss_scale/good_steps": self._good}

    def update(self, fits) -> None:
        """Counts a step whose gradients were finite, or not."""
        value, good = self.value, tf.convert_to_tensor(self._good)
        full = good + 1 >= _STEPS_UNTIL_DOUBLED
        grown = tf.where(full, value * 2.0, value)
        self._value.assign(tf.where(fits, grown, tf.maximum(value / 2.0, 1.0)))
        self._good.assign(tf.where(tf.logical_and(fits, ~full), good + 1, 0))
