"""Optimizers of the Adam family, configured per variable.

The `path` of a variable decides three things: its weight decay, its fraction of the learning rate
(layer-wise decay), and whether it is trained (freezing).

Source: google-research/bert, optimization.py; see the classes for the others.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.options import OptionError

if keras.config.backend() == "tensorflow":
    import tensorflow as tf

    # Sums the repeated ids in the gradient of an embedding, which is sparse under `Model.fit`.
    _dense = tf.convert_to_tensor
else:
    _dense = ops.convert_to_tensor

# Parts of variable paths that are excluded from decay. Embeddings are decayed.
EXCLUDE_FROM_WEIGHT_DECAY = ("LayerNorm", "layer_norm", "bias")


class AdamByPath(keras.optimizers.Optimizer, abc.ABC):
    """Base of the family: two moments, and weight decay decoupled from the gradient.

        m <- beta_1 m + (1 - beta_1) g
        v <- beta_2 v + (1 - beta_2) g^2
        u  = direction(m, v) + weight_decay_rate * w
        w <- w - rate * factor * trust(w, u) * u

    Keras' own classes exclude variables from decay by `variable.name`, which is only "gamma" or
    "beta" for a LayerNorm. This class matches `variable.path`.

    Args:
        learning_rate: rate, or a schedule of the step.
        weight_decay_rate: fraction of the weight subtracted per step and unit of rate.
        exclude_from_weight_decay: regular expressions of the paths of variables without decay.
        learning_rate_factors: regular expression of paths -> part of the rate; the first match counts.
        skip_nonfinite: change nothing where a gradient is not finite. For loss scaling.
    """

    default_name: str

    def __init__(
        self,
        learning_rate,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        exclude_from_weight_decay: Sequence[str] = EXCLUDE_FROM_WEIGHT_DECAY,
        learning_rate_factors: Mapping[str, float] | None = None,
        skip_nonfinite: bool = False,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(learning_rate=learning_rate, name=name or self.default_name, **kwargs)
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.excluded_patterns = tuple(exclude_from_weight_decay)
        # Pairs, because Keras would wrap a dictionary.
        self.factor_patterns = tuple((learning_rate_factors or {}).items())
        self.skip_nonfinite = skip_nonfinite

    @abc.abstractmethod
    def direction(self, path: str, gradient, m, v):
        """Return the direction of the update of the variable at `path`, a tensor like `m`."""

    def first_moment(self, path: str, m, gradient):
        """Return the next `m`."""
        return self.beta_1 * m + (1.0 - self.beta_1) * gradient

    def trust(self, path: str, variable, update):
        """Return the factor of the whole variable's update."""
        return 1.0

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self._m = [self.add_variable_from_reference(v, name="adam_m") for v in variables]
        self._v = [self.add_variable_from_reference(v, name="adam_v") for v in variables]
        # Needed because `update_step` gets TensorFlow's variables, which have no path.
        self._paths = tuple(variable.path for variable in variables)
        self._functions: dict[tuple, Callable] = {}

    def decays(self, path: str) -> bool:
        """Return True if the variable at `path` is decayed."""
        return not any(re.search(pattern, path) for pattern in self.excluded_patterns)

    def learning_rate_factor(self, path: str) -> float:
        """Return the fraction of the learning rate for the variable at `path`."""
        return next((f for pattern, f in self.factor_patterns if re.search(pattern, path)), 1.0)

    @property
    def schedule(self) -> Any:
        """The learning rate as given. `learning_rate`, Keras' property, is its current value."""
        return self._learning_rate

    def slots(self, variable) -> dict[str, Any]:
        """Return the moments of `variable` by the reference's names."""
        index = self._get_variable_index(variable)
        return {"adam_m": self._m[index], "adam_v": self._v[index]}

    def update_step(self, gradient, variable, learning_rate):
        gradient = ops.cast(_dense(gradient), variable.dtype)
        path = self._paths[self._get_variable_index(variable)]
        self._update(path, gradient, variable, self.slots(variable), learning_rate)

    def _update(self, path: str, gradient, variable, slots: Mapping[str, Any], learning_rate):
        m, v = slots["adam_m"], slots["adam_v"]
        next_m = self.first_moment(path, m, gradient)
        next_v = self.beta_2 * v + (1.0 - self.beta_2) * ops.square(gradient)
        update = self.direction(path, gradient, next_m, next_v)
        if self.decays(path):
            update = update + self.weight_decay_rate * variable
        rate = ops.cast(learning_rate, variable.dtype) * self.learning_rate_factor(path)
        change = rate * self.trust(path, variable, update) * update
        if self.skip_nonfinite:
            fits = ops.isfinite(gradient)
            # Tensors, because JAX's `where` does not take Keras' variables.
            m_before, v_before = ops.convert_to_tensor(m), ops.convert_to_tensor(v)
            next_m, next_v = ops.where(fits, next_m, m_before), ops.where(fits, next_v, v_before)
            change = ops.where(fits, change, 0.0)
        self.assign(m, next_m)
        self.assign(v, next_v)
        self.assign_sub(variable, change)

    def apply_compiled(self, gradients, variables, scale, by_shape: bool) -> None:
        """Do `apply` with `scale` times the gradients, compiled by XLA; not for mirrored variables.

        `by_shape`: one function for each shape is called for each of its variables. Else one function
        updates all: one call a step, but the same loops are compiled many times.
        """
        rate = tf.convert_to_tensor(self.learning_rate)
        compiled = []
        for gradient, variable in zip(gradients, variables, strict=True):
            if self.is_compiled(variable.path):
                compiled.append((gradient, variable))
            else:
                self.update_step(gradient * scale, variable, rate)
        for group in [[pair] for pair in compiled] if by_shape else filter(None, [compiled]):
            paths = [variable.path for _, variable in group]
            slots = [{n: slot.value for n, slot in self.slots(v).items()} for _, v in group]
            states = [(g, v.value, s) for (g, v), s in zip(group, slots, strict=True)]
            self._function(paths, states)(states, scale, rate)
        self.iterations.assign_add(1)

    def is_compiled(self, path: str) -> bool:
        """Return True if XLA compiles the update of the variable at `path` in `apply_compiled`."""
        return True

    def _function(self, paths: Sequence[str], states) -> Callable:
        """Return a function that updates these variables, or others of the same shapes and rules."""
        kinds = tuple(
            (variable.shape, self.decays(path), self.learning_rate_factor(path))
            for path, (_, variable, _) in zip(paths, states, strict=True)
        )
        if kinds not in self._functions:

            def update(states, scale, rate):
                for path, (gradient, variable, slots) in zip(paths, states, strict=True):
                    self._update(path, gradient * scale, variable, slots, rate)

            self._functions[kinds] = tf.function(update, jit_compile=True, autograph=False)
        return self._functions[kinds]

    def bias_corrections(self, dtype) -> tuple[Any, Any]:
        """Return 1 - beta_1^t and 1 - beta_2^t for the current step t = 1, 2, ..."""
        step = ops.cast(self.iterations + 1, dtype)
        return tuple(1.0 - ops.power(beta, step) for beta in (self.beta_1, self.beta_2))

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        config.pop("weight_decay", None)  # Keras' own decay, which this class does not use
        numbers = ("weight_decay_rate", "beta_1", "beta_2", "epsilon", "skip_nonfinite")
        return {
            **config,
            **{name: getattr(self, name) for name in numbers},
            "exclude_from_weight_decay": list(self.excluded_patterns),
            "learning_rate_factors": dict(self.factor_patterns),
        }


@keras.saving.register_keras_serializable(package="bert_tf")
class AdamWeightDecay(AdamByPath):
    """Adam without bias correction: the reference's optimizer.

        direction = m / (sqrt(v) + epsilon)

    Both moments start at 0 and are not divided by 1 - beta^t. With the usual betas the first updates
    are about three times as long as Adam's, which warm-up hides.
    """

    default_name = "adam_weight_decay"

    def direction(self, path: str, gradient, m, v):
        return m / (ops.sqrt(v) + self.epsilon)


@keras.saving.register_keras_serializable(package="bert_tf")
class AdamW(AdamByPath):
    """Loshchilov and Hutter's AdamW, with the same steps as `keras.optimizers.AdamW`.

        direction = m sqrt(1 - beta_2^t) / (1 - beta_1^t) / (sqrt(v) + epsilon)

    Epsilon is added before v is corrected, as in Keras and TensorFlow. PyTorch adds it afterwards.

    Source: arXiv 1711.05101.
    """

    default_name = "adamw"

    def direction(self, path: str, gradient, m, v):
        first, second = self.bias_corrections(m.dtype)
        return m * (ops.sqrt(second) / first) / (ops.sqrt(v) + self.epsilon)


@keras.saving.register_keras_serializable(package="bert_tf")
class Lamb(AdamByPath):
    """LAMB: each variable's update is as long as the rate times the variable itself.

        direction = m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + epsilon)
        trust     = |w| / |u|, the Euclidean norms of the variable and its update with decay;
                    1 if either is 0

    Variables without decay (biases and LayerNorms) are not scaled, as in google-research/albert,
    lamb_optimizer.py. The bias correction follows the paper; that file omits it. The paper's phi is
    the identity: norms are not clipped.

    Source: You et al. 2020, arXiv 1904.00962, algorithm 2.
    """

    default_name = "lamb"

    def direction(self, path: str, gradient, m, v):
        first, second = self.bias_corrections(m.dtype)
        return m / first / (ops.sqrt(v / second) + self.epsilon)

    def trust(self, path: str, variable, update):
        if not self.decays(path):
            return 1.0
        weight_norm, update_norm = ops.norm(variable), ops.norm(update)
        both = ops.logical_and(weight_norm > 0.0, update_norm > 0.0)
        return ops.where(both, weight_norm / ops.where(both, update_norm, 1.0), 1.0)


@keras.saving.register_keras_serializable(package="bert_tf")
class Muon(AdamW):
    """Orthogonal updates of the matrices in the layers of the encoder; AdamW for the other variables.

        M <- 0.95 M + G
        direction = 0.2 sqrt(max(rows, columns)) orthogonal(G + 0.95 M)

    `orthogonal` replaces all singular values by about 1, in five Newton-Schulz iterations. With the
    factor, an update is as long as one of AdamW, so that rate and decay need no other values (Liu et
    al.). Embeddings, biases, LayerNorms, pooler and heads are trained by AdamW.

    The steps are those of `keras.optimizers.Muon`; M is kept as `adam_m`, and `adam_v` is not used.

    Args:
        product_dtype: of the matrix products in `orthogonal`. Jordan et al. take "bfloat16", which is
            faster where the hardware multiplies it.
        *args, **kwargs: see `AdamByPath`.

    Source: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon; Liu et al. 2025, arXiv
    2502.16982.
    """

    default_name = "muon"
    matrices = r"/layer_\d+/.*kernel"
    momentum = 0.95

    def __init__(self, learning_rate, *args, product_dtype: str = "float32", **kwargs):
        super().__init__(learning_rate, *args, **kwargs)
        self.product_dtype = product_dtype

    def first_moment(self, path: str, m, gradient):
        if self._is_matrix(path):
            return self.momentum * m + gradient
        return super().first_moment(path, m, gradient)

    def direction(self, path: str, gradient, m, v):
        if not self._is_matrix(path):
            return super().direction(path, gradient, m, v)
        scale = 0.2 * max(m.shape) ** 0.5
        return scale * orthogonal(gradient + self.momentum * m, self.product_dtype)

    def is_compiled(self, path: str) -> bool:
        # XLA's matrix products on CPUs take one thread, and three times as long in bfloat16.
        return not self._is_matrix(path)

    def _is_matrix(self, path: str) -> bool:
        return re.search(self.matrices, path) is not None

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "product_dtype": self.product_dtype}


def orthogonal(matrix, product_dtype: str = "float32"):
    """Return a matrix [m, n] with the same singular vectors, and singular values from 0.7 to 1.2."""
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = ops.transpose(matrix) if is_tall else matrix
    x = ops.cast(x / (ops.norm(x) + 1e-7), product_dtype)
    for _ in range(5):
        square = ops.matmul(x, ops.transpose(x))
        x = 3.4445 * x + ops.matmul(-4.775 * square + 2.0315 * ops.matmul(square, square), x)
    return ops.cast(ops.transpose(x) if is_tall else x, matrix.dtype)


OPTIMIZERS: dict[str, type[AdamByPath]] = {
    optimizer.default_name: optimizer for optimizer in (AdamWeightDecay, AdamW, Lamb, Muon)
}


# ---- Parts of the encoder by the paths of their variables


def layer_learning_rate_factors(num_hidden_layers: int, decay: float) -> dict[str, float]:
    """Return smaller rates for layers nearer to the input: part of a path -> fraction of the rate.

    The powers are those of BEiT (microsoft/unilm). Source: google-research/electra, `_get_layer_lrs`.
    """
    parts = ["embeddings", *(f"layer_{layer}" for layer in range(num_hidden_layers))]
    return {f"/{part}/": decay ** (len(parts) - depth) for depth, part in enumerate(parts)}


def freeze(model: keras.Model, text: str, num_hidden_layers: int) -> list[str]:
    """Exclude parts of the encoder from training, such as "embeddings,0-5,7"; return their paths.

    Checkpoints contain them, without moments.
    """
    paths: list[str] = []
    for part in filter(None, map(str.strip, text.split(","))):
        numbers = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        layers = range(int(numbers[1]), int(numbers[2] or numbers[1]) + 1) if numbers else ()
        if part in ("embeddings", "encoder", "pooler"):
            paths.append(f"/{part}/")
        elif layers and layers[-1] < num_hidden_layers:
            paths += [f"/layer_{layer}/" for layer in layers]
        else:
            valid = f"embeddings, encoder, pooler, and layers from 0 to {num_hidden_layers - 1}"
            raise OptionError("freeze", f"{part!r} is none of {valid}, such as 7 or 0-5.")
    frozen = [v for v in model.weights if any(path in v.path for path in paths)]
    for variable in frozen:
        variable.trainable = False
    return [variable.path for variable in frozen]
