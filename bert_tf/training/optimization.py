"""Optimizers of the Adam family, configured per variable.

    AdamWeightDecay   the reference's
    AdamW             with bias correction, as in Keras and PyTorch
    Lamb              for large batches
    Muon              orthogonal updates of the matrices in the layers, AdamW for the rest

Their base is `AdamByPath`.

Source: google-research/bert, optimization.py; see the classes for the others.
"""

from __future__ import annotations

import re
from typing import Any

import keras
from keras import ops

from bert_tf.training.adam_by_path import AdamByPath


@keras.saving.register_keras_serializable(package="bert_tf")
class AdamWeightDecay(AdamByPath):
    """Adam without bias correction: the reference's optimizer.

        direction = m / (sqrt(v) + epsilon)

    Both moments start at 0 and are not divided by 1 - beta^t. With the usual betas the first updates
    are about three times as long as Adam's, which warm-up hides.
    """

    default_name = "adam_weight_decay"

    def direction(self, m, v):
        return m / (ops.sqrt(v) + self.epsilon)


@keras.saving.register_keras_serializable(package="bert_tf")
class AdamW(AdamByPath):
    """Loshchilov and Hutter's AdamW, with the same steps as `keras.optimizers.AdamW`.

        direction = m sqrt(1 - beta_2^t) / (1 - beta_1^t) / (sqrt(v) + epsilon)

    Epsilon is added before v is corrected, as in Keras and TensorFlow. PyTorch adds it afterwards.

    Source: arXiv 1711.05101.
    """

    default_name = "adamw"

    def direction(self, m, v):
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

    def direction(self, m, v):
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
        others: see `AdamByPath`.

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
        if re.search(self.matrices, path):
            return self.momentum * m + gradient
        return super().first_moment(path, m, gradient)

    def direction_at(self, path: str, gradient, m, v):
        if not re.search(self.matrices, path):
            return self.direction(m, v)
        scale = 0.2 * max(m.shape) ** 0.5
        return scale * orthogonal(gradient + self.momentum * m, self.product_dtype)

    def _update_compiled(self, gradients, variables, scale, rate, by_shape: bool) -> None:
        # XLA's matrix products on CPUs take one thread, and three times as long in bfloat16.
        others, of_others = [], []
        for gradient, variable in zip(gradients, variables, strict=True):
            if re.search(self.matrices, variable.path):
                self.update_step(gradient * scale, variable, rate)
            else:
                others.append(variable)
                of_others.append(gradient)
        if others:
            super()._update_compiled(of_others, others, scale, rate, by_shape)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "product_dtype": self.product_dtype}


def orthogonal(matrix, product_dtype: str = "float32"):
    """Return a matrix [m, n] with the same singular vectors, and singular values from 0.7 to 1.2.

    Args:
        product_dtype: of the matrix products. The result has the dtype of `matrix`.

    Source: Jordan et al. 2024, with their coefficients.
    """
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
