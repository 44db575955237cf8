"""Weights of Hugging Face's TF classes, with the names and the layout of PyTorch's classes.

The files (`tf_model.h5`, or safetensors) have the names of Keras' layers, and kernels are [in, out].
`checkpoints.huggingface` reads the result.
"""

from __future__ import annotations

import h5py
import numpy as np

from bert_tf.checkpoints.checkpoint import LazyArrays
from bert_tf.limits import DataError

H5_FILE = "tf_model.h5"

# Outermost layers. The parts before them are the name of the model.
_OUTERMOST = ("bert", "cls", "classifier", "qa_outputs")
_ENDS = {"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias"}
_SUFFIX = ":0"  # of variables of TensorFlow


def pytorch_name(name: str) -> str:
    """Return the name of a variable in PyTorch's classes.

    >>> pytorch_name("tf_bert_model/bert/encoder/layer_._0/output/dense/kernel:0")
    'bert.encoder.layer.0.output.dense.weight'
    >>> pytorch_name("mlm___cls/predictions/bias:0")
    'cls.predictions.bias'
    """
    parts = [part.split("___")[-1] for part in name.removesuffix(_SUFFIX).split("/")]
    start = next((parts.index(layer) for layer in _OUTERMOST if layer in parts), 0)
    *layers, last = parts[start:]
    return ".".join([*layers, _ENDS.get(last, last)]).replace("_._", ".")


def with_pytorch_names(tensors: LazyArrays) -> LazyArrays:
    """Return the tensors with PyTorch's names and layout, if they are variables of TensorFlow."""
    if not any(name.endswith(_SUFFIX) for name in tensors):
        return tensors
    own_names = {pytorch_name(name): name for name in tensors}

    def shape(name: str) -> tuple[int, ...]:
        own_name = own_names[name]
        sizes = _without_heads(own_name, tensors.shape(own_name))
        return sizes[::-1] if _is_kernel(own_name) else sizes

    def read(name: str) -> np.ndarray:
        own_name = own_names[name]
        array = tensors[own_name].reshape(_without_heads(own_name, tensors.shape(own_name)))
        return array.T if _is_kernel(own_name) else array

    return LazyArrays({name: shape(name) for name in own_names}, read)


def _is_kernel(name: str) -> bool:
    return name.endswith(f"kernel{_SUFFIX}")


def _without_heads(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape with one axis for the heads [N, D], which have two in transformers 4.2."""
    if "/attention/" not in name or len(shape) != 2 + _is_kernel(name):
        return shape
    if "/attention/output/" in name:
        return shape[0] * shape[1], shape[2]
    return (*shape[:-2], shape[-2] * shape[-1])


def open_h5(path: str) -> LazyArrays:
    """Open a file of weights that Keras 2 wrote.

    Raises:
        ValueError: the file is damaged, or is not from Keras 2.
    """
    try:
        file = h5py.File(path, "r")
        weights = {
            name: file[layer][name]
            for layer in map(_text, file.attrs["layer_names"])
            for name in map(_text, file[layer].attrs["weight_names"])
        }
        shapes = {name: weight.shape for name, weight in weights.items()}
    except (AttributeError, KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise DataError(
            path, f"damaged, or not the weights of a TF class ({error}): get it again."
        ) from error
    return LazyArrays(shapes, lambda name: weights[name][()])


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name
