"""What all layers share: initializer, LayerNorm, activations, and other forms of a `call`.

The `call` of a layer is the formula of the paper. fused.py and inference.py compute the same in other
forms: within

    with layer_forms({TransformerBlock: function}, training=True):
        outputs = model(inputs, training=True)

each TransformerBlock computes `function(layer, *inputs)`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig

# (class of a layer, training) -> its form
_FORMS: ContextVar[Mapping] = ContextVar("layer_forms", default=MappingProxyType({}))


@contextlib.contextmanager
def layer_forms(forms: Mapping[type, Callable | None], training: bool) -> Iterator[None]:
    """Make layers called inside with this `training` compute with `forms`; None is their own `call`."""
    token = _FORMS.set({**_FORMS.get(), **{(kind, training): forms[kind] for kind in forms}})
    try:
        yield
    finally:
        _FORMS.reset(token)


def current_form(kind: type, training: bool) -> Any:
    """Return the form of a class of layers within `layer_forms`, or None."""
    return _FORMS.get().get((kind, training))


def has_forms(call: Callable) -> Callable:
    """Let `layer_forms` replace this `call` of a layer, a method with the argument `training`."""

    @functools.wraps(call)
    def current(layer, *inputs, training=False, **named_inputs):
        form = current_form(type(layer), bool(training))
        if form is None:
            return call(layer, *inputs, training=training, **named_inputs)
        return form(layer, *inputs, **named_inputs)

    return current


def truncated_normal(config: BertConfig) -> keras.initializers.Initializer:
    """Return the initializer of kernels and tables: normal, cut at two standard deviations."""
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range)


def layer_norm(config: BertConfig, dtype) -> keras.layers.LayerNormalization:
    """Return a LayerNorm over the last axis, computed in float32 under every precision."""
    return keras.layers.LayerNormalization(
        epsilon=config.layer_norm_eps, name="LayerNorm", dtype=dtype
    )


def dense(config: BertConfig, size: int, dtype, name: str = "dense", activation: str = "linear"):
    """Return Keras' layer x W + b with `size` outputs, and an activation by its name in `BertConfig`."""
    return keras.layers.Dense(
        size,
        activation=get_activation(activation),
        kernel_initializer=truncated_normal(config),
        name=name,
        dtype=dtype,
    )


_ACTIVATIONS = {
    # The reference's "gelu": 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
    "gelu": functools.partial(ops.gelu, approximate=True),
    "gelu_erf": functools.partial(ops.gelu, approximate=False),  # x Phi(x), Hugging Face's "gelu"
    "relu": ops.relu,
    "tanh": ops.tanh,
    "linear": keras.activations.linear,
}


def get_activation(name: str) -> Callable:
    return _ACTIVATIONS[name]
