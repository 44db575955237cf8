"""Optimizers, schedules and clipping in plain NumPy, stated independently of bert_tf.training. float64.

The reference's from google-research/bert, optimization.py; AdamW and LAMB from their papers.
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


def scheduled_rate(
    step: int, init_lr: float, num_train_steps: int, num_warmup_steps: int, shape: str
) -> float:
    """`learning_rate` with other shapes of the decay."""
    if step < num_warmup_steps:
        return init_lr * step / num_warmup_steps
    done = min(step, num_train_steps) / num_train_steps
    if shape == "linear":
        return init_lr - init_lr * done
    if shape == "cosine":
        return init_lr * math.cos(math.pi * done / 2) ** 2
    if shape == "warmup_stable_decay":
        left = max(0, num_train_steps - step) / (num_train_steps // 5)
        return init_lr if left >= 1 else init_lr - init_lr * math.sqrt(1 - left)
    assert shape == "constant"
    return init_lr


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


class AdamWOptimizer(AdamWeightDecayOptimizer):
    """w -= lr * (m' / (sqrt(v') + e) + decay * w);  m' = m / (1-b1^t),  v' = v / (1-b2^t).

    e = eps / sqrt(1-b2^t): epsilon is added before the correction, as in section 2 of Kingma and Ba
    2015 (arXiv 1412.6980) and in Keras.
    """

    num_updates = 0

    def corrected(
        self, name: str, gradient: np.ndarray, epsilon_first: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """m' and sqrt(v') + e after this gradient; the moments are kept."""
        gradient, t = np.float64(gradient), self.num_updates
        self.adam_m[name] = self.beta_1 * self.adam_m.get(name, 0.0) + (1 - self.beta_1) * gradient
        squares = (1 - self.beta_2) * gradient**2
        self.adam_v[name] = self.beta_2 * self.adam_v.get(name, 0.0) + squares
        root = math.sqrt(1 - self.beta_2**t)
        epsilon = self.epsilon / root if epsilon_first else self.epsilon
        return (
            self.adam_m[name] / (1 - self.beta_1**t),
            np.sqrt(self.adam_v[name]) / root + epsilon,
        )

    def update(self, variables, gradients, learning_rate):
        self.num_updates += 1
        updated = {}
        for name, variable in variables.items():
            value = np.float64(variable)
            m, root = self.corrected(name, gradients[name], epsilon_first=True)
            decayed = uses_weight_decay(name, self.exclude_from_weight_decay)
            shrunk = value * (1 - learning_rate * self.weight_decay_rate) if decayed else value
            updated[name] = shrunk - learning_rate * m / root
        return updated


class LambOptimizer(AdamWOptimizer):
    """w -= lr * |w| / |r + decay * w| * (r + decay * w);  r = m' / (sqrt(v') + eps).

    You et al. 2020, arXiv 1904.00962, algorithm 2, with the identity as phi. Variables without decay
    have no |w| / |.| either.
    """

    def update(self, variables, gradients, learning_rate):
        self.num_updates += 1
        updated = {}
        for name, variable in variables.items():
            value, ratio = np.float64(variable), 1.0
            m, root = self.corrected(name, gradients[name], epsilon_first=False)
            step = m / root
            if uses_weight_decay(name, self.exclude_from_weight_decay):
                step = step + self.weight_decay_rate * value
                norms = math.sqrt((value**2).sum()), math.sqrt((step**2).sum())
                ratio = norms[0] / norms[1] if all(norms) else 1.0
            updated[name] = value - learning_rate * ratio * step
        return updated
