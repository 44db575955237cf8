"""The reference's optimizer and learning-rate schedule, as Keras classes.

Source: google-research/bert, optimization.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

# Parts of variable paths that are not decayed. Embeddings are.
EXCLUDE_FROM_WEIGHT_DECAY = ("LayerNorm", "layer_norm", "bias")


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then the rest of a linear decay to 0 that is measured from step 0.

    rate(step) = peak * step / num_warmup_steps          while step < num_warmup_steps
                 peak * (1 - step / num_train_steps)     afterwards

    As in the reference, the rate falls from `peak` to peak * (1 - num_warmup_steps / num_train_steps)
    when warm-up ends, and the very first step with warm-up has rate 0.

    Args:
        learning_rate: peak rate.
        num_train_steps: steps until the rate is 0, at least 1.
        num_warmup_steps: steps of warm-up; 0 means none.

    Raises:
        ValueError: a number of steps is out of its range.

    >>> schedule = WarmupLinearDecay(1.0, num_train_steps=10, num_warmup_steps=4)
    >>> [round(float(schedule(step)), 2) for step in (0, 2, 4, 5, 10)]
    [0.0, 0.5, 0.6, 0.5, 0.0]
    """

    def __init__(self, learning_rate: float, num_train_steps: int, num_warmup_steps: int = 0):
        if num_train_steps < 1:
            raise ValueError(
                f"`num_train_steps` is {num_train_steps}, but must be 1 or more. With few examples, "
                "raise the number of epochs or lower the batch size."
            )
        if not 0 <= num_warmup_steps <= num_train_steps:
            raise ValueError(
                f"`num_warmup_steps` is {num_warmup_steps}, but must be at least 0 and at most "
                f"`num_train_steps` = {num_train_steps}."
            )
        self.learning_rate = learning_rate
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps

    def __call__(self, step):
        step = ops.cast(step, "float32")
        decay = 1.0 - ops.minimum(step, self.num_train_steps) / self.num_train_steps
        share = decay
        if self.num_warmup_steps:
            warmup = step / self.num_warmup_steps
            share = ops.where(step < self.num_warmup_steps, warmup, decay)
        return ops.cast(self.learning_rate, "float32") * share

    def get_config(self) -> dict[str, Any]:
        return {
            "learning_rate": self.learning_rate,
            "num_train_steps": self.num_train_steps,
            "num_warmup_steps": self.num_warmup_steps,
        }


@keras.saving.register_keras_serializable(package="bert_tf")
class AdamWeightDecay(keras.optimizers.Optimizer):
    """Adam without bias correction, with weight decay apart from the gradient.

    m <- beta_1 m + (1 - beta_1) g
    v <- beta_2 v + (1 - beta_2) g^2
    w <- w - rate * (m / (sqrt(v) + epsilon) + weight_decay_rate * w)

    Differs from Keras' AdamW in three ways: no division by 1 - beta^t, the decay is inside the update
    with the same rate, and variables are excluded by `variable.path` (a LayerNorm's `variable.name`
    is only "gamma" or "beta").

    Args:
        learning_rate: rate, or a schedule of the step.
        weight_decay_rate: share of the weight subtracted per step and unit of rate.
        beta_1, beta_2, epsilon: as above.
        exclude_from_weight_decay: regular expressions; a variable whose path has a match in it is not
            decayed.
    """

    def __init__(
        self,
        learning_rate,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        exclude_from_weight_decay: Sequence[str] = EXCLUDE_FROM_WEIGHT_DECAY,
        name: str = "adam_weight_decay",
        **kwargs,
    ):
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.excluded_patterns = tuple(exclude_from_weight_decay)

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self._m = [self.add_variable_from_reference(v, name="adam_m") for v in variables]
        self._v = [self.add_variable_from_reference(v, name="adam_v") for v in variables]
        # Decided here, because `update_step` gets TensorFlow's variables, which have no path.
        self._decays = [self.decays(variable.path) for variable in variables]

    def decays(self, path: str) -> bool:
        """Whether the variable at `path` is decayed."""
        return not any(re.search(pattern, path) for pattern in self.excluded_patterns)

    def slots(self, variable) -> dict[str, Any]:
        """The moments of `variable`, by the reference's names."""
        index = self._get_variable_index(variable)
        return {"adam_m": self._m[index], "adam_v": self._v[index]}

    def update_step(self, gradient, variable, learning_rate):
        if isinstance(gradient, tf.IndexedSlices):  # of an embedding, under `Model.fit`
            # Repeated ids are summed here, before anything is squared.
            gradient = tf.convert_to_tensor(gradient)
        gradient = ops.cast(gradient, variable.dtype)
        rate = ops.cast(learning_rate, variable.dtype)
        index = self._get_variable_index(variable)
        m, v = self._m[index], self._v[index]
        next_m = self.beta_1 * m + (1.0 - self.beta_1) * gradient
        next_v = self.beta_2 * v + (1.0 - self.beta_2) * ops.square(gradient)
        update = next_m / (ops.sqrt(next_v) + self.epsilon)
        if self._decays[index]:
            update = update + self.weight_decay_rate * variable
        self.assign(m, next_m)
        self.assign(v, next_v)
        self.assign_sub(variable, rate * update)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        config.pop("weight_decay", None)  # Keras' own decay, which this class does not use
        return {
            **config,
            "weight_decay_rate": self.weight_decay_rate,
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "exclude_from_weight_decay": list(self.excluded_patterns),
        }
