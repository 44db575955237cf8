"""Activation functions by their names in `bert_config.json`."""

from __future__ import annotations

from collections.abc import Callable

from keras import ops


def gelu(x):
    """Compute the reference's "gelu", the Gaussian error linear unit with the tanh approximation.

    0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
    """
    return ops.gelu(x, approximate=True)


def gelu_erf(x):
    """Compute the exact Gaussian error linear unit, x Phi(x): Hugging Face's "gelu"."""
    return ops.gelu(x, approximate=False)


def linear(x):
    return x


_ACTIVATIONS = {
    "gelu": gelu,
    "gelu_erf": gelu_erf,
    "relu": ops.relu,
    "tanh": ops.tanh,
    "linear": linear,
}


def get_activation(name: str) -> Callable:
    """Return the function for a `hidden_act` of `BertConfig`, which checked the name."""
    return _ACTIVATIONS[name]
