"""The reference's optimizer in plain NumPy: Adam with decoupled weight decay, schedule, clipping.

Stated from google-research/bert, optimization.py, independently of bert_tf.training. float64.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

EXCLUDE_FROM_WEIGHT_DECAY = ("LayerNorm", "layer_norm", "bias")


def learning_rate(
    step: int, init_lr: float, num_train_steps: int, num_warmup_steps: int = 0
) -> float:
    """Learning rate of the update that follows `step` finished updates.

    The decay runs from step 0, not from the end of the warm-up: where the warm-up ends, the rate
    falls from nearly `init_lr` to init_lr * (1 - num_warmup_steps / num_train_steps). The first
    update of a warm-up has rate 0. After `num_train_steps` the rate stays 0.

    Args:
        step: int >= 0.
        init_lr: the peak.
        num_train_steps: int > 0, updates in the whole training.
        num_warmup_steps: int >= 0; 0 means no warm-up.
    """
    if step < num_warmup_steps:
        return init_lr * step / num_warmup_steps
    return init_lr * (1.0 - min(step, num_train_steps) / num_train_steps)


def clip_by_global_norm(
    gradients: Mapping[str, np.ndarray], clip_norm: float = 1.0
) -> tuple[dict[str, np.ndarray], float]:
    """Scales all gradients by clip_norm / global norm where that is below 1.

    Returns:
        (the gradients, their global norm before clipping).
    """
    norm = math.sqrt(sum(float(np.sum(np.float64(g) ** 2)) for g in gradients.values()))
    scale = clip_norm / max(norm, clip_norm)
    return {name: np.float64(g) * scale for name, g in gradients.items()}, norm


def uses_weight_decay(name: str, exclude: Sequence[str] = EXCLUDE_FROM_WEIGHT_DECAY) -> bool:
    """Whether the variable `name` decays: no pattern is found anywhere in its name."""
    return not any(re.search(pattern, name) for pattern in exclude)


class AdamWeightDecayOptimizer:
    """m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  w -= lr * (m / (sqrt(v) + eps) + decay * w).

    Neither moment is corrected for its start at 0, epsilon is added outside the square root, and
    the decay joins the update, not the gradient. Excluded variables have no decay term.
    """

    def __init__(
        self,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        exclude_from_weight_decay: Sequence[str] = EXCLUDE_FROM_WEIGHT_DECAY,
    ) -> None:
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.exclude_from_weight_decay = tuple(exclude_from_weight_decay)
        self.adam_m: dict[str, np.ndarray] = {}
        self.adam_v: dict[str, np.ndarray] = {}

    def update(
        self,
        variables: Mapping[str, np.ndarray],
        gradients: Mapping[str, np.ndarray],
        learning_rate: float,
    ) -> dict[str, np.ndarray]:
        """The variables after one update; the moments are kept for the next one."""
        updated = {}
        for name, variable in variables.items():
            value, gradient = np.float64(variable), np.float64(gradients[name])
            m = self.beta_1 * self.adam_m.get(name, 0.0) + (1.0 - self.beta_1) * gradient
            v = self.beta_2 * self.adam_v.get(name, 0.0) + (1.0 - self.beta_2) * gradient**2
            step = m / (np.sqrt(v) + self.epsilon)
            if uses_weight_decay(name, self.exclude_from_weight_decay):
                step = step + self.weight_decay_rate * value
            updated[name] = value - learning_rate * step
            self.adam_m[name], self.adam_v[name] = m, v
        return updated
