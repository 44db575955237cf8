"""`python -m bert_tf --version`: what a report of an error needs."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib import metadata

import tensorflow as tf

from bert_tf import __version__
from bert_tf.training.strategy import choose_precision, cpu_flags

_PACKAGES = ("tensorflow", "tensorflow-text", "keras", "numpy", "absl-py")
_EXTRAS = ("onnxruntime", "openvino", "nncf", "safetensors", "apache-beam")
_INSTRUCTIONS = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx_vnni",
    "avx512_bf16",
    "amx_bf16",
    "amx_int8",
)


def versions_and_devices() -> Iterator[str]:
    """Yield lines: versions of packages, the processor's instructions for products, GPUs."""
    yield f"bert_tf {__version__}, Python {platform.python_version()}, {platform.platform()}"
    for names in (_PACKAGES, _EXTRAS):
        found = [f"{name} {version}" for name in names if (version := _version(name))]
        if found:
            yield ", ".join(found)
    flags = cpu_flags() or []
    instructions = ", ".join(name for name in _INSTRUCTIONS if name in flags)
    yield f"{os.cpu_count()} processors: {instructions or platform.machine()}"
    gpus = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    yield "GPUs: " + (", ".join(str(d.get("device_name", "?")) for d in details) or "none")
    yield f"--precision=auto: {choose_precision()}"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
