"""Activation functions by the names that `bert_config.json` uses."""

from __future__ import annotations

from collections.abc import Callable

from keras import ops


def gelu(x):
    """Gaussian error linear unit, tanh approximation: the reference's "gelu".

    0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
    """
    return ops.gelu(x, approximate=True)


def gelu_erf(x):
    """Gaussian error linear unit, exact: x Phi(x). Hugging Face calls this one "gelu"."""
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
    """The function for a `hidden_act` of `BertConfig`, which has checked the name."""
    return _ACTIVATIONS[name]
