"""Learning rates as functions of the step: linear warm-up, then one of four shapes.

    rate(step) = peak * step / num_warmup_steps      while step < num_warmup_steps
                 peak * shape(progress)              afterwards

    linear        1 - progress
    cosine        (1 + cos(pi * progress)) / 2
    constant      1, always
    warmup_stable_decay
                  1 until the last fifth of the steps, then 1 - sqrt(progress of these)

As in the reference, progress = step / num_train_steps counts from step 0. When warm-up ends, the rate
therefore drops from `peak` to the value of the shape. The first step of a warm-up has rate 0.

Sources: google-research/bert, optimization.py (linear); Hu et al. 2024, arXiv 2404.06395, MiniCPM
(warmup_stable_decay); Hägele et al. 2024, arXiv 2405.18392 (its shape 1 - sqrt).
"""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

# Name -> function of the progress, float32 [] from 0 to 1, that falls from 1.
SHAPES = {
    "linear": lambda progress: 1.0 - progress,
    "cosine": lambda progress: 0.5 * (1.0 + ops.cos(math.pi * progress)),
    "constant": ops.ones_like,
    "warmup_stable_decay": lambda progress: 1.0 - ops.sqrt(progress),
}


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then a shape; by default the reference's schedule.

    With "warmup_stable_decay" the rate does not depend on the number of steps until the decay, so that a
    decay can branch off any checkpoint of a training.

    Args:
        learning_rate: peak rate.
        num_train_steps: steps until the end of the shape, at least 1.
        num_warmup_steps: steps of warm-up; 0 means no warm-up.
        shape: one of `SHAPES`.

    Raises:
        ValueError: a number of steps is out of its range.

    >>> schedule = WarmupDecay(1.0, num_train_steps=10, num_warmup_steps=4)
    >>> [round(float(schedule(step)), 2) for step in (0, 2, 4, 5, 10)]
    [0.0, 0.5, 0.6, 0.5, 0.0]
    >>> schedule = WarmupDecay(1.0, 20, 2, shape="warmup_stable_decay")
    >>> [round(float(schedule(step)), 2) for step in (0, 1, 2, 16, 17, 19, 20)]
    [0.0, 0.5, 1.0, 1.0, 0.5, 0.13, 0.0]
    """

    def __init__(
        self,
        learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
        shape: str = "linear",
    ):
        if num_train_steps < 1 or not 0 <= num_warmup_steps <= num_train_steps:
            raise ValueError(
                f"num_warmup_steps is {num_warmup_steps} of num_train_steps={num_train_steps}, but must "
                "be from 0 to that, which must be 1 or more."
            )
        self.learning_rate = learning_rate
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps
        self.shape = shape

    def __call__(self, step):
        step = ops.cast(step, "float32")
        start = 0
        if self.shape == "warmup_stable_decay":
            start = max(self.num_train_steps - self.num_train_steps // 5, self.num_warmup_steps)
        length = max(1, self.num_train_steps - start)
        progress = ops.clip((step - start) / length, 0.0, 1.0)
        scale = SHAPES[self.shape](progress)
        if self.num_warmup_steps:
            scale = ops.where(step < self.num_warmup_steps, step / self.num_warmup_steps, scale)
        return ops.cast(self.learning_rate, "float32") * scale

    def get_config(self) -> dict[str, Any]:
        return dict(vars(self))  # the arguments are the attributes
