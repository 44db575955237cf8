"""The names in the pickles of a PyTorch file, checked before PyTorch reads it.

`torch.load(weights_only=True)` runs no code, but calls some names with any arguments: `bytearray` takes
gigabytes for a few bytes of pickle. Weights need few names.
"""

from __future__ import annotations

import io
import os
import pickletools
from typing import IO, Any

_NAMES = frozenset(
    {
        "collections OrderedDict",
        "torch Size",
        "torch device",
        *(f"torch._utils _rebuild_{each}" for each in ("tensor", "tensor_v2", "tensor_v3")),
        "torch._utils _rebuild_parameter",
        "torch._utils _rebuild_parameter_with_state",
        "torch._tensor _rebuild_from_type_v2",
        "_codecs encode",
    }
)
_STORAGES = ("torch", "torch.cuda", "torch.storage")
_LEGACY_PICKLES = 5  # three of a header, the tensors, the keys of their values; then the values
_MAX_ALIASES = 32  # times the file: 24 layers may have one set of weights


def is_torch_zip(path: str) -> bool:
    """Return True for the current format, an archive; False for the one before PyTorch 1.6."""
    with open(path, "rb") as file:
        return file.read(4) == b"PK\3\4"


def unreadable(path: str, error: Exception) -> ValueError:
    """Return the error for a damaged file."""
    return ValueError(
        f"{path} cannot be read as PyTorch weights ({error}). It is damaged or not fully downloaded; "
        "fetch it again."
    )


def check_pickles(path: str, torch: Any) -> None:
    """Raise unless the pickles of a file name only what weights need.

    Args:
        torch: the module.

    Raises:
        ValueError: a name is not allowed, or a pickle is damaged.
    """
    with open(path, "rb") as file:
        if not is_torch_zip(path):
            for _ in range(_LEGACY_PICKLES):
                _check_pickle(file, path, torch)
            return
        try:
            # Another reader of archives could find another entry in a forged one.
            pickled = torch._C.PyTorchFileReader(path).get_record("data.pkl")
        except RuntimeError as error:
            raise unreadable(path, error) from error
        _check_pickle(io.BytesIO(pickled), path, torch)


def _check_pickle(file: IO[bytes], path: str, torch: Any) -> None:
    """Check one pickle, and leave the file after its end."""
    try:
        names = [name for opcode, name, _ in pickletools.genops(file) if opcode.name == "GLOBAL"]
    except (ValueError, MemoryError) as error:
        raise unreadable(path, error) from error
    for name in map(str, dict.fromkeys(names)):
        if not _is_allowed(name, torch):
            raise ValueError(
                f"{path} is rejected: it names {name[:200]!r}, but may contain only tensors. More would "
                "run code or fill the memory when read. Use model.safetensors, or save the model's "
                "`state_dict()` again from a source you trust."
            )


def _is_allowed(name: str, torch: Any) -> bool:
    module, _, own = name.partition(" ")
    if own.endswith("Storage"):
        return module in _STORAGES
    is_type = module == "torch" and isinstance(getattr(torch, own, None), torch.dtype)
    return name in _NAMES or is_type


def check_tensors(path: str, tensors: dict[str, Any], torch: Any) -> None:
    """Raise unless tensors have values in memory, which their file has too.

    Raises:
        ValueError: a tensor is sparse or without values, states more values than it has, or all state
            far more than the file has because they share values.
    """
    total = 0
    for name, value in tensors.items():
        if value.layout is not torch.strided or value.device.type != "cpu" or value.is_quantized:
            raise ValueError(
                f"{path}: {name} has the layout {value.layout} on the device {value.device.type!r}, "
                f"type {value.dtype}, but only plain tensors with values are read. Save the model "
                "again with such tensors."
            )
        size = value.numel() * value.element_size()
        total += size
        if size > value.untyped_storage().nbytes():
            raise ValueError(
                f"{path}: {name} has the shape {list(value.shape)}, but values for only "
                f"{value.untyped_storage().nbytes():,} bytes. The file is damaged or not trustworthy; "
                "get it again."
            )
    there = os.path.getsize(path)
    if total > _MAX_ALIASES * there:
        raise ValueError(
            f"{path}: its {len(tensors):,} tensors state {total:,} bytes, but the file has {there:,}. "
            f"Tensors may share values, but their sum may be {_MAX_ALIASES} times the file at most. "
            "Save the model as model.safetensors, or get the file again."
        )
