"""Hugging Face's tensor files: safetensors and PyTorch's, whole or in shards, and tf_model.h5.

All are read; only safetensors are written. Files of the TF classes (tf_model.h5 or safetensors) have the
names of Keras' layers, and kernels are [in, out]. They are read with PyTorch's names and layout.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping

import h5py
import numpy as np

from bert_tf.checkpoints.checkpoint import LazyArrays, rename_arrays
from bert_tf.files import atomic_path
from bert_tf.limits import DataError, check_inside, read_json, require_extra

H5_FILE = "tf_model.h5"
# In order of preference: safetensors are read in place, without running code.
WEIGHTS_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    H5_FILE,
)
_SAFE_TORCH = (2, 6)


def weights_file(folder: str) -> str | None:
    """Return the file with the weights of a Hugging Face folder (for shards, their index), or None."""
    paths = (os.path.join(folder, name) for name in WEIGHTS_FILES)
    return next((path for path in paths if os.path.isfile(path)), None)


def is_weights_file(path: str) -> bool:
    """Return True if `open_tensors` reads files with the name of `path`."""
    endings = (".safetensors", ".bin", ".safetensors.index.json", ".bin.index.json", ".h5")
    return path.endswith(endings)


def open_tensors(path: str) -> LazyArrays:
    """Open the tensors in one weights file, or in the shards that an index names."""
    is_index = path.endswith(".index.json")
    return _with_pytorch_names(_open_shards(path) if is_index else _open_file(path))


def _open_file(path: str) -> LazyArrays:
    readers = {".safetensors": _open_safetensors, ".h5": _open_h5}
    return readers.get(os.path.splitext(path)[1], _open_torch)(path)


def _open_shards(index_file: str) -> LazyArrays:
    weight_map, shards = read_json(index_file)["weight_map"], {}
    for file in set(weight_map.values()):
        check_inside(file, "file", index_file)
        shards[file] = _open_file(os.path.join(os.path.dirname(index_file), file))
    shapes = {name: shards[file].shape(name) for name, file in weight_map.items()}
    return LazyArrays(shapes, lambda name: shards[weight_map[name]][name])


def _open_safetensors(path: str) -> LazyArrays:
    with require_extra(path):
        import safetensors
    try:
        file = safetensors.safe_open(path, framework="numpy")
    except safetensors.SafetensorError as error:
        raise DataError(
            path, f"corrupt or not fully downloaded, such as a pointer of Git LFS ({error})."
        ) from error
    shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    return LazyArrays(shapes, file.get_tensor)


def write_safetensors(path: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Write one file of tensors, first under a temporary name."""
    with require_extra(path):
        from safetensors.numpy import save_file
    with atomic_path(path) as name:
        save_file(dict(tensors), name, metadata={"format": "pt"})  # transformers requires it


def _open_torch(path: str) -> LazyArrays:
    with require_extra(path):
        import torch
    if tuple(map(int, torch.__version__.split(".")[:2])) < _SAFE_TORCH:
        raise ImportError(
            f"{path} needs PyTorch 2.6 or later, which reads it safely (CVE-2025-32434): update PyTorch."
        )
    try:
        # Only the current format, a zip archive, can be mapped into memory.
        is_zip = zipfile.is_zipfile(path)
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
        tensors = {name: value for name, value in tensors.items() if torch.is_tensor(value)}
    except Exception as error:  # a corrupt pickle raises errors of many types
        raise DataError(
            path, f"corrupt, or would run code when read: get model.safetensors ({error})."
        ) from error
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}

    def read(name: str) -> np.ndarray:
        value = tensors[name].detach()
        return (value.float() if value.is_floating_point() else value).numpy()

    return LazyArrays(shapes, read)


# --------------------------------------------------------------------------------- the TF classes

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


def _with_pytorch_names(tensors: LazyArrays) -> LazyArrays:
    """Return the tensors with PyTorch's names and layout, if they are variables of TensorFlow."""
    if not any(name.endswith(_SUFFIX) for name in tensors):
        return tensors
    own_names = {pytorch_name(name): name for name in tensors}

    def to_pytorch_layout(name: str, array: np.ndarray) -> np.ndarray:
        return array.T if own_names[name].endswith(f"kernel{_SUFFIX}") else array

    return rename_arrays(tensors, own_names, to_pytorch_layout)


def _open_h5(path: str) -> LazyArrays:
    """Open a file of weights that Keras 2 wrote."""
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
            path, f"corrupt, or not the weights of a TF class ({error}): get it again."
        ) from error
    return LazyArrays(shapes, lambda name: weights[name][()])


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name
