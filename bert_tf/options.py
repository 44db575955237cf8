"""How a workflow declares its options, from which bert_tf/cli.py makes flags; and the shared ones."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

import tensorflow as tf

from bert_tf.interop.hub import SCHEME
from bert_tf.training import strategy
from bert_tf.training.optimization import OPTIMIZERS, parse_frozen
from bert_tf.training.schedules import SCHEDULES
from bert_tf.training.step import COMPILATIONS
from bert_tf.training.strategy import PRECISIONS, choose_precision

NO_LICENSE = "other"  # what the hub says of a licence that it has no name for


def check_license(license: str | None) -> None:
    """Refuses a value of --license that is no name.

    Raises:
        ValueError: it has spaces or signs that YAML would read otherwise.
    """
    if license is not None and not re.fullmatch(r"[A-Za-z][\w.+-]*", license):
        raise ValueError(
            f"--license is {license!r}, but must be a name as Hugging Face's hub has it, such as "
            f"apache-2.0, mit or cc-by-4.0; {NO_LICENSE} where it has none."
        )


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
        "auto: the processes that TF_CONFIG names, else every visible GPU, else the CPU.",
        default="auto",
        choices=strategy.STRATEGIES,
    )
    num_gpus: int | None = option("GPUs to use; default: all that are visible.", default=None)
    precision: str = option(
        "Keras precision policy of the computation; weights and optimizer stay float32. "
        "mixed_float16 scales the loss, for GPUs without bfloat16. auto: mixed_bfloat16 where the "
        "machine multiplies it, else float32.",
        default="float32",
        choices=PRECISIONS,
    )
    jit_compile: str = option(
        "What XLA compiles of a training step. auto: the element-wise parts on CPUs, forward and "
        "backward as a whole on GPUs. true: as a whole. false: nothing.",
        default="auto",
        choices=COMPILATIONS,
    )
    num_threads: int | None = option(
        "Processor threads of one operation; default: all cores.", default=None
    )
    deterministic: bool = option(
        "Only operations that give the same bits in every run (on a GPU some are slower).",
        default=False,
    )
    use_tpu: bool = option("Same as --distribution_strategy=tpu.", default=False)
    tpu_name: str | None = option("Name or address of the TPU.", default=None)
    tpu: str | None = option(
        "Same as --use_tpu --tpu_name=...; local is the TPU of this machine.", default=None
    )
    tpu_zone: str | None = option("Zone of the TPU; found by TensorFlow itself.", default=None)
    gcp_project: str | None = option("Project of the TPU; found by itself.", default=None)
    master: str | None = option("Address of the TPU, when --tpu_name is not given.", default=None)
    num_tpu_cores: int = option("Ignored: TensorFlow asks the TPU.", default=8)

    def make_strategy(self) -> tf.distribute.Strategy:
        """Comes before anything is computed: several workers and threads have to be known by then."""
        strategy.set_up(self.num_threads, self.deterministic)
        on_tpu = self.use_tpu or self.tpu is not None
        name = "tpu" if on_tpu else self.distribution_strategy
        return strategy.make_strategy(name, self.num_gpus, self.tpu or self.tpu_name or self.master)

    @property
    def policy(self) -> str:
        """The Keras policy that --precision means on this machine; asked after `make_strategy`."""
        return choose_precision().policy if self.precision == "auto" else self.precision


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(DeviceOptions):
    """How to train: the flags that pre-training and fine-tuning share."""

    output_dir: str = option("Folder for checkpoints and results.")
    init_checkpoint: str | None = option(
        "Weights to start from: a TF1 checkpoint, a folder that a run of ours wrote, a Hugging Face "
        "folder or hf://org/name, or an encoder of tf-models-official or TF Hub. Not "
        "needed to resume: a run goes on from the checkpoints in --output_dir.",
        default=None,
    )
    init_optimizer: bool = option(
        "Take the optimizer's moments and the step from --init_checkpoint as well, a run of ours: for "
        "a second phase, such as longer sequences, that goes on where the first ended.",
        default=False,
    )
    do_train: bool = option("Train.", default=False)
    do_eval: bool = option("Evaluate.", default=False)
    train_batch_size: int = option("Examples per step, over all devices.", default=32)
    eval_batch_size: int = option("Examples per evaluation batch.", default=8)
    learning_rate: float = option("Peak learning rate.", default=5e-5)
    lr_batch_size: int | None = option(
        "The batch size that --learning_rate was found for. The rate is multiplied by "
        "--train_batch_size / --lr_batch_size. Default: the rate is used as it is.",
        default=None,
    )
    lr_batch_scaling: str = option(
        "How the rate grows with the batch size, with --lr_batch_size; sqrt is usual with "
        "--optimizer=lamb.",
        default="linear",
        choices=("linear", "sqrt"),
    )
    lr_schedule: str = option(
        "Shape of the learning rate after warm-up.", default="linear", choices=tuple(SCHEDULES)
    )
    lr_power: float = option(
        "Power of --lr_schedule=polynomial: (1 - step / steps) ** power.", default=1.0
    )
    lr_end: float = option("Share of the peak rate that is left at the last step.", default=0.0)
    lr_decay_from_warmup: bool = option(
        "Let the decay begin where warm-up ends. Default: it is measured from step 0, as in the "
        "reference, so that the rate falls a little when warm-up ends.",
        default=False,
    )
    layer_lr_decay: float = option(
        "Each layer learns at this share of the rate of the layer above it, and the embeddings at "
        "this share of layer 0's; heads and pooler at the full rate. 1 means that all are equal.",
        default=1.0,
    )
    freeze: str | None = option(
        "What is not trained: comma list of embeddings, encoder (all layers), pooler, and numbers or "
        "ranges of layers from 0, such as embeddings,0-5.",
        default=None,
    )
    optimizer: str = option(
        "adam_weight_decay: the reference's, without bias correction. adamw: with it. lamb: for "
        "batches of thousands.",
        default="adam_weight_decay",
        choices=tuple(OPTIMIZERS),
    )
    weight_decay_rate: float = option(
        "Weight decay, of all but biases and LayerNorms.", default=0.01
    )
    adam_beta1: float = option("Decay of the mean of the gradients.", default=0.9)
    adam_beta2: float = option("Decay of the mean of their squares.", default=0.999)
    adam_epsilon: float = option("Added to the root of that mean.", default=1e-6)
    ema_decay: float | None = option(
        "Keep a moving average of the weights, which forgets 1 - this share per step (0.999 is usual), "
        "and evaluate and export it in place of the weights.",
        default=None,
    )
    max_gradient_norm: float = option(
        "Gradients are scaled down to this norm over all variables.", default=1.0
    )
    save_checkpoints_steps: int = option("Steps between checkpoints.", default=1000)
    stop_step: int | None = option(
        "End at this step, though the learning rate is that of all training steps: for a first phase "
        "that --init_optimizer goes on from.",
        default=None,
    )
    evaluate_steps: int = option(
        "Evaluate every so many steps while training, and keep the best weights in the folder best of "
        "--output_dir; 0 means at the end only.",
        default=0,
    )
    best_metric: str | None = option(
        "The figure of an evaluation that says which weights are best; lower is better where its name "
        "has loss or perplexity in it. Default: the task's first.",
        default=None,
    )
    early_stopping: int = option(
        "End after so many evaluations in a row without a better figure; 0 means never.", default=0
    )
    keep_checkpoint_max: int = option("Checkpoints that are kept; 0 keeps all.", default=5)
    iterations_per_loop: int = option(
        "Most steps per call of the compiled loop. Fewer run per call when they take long.",
        default=1000,
    )
    steps_per_loop: int | None = option("Same as --iterations_per_loop.", default=None)
    pack_sequences: bool = option(
        "Train on rows of several examples each, up to the sequence length, so that there is hardly "
        "any padding; an example sees only itself. The loss is the same.",
        default=False,
    )
    tensorboard: bool = option(
        "Write events for TensorBoard into --output_dir (pip install -e '.[tensorboard]'); the same "
        "figures always go to metrics.jsonl.",
        default=False,
    )
    gradient_accumulation_steps: int = option(
        "Parts into which each device cuts its share of the batch, to fit it into memory.",
        default=1,
    )
    seed: int = option("Of the initial weights, the order of the data, and dropout.", default=12345)
    license: str = option(
        "Licence of the model, as Hugging Face's hub names it (apache-2.0, cc-by-4.0): for the model "
        "card, README.md.",
        default=NO_LICENSE,
    )

    def __post_init__(self) -> None:
        for name in (
            "train_batch_size",
            "eval_batch_size",
            "save_checkpoints_steps",
            "iterations_per_loop",
            "gradient_accumulation_steps",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} is {getattr(self, name)}, but must be 1 or more.")
        if self.gradient_accumulation_steps > self.train_batch_size:
            raise ValueError(
                f"--gradient_accumulation_steps is {self.gradient_accumulation_steps}, but "
                f"--train_batch_size={self.train_batch_size} examples cannot be cut into more parts "
                f"than that. Use --gradient_accumulation_steps={self.train_batch_size} or less."
            )
        refuse_infinite(self)
        if not self.learning_rate > 0:
            raise ValueError(f"--learning_rate is {self.learning_rate}, but must be above 0.")
        if self.keep_checkpoint_max < 0:
            raise ValueError(
                f"--keep_checkpoint_max is {self.keep_checkpoint_max}, but must be 0 or more."
            )
        check_license(self.license)
        self._check_steps()
        self._check_learning_rate()
        self._check_optimizer()

    def _check_steps(self) -> None:
        for name in ("evaluate_steps", "early_stopping"):
            if getattr(self, name) < 0:
                raise ValueError(f"--{name} is {getattr(self, name)}, but must be 0 or more.")
        for name in ("stop_step", "steps_per_loop"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name} is {value}, but must be 1 or more.")
        for name in ("early_stopping", "best_metric"):
            if getattr(self, name) and not self.evaluate_steps:
                raise ValueError(
                    f"--{name}={getattr(self, name)} needs evaluations while training: give "
                    "--evaluate_steps."
                )
        if self.init_optimizer and (self.init_checkpoint or SCHEME).startswith(SCHEME):
            raise ValueError("--init_optimizer needs --init_checkpoint, the run to go on from.")

    @property
    def max_steps_per_loop(self) -> int:
        return self.steps_per_loop or self.iterations_per_loop

    def _check_learning_rate(self) -> None:
        if self.lr_batch_size is not None and self.lr_batch_size < 1:
            raise ValueError(f"--lr_batch_size is {self.lr_batch_size}, but must be 1 or more.")
        if self.lr_batch_size is None and self.lr_batch_scaling != "linear":
            raise ValueError(
                f"--lr_batch_scaling={self.lr_batch_scaling} needs --lr_batch_size, the batch size "
                "that --learning_rate was found for."
            )
        if not 0 < self.lr_power < math.inf:
            raise ValueError(f"--lr_power is {self.lr_power}, but must be above 0.")
        if self.lr_power != 1 and self.lr_schedule != "polynomial":
            raise ValueError(
                f"--lr_power={self.lr_power} is for --lr_schedule=polynomial, and --lr_schedule is "
                f"{self.lr_schedule}."
            )
        if not 0 <= self.lr_end <= 1:
            raise ValueError(
                f"--lr_end is {self.lr_end}, but must be from 0 to 1: it is a share of "
                f"--learning_rate={self.learning_rate}, not a rate."
            )
        if self.lr_end and self.lr_schedule == "constant":
            raise ValueError(
                f"--lr_end={self.lr_end} has no meaning with --lr_schedule=constant, which stays at "
                "the peak. Use --lr_schedule=linear."
            )
        if not 0 < self.layer_lr_decay <= 1:
            raise ValueError(
                f"--layer_lr_decay is {self.layer_lr_decay}, but must be above 0 and at most 1; 0.8 to "
                "0.95 are usual. --freeze takes layers out of training."
            )
        parse_frozen(self.freeze or "")

    def _check_optimizer(self) -> None:
        for name in ("adam_beta1", "adam_beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(
                    f"--{name} is {getattr(self, name)}, but must be at least 0 and below 1."
                )
        if self.ema_decay is not None and not 0 < self.ema_decay < 1:
            raise ValueError(f"--ema_decay is {self.ema_decay}, but must be above 0 and below 1.")
        if not 0 <= self.weight_decay_rate < math.inf:
            raise ValueError(
                f"--weight_decay_rate is {self.weight_decay_rate}, but must be 0 or more."
            )
        for name in ("adam_epsilon", "max_gradient_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(
                    f"--{name} is {getattr(self, name)}, but must be above 0 and finite."
                    + (" 1e9 clips nothing." if name == "max_gradient_norm" else "")
                )

    @property
    def peak_learning_rate(self) -> float:
        """`learning_rate`, scaled to the batch size if that is asked for."""
        if self.lr_batch_size is None:
            return self.learning_rate
        ratio = self.train_batch_size / self.lr_batch_size
        return self.learning_rate * (math.sqrt(ratio) if self.lr_batch_scaling == "sqrt" else ratio)


# Of it "inf" and "-inf" have a meaning: always an answer, never one.
_MAY_BE_INFINITE = "null_score_diff_threshold"


def refuse_infinite(options: Any) -> None:
    """Numbers must be numbers, and finite but for thresholds."""
    for each in fields(options):
        value = getattr(options, each.name)
        if not isinstance(value, float) or math.isfinite(value):
            continue
        if each.name != _MAY_BE_INFINITE:
            raise ValueError(f"--{each.name} is {value}, but must be a finite number.")
        if math.isnan(value):
            raise ValueError(f"--{each.name} is nan, but must be a number.")


def require_one_of(options: Any, names: Sequence[str]) -> None:
    """At least one of some boolean flags must be set."""
    if not any(getattr(options, name) for name in names):
        flags = ", ".join(f"--{name}" for name in names)
        raise ValueError(f"Nothing to do: give at least one of {flags}.")


logger = logging.getLogger(__name__)


def errors_option() -> Any:
    """The flag `--errors` of everything that reads a corpus."""
    return option(
        "Bytes that are not UTF-8: strict stops and names them, replace puts U+FFFD there, which the "
        "tokenizer drops.",
        default="strict",
        choices=("strict", "replace"),
    )


@contextmanager
def naming_errors_flag() -> Iterator[None]:
    """Adds the remedy to the message about bytes that are not UTF-8."""
    try:
        yield
    except ValueError as error:
        if not isinstance(error.__cause__, UnicodeDecodeError):
            raise
        raise ValueError(f"{error} Or leave such bytes out: --errors=replace.") from error
