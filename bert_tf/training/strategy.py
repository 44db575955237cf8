"""Devices of a run, and the precision for them."""

from __future__ import annotations

import functools
import logging
from pathlib import Path

import keras
import tensorflow as tf

logger = logging.getLogger(__name__)

STRATEGIES = ("auto", "one_device", "mirrored", "multi_worker_mirrored", "tpu")


def check_backend() -> None:
    """Raise ValueError unless Keras computes with TensorFlow."""
    if (backend := keras.config.backend()) != "tensorflow":
        raise ValueError(
            f"Keras' backend is {backend}, but programs, models on raw text and exports need "
            "TensorFlow. Set KERAS_BACKEND=tensorflow in the environment before Keras is imported."
        )


def make_strategy(name: str = "auto", tpu: str | None = None) -> tf.distribute.Strategy:
    """Make the `tf.distribute` strategy of a run. Call it before any computation.

    Args:
        name: "mirrored" is a copy of the model on each GPU, or logical CPU device.
            "multi_worker_mirrored" is the same in the processes of the environment variable TF_CONFIG.
            "auto" is one of these if there are several processes or GPUs, else "one_device".
        tpu: name or address of a TPU; "" or "local" is the TPU of this machine.
    """
    check_backend()
    if name == "tpu":
        logger.info("Connecting to the TPU %s ...", tpu or "of this machine")
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=tpu or "")
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    if name == "multi_worker_mirrored" or (name == "auto" and _num_workers() > 1):
        return _multi_worker_strategy()
    gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
    devices = gpus or [device.name for device in tf.config.list_logical_devices("CPU")]
    if name == "mirrored" or (name == "auto" and len(gpus) > 1):
        return mirrored_strategy(tuple(devices))
    return tf.distribute.OneDeviceStrategy(devices[0])


def distribute(
    strategy: tf.distribute.Strategy, dataset: tf.data.Dataset
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Return the batches for `strategy`, each split into one part for each replica.

    One device gets the dataset itself, without autotuning: the iterator of an autotuned or
    distributed dataset can take a minute to end (TensorFlow 2.21).
    """
    options = tf.data.Options()
    if isinstance(strategy, tf.distribute.OneDeviceStrategy):
        options.autotune.enabled = False
        return dataset.with_options(options)
    # All workers read the same batches, and each takes its part. By default each reads other files.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return strategy.experimental_distribute_dataset(dataset.with_options(options))


@functools.cache
def mirrored_strategy(devices: tuple[str, ...]) -> tf.distribute.MirroredStrategy:
    """Return the strategy with a copy of the model on each device, one object per process.

    TensorFlow remembers the reductions of a `MirroredStrategy`, so that a second one would fail.
    """
    return tf.distribute.MirroredStrategy(devices)


@functools.cache
def _multi_worker_strategy() -> tf.distribute.MultiWorkerMirroredStrategy:
    """Return the strategy of this process; blocks until all processes have called it."""
    return tf.distribute.MultiWorkerMirroredStrategy()


def _num_workers() -> int:
    """Return the number of processes in TF_CONFIG; 1 without it."""
    spec = tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec().as_dict()
    return max(1, sum(len(spec.get(job, ())) for job in ("chief", "worker")))


def is_multi_worker(strategy: tf.distribute.Strategy) -> bool:
    """Return True if several processes train together."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Return True if this process writes checkpoints, results and logs; exactly one does."""
    if not is_multi_worker(strategy):
        return True
    resolver = strategy.cluster_resolver
    if resolver.task_type == "worker":
        return resolver.task_id == 0 and "chief" not in resolver.cluster_spec().jobs
    return resolver.task_type in (None, "", "chief")


def needs_static_shapes(strategy: tf.distribute.Strategy) -> bool:
    """Return True if every batch must have one shape (TPU), so that padding must stay."""
    return isinstance(strategy, tf.distribute.TPUStrategy)


def describe(strategy: tf.distribute.Strategy, global_batch_size: int) -> str:
    """Return a text for the log: devices of this process, and the batch over all replicas."""
    devices = ", ".join(d.rpartition("device:")[2] for d in strategy.extended.worker_devices)
    replicas = strategy.num_replicas_in_sync
    return f"{devices}; batch {global_batch_size} = {replicas} x {global_batch_size / replicas:g}"


PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16", "auto")

CPU_INFO = Path("/proc/cpuinfo")
BFLOAT16_FLAGS = ("amx_bf16", "avx512_bf16")  # the faster first
INT8_FLAGS = ("avx512_vnni", "avx_vnni", "amx_int8")
_GPU_CAPABILITY = (8, 0)  # NVIDIA's Ampere, the first with bfloat16
_NEW_GPU, _ITS_CUDA = (10, 0), (12, 9)  # Blackwell, and the first CUDA with PTX for all of it


@functools.cache
def choose_precision() -> str:
    """Return the precision that `auto` selects on this machine."""
    if tf.config.list_logical_devices("TPU"):
        return "mixed_bfloat16"
    if capabilities := _gpu_capabilities():
        return "mixed_bfloat16" if min(capabilities) >= _GPU_CAPABILITY else "float32"
    return precision_for_cpu()


def _gpu_capabilities() -> list[tuple[int, int]]:
    """Return the compute capability of each visible GPU, (0, 0) if unknown."""
    return [
        tf.config.experimental.get_device_details(gpu).get("compute_capability", (0, 0))
        for gpu in tf.config.list_physical_devices("GPU")
    ]


def gpu_compiler_problem() -> str | None:
    """Return why XLA would end the process on a visible GPU; None if it supports all of them.

    XLA writes PTX of the CUDA of TensorFlow's build. Source: tensorflow/tensorflow issue 111958.
    """
    built = tf.sysconfig.get_build_info().get("cuda_version")
    if built is None or max(_gpu_capabilities(), default=(0, 0)) < _NEW_GPU:
        return None
    if tuple(int(part) for part in built.split(".")[:2]) >= _ITS_CUDA:
        return None
    return f"XLA of TensorFlow {tf.__version__}, built for CUDA {built}, is older than the GPU"


def precision_for_cpu() -> str:
    """Choose by the processor's instructions; float32 on systems that do not name them."""
    return "float32" if set(BFLOAT16_FLAGS).isdisjoint(cpu_flags() or ()) else "mixed_bfloat16"


def int8_instruction() -> str | None:
    """Return the processor's instruction for 8-bit products; "" if it has none, None if unknown."""
    flags = cpu_flags()
    if not flags:
        return None
    return next((name for name in INT8_FLAGS if name in flags), "")


def cpu_flags() -> list[str] | None:
    """Return the names of the processor's instructions, such as avx512_bf16; None except on Linux."""
    try:
        lines = CPU_INFO.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((line.split() for line in lines if line.startswith("flags")), [])
