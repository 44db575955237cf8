"""How a workflow declares its options, from which bert_tf/cli.py makes flags; and the shared ones."""

from __future__ import annotations

import logging
import math
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
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
            f"license is {license!r}, but must be a name as Hugging Face's hub has it, such as "
            f"apache-2.0, mit or cc-by-4.0; {NO_LICENSE} where it has none."
        )


_CHECKS = {
    "min": (operator.ge, "{} or more"),
    "above": (operator.gt, "above {}"),
    "max": (operator.le, "at most {}"),
    "below": (operator.lt, "below {}"),
}


def option(help_text: str, *, between: tuple[float, float] | None = None, **kwargs: Any) -> Any:
    """Return a dataclass field that becomes a flag. Without `default` the flag is required.

    Args:
        help_text: shown by --help.
        between: the smallest and the largest valid number, both included.
        **kwargs: `default`; `choices`, a sequence of the valid values; `positional=True` for the one
            field that takes the arguments without a flag; `min` and `max`, the smallest and the
            largest valid number; `above` and `below`, limits that are not valid themselves; `hint`, the
            end of the message about an invalid number, in which {name} is the value of an option;
            `infinite=True` if inf and -inf are valid.
    """
    if between is not None:
        kwargs["min"], kwargs["max"] = between
    metadata = {"help": help_text}
    for name in ("choices", "positional", "hint", "infinite", *_CHECKS):
        if name in kwargs:
            metadata[name] = kwargs.pop(name)
    return field(metadata=metadata, **kwargs)


def valid_range(limits: Mapping[str, Any]) -> str:
    """Return the range in the metadata of an option in words, "" without one.

    >>> valid_range({"help": "Share.", "min": 0, "below": 1})
    '0 or more and below 1'
    """
    if "min" in limits and "max" in limits:
        return f"from {limits['min']} to {limits['max']}"
    return " and ".join(
        words.format(limits[name]) for name, (_, words) in _CHECKS.items() if name in limits
    )


def check_ranges(options: Any) -> None:
    """Raise unless every number of a dataclass is finite and in the range of its `option`.

    Raises:
        ValueError: a number is not; the message names the parameter, the value and the range.
        TypeError: a value with a range cannot be compared with a number.
    """
    for each in fields(options):
        value, limits = getattr(options, each.name), each.metadata
        if value is None and each.default is None:
            continue
        wanted = valid_range(limits)
        if isinstance(value, float) and not math.isfinite(value):
            if not limits.get("infinite"):
                wanted = f"{wanted} and finite" if wanted else "a finite number"
            elif math.isnan(value):
                wanted = "a number"
            else:
                continue
        elif all(
            holds(value, limits[name]) for name, (holds, _) in _CHECKS.items() if name in limits
        ):
            continue
        hint = limits.get("hint", ".").format_map(vars(options))
        raise ValueError(f"{each.name} is {value}, but must be {wanted}{hint}")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The base of the options of a program."""

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(Options):
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
    train_batch_size: int = option("Examples per step, over all devices.", default=32, min=1)
    eval_batch_size: int = option("Examples per evaluation batch.", default=8, min=1)
    learning_rate: float = option("Peak learning rate.", default=5e-5, above=0)
    lr_batch_size: int | None = option(
        "The batch size that --learning_rate was found for. The rate is multiplied by "
        "--train_batch_size / --lr_batch_size. Default: the rate is used as it is.",
        default=None,
        min=1,
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
        "Power of --lr_schedule=polynomial: (1 - step / steps) ** power.", default=1.0, above=0
    )
    lr_end: float = option(
        "Share of the peak rate that is left at the last step.",
        default=0.0,
        between=(0, 1),
        hint=": it is a share of learning_rate={learning_rate}, not a rate.",
    )
    lr_decay_from_warmup: bool = option(
        "Let the decay begin where warm-up ends. Default: it is measured from step 0, as in the "
        "reference, so that the rate falls a little when warm-up ends.",
        default=False,
    )
    layer_lr_decay: float = option(
        "Each layer learns at this share of the rate of the layer above it, and the embeddings at "
        "this share of layer 0's; heads and pooler at the full rate. 1 means that all are equal.",
        default=1.0,
        above=0,
        max=1,
        hint="; 0.8 to 0.95 are usual. `freeze` takes layers out of training.",
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
        "Weight decay, of all but biases and LayerNorms.", default=0.01, min=0
    )
    adam_beta1: float = option("Decay of the mean of the gradients.", default=0.9, min=0, below=1)
    adam_beta2: float = option("Decay of the mean of their squares.", default=0.999, min=0, below=1)
    adam_epsilon: float = option("Added to the root of that mean.", default=1e-6, above=0)
    ema_decay: float | None = option(
        "Keep a moving average of the weights, which forgets 1 - this share per step (0.999 is usual), "
        "and evaluate and export it in place of the weights.",
        default=None,
        above=0,
        below=1,
    )
    max_gradient_norm: float = option(
        "Gradients are scaled down to this norm over all variables.",
        default=1.0,
        above=0,
        hint=". 1e9 clips nothing.",
    )
    save_checkpoints_steps: int = option("Steps between checkpoints.", default=1000, min=1)
    stop_step: int | None = option(
        "End at this step, though the learning rate is that of all training steps: for a first phase "
        "that --init_optimizer goes on from.",
        default=None,
        min=1,
    )
    evaluate_steps: int = option(
        "Evaluate every so many steps while training, and keep the best weights in the folder best of "
        "--output_dir; 0 means at the end only.",
        default=0,
        min=0,
    )
    best_metric: str | None = option(
        "The figure of an evaluation that says which weights are best; lower is better where its name "
        "has loss or perplexity in it. Default: the task's first.",
        default=None,
    )
    early_stopping: int = option(
        "End after so many evaluations in a row without a better figure; 0 means never.",
        default=0,
        min=0,
    )
    keep_checkpoint_max: int = option("Checkpoints that are kept; 0 keeps all.", default=5, min=0)
    iterations_per_loop: int = option(
        "Most steps per call of the compiled loop. Fewer run per call when they take long.",
        default=1000,
        min=1,
    )
    steps_per_loop: int | None = option("Same as --iterations_per_loop.", default=None, min=1)
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
        min=1,
    )
    seed: int = option("Of the initial weights, the order of the data, and dropout.", default=12345)
    license: str = option(
        "Licence of the model, as Hugging Face's hub names it (apache-2.0, cc-by-4.0): for the model "
        "card, README.md.",
        default=NO_LICENSE,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gradient_accumulation_steps > self.train_batch_size:
            raise ValueError(
                f"gradient_accumulation_steps is {self.gradient_accumulation_steps}, but "
                f"train_batch_size={self.train_batch_size} examples cannot be cut into more parts "
                f"than that. Use gradient_accumulation_steps={self.train_batch_size} or less."
            )
        for name in ("early_stopping", "best_metric"):
            if getattr(self, name) and not self.evaluate_steps:
                raise ValueError(
                    f"{name}={getattr(self, name)} needs evaluations while training: give "
                    "evaluate_steps."
                )
        if self.init_optimizer and (self.init_checkpoint or SCHEME).startswith(SCHEME):
            raise ValueError("init_optimizer needs init_checkpoint, the run to go on from.")
        check_license(self.license)
        parse_frozen(self.freeze or "")
        self._check_learning_rate()

    def _check_learning_rate(self) -> None:
        if self.lr_batch_size is None and self.lr_batch_scaling != "linear":
            raise ValueError(
                f"lr_batch_scaling={self.lr_batch_scaling} needs lr_batch_size, the batch size "
                "that learning_rate was found for."
            )
        if self.lr_power != 1 and self.lr_schedule != "polynomial":
            raise ValueError(
                f"lr_power={self.lr_power} is for lr_schedule=polynomial, and lr_schedule is "
                f"{self.lr_schedule}."
            )
        if self.lr_end and self.lr_schedule == "constant":
            raise ValueError(
                f"lr_end={self.lr_end} has no meaning with lr_schedule=constant, which stays at "
                "the peak. Use lr_schedule=linear."
            )

    @property
    def max_steps_per_loop(self) -> int:
        return self.steps_per_loop or self.iterations_per_loop

    @property
    def config_changes(self) -> dict[str, Any]:
        """Fields of the configuration that the flags set."""
        return {}

    @property
    def base_learning_rate(self) -> float:
        """Learning rate of `lr_batch_size` examples."""
        return self.learning_rate

    @property
    def peak_learning_rate(self) -> float:
        """`base_learning_rate`, scaled to the batch size if `lr_batch_size` is set."""
        if self.lr_batch_size is None:
            return self.base_learning_rate
        ratio = self.train_batch_size / self.lr_batch_size
        ratio = math.sqrt(ratio) if self.lr_batch_scaling == "sqrt" else ratio
        return self.base_learning_rate * ratio


def require_one_of(options: Any, names: Sequence[str]) -> None:
    """At least one of some boolean flags must be set."""
    if not any(getattr(options, name) for name in names):
        listed = ", ".join(f"`{name}`" for name in names)
        raise ValueError(f"Nothing to do: give at least one of {listed}.")


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
        raise ValueError(f"{error} Or leave such bytes out: errors=replace.") from error
