"""Hugging Face's tensor files: safetensors and PyTorch's, whole or in shards, and tf_model.h5.

All are read; only safetensors are written. Files of the TF classes (tf_model.h5 or safetensors) have the
names of Keras' layers, and kernels are [in, out]. They are read with PyTorch's names and layout.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from typing import Any

import h5py
import ml_dtypes
import numpy as np

from bert_tf.checkpoints.checkpoint import LazyArrays, rename_arrays
from bert_tf.files import atomic_path
from bert_tf.limits import DataError, check_inside, read_json

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


# ------------------------------------------------------------------------------------ safetensors

# The length of the header in 8 bytes, {name: {"dtype", "shape", "data_offsets": [begin, end]}} in JSON,
# and the bytes of the tensors, one after the other.
_DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    **{f"I{8 * size}": np.dtype(f"i{size}") for size in (1, 2, 4, 8)},
    **{f"U{8 * size}": np.dtype(f"u{size}") for size in (1, 2, 4, 8)},
    "BOOL": np.dtype(bool),
}
_DTYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def _open_safetensors(path: str) -> LazyArrays:
    """Open a file, mapped into memory, whose header accounts for each of its bytes."""
    try:
        data = np.memmap(path, np.uint8, mode="r")
        start = 8 + int.from_bytes(data[:8].tobytes(), "little")
        header = json.loads(data[8:start].tobytes().decode())
        header.pop("__metadata__", None)
        arrays, position = {}, start
        for name in sorted(header, key=lambda name: header[name]["data_offsets"]):
            dtype, shape = _DTYPES[header[name]["dtype"]], header[name]["shape"]
            begin, end = (start + offset for offset in header[name]["data_offsets"])
            if begin != position or not all(type(size) is int and size >= 0 for size in shape):
                raise ValueError(f"{name} overlaps, or has the shape {shape!r:.40}")
            arrays[name] = data[begin:end].view(dtype).reshape(shape)
            position = end
        if position != len(data):
            raise ValueError(f"the header is of {position} bytes, the file has {len(data)}")
    except (
        AttributeError,
        KeyError,
        OverflowError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        problem = f"corrupt or incomplete, such as a pointer of Git LFS ({error!r:.200})."
        raise DataError(path, problem) from error
    shapes = {name: array.shape for name, array in arrays.items()}
    return LazyArrays(shapes, lambda name: np.array(arrays[name]))


def write_safetensors(path: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Write one file of tensors, first under a temporary name; the widest types are aligned first."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}  # transformers requires it
    arrays = {name: np.asarray(array) for name, array in tensors.items()}
    names, position = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name)), 0
    for name in names:
        dtype, end = _DTYPE_NAMES[arrays[name].dtype], position + arrays[name].nbytes
        offsets = [position, end]
        header[name] = {"dtype": dtype, "shape": arrays[name].shape, "data_offsets": offsets}
        position = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            file.write(arrays[name].tobytes())


# ------------------------------------------------------------------------------ pytorch_model.bin


def _open_torch(path: str) -> LazyArrays:
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"{path} needs PyTorch: pip install torch.") from error
    if tuple(map(int, torch.__version__.split(".")[:2])) < _SAFE_TORCH:
        raise ImportError(f"{path} needs PyTorch 2.6 or later (CVE-2025-32434): update it.")
    try:
        # Only the current format, a zip archive, can be mapped into memory.
        is_zip = zipfile.is_zipfile(path)
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
        tensors = {name: value for name, value in tensors.items() if torch.is_tensor(value)}
    except Exception as error:  # a corrupt pickle raises errors of many types
        problem = f"corrupt, or would run code when read: get model.safetensors ({error})."
        raise DataError(path, problem) from error
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
