"""Which devices a run uses."""

from __future__ import annotations

import functools
import logging

import tensorflow as tf

logger = logging.getLogger(__name__)

STRATEGIES = ("auto", "one_device", "mirrored", "tpu")


def make_strategy(
    name: str = "auto",
    num_gpus: int | None = None,
    tpu: str | None = None,
) -> tf.distribute.Strategy:
    """The `tf.distribute` strategy of a run.

    Args:
        name: "one_device"; "mirrored", a copy of the model on each GPU (or on each logical CPU device
            where there is no GPU); "tpu"; or "auto": mirrored when there is more than one GPU, else
            one device.
        num_gpus: how many of the visible GPUs to use; None means all, 0 the CPU.
        tpu: name or address of a TPU, for "tpu"; "" or "local" is the one of this machine.

    Raises:
        ValueError: the name is unknown, or the number of GPUs is negative or more than are visible.
    """
    if name not in STRATEGIES:
        raise ValueError(
            f"--distribution_strategy is {name!r}, but must be one of {', '.join(STRATEGIES)}."
        )
    if name == "tpu":
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=tpu or "")
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    if num_gpus is not None and num_gpus < 0:
        raise ValueError(f"--num_gpus is {num_gpus}, but must be 0 or more; 0 means the CPU.")
    gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
    if num_gpus is not None and num_gpus > len(gpus):
        raise ValueError(
            f"--num_gpus is {num_gpus}, but TensorFlow sees {len(gpus)}. "
            "Lower it, or look at CUDA_VISIBLE_DEVICES and the TensorFlow installation."
        )
    gpus = gpus[:num_gpus]
    devices = gpus or [device.name for device in tf.config.list_logical_devices("CPU")]
    if name == "mirrored" or (name == "auto" and len(gpus) > 1):
        return mirrored_strategy(tuple(devices))
    return tf.distribute.OneDeviceStrategy(devices[0])


@functools.cache
def mirrored_strategy(devices: tuple[str, ...]) -> tf.distribute.MirroredStrategy:
    """A copy of the model on each device; one strategy per process, however often it is asked for.

    Every `MirroredStrategy` numbers its reductions from the same start, and TensorFlow remembers the
    numbers' shapes as long as the process lives: a second run on a strategy of its own would end with
    "Shape mismatch in the collective instance".
    """
    return tf.distribute.MirroredStrategy(devices)


def needs_static_shapes(strategy: tf.distribute.Strategy) -> bool:
    """Whether every batch must have one shape (TPU), so that padding has to stay."""
    return isinstance(strategy, tf.distribute.TPUStrategy)


def describe(strategy: tf.distribute.Strategy, global_batch_size: int) -> str:
    """One line for the log: devices, replicas, batch of each."""
    replicas = strategy.num_replicas_in_sync
    devices = ", ".join(
        tf.DeviceSpec.from_string(device).device_type
        + f":{tf.DeviceSpec.from_string(device).device_index}"
        for device in strategy.extended.worker_devices
    )
    return (
        f"{type(strategy).__name__} on {devices}; batch {global_batch_size} = {replicas} x "
        f"{global_batch_size / replicas:g}"
    )
