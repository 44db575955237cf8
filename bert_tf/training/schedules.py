"""Learning rates as functions of the step: linear warm-up, then one of five shapes.

    rate(step) = peak * step / num_warmup_steps                       while step < num_warmup_steps
                 peak * (end + (1 - end) * left(progress))            afterwards

`left` falls from 1 at progress 0 to 0 at progress 1:

    linear        1 - progress
    polynomial    (1 - progress) ** power
    cosine        (1 + cos(pi * progress)) / 2
    constant      1, always
    warmup_stable_decay
                  1 until the last `num_decay_steps`, then 1 - sqrt(progress of these), or linear

As in the reference, progress = step / num_train_steps counts from step 0. When warm-up ends, the rate
therefore drops from `peak` to the value of the shape. The first step of a warm-up has rate 0. With
`decay_from_warmup`, progress is 0 at the end of warm-up, so the rate does not drop.

Sources: google-research/bert, optimization.py (linear); Hu et al. 2024, arXiv 2404.06395, MiniCPM
(warmup_stable_decay); Hägele et al. 2024, arXiv 2405.18392 (its shape 1 - sqrt).
"""

from __future__ import annotations

import abc
import math
from typing import Any

import keras
import numpy as np
from keras import ops

_POINTS = 100  # per chart of a whole training


class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule, abc.ABC):
    """Linear warm-up, then the shape of a subclass.

    Args:
        learning_rate: peak rate.
        num_train_steps: steps until the rate is `end * learning_rate`, at least 1.
        num_warmup_steps: steps of warm-up; 0 means no warm-up.
        end: fraction of the peak that remains after `num_train_steps`, 0 to 1.
        decay_from_warmup: start the decay at the end of warm-up instead of step 0.

    Raises:
        ValueError: a number of steps or a fraction is out of its range.
    """

    def __init__(
        self,
        learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
        end: float = 0.0,
        decay_from_warmup: bool = False,
    ):
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
        if not 0 <= end <= 1:
            raise ValueError(
                f"`end` is {end}, but must be from 0 to 1: a fraction of the peak rate, not a rate."
            )
        self.learning_rate = learning_rate
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps
        self.end = end
        self.decay_from_warmup = decay_from_warmup

    @abc.abstractmethod
    def left(self, progress):
        """Return the remaining fraction of the way from the peak to the end: float32 [], 1 to 0."""

    @property
    def decay_start(self) -> int:
        """Step at which progress is 0."""
        return self.num_warmup_steps if self.decay_from_warmup else 0

    def __call__(self, step):
        step = ops.cast(step, "float32")
        start = self.decay_start
        length = max(1, self.num_train_steps - start)  # 0 if all steps warm up
        progress = ops.clip((step - start) / length, 0.0, 1.0)
        scale = self.left(progress)
        if self.end:
            scale = self.end + (1.0 - self.end) * scale
        if self.num_warmup_steps:
            scale = ops.where(step < self.num_warmup_steps, step / self.num_warmup_steps, scale)
        return ops.cast(self.learning_rate, "float32") * scale

    def points(self, first: int, last: int) -> dict[int, float]:
        """Return the rates to plot for the steps `first` to `last`, counted from 1.

        These are each hundredth of the training, each peak, and `last`. Step n has rate
        `schedule(n - 1)`, because the first step is taken at 0.

        >>> points = WarmupLinearDecay(1.0, num_train_steps=1000, num_warmup_steps=4).points(2, 20)
        >>> {step: round(rate, 3) for step, rate in points.items()}
        {5: 0.996, 10: 0.991, 20: 0.981}
        >>> list(WarmupLinearDecay(1.0, num_train_steps=1000).points(1, 9))  # the peak is the first
        [1, 9]
        """
        steps = np.arange(first, last + 1)
        rates = ops.convert_to_numpy(self(np.arange(first - 2, last + 1)))  # with both neighbours
        before, rates, after = rates[:-2], rates[1:-1], rates[2:]
        kept = steps % max(1, self.num_train_steps // _POINTS) == 0
        rises = (steps == 1) | (rates > before)
        kept |= (rises & (rates >= after)) | (steps == last)
        return dict(zip(steps[kept].tolist(), rates[kept].tolist(), strict=True))

    def get_config(self) -> dict[str, Any]:
        return dict(vars(self))  # the arguments of a schedule are its attributes


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupLinearDecay(WarmupDecay):
    """The reference's schedule.

    >>> schedule = WarmupLinearDecay(1.0, num_train_steps=10, num_warmup_steps=4)
    >>> [round(float(schedule(step)), 2) for step in (0, 2, 4, 5, 10)]
    [0.0, 0.5, 0.6, 0.5, 0.0]
    """

    def left(self, progress):
        return 1.0 - progress


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupPolynomialDecay(WarmupDecay):
    """A power of the linear decay; `power` 1 is linear, larger powers fall faster at first.

    >>> schedule = WarmupPolynomialDecay(1.0, num_train_steps=10, power=2.0)
    >>> [round(float(schedule(step)), 2) for step in (0, 5, 8, 10)]
    [1.0, 0.25, 0.04, 0.0]
    """

    def __init__(self, *args, power: float = 1.0, **kwargs):
        super().__init__(*args, **kwargs)
        if not power > 0:
            raise ValueError(f"`power` is {power}, but must be above 0. 1 is a linear decay.")
        self.power = power

    def left(self, progress):
        return ops.power(1.0 - progress, self.power)


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupCosineDecay(WarmupDecay):
    """Half a cosine wave: slow at both ends.

    >>> schedule = WarmupCosineDecay(1.0, num_train_steps=10, end=0.1)
    >>> [round(float(schedule(step)), 2) for step in (0, 5, 10)]
    [1.0, 0.55, 0.1]
    """

    def left(self, progress):
        return 0.5 * (1.0 + ops.cos(math.pi * progress))


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupConstant(WarmupDecay):
    """A constant peak rate after warm-up.

    >>> schedule = WarmupConstant(1.0, num_train_steps=10, num_warmup_steps=4)
    >>> [round(float(schedule(step)), 2) for step in (0, 2, 4, 10)]
    [0.0, 0.5, 1.0, 1.0]
    """

    def left(self, progress):
        return ops.ones_like(progress)


DECAYS = ("one_minus_sqrt", "linear")


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupStableDecay(WarmupDecay):
    """A constant peak rate, and a decay in the last steps alone.

    A run that ends before its decay can be continued for as long as wanted: the rate does not depend on
    the number of steps until then.

    Args:
        num_decay_steps: steps of the decay; default: a fifth of `num_train_steps`.
        decay: one of DECAYS.

    Raises:
        ValueError: warm-up and decay are longer than the training, or `decay` is unknown.

    >>> schedule = WarmupStableDecay(1.0, 10, 2, num_decay_steps=4)
    >>> [round(float(schedule(step)), 2) for step in (0, 1, 2, 6, 7, 9, 10)]
    [0.0, 0.5, 1.0, 1.0, 0.5, 0.13, 0.0]
    """

    def __init__(self, *args, num_decay_steps: int | None = None, decay: str = DECAYS[0], **kwargs):
        super().__init__(*args, **kwargs)
        num_decay_steps = self.num_train_steps // 5 if num_decay_steps is None else num_decay_steps
        if not 0 <= num_decay_steps <= self.num_train_steps - self.num_warmup_steps:
            raise ValueError(
                f"`num_decay_steps` is {num_decay_steps}, but must be at least 0 and at most "
                f"{self.num_train_steps - self.num_warmup_steps}: `num_train_steps` = "
                f"{self.num_train_steps} less `num_warmup_steps` = {self.num_warmup_steps}."
            )
        if self.decay_from_warmup:
            raise ValueError("`decay_from_warmup` has no meaning with a decay in the last steps.")
        if decay not in DECAYS:
            raise ValueError(f"`decay` is {decay!r}, but must be one of {', '.join(DECAYS)}.")
        self.num_decay_steps = num_decay_steps
        self.decay = decay

    @property
    def decay_start(self) -> int:
        return self.num_train_steps - self.num_decay_steps

    def left(self, progress):
        return 1.0 - (progress if self.decay == "linear" else ops.sqrt(progress))


SCHEDULES: dict[str, type[WarmupDecay]] = {
    "linear": WarmupLinearDecay,
    "polynomial": WarmupPolynomialDecay,
    "cosine": WarmupCosineDecay,
    "constant": WarmupConstant,
    "warmup_stable_decay": WarmupStableDecay,
}
