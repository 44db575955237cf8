"""Options of devices and of training, groups of the programs that have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from bert_tf.options import option, require_packages
from bert_tf.training import strategy
from bert_tf.training.optimizers import OPTIMIZERS, layer_learning_rate_factors
from bert_tf.training.schedules import SHAPES, WarmupDecay
from bert_tf.training.step import COMPILATIONS
from bert_tf.training.strategy import PRECISIONS, choose_precision


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Options of devices and precision."""

    distribution_strategy: str = option(
        "auto: the processes in TF_CONFIG, else all visible GPUs, else the CPU.",
        group="Machine",
        default="auto",
        choices=strategy.STRATEGIES,
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
    use_tpu: bool = option("Same as --distribution_strategy=tpu.", group="Machine", default=False)
    tpu_name: str | None = option(
        "Name or address of the TPU; local: the TPU of this machine.", default=None
    )
    tpu_zone: str | None = option("Ignored: TensorFlow finds the zone.", default=None)
    gcp_project: str | None = option("Ignored: TensorFlow finds the project.", default=None)
    master: str | None = option("Address of the TPU, used without --tpu_name.", default=None)
    num_tpu_cores: int = option("Ignored: TensorFlow finds the number of cores.", default=8)

    def make_strategy(self) -> tf.distribute.Strategy:
        """Make the strategy. Call it before any computation."""
        name = "tpu" if self.use_tpu else self.distribution_strategy
        return strategy.make_strategy(name, self.tpu_name or self.master)

    @property
    def policy(self) -> str:
        """Keras policy of --precision on this machine, available after `make_strategy`."""
        return choose_precision() if self.precision == "auto" else self.precision


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of training, shared by pre-training and fine-tuning."""

    output_dir: str = option("Folder for checkpoints and results.", group="Model")
    init_checkpoint: str | None = option(
        "Initial weights: a TF1 checkpoint, the --output_dir of a run, a Hugging Face folder or "
        "hf://org/name, or an encoder of tf-models-official or TF Hub. Not needed to resume: a "
        "run resumes from the checkpoints in --output_dir.",
        group="Model",
        default=None,
        on_resume="first",
    )
    init_layers: str | None = option(
        "Comma list of the layers of --init_checkpoint to start from, from 0, or -1 for the last: "
        "0,2,4 makes a model of three layers. A --bert_config_file has all layers of the checkpoint, or "
        "those of the model. Default: all.",
        default=None,
        on_resume="first",
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
    lr_schedule: str = option(
        "Shape of the learning rate after warm-up. warmup_stable_decay: the peak until the last fifth "
        "of the steps, then 1 - sqrt.",
        default="linear",
        choices=tuple(SHAPES),
        on_resume="warn",
    )
    layer_lr_decay: float = option(
        "Rate of each layer as a fraction of the rate of the layer above it. The embeddings are below "
        "layer 0. Heads and pooler use the full rate. 1: the same rate for all.",
        default=1.0,
        above=0,
        max=1,
        on_resume="warn",
    )
    freeze: str | None = option(
        "Parts not to train: comma-separated list of embeddings, encoder (all layers), pooler, and "
        "numbers or ranges of layers from 0, such as embeddings,0-5.",
        default=None,
        on_resume="warn",
    )
    optimizer: str = option(
        "adam_weight_decay: the reference's, without bias correction. adamw: with it. lamb: for "
        "batches of thousands. muon: orthogonal updates of the matrices in the layers, adamw for the "
        "rest.",
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
    save_checkpoints_steps: int = option("Steps between checkpoints.", default=1000, min=1)
    evaluate_steps: int = option(
        "Steps between evaluations during training, with --do_eval. The best weights go to the folder "
        "best in --output_dir. 0: evaluate only at the end.",
        group="Training",
        default=0,
        min=0,
    )
    best_metric: str | None = option(
        "Metric that selects the best weights: those with its highest value; of losses, perplexities "
        "and errors the lowest. Default: the task's first metric.",
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
    recompute_grads: bool = option(
        "Keep only the inputs of each layer for the gradients and compute the rest again, to save "
        "memory. The steps are the same and take up to a third longer.",
        default=False,
    )
    jit_compile: str = option(
        "Parts of a training step that XLA compiles. auto: element-wise parts on CPUs, the whole "
        "step on one GPU. true: the whole pass. false: nothing. cudnn: as auto, with cuDNN's attention "
        "if --attention_dropout=0 (a GPU, 16-bit precision; never run yet).",
        default="auto",
        choices=COMPILATIONS,
    )
    seed: int = option(
        "Seed of initial weights, data order and dropout.", default=12345, on_resume="warn"
    )

    def __post_init__(self) -> None:
        if self.tensorboard:
            require_packages("tensorboard", ["tensorboard"], "tensorboard")

    def make_optimizer(
        self, model: Any, num_train_steps: int, num_warmup_steps: int, rates: Mapping[str, float]
    ) -> Any:
        """Make the optimizer of a model with its schedule. Call it under `strategy.scope()`.

        Args:
            rates: regular expression of paths -> peak learning rate of those variables; "": of all
                others, instead of `learning_rate`.
        """
        policy, rate = model.dtype_policy.name, rates.get("") or self.learning_rate
        factors = {path: own / rate for path, own in rates.items() if path}
        if self.layer_lr_decay < 1:
            num_layers = model.config.num_hidden_layers
            factors |= layer_learning_rate_factors(num_layers, self.layer_lr_decay)
        settings: dict[str, Any] = {}
        if self.optimizer == "muon" and policy == "mixed_bfloat16":
            settings["product_dtype"] = "bfloat16"
        return OPTIMIZERS[self.optimizer](
            WarmupDecay(rate, num_train_steps, num_warmup_steps, self.lr_schedule),
            weight_decay_rate=self.weight_decay_rate,
            learning_rate_factors=factors,
            skip_nonfinite=policy == "mixed_float16",
            **settings,
        )

    @property
    def dropouts(self) -> dict[str, Any]:
        """Fields of the configuration that `hidden_dropout` and `attention_dropout` replace."""
        values = {
            "hidden_dropout_prob": self.hidden_dropout,
            "attention_probs_dropout_prob": self.attention_dropout,
        }
        return {name: value for name, value in values.items() if value is not None}


def parse_layers(layers: str, num_layers: int | None = None) -> list[int]:
    """Return the numbers in a comma list of layers; -1 is the last of `num_layers`, if that is known."""
    numbers = [int(part) for part in layers.split(",")]
    if num_layers and not all(-num_layers <= number < num_layers for number in numbers):
        raise ValueError(f"layers is {layers!r}, but the model has {num_layers} layers.")
    return numbers
