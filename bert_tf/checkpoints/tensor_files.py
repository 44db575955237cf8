"""Hugging Face's tensor files: safetensors and PyTorch's, whole or in shards, and tf_model.h5.

All are read; only safetensors are written.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping

import numpy as np

from bert_tf.checkpoints.checkpoint import LazyArrays
from bert_tf.checkpoints.tf_classes import H5_FILE, open_h5, with_pytorch_names
from bert_tf.files import atomic_path
from bert_tf.limits import DataError, check_inside, needing_extra, read_json

# In order of preference: safetensors are read in place, without running code.
_WEIGHTS_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    H5_FILE,
)
_SAFE_TORCH = (2, 6)


def weights_file(folder: str) -> str | None:
    """Return the file with the weights of a Hugging Face folder (for shards, their index), or None."""
    paths = (os.path.join(folder, name) for name in _WEIGHTS_FILES)
    return next((path for path in paths if os.path.isfile(path)), None)


def is_weights_file(path: str) -> bool:
    """Return True if `open_tensors` reads files with the name of `path`."""
    endings = (".safetensors", ".bin", ".safetensors.index.json", ".bin.index.json", ".h5")
    return path.endswith(endings)


def open_tensors(path: str) -> LazyArrays:
    """Open the tensors in one weights file, or in the shards that an index names.

    Raises:
        ImportError: the library for the file is missing.
        FileNotFoundError: a shard is missing.
        ValueError: the file is damaged, or would run code when read.
    """
    is_index = path.endswith(".index.json")
    return with_pytorch_names(_open_shards(path) if is_index else _open_file(path))


def _open_file(path: str) -> LazyArrays:
    """Open the tensors in one file, with its own names."""
    readers = {".safetensors": _open_safetensors, ".h5": open_h5}
    return readers.get(os.path.splitext(path)[1], _open_torch)(path)


def _open_shards(index_file: str) -> LazyArrays:
    """Open the tensors in the files that an index names."""
    weight_map = read_json(index_file)["weight_map"]
    shards = {}
    for file in sorted(set(weight_map.values())):
        check_inside(file, "file", index_file)
        shards[file] = _open_file(os.path.join(os.path.dirname(index_file), file))
    shapes = {name: shards[file].shape(name) for name, file in weight_map.items()}
    return LazyArrays(shapes, lambda name: shards[weight_map[name]][name])


def _open_safetensors(path: str) -> LazyArrays:
    with needing_extra(path):
        import safetensors
    try:
        file = safetensors.safe_open(path, framework="numpy")
    except safetensors.SafetensorError as error:
        raise DataError(
            path, f"damaged or not fully downloaded, such as a pointer of Git LFS ({error})."
        ) from error
    slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118, no mapping
    types = {name: one.get_dtype() for name, one in slices.items()}
    shapes = {name: tuple(one.get_shape()) for name, one in slices.items()}
    places = _places(path) if "BF16" in types.values() else {}

    def read(name: str) -> np.ndarray:
        if types[name] == "BF16":  # NumPy has no such type
            return _read_bfloat16(path, *places[name]).reshape(shapes[name])
        return file.get_tensor(name)

    return LazyArrays(shapes, read)


def _places(path: str) -> dict[str, tuple[int, int]]:
    """Return where the values of each tensor of a safetensors file begin and end.

    File layout: the header's length (8 bytes, little endian), the header (JSON), the values.
    """
    with open(path, "rb") as file:
        header_size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(header_size))
    header.pop("__metadata__", None)
    offsets = {name: entry["data_offsets"] for name, entry in header.items()}
    first = 8 + header_size
    return {name: (first + start, first + end) for name, (start, end) in offsets.items()}


def _read_bfloat16(path: str, start: int, end: int) -> np.ndarray:
    """Read bfloat16 as float32: its 16 bits are the upper half of the float's 32."""
    with open(path, "rb") as file:
        file.seek(start)
        upper = np.frombuffer(file.read(end - start), dtype="<u2")
    return (upper.astype(np.uint32) << 16).view(np.float32)


def write_safetensors(path: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Write one file of tensors, first under a temporary name.

    Raises:
        ImportError: the safetensors library is not installed.
    """
    with needing_extra(path):
        from safetensors.numpy import save_file
    with atomic_path(path) as name:
        save_file(dict(tensors), name, metadata={"format": "pt"})  # transformers requires it


def _open_torch(path: str) -> LazyArrays:
    with needing_extra(path):
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
    except Exception as error:  # a damaged pickle raises errors of many types
        raise DataError(
            path, f"damaged, or would run code when read: get model.safetensors ({error})."
        ) from error
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}

    def read(name: str) -> np.ndarray:
        value = tensors[name].detach()
        return (value.float() if value.is_floating_point() else value).numpy()

    return LazyArrays(shapes, read)
