"""Setup: values that a run resolves once from its options, and the TrainLoop made from them.

A run resumes from the checkpoints in `output_dir`. Otherwise it starts with the weights of
`init_checkpoint`, or with random weights.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import tensorflow as tf

from bert_tf.checkpoint_task import known_task
from bert_tf.config import BertConfig
from bert_tf.data.batching import PACKED_FEATURES
from bert_tf.data.files import check_writable
from bert_tf.finetuning.initial_weights import (
    initial_checkpoint,
    load_weights,
    with_direction,
    with_init_layers,
)
from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.finetuning.same_run import (
    check_same_architecture,
    check_same_task,
    check_same_tokenizer,
    check_same_training,
)
from bert_tf.interop.checkpoint import PretrainedCheckpoint
from bert_tf.interop.read import folder_of
from bert_tf.interop.sidecar import find_config, load_tokenizer
from bert_tf.model_files import read_task
from bert_tf.options import OptionError
from bert_tf.registry import TYPES
from bert_tf.tasks.base import Task
from bert_tf.training.checkpoints import folder_lock, latest_checkpoint, list_checkpoints
from bert_tf.training.encoder_parts import freeze, layer_learning_rate_factors
from bert_tf.training.loop import TrainLoop
from bert_tf.training.optimization import OPTIMIZERS
from bert_tf.training.options import TrainingOptions
from bert_tf.training.schedules import WarmupDecay
from bert_tf.training.strategy import is_chief

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Setup:
    """Values that a run resolves from its options and checks.

    Args:
        options: flags as set by the user.
        checkpoint: initial weights, None for random ones.
        max_seq_length: S.
        tokenizer: None if a run has no text.
        trained: task that the weights were trained for, None for a new model.

    Raises:
        ValueError: the model has fewer positions than S.
    """

    options: TrainingOptions
    devices: tf.distribute.Strategy
    checkpoint: PretrainedCheckpoint | None
    config: BertConfig
    max_seq_length: int
    tokenizer: Any = None
    trained: Any = None

    def __post_init__(self) -> None:
        self.config.check_sequence_length(self.max_seq_length)

    def labels_of(self, task_type: str) -> Sequence[str]:
        """Return the labels of the initial weights, in the order of the outputs.

        () without a head of this type, whose key in `registry.TYPES` is `task_type`.
        """
        known = None if self.checkpoint is None else known_task(self.checkpoint)
        return getattr(known, "labels", ()) if known and known.name == task_type else ()

    @classmethod
    def from_options(cls, options: Any, devices: tf.distribute.Strategy | None = None) -> Setup:
        """Resolve devices, weights and architecture.

        Args:
            options: `TrainingOptions` with `bert_config_file` and `max_seq_length`.
            devices: result of `options.make_strategy()`, if that was called before.

        Raises:
            ValueError: there are no weights, or `output_dir` contains another model.
        """
        devices = options.make_strategy() if devices is None else devices
        checkpoint = initial_checkpoint(options)
        config = find_config(options.bert_config_file, checkpoint)
        checkpoint, config = with_init_layers(options, checkpoint, config)
        config = replace(config, **options.config_changes)
        checkpoint = with_direction(options, checkpoint)
        check_same_architecture(options.output_dir, config)
        length = options.max_seq_length
        length = config.max_position_embeddings if length is None else length
        return cls(options, devices, checkpoint, config, length)

    @classmethod
    def for_task(
        cls,
        options: FineTuningOptions,
        task_type: str,
        devices: tf.distribute.Strategy | None = None,
        default_length: int = 128,
    ) -> Setup:
        """Resolve also the tokenizer, and the task that the weights were trained for.

        Args:
            task_type: key of `registry.TYPES`.
            default_length: S if neither the options nor an earlier training set it.

        Raises:
            ValueError: the weights are for another type of task, or `output_dir` contains a model with
                another tokenizer; see also `from_options`.
        """
        setup = cls.from_options(options, devices)
        length = options.max_seq_length
        default = length or min(default_length, setup.config.max_position_embeddings)
        trained = trained_task(options, task_type, setup.checkpoint, default)
        if length is None:
            length = default if trained is None else trained.max_seq_length
        tokenizer = load_tokenizer(
            options.vocab_file, options.do_lower_case, setup.checkpoint, setup.config
        )
        check_same_tokenizer(options.output_dir, tokenizer.vocab, tokenizer.do_lower_case)
        return replace(setup, max_seq_length=length, tokenizer=tokenizer, trained=trained)


def trained_task(
    options: FineTuningOptions,
    task_type: str,
    checkpoint: PretrainedCheckpoint | None,
    default_length: int,
) -> Task | None:
    """Return the task that the model was trained for. A resumed run or an evaluation uses it.

    None for a new model, or if no file states the task.

    Args:
        checkpoint: initial weights. In a Hugging Face folder the head determines the task.
        default_length: S of such a task.

    Raises:
        ValueError: the weights are for another type of task.
    """
    folder = options.output_dir
    resumes = latest_checkpoint(folder) is not None
    if resumes:
        task = read_task(folder)
    elif options.do_train or checkpoint is None:
        return None
    else:
        folder = folder_of(checkpoint.source)
        task = known_task(checkpoint, default_length)
    if task is None or task.name == task_type:
        return task
    if not resumes and not TYPES[task_type].variables:
        return None  # it needs no head, so any encoder will do
    raise OptionError(
        "output_dir" if resumes else "init_checkpoint",
        f"{folder} contains a model for {task.name}, but this program is for {task_type}. Use "
        + ("another folder." if resumes else "do_train, to train it for this first."),
    )


def make_trainer(
    setup: Setup,
    task: Task,
    num_train_steps: int = 0,
    num_warmup_steps: int = 0,
    init_optimizer: bool = False,
) -> TrainLoop:
    """Return a TrainLoop with its weights in place.

    Args:
        num_train_steps: 0 for a model that is only evaluated.
        init_optimizer: also read moments and step of `init_checkpoint`.

    Raises:
        ValueError: the weights do not fit, an evaluation has untrained weights, a layer to freeze does
            not exist, or the moments to carry over are for another task or other labels.
    """
    options, devices, num_layers = setup.options, setup.devices, setup.config.num_hidden_layers
    keras.utils.set_random_seed(options.seed)
    with devices.scope():
        config = replace(setup.config, **options.dropouts)
        model = task.build_model(config, dtype=options.policy)
        optimizer = None
        if num_train_steps:
            frozen = freeze(model, options.freeze or "", num_layers)
            if frozen:
                logger.info("%d of %d variables are frozen", len(frozen), len(model.weights))
            optimizer = make_optimizer(options, num_layers, num_train_steps, num_warmup_steps)
    if num_train_steps:
        check_same_training(options, options.output_dir)
        if is_chief(devices):  # other workers write elsewhere
            check_writable(options.output_dir)
            with folder_lock(options.output_dir):
                pass  # detect another run in the folder before replacing files
    trainer = TrainLoop(
        model,
        task.losses,
        strategy=devices,
        input_names=(*task.input_names, *PACKED_FEATURES),
        optimizer=optimizer,
        gradient_accumulation_steps=options.gradient_accumulation_steps,
        seed=options.seed,
        jit_compile=options.jit_compile,
    )
    if trainer.resume(options.output_dir) is not None:
        logger.info("Weights: %s", latest_checkpoint(options.output_dir))
        return trainer
    if num_train_steps:
        _warn_of_unnamed_checkpoints(options.output_dir)
    if init_optimizer and num_train_steps:
        _carry_over(trainer, task, options, num_train_steps)
    elif setup.checkpoint is not None:
        load_weights(model, setup.checkpoint, task, will_train=bool(num_train_steps))
    else:
        logger.info("The weights are random")
    return trainer


def _warn_of_unnamed_checkpoints(folder: str) -> None:
    """Warn that a new training starts in a folder whose file `checkpoint` is missing or damaged."""
    if prefixes := list_checkpoints(folder):
        logger.warning(
            "The training starts anew and will remove %s, because the file `checkpoint` is missing or "
            'damaged. To resume, stop and write the line model_checkpoint_path: "%s" into it.',
            *(prefixes[-1], os.path.basename(prefixes[-1])),
        )


def _carry_over(
    trainer: TrainLoop, task: Task, options: TrainingOptions, num_train_steps: int
) -> None:
    """Load the weights, moments and step of another run, of its latest or a named checkpoint."""
    source = str(options.init_checkpoint)
    check_same_training(options, folder_of(source))
    check_same_task(folder_of(source), task)
    if trainer.resume(source) is None:
        raise OptionError("init_optimizer", f"init_checkpoint={source} has no checkpoint of a run.")
    logger.info(
        "The optimizer state is carried over; checkpoints are written to %s", options.output_dir
    )


def make_optimizer(
    options: TrainingOptions, num_hidden_layers: int, num_train_steps: int, num_warmup_steps: int
) -> keras.optimizers.Optimizer:
    """Return the optimizer of the flags with its schedule. Call it under `strategy.scope()`."""
    rate = options.base_learning_rate
    schedule = WarmupDecay(rate, num_train_steps, num_warmup_steps, options.lr_schedule)
    settings: dict[str, Any] = {}
    if options.optimizer == "muon" and options.policy == "mixed_bfloat16":
        settings["product_dtype"] = "bfloat16"
    factors = {path: own / rate for path, own in options.own_learning_rates.items()}
    if options.layer_lr_decay < 1:
        factors |= layer_learning_rate_factors(num_hidden_layers, options.layer_lr_decay)
    return OPTIMIZERS[options.optimizer](
        schedule,
        weight_decay_rate=options.weight_decay_rate,
        learning_rate_factors=factors,
        skip_nonfinite=options.policy == "mixed_float16",
        **settings,
    )
