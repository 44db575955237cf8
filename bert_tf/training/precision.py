"""Which precision policy suits the machine: bfloat16 where the hardware multiplies it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16", "auto")

_CPU_INFO = Path("/proc/cpuinfo")
_CPU_FLAGS = ("amx_bf16", "avx512_bf16")  # the faster first
_GPU_CAPABILITY = (8, 0)  # NVIDIA's Ampere, the first with bfloat16


class Choice(NamedTuple):
    """A Keras precision policy, and the words for why."""

    policy: str
    reason: str


@functools.cache
def choose_precision() -> Choice:
    """What `auto` means on this machine."""
    if tf.config.list_logical_devices("TPU"):
        return Choice("mixed_bfloat16", "TPUs multiply bfloat16")
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return precision_for_cpu(_CPU_INFO)
    found = [
        tf.config.experimental.get_device_details(gpu).get("compute_capability", (0, 0))
        for gpu in gpus
    ]
    return precision_for_gpu(min(found))


def precision_for_gpu(capability: tuple[int, int]) -> Choice:
    """By the least compute capability of the GPUs, such as (8, 0)."""
    name = ".".join(map(str, capability))
    if capability >= _GPU_CAPABILITY:
        return Choice("mixed_bfloat16", f"GPUs of compute capability {name} multiply bfloat16")
    return Choice("float32", f"GPUs of compute capability {name} do not multiply bfloat16")


def precision_for_cpu(cpu_info: Path) -> Choice:
    """By the flags of the processor in Linux's /proc/cpuinfo; float32 on systems without it."""
    try:
        lines = cpu_info.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return Choice("float32", f"there is no {cpu_info} that names the processor's instructions")
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    for name in _CPU_FLAGS:
        if name in flags:
            return Choice("mixed_bfloat16", f"the processor has {name}")
    return Choice("float32", f"the processor has neither {' nor '.join(_CPU_FLAGS)}")
