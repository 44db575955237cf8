"""Flags of devices and of training, shared by the programs that have them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from bert_tf.interop.hub import NO_LICENSE, check_license
from bert_tf.modeling.pooling import parse_layers
from bert_tf.options import OptionError, Options, option, reject_unused
from bert_tf.training import strategy
from bert_tf.training.encoder_parts import parse_frozen
from bert_tf.training.optimization import OPTIMIZERS
from bert_tf.training.schedules import DECAYS, SCHEDULES
from bert_tf.training.step import COMPILATIONS
from bert_tf.training.strategy import PRECISIONS, choose_precision


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(Options):
    """Options of devices and precision."""

    distribution_strategy: str = option(
        "auto: the processes in TF_CONFIG, else all visible GPUs, else the CPU.",
        group="Machine",
        default="auto",
        choices=strategy.STRATEGIES,
    )
    num_gpus: int | None = option(
        "Number of GPUs. 0: the CPU. Default: all visible ones.", default=None, min=0
    )
    precision: str = option(
        "Keras precision policy of the computation. Weights and optimizer stay float32. "
        "mixed_float16 scales the loss, for GPUs without bfloat16. auto: mixed_bfloat16 if the "
        "machine supports it, else float32.",
        group="Machine",
        default="float32",
        choices=PRECISIONS,
        on_resume="warn",
    )
    num_threads: int | None = option(
        "Processor threads per operation. Default: all cores.", default=None, min=1
    )
    deterministic: bool = option(
        "Use only operations with the same bits in every run (some are slower on a GPU).",
        default=False,
    )
    use_tpu: bool = option("Same as --distribution_strategy=tpu.", group="Machine", default=False)
    tpu_name: str | None = option("Name or address of the TPU.", default=None)
    tpu: str | None = option(
        "Same as --use_tpu --tpu_name=... (local: the TPU of this machine).", default=None
    )
    tpu_zone: str | None = option("Ignored: TensorFlow finds the zone.", default=None)
    gcp_project: str | None = option("Ignored: TensorFlow finds the project.", default=None)
    master: str | None = option("Address of the TPU, used without --tpu_name.", default=None)
    num_tpu_cores: int = option("Ignored: TensorFlow finds the number of cores.", default=8)

    def make_strategy(self) -> tf.distribute.Strategy:
        """Set threads and determinism, and make the strategy. Call it before any computation."""
        strategy.set_up(self.num_threads, self.deterministic)
        on_tpu = self.use_tpu or self.tpu is not None
        name = "tpu" if on_tpu else self.distribution_strategy
        return strategy.make_strategy(name, self.num_gpus, self.tpu or self.tpu_name or self.master)

    @property
    def policy(self) -> str:
        """Keras policy of --precision on this machine, available after `make_strategy`."""
        if self.precision != "auto":
            return self.precision
        return choose_precision(self.num_gpus != 0).precision


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(DeviceOptions):
    """Options of training, shared by pre-training and fine-tuning."""

    output_dir: str = option("Folder for checkpoints and results.", group="Model")
    init_checkpoint: str | None = option(
        "Initial weights: a TF1 checkpoint, the --output_dir of a run, a Hugging Face folder or "
        "hf://org/name, or an encoder of tf-models-official or TF Hub. Not needed to resume: a "
        "run resumes from the checkpoints in --output_dir.",
        group="Model",
        default=None,
    )
    init_layers: str | None = option(
        "Comma list of the layers of --init_checkpoint to start from, from 0, or -1 for the last: "
        "0,2,4 makes a model of three layers. A --bert_config_file has all layers of the checkpoint, or "
        "those of the model. Default: all.",
        default=None,
    )
    do_train: bool = option("Train.", group="Actions", default=False)
    do_eval: bool = option("Evaluate.", group="Actions", default=False)
    train_batch_size: int = option(
        "Examples per step, over all devices.",
        group="Training",
        default=32,
        min=1,
        on_resume="warn",
    )
    eval_batch_size: int = option("Examples per evaluation batch.", default=8, min=1)
    learning_rate: float = option(
        "Peak learning rate.", group="Training", default=5e-5, above=0, on_resume="warn"
    )
    lr_batch_size: int | None = option(
        "Batch size that --learning_rate was tuned for. The rate is multiplied by "
        "--train_batch_size / --lr_batch_size. Default: no scaling.",
        default=None,
        min=1,
    )
    lr_batch_scaling: str = option(
        "Growth of the rate with the batch size, for --lr_batch_size. sqrt is usual with "
        "--optimizer=lamb.",
        default="linear",
        choices=("linear", "sqrt"),
    )
    lr_schedule: str = option(
        "Shape of the learning rate after warm-up.",
        default="linear",
        choices=tuple(SCHEDULES),
        on_resume="warn",
    )
    num_decay_steps: int | None = option(
        "Last steps, in which the rate of --lr_schedule=warmup_stable_decay falls. Default: a fifth of "
        "all steps.",
        default=None,
        min=0,
    )
    lr_decay_shape: str = option(
        "Shape of the decay of --lr_schedule=warmup_stable_decay: one_minus_sqrt (fast at first) or "
        "linear.",
        default=DECAYS[0],
        choices=DECAYS,
    )
    lr_power: float = option(
        "Power of --lr_schedule=polynomial: (1 - step / steps) ** power.", default=1.0, above=0
    )
    lr_end: float = option(
        "Fraction of the peak rate at the last step.",
        default=0.0,
        between=(0, 1),
        hint=": it is a fraction of learning_rate={learning_rate}, not a rate.",
    )
    lr_decay_from_warmup: bool = option(
        "Start the decay at the end of warm-up. Default: from step 0, as in the reference, so that "
        "the rate drops slightly after warm-up.",
        default=False,
    )
    layer_lr_decay: float = option(
        "Rate of each layer as a fraction of the rate of the layer above it. The embeddings are below "
        "layer 0. Heads and pooler use the full rate. 1: the same rate for all.",
        default=1.0,
        above=0,
        max=1,
        hint="; 0.8 to 0.95 are usual. `freeze` excludes layers from training.",
        on_resume="warn",
    )
    freeze: str | None = option(
        "Parts not to train: comma-separated list of embeddings, encoder (all layers), pooler, and "
        "numbers or ranges of layers from 0, such as embeddings,0-5.",
        default=None,
        on_resume="warn",
    )
    optimizer: str = option(
        "adam_weight_decay: the reference's, without bias correction. adamw: with it. stable_adamw: "
        "adamw whose updates are clipped for each variable. lamb: for batches of thousands. muon: "
        "orthogonal updates of the matrices in the layers, adamw for the rest.",
        default="adam_weight_decay",
        choices=tuple(OPTIMIZERS),
        on_resume="same",
    )
    weight_decay_rate: float = option(
        "Weight decay of all variables except biases and LayerNorms.",
        default=0.01,
        min=0,
        on_resume="warn",
    )
    adam_beta1: float = option("Decay of the mean of the gradients.", default=0.9, min=0, below=1)
    adam_beta2: float = option("Decay of the mean of their squares.", default=0.999, min=0, below=1)
    adam_epsilon: float = option("Added to the root of that mean.", default=1e-6, above=0)
    ema_decay: float | None = option(
        "Decay per step of a moving average of the weights (0.999 is usual). The average is evaluated "
        "and exported instead of the weights.",
        default=None,
        above=0,
        below=1,
        on_resume="same",
    )
    hidden_dropout: float | None = option(
        "Fraction of hidden values dropped in this training. bert_config.json in --output_dir does not "
        "change. Default: its `hidden_dropout_prob`. Heads of labels and choices drop 0.1 in any case, "
        "as in the reference.",
        default=None,
        min=0,
        below=1,
        on_resume="warn",
    )
    attention_dropout: float | None = option(
        "Fraction of attention probabilities dropped in this training. Default: "
        "`attention_probs_dropout_prob` of bert_config.json.",
        default=None,
        min=0,
        below=1,
        on_resume="warn",
    )
    max_gradient_norm: float = option(
        "Maximum norm of the gradients over all variables; larger ones are scaled down.",
        default=1.0,
        above=0,
        hint=". 1e9 clips nothing.",
    )
    save_checkpoints_steps: int = option("Steps between checkpoints.", default=1000, min=1)
    evaluate_steps: int = option(
        "Steps between evaluations during training, with --do_eval. The best weights go to the folder "
        "best in --output_dir. 0: evaluate only at the end.",
        group="Training",
        default=0,
        min=0,
    )
    best_metric: str | None = option(
        "Metric that selects the best weights. Lower is better if its name contains loss, "
        "perplexity or error. Default: the task's first metric.",
        default=None,
    )
    early_stopping: int = option(
        "End after this number of successive evaluations without improvement. 0: never.",
        default=0,
        min=0,
    )
    keep_checkpoint_max: int = option("Checkpoints to keep. 0: all.", default=5, min=0)
    iterations_per_loop: int = option(
        "Maximum steps per call of the compiled loop. Slow steps reduce it.",
        default=1000,
        min=1,
    )
    steps_per_loop: int | None = option("Same as --iterations_per_loop.", default=None, min=1)
    pack_sequences: bool = option(
        "Pack several examples into each row, up to the sequence length, to avoid padding. Examples "
        "do not attend to each other. The loss is the same.",
        default=False,
        on_resume="warn",
    )
    tensorboard: bool = option(
        "Write events for TensorBoard into --output_dir (pip install -e '.[tensorboard]'). The same "
        "metrics always go to metrics.jsonl.",
        default=False,
    )
    gradient_accumulation_steps: int = option(
        "Parts of each device's batch that are computed in sequence, to save memory.",
        default=1,
        min=1,
        on_resume="warn",
    )
    jit_compile: str = option(
        "Parts of a training step that XLA compiles. auto: element-wise parts on CPUs, the whole "
        "forward and backward pass on GPUs, nothing if XLA cannot compile the first step. true: the "
        "whole pass. false: nothing.",
        default="auto",
        choices=COMPILATIONS,
    )
    seed: int = option(
        "Seed of initial weights, data order and dropout.", default=12345, on_resume="warn"
    )
    license: str = option(
        "Licence of the model in the model card, README.md: Hugging Face's name, such as apache-2.0 or "
        "cc-by-4.0.",
        default=NO_LICENSE,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gradient_accumulation_steps > self.train_batch_size:
            raise ValueError(
                f"gradient_accumulation_steps is {self.gradient_accumulation_steps}, but "
                f"must be at most train_batch_size={self.train_batch_size}. Use "
                f"gradient_accumulation_steps={self.train_batch_size} or less."
            )
        for name in ("early_stopping", "best_metric"):
            if getattr(self, name) and not self.evaluate_steps:
                raise ValueError(
                    f"{name}={getattr(self, name)} needs evaluations during training: give "
                    "evaluate_steps."
                )
        if self.init_layers is not None and not self.init_checkpoint:
            raise OptionError("init_layers", "chooses layers of init_checkpoint: give that.")
        parse_layers(self.init_layers or "0", name="init_layers")
        check_license(self.license)
        parse_frozen(self.freeze or "")
        self._check_learning_rate()

    def _check_learning_rate(self) -> None:
        if self.lr_batch_size is None and self.lr_batch_scaling != "linear":
            raise ValueError(
                f"lr_batch_scaling={self.lr_batch_scaling} needs lr_batch_size, the batch size "
                "that learning_rate was tuned for."
            )
        if self.lr_power != 1 and self.lr_schedule != "polynomial":
            raise ValueError(
                f"lr_power={self.lr_power} needs lr_schedule=polynomial, but lr_schedule is "
                f"{self.lr_schedule}."
            )
        stable = "warmup_stable_decay"
        for name, default in (("num_decay_steps", None), ("lr_decay_shape", DECAYS[0])):
            if getattr(self, name) != default and self.lr_schedule != stable:
                raise ValueError(
                    f"{name}={getattr(self, name)} needs lr_schedule={stable}, but lr_schedule is "
                    f"{self.lr_schedule}."
                )
        with_schedule = f"with lr_schedule={self.lr_schedule}"
        if self.lr_schedule == stable:
            reason = f"{with_schedule}, whose decay starts num_decay_steps before the end"
            reject_unused(self, ("lr_decay_from_warmup",), reason)
        if self.lr_schedule == "constant":
            reason = f"{with_schedule}, which stays at the peak"
            reject_unused(self, ("lr_end", "lr_decay_from_warmup"), reason)

    @property
    def dropouts(self) -> dict[str, Any]:
        """Fields of the configuration that `hidden_dropout` and `attention_dropout` replace."""
        given = {
            "hidden_dropout_prob": self.hidden_dropout,
            "attention_probs_dropout_prob": self.attention_dropout,
        }
        return {name: value for name, value in given.items() if value is not None}

    @property
    def config_changes(self) -> dict[str, Any]:
        """Fields of the configuration that the options set."""
        return {}

    @property
    def base_learning_rate(self) -> float:
        """Learning rate for `lr_batch_size` examples."""
        return self.learning_rate

    @property
    def own_learning_rates(self) -> dict[str, float]:
        """Regular expression of paths -> `base_learning_rate` of those variables."""
        return {}

    @property
    def peak_learning_rate(self) -> float:
        """`base_learning_rate`, scaled to the batch size if `lr_batch_size` is set."""
        if self.lr_batch_size is None:
            return self.base_learning_rate
        ratio = self.train_batch_size / self.lr_batch_size
        ratio = math.sqrt(ratio) if self.lr_batch_scaling == "sqrt" else ratio
        return self.base_learning_rate * ratio
