"""How a workflow declares its options, from which bert_tf/cli.py makes flags; and the shared ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from bert_tf.training import strategy

PRECISIONS = ("float32", "mixed_bfloat16")


def option(help_text: str, **kwargs: Any) -> Any:
    """A dataclass field that becomes a flag; without `default` the flag is required.

    Args:
        help_text: shown by --help.
        **kwargs: `default`; `choices`, a sequence of allowed values; `positional`, for the one field
            that takes the arguments which are no flags.
    """
    metadata = {"help": help_text}
    for name in ("choices", "positional"):
        if name in kwargs:
            metadata[name] = kwargs.pop(name)
    return field(metadata=metadata, **kwargs)


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Where to compute."""

    distribution_strategy: str = option(
        "auto: every visible GPU, else the CPU.", default="auto", choices=strategy.STRATEGIES
    )
    num_gpus: int | None = option("GPUs to use; default: all that are visible.", default=None)
    precision: str = option(
        "Keras precision policy of the computation; weights and optimizer stay float32.",
        default="float32",
        choices=PRECISIONS,
    )
    use_tpu: bool = option("Same as --distribution_strategy=tpu.", default=False)
    tpu_name: str | None = option("Name or address of the TPU.", default=None)
    tpu_zone: str | None = option("Zone of the TPU; found by TensorFlow itself.", default=None)
    gcp_project: str | None = option("Project of the TPU; found by itself.", default=None)
    master: str | None = option("Address of the TPU, when --tpu_name is not given.", default=None)
    num_tpu_cores: int = option("Ignored: TensorFlow asks the TPU.", default=8)

    def make_strategy(self) -> tf.distribute.Strategy:
        name = "tpu" if self.use_tpu else self.distribution_strategy
        return strategy.make_strategy(name, self.num_gpus, self.tpu_name or self.master)


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(DeviceOptions):
    """How to train: the flags that pre-training and fine-tuning share."""

    output_dir: str = option("Folder for checkpoints and results.")
    init_checkpoint: str | None = option(
        "Weights to start from: a TF1 checkpoint, a folder that a run of ours wrote, or a Hugging "
        "Face folder. Not needed to resume: a run goes on from the checkpoints in --output_dir.",
        default=None,
    )
    do_train: bool = option("Train.", default=False)
    do_eval: bool = option("Evaluate.", default=False)
    train_batch_size: int = option("Examples per step, over all devices.", default=32)
    eval_batch_size: int = option("Examples per evaluation batch.", default=8)
    learning_rate: float = option("Peak learning rate.", default=5e-5)
    save_checkpoints_steps: int = option("Steps between checkpoints.", default=1000)
    keep_checkpoint_max: int = option("Checkpoints that are kept; 0 keeps all.", default=5)
    iterations_per_loop: int = option(
        "Most steps per call of the compiled loop. Fewer run per call when they take long.",
        default=1000,
    )
    seed: int = option("Of the initial weights, the order of the data, and dropout.", default=12345)

    def __post_init__(self) -> None:
        for name in (
            "train_batch_size",
            "eval_batch_size",
            "save_checkpoints_steps",
            "iterations_per_loop",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} is {getattr(self, name)}, but must be 1 or more.")
        if not self.learning_rate > 0:
            raise ValueError(f"--learning_rate is {self.learning_rate}, but must be above 0.")
        if self.keep_checkpoint_max < 0:
            raise ValueError(
                f"--keep_checkpoint_max is {self.keep_checkpoint_max}, but must be 0 or more."
            )


def require_one_of(options: Any, names: Sequence[str]) -> None:
    """At least one of some boolean flags must be set."""
    if not any(getattr(options, name) for name in names):
        flags = ", ".join(f"--{name}" for name in names)
        raise ValueError(f"Nothing to do: give at least one of {flags}.")
