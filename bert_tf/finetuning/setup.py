"""From a task and options to a Trainer with its weights in place.

A run goes on from the checkpoints in --output_dir, else it begins with the weights of --init_checkpoint
(with --init_optimizer its moments and step too), else with random ones.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import fields

import keras
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.files import check_writable, write_text
from bert_tf.data.sequence_packing import PACKED_FEATURES
from bert_tf.interop.checkpoint import PretrainedCheckpoint, read_json
from bert_tf.interop.initial import initialize, read_checkpoint
from bert_tf.interop.sidecar import (  # noqa: F401  (workflows find all of it here)
    compare_vocabularies,
    find_case,
    find_config,
    find_vocabulary,
    load_tokenizer,
)
from bert_tf.options import TrainingOptions
from bert_tf.registry import TYPES
from bert_tf.tasks.base import Task
from bert_tf.training import checkpoints
from bert_tf.training.checkpoints import folder_lock, latest_checkpoint
from bert_tf.training.optimization import OPTIMIZERS, freeze, layer_learning_rate_factors
from bert_tf.training.schedules import SCHEDULES
from bert_tf.training.strategy import is_chief
from bert_tf.training.trainer import Trainer

logger = logging.getLogger(__name__)


def make_trainer(
    task: Task,
    config: BertConfig,
    options: TrainingOptions,
    devices: tf.distribute.Strategy,
    checkpoint: PretrainedCheckpoint | None,
    num_train_steps: int = 0,
    num_warmup_steps: int = 0,
) -> Trainer:
    """A Trainer with its weights in place.

    If --output_dir holds checkpoints of this run, the weights (and, with training steps, the
    optimizer) come from the latest; else from `checkpoint`; else they are random.

    Args:
        devices: of `options.make_strategy()`, which a workflow calls before all else.
        num_train_steps: 0 for a model that is only evaluated.

    Raises:
        ValueError: the weights do not fit, a model that is only evaluated has untrained ones, or a
            layer that is to be frozen does not exist.
    """
    keras.utils.set_random_seed(options.seed)
    with devices.scope():
        model = task.build_model(config, dtype=options.policy)
        optimizer = None
        if num_train_steps:
            frozen = freeze(model, options.freeze or "", config.num_hidden_layers)
            if frozen:
                logger.info("%d of %d variables are frozen", len(frozen), len(model.weights))
            optimizer = make_optimizer(
                options, config.num_hidden_layers, num_train_steps, num_warmup_steps
            )
    if num_train_steps:
        check_same_training(options, options.output_dir)
        if is_chief(devices):  # the others write elsewhere
            check_writable(options.output_dir)
            with folder_lock(options.output_dir):
                pass  # another run in the folder is known before anything in it is replaced
    trainer = Trainer(
        model,
        task.losses,
        strategy=devices,
        input_names=(*task.input_names, *PACKED_FEATURES),
        optimizer=optimizer,
        max_gradient_norm=options.max_gradient_norm,
        gradient_accumulation_steps=options.gradient_accumulation_steps,
        seed=options.seed,
        jit_compile=options.jit_compile,
    )
    if trainer.resume(options.output_dir) is not None:
        return trainer
    if options.init_optimizer and num_train_steps:
        _carry_over(trainer, options)
    elif checkpoint is not None:
        report = initialize(model, checkpoint)
        head = TYPES.get(task.name)
        unused = () if head is None or head.uses_pooler else "bert/pooler/"
        missing = [name for name in report.missing if not name.startswith(unused)]
        if missing and not num_train_steps:
            raise ValueError(
                f"{checkpoint.source} has no {', '.join(missing[:3])}, so it was not trained for this "
                "and would answer at random. Train first with do_train."
            )
    return trainer


def _carry_over(trainer: Trainer, options: TrainingOptions) -> None:
    """Weights, moments and step of another run."""
    folder = options.init_checkpoint
    check_same_training(options, folder)
    if trainer.resume(folder) is None:
        raise ValueError(
            f"init_optimizer goes on from a run of ours, but there is no checkpoint of one in "
            f"init_checkpoint={folder}. Name the output_dir of the first phase."
        )
    logger.info("Its optimizer is carried over; checkpoints go to %s", options.output_dir)


# What decides about the meaning of the moments in a checkpoint.
_SAME_TRAINING = ("optimizer", "ema_decay")
# What may be changed, but is usually not meant to be.
_NOTED = ("train_batch_size", "learning_rate", "lr_schedule", "precision", "seed", "freeze")
_TRAINING_FILE = "training.json"


def check_same_training(options: TrainingOptions, folder: str) -> None:
    """Refuses to go on with another optimizer than the one that wrote the checkpoints of `folder`.

    Raises:
        ValueError: they differ.
    """
    path = os.path.join(folder, _TRAINING_FILE)
    if latest_checkpoint(folder) is None or not tf.io.gfile.exists(path):
        return
    there = read_json(path)
    changed = {
        name: f"{there[name]} there, {value} now"
        for name, value in _noted(options).items()
        if name in there and there[name] != value
    }
    refused = [f"`{name}`: {text}" for name, text in changed.items() if name in _SAME_TRAINING]
    if refused:
        raise ValueError(
            f"{folder} holds checkpoints of a run with another optimizer:\n  "
            + "\n  ".join(refused)
            + "\nKeep to it, or use another output_dir; to start from its weights, name it in "
            "init_checkpoint."
        )
    for name, text in changed.items():
        logger.warning("The run goes on with a change: --%s: %s", name, text)


def make_optimizer(
    options: TrainingOptions, num_hidden_layers: int, num_train_steps: int, num_warmup_steps: int
) -> keras.optimizers.Optimizer:
    """The optimizer of the flags, with its schedule. Made under `strategy.scope()`."""
    rate = options.peak_learning_rate
    if options.lr_batch_size is not None:
        logger.info("The learning rate is %g for %d examples", rate, options.train_batch_size)
    schedule = SCHEDULES[options.lr_schedule](
        rate,
        num_train_steps,
        num_warmup_steps,
        end=options.lr_end,
        decay_from_warmup=options.lr_decay_from_warmup,
        **({"power": options.lr_power} if options.lr_schedule == "polynomial" else {}),
    )
    factors = {}
    if options.layer_lr_decay < 1:
        factors = layer_learning_rate_factors(num_hidden_layers, options.layer_lr_decay)
    return OPTIMIZERS[options.optimizer](
        schedule,
        weight_decay_rate=options.weight_decay_rate,
        beta_1=options.adam_beta1,
        beta_2=options.adam_beta2,
        epsilon=options.adam_epsilon,
        learning_rate_factors=factors,
        ema_decay=options.ema_decay,
        skip_nonfinite=options.policy == "mixed_float16",
    )


def note_training(options: TrainingOptions) -> None:
    """Writes `training.json`, which `check_same_training` reads when the run goes on."""
    noted = _noted(options)
    path = os.path.join(options.output_dir, _TRAINING_FILE)
    write_text(path, json.dumps(noted, indent=2) + "\n")


def _noted(options: TrainingOptions) -> dict[str, object]:
    noted = {name: getattr(options, name) for name in (*_SAME_TRAINING, *_NOTED)}
    return {**noted, "precision": options.policy}  # what auto means may change with the machine


def read_initial_checkpoint(options: TrainingOptions) -> PretrainedCheckpoint | None:
    """What --init_checkpoint names, else the newest checkpoint in --output_dir, else None.

    Configuration and vocabulary lie beside either, so that a run goes on, or is evaluated, without
    being told again what it is.
    """
    path = options.init_checkpoint or checkpoints.latest_checkpoint(options.output_dir)
    return read_checkpoint(path) if path else None


def trained_weights_needed(options: TrainingOptions) -> None:
    """Evaluation or prediction without training needs weights from somewhere."""
    if options.do_train or options.init_checkpoint:
        return
    if checkpoints.latest_checkpoint(options.output_dir) is None:
        raise ValueError(
            f"There is no checkpoint in output_dir={options.output_dir} and init_checkpoint is "
            "not given: train first with do_train, or name the weights."
        )


def check_same_architecture(output_dir: str, config: BertConfig) -> None:
    """Refuses to go on with another model than the one that a folder holds checkpoints of.

    Not all that may differ shows in the shapes of the variables: the number of heads does not.
    """
    path = os.path.join(output_dir, "bert_config.json")
    if checkpoints.latest_checkpoint(output_dir) is None or not tf.io.gfile.exists(path):
        return
    there = BertConfig.from_json_file(path)
    compared = (field.name for field in fields(BertConfig) if field.compare)
    differences = [
        f"{name}: {getattr(there, name)} there, {getattr(config, name)} now"
        for name in compared
        if getattr(there, name) != getattr(config, name)
    ]
    if differences:
        raise ValueError(
            f"{output_dir} holds checkpoints of another model:\n  "
            + "\n  ".join(differences)
            + "\nUse another output_dir; to start from its weights, name it in init_checkpoint."
        )


def check_sequence_length(max_seq_length: int, config: BertConfig) -> None:
    """Refuses sequences that the position table does not cover."""
    limit = config.max_position_embeddings
    if max_seq_length > limit:
        raise ValueError(
            f"max_seq_length is {max_seq_length}, but `max_position_embeddings` in the model's "
            f"configuration is {limit}. Use max_seq_length={limit} or less."
        )
