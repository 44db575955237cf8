"""Hugging Face's tensor files: safetensors and PyTorch's, whole or in shards, and tf_model.h5.

All are read; only safetensors are written.
"""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from collections.abc import Mapping

import numpy as np

from bert_tf.data.files import whole_file
from bert_tf.interop.checkpoint import LazyArrays, read_json
from bert_tf.interop.tf_classes import H5_FILE, open_h5, with_pytorch_names
from bert_tf.limits import check_inside

# In order of preference: safetensors are read in place, without running code.
_WEIGHTS_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    H5_FILE,
)
# Types of safetensors that NumPy has.
_NUMPY_TYPES = (
    "F64",
    "F32",
    "F16",
    "I64",
    "I32",
    "I16",
    "I8",
    "U64",
    "U32",
    "U16",
    "U8",
    "BOOL",
    "C64",
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
    weight_map = read_json(index_file).get("weight_map")
    if not isinstance(weight_map, Mapping):
        raise ValueError(f"{index_file} has no `weight_map` (tensor name -> file). Get it again.")
    folder = os.path.dirname(index_file)
    shards = {}
    for file in sorted(set(weight_map.values())):
        check_inside(file, "file", index_file)
        path = os.path.join(folder, file)
        if not os.path.isfile(path):
            raise FileNotFoundError(
                f"{index_file} names {len(set(weight_map.values()))} files, but {file} is missing in "
                "its folder. Copy or download it again."
            )
        shards[file] = _open_file(path)
    absent = [name for name, file in weight_map.items() if name not in shards[file]]
    if absent:
        raise ValueError(
            f"{index_file} maps {absent[0]!r} to {weight_map[absent[0]]}, which does not contain it "
            f"({len(absent)} such tensors). The files do not belong together; download all again."
        )
    shapes = {name: shards[file].shape(name) for name, file in weight_map.items()}
    return LazyArrays(shapes, lambda name: shards[weight_map[name]][name])


def _open_safetensors(path: str) -> LazyArrays:
    try:
        import safetensors
    except ImportError as error:
        raise ImportError(
            f"Reading {path} needs the safetensors library: pip install -e '.[hf]' in "
            "the checkout of bert_tf"
        ) from error
    try:
        file = safetensors.safe_open(path, framework="numpy")
    except (safetensors.SafetensorError, OSError) as error:
        raise ValueError(
            f"{path} cannot be read as safetensors ({error}). It is damaged or not fully downloaded "
            "(a Git LFS pointer is a text file of 130 bytes); fetch it again."
        ) from error
    slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118, no mapping
    types = {name: one.get_dtype() for name, one in slices.items()}
    shapes = {name: tuple(one.get_shape()) for name, one in slices.items()}
    places = _places(path) if "BF16" in types.values() else {}

    def read(name: str) -> np.ndarray:
        if types[name] == "BF16":  # NumPy has no such type
            return _read_bfloat16(path, *places[name]).reshape(shapes[name])
        if types[name] not in _NUMPY_TYPES:
            raise ValueError(
                f"{path}: {name} has the type {types[name]}, which NumPy lacks. Save the model again in "
                "float32, float16 or bfloat16."
            )
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
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import save_file
    except ImportError as error:
        raise ImportError(
            f"Writing {path} needs the safetensors library: pip install -e '.[hf]' in "
            "the checkout of bert_tf"
        ) from error
    try:
        with whole_file(path) as name:
            save_file(dict(tensors), name, metadata={"format": "pt"})  # transformers requires it
    except SafetensorError as error:
        raise OSError(f"{path}; {error}") from error


def _open_torch(path: str) -> LazyArrays:
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"Reading {path} needs PyTorch 2.6 or later: pip install torch. Or save the model as "
            "model.safetensors, which needs no PyTorch to be read."
        ) from error
    if tuple(map(int, torch.__version__.split(".")[:2])) < _SAFE_TORCH:
        raise ImportError(
            f"PyTorch is {torch.__version__}, but must be 2.6 or later to read {path} safely "
            "(CVE-2025-32434). Update it, or save the model as model.safetensors."
        )
    try:
        # Only the current format, a zip archive, can be mapped into memory.
        is_zip = zipfile.is_zipfile(path)
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
        tensors = {name: value for name, value in tensors.items() if torch.is_tensor(value)}
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path} is rejected: it is damaged, or would run code when read. Use model.safetensors."
        ) from error
    except Exception as error:  # a damaged pickle raises errors of many types
        raise ValueError(
            f"{path} cannot be read as PyTorch weights ({error}). Get it again, or save the model's "
            "`state_dict()`."
        ) from error
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}

    def read(name: str) -> np.ndarray:
        value = tensors[name].detach()
        return (value.float() if value.is_floating_point() else value).numpy()

    return LazyArrays(shapes, read)
