"""Weights that the TF classes of `transformers` 2 to 4 saved: `tf_model.h5`, or safetensors.

Their names follow Keras' layers, and kernels are [in, out]. They are given the names and the layout of
PyTorch's classes, which `interop.huggingface` reads.
"""

from __future__ import annotations

import numpy as np

from bert_tf.interop.checkpoint import LazyArrays

H5_FILE = "tf_model.h5"

_OUTERMOST = (
    "bert",
    "cls",
    "classifier",
    "qa_outputs",
)  # layers of the classes; above is their name
_ENDS = {"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias"}


def pytorch_name(name: str) -> str:
    """Return the name of a variable in PyTorch's classes.

    >>> pytorch_name("tf_bert_model/bert/encoder/layer_._0/output/dense/kernel:0")
    'bert.encoder.layer.0.output.dense.weight'
    >>> pytorch_name("mlm___cls/predictions/bias:0")
    'cls.predictions.bias'
    """
    parts = [part.split("___")[-1] for part in name.removesuffix(":0").split("/")]
    start = next((parts.index(layer) for layer in _OUTERMOST if layer in parts), 0)
    *layers, last = parts[start:]
    return ".".join([*layers, _ENDS.get(last, last)]).replace("_._", ".")


def with_pytorch_names(tensors: LazyArrays) -> LazyArrays:
    """Return the tensors with PyTorch's names and layout."""
    own_names = {pytorch_name(name): name for name in tensors}

    def is_kernel(name: str) -> bool:
        return own_names[name].removesuffix(":0").endswith("kernel")

    def shape(name: str) -> tuple[int, ...]:
        found = tensors.shape(own_names[name])
        return found[::-1] if is_kernel(name) else found

    def read(name: str) -> np.ndarray:
        array = tensors[own_names[name]]
        return array.T if is_kernel(name) else array

    return LazyArrays({name: shape(name) for name in own_names}, read)


def open_h5(path: str) -> LazyArrays:
    """Open a file of weights that Keras 2 wrote, with PyTorch's names and layout.

    Raises:
        ValueError: the file is damaged, of another program, or has values outside of itself.
    """
    import h5py  # Keras needs it too

    try:
        file = h5py.File(path, "r")
        datasets = {
            name: file[layer][name]
            for layer in map(_text, file.attrs["layer_names"])
            for name in map(_text, file[layer].attrs["weight_names"])
        }
    except (OSError, KeyError, RuntimeError) as error:
        raise ValueError(
            f"{path} cannot be read as weights of a TF class ({error}). It is damaged, not fully "
            "downloaded or from another program; get it again."
        ) from error
    for name, each in datasets.items():
        _check_inside(each, name, path)
    shapes = {name: each.shape for name, each in datasets.items()}
    return with_pytorch_names(LazyArrays(shapes, lambda name: datasets[name][()]))


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _check_inside(dataset: object, name: str, path: str) -> None:
    """Raise unless the file has the values themselves, as Keras writes them."""
    import h5py

    is_stored = (
        isinstance(dataset, h5py.Dataset)
        and dataset.file.filename == path
        and not (dataset.is_virtual or dataset.external or dataset.chunks)
        and dataset.id.get_storage_size() >= dataset.nbytes
    )
    if not is_stored:
        raise ValueError(
            f"{path} is rejected: the values of {name} are compressed, missing or in another file. "
            "Keras does not write such files; get it from a source you trust."
        )
