"""Estimate the memory of a pre-training step, and return freed memory to the system.

The estimate counts weights, gradients, moments, what the layers keep for the backward pass, and logits.

Source: Korthikanti et al. 2022, arXiv 2205.05198, section 4.1 (of a layer).
"""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
from collections.abc import Sequence

import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.limits import host_bytes
from bert_tf.training.strategy import is_multi_worker

USED = 0.8  # of the memory; the rest is for the process before the step, and data
_FIXED = 400 << 20  # bytes: TensorFlow's own, compiled code
_PER_PARAMETER = 20  # bytes: weight, gradient, its sum over parts, two moments of Adam; float32
_LOGITS = 3  # float32 copies: logits, their softmax, the gradient
_ASK_GPU = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")  # MiB


def step_bytes(
    config: BertConfig, examples: int, length: int, predictions: int, precision: str
) -> int:
    """Return the bytes of a step on one device.

    Args:
        examples: computed at once.
        length: S.
        predictions: masked words of an example.
        precision: Keras policy; activations have 4 bytes in float32, else 2.
    """
    hidden, heads = config.hidden_size, config.num_attention_heads
    layer = length * (18 * hidden + 4 * config.intermediate_size + 5 * heads * length)
    layer *= 2 if precision == "float32" else 1
    logits = _LOGITS * 4 * predictions * config.vocab_size
    example = config.num_hidden_layers * layer + logits
    return _FIXED + _PER_PARAMETER * config.encoder_size + examples * example


def replica_bytes(strategy: tf.distribute.Strategy) -> int:
    """Return the memory of a device: of a machine's smallest GPU, or of a host, shared by its CPUs.

    With several workers it is that of the smallest one, so that all choose the same parts.

    Raises:
        ValueError: the memory is unknown.
    """
    devices = strategy.extended.worker_devices
    found = _own_replica_bytes(devices)
    if not is_multi_worker(strategy):
        return _known(found, devices)

    @tf.function
    def of_workers():
        def gather():
            own = tf.identity(tf.constant([found >> 20]))  # MiB
            return tf.distribute.get_replica_context().all_gather(own, axis=0)

        return strategy.run(gather)

    (values,) = strategy.experimental_local_results(of_workers())[:1]
    return _known(int(tf.reduce_min(values)) << 20, devices)


def _known(found: int, devices: Sequence[str]) -> int:
    if found:
        return found
    raise ValueError(
        f"auto_batch needs the memory of the device, but that of {devices[0]} is unknown. Use "
        "gradient_accumulation_steps instead."
    )


def _own_replica_bytes(devices: Sequence[str]) -> int:
    """Return the memory of a device of this process, 0 if it is unknown."""
    (kind,) = {tf.DeviceSpec.from_string(device).device_type for device in devices}
    if kind == "CPU":
        return host_bytes() // len(devices)
    try:
        if kind == "GPU":
            done = subprocess.run(  # noqa: S603, a fixed program
                _ASK_GPU, capture_output=True, check=True, text=True
            )
            return min(int(line) for line in done.stdout.splitlines()) << 20
    except (OSError, ValueError, subprocess.CalledProcessError):
        pass
    return 0


def parts_that_fit(
    config: BertConfig,
    batch_size: int,
    length: int,
    predictions: int,
    precision: str,
    memory: int,
    even: bool = False,
) -> int:
    """Return the fewest parts of a device's batch whose step fits `USED` of the memory.

    Args:
        memory: bytes of the device.
        even: only parts of one size.

    >>> base = BertConfig.from_name("base", vocab_size=30522)
    >>> [parts_that_fit(base, 256, 512, 77, "mixed_bfloat16", gigabytes << 30) for gigabytes in (16, 80)]
    [9, 2]

    Raises:
        ValueError: one example does not fit.
    """
    for parts in range(1, batch_size + 1):
        if even and batch_size % parts:
            continue
        needed = step_bytes(config, -(-batch_size // parts), length, predictions, precision)
        if needed <= USED * memory:
            return parts
    halved = ", or precision=mixed_bfloat16" if precision == "float32" else ""
    raise ValueError(
        f"A step with one example of {length} tokens needs about {needed / 1e9:.2g} GB, but {USED:.0%} "
        f"of the device's {memory / 1e9:.2g} GB may be used. Use a smaller model, or a lower "
        f"max_seq_length{halved}."
    )


def return_freed_memory() -> None:
    """Return freed memory to the system, if the C library is glibc.

    glibc keeps freed tensors of up to 32 MB, in pieces that later tensors seldom fit. Without this
    call, the resident memory grows with each evaluation.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
