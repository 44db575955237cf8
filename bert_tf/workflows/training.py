"""From a task and options to a ready Trainer, and from record files to training and results."""

from __future__ import annotations

import atexit
import functools
import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.buckets import RECORD_NUMBER, length_step
from bert_tf.data.features import trim_padding
from bert_tf.data.files import write_text
from bert_tf.data.records import naming_damaged_file, read_records
from bert_tf.interop.checkpoint import PretrainedCheckpoint
from bert_tf.interop.initial import initialize
from bert_tf.tasks.base import Task
from bert_tf.training import strategy
from bert_tf.training.optimization import OPTIMIZERS, freeze, layer_learning_rate_factors
from bert_tf.training.schedules import SCHEDULES
from bert_tf.training.trainer import Trainer
from bert_tf.workflows.options import TrainingOptions

logger = logging.getLogger(__name__)

# How long the sequences of a batch are: S for all; as the longest of the batch; and that with batches
# of examples of similar length.
LENGTHS = ("full", "trimmed", "bucketed")


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
        model = task.build_model(config, dtype=options.precision)
        optimizer = None
        if num_train_steps:
            frozen = freeze(model, options.freeze or "", config.num_hidden_layers)
            if frozen:
                logger.info("%d of %d variables are frozen", len(frozen), len(model.weights))
            optimizer = make_optimizer(
                options, config.num_hidden_layers, num_train_steps, num_warmup_steps
            )
    trainer = Trainer(
        model,
        task.losses,
        strategy=devices,
        input_names=task.input_names,
        optimizer=optimizer,
        max_gradient_norm=options.max_gradient_norm,
        gradient_accumulation_steps=options.gradient_accumulation_steps,
        seed=options.seed,
    )
    if trainer.resume(options.output_dir) is None and checkpoint is not None:
        report = initialize(model, checkpoint)
        if report.missing and not num_train_steps:
            raise ValueError(
                f"{checkpoint.source} has no {', '.join(report.missing[:3])}, so it was not trained "
                "for this and would answer at random. Train first with --do_train."
            )
    return trainer


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
    )


def folder_to_write(trainer: Trainer, output_dir: str) -> str:
    """`output_dir`, but in a worker that is not the chief a temporary folder: one process writes."""
    return output_dir if trainer.is_chief else _scratch_folder()


@functools.cache
def _scratch_folder() -> str:
    folder = tempfile.mkdtemp(prefix="bert_tf-worker-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def train(
    trainer: Trainer,
    task: Task,
    files: Sequence[str],
    options: TrainingOptions,
    num_train_steps: int,
    evaluate: Callable[[], Mapping[str, float]] | None = None,
    evaluate_steps: int = 0,
    lengths: str = "trimmed",
) -> None:
    """Trains on record files up to `num_train_steps`, from where the trainer stands.

    Args:
        lengths: one of `LENGTHS`. A strategy that needs static shapes makes "full" of each.
    """
    lengths = _possible_lengths(lengths, trainer)
    logger.info("***** Running training *****")
    logger.info("  %s", strategy.describe(trainer.strategy, options.train_batch_size))

    def batches_from(step: int) -> tf.data.Dataset:
        dataset = read_records(
            files,
            task.record_features,
            batch_size=options.train_batch_size,
            shuffle=True,
            seed=options.seed,
            repeat=True,
            drop_remainder=True,
            skip_batches=step,
            by_length=lengths == "bucketed",
        )
        dataset = task.complete(dataset, options.seed, first_batch=step)
        return _without_needless_padding(dataset, task, lengths)

    with naming_damaged_file(files):
        trainer.train(
            batches_from,
            num_train_steps,
            output_dir=options.output_dir,
            save_checkpoints_steps=options.save_checkpoints_steps,
            max_steps_per_loop=options.iterations_per_loop,
            keep_checkpoint_max=options.keep_checkpoint_max,
            evaluate=evaluate,
            evaluate_steps=evaluate_steps,
            tensorboard=options.tensorboard,
        )


def run_model(
    trainer: Trainer,
    task: Task,
    files: Sequence[str],
    batch_size: int,
    label: str = "eval",
    max_batches: int | None = None,
    lengths: str = "trimmed",
) -> dict[str, np.ndarray]:
    """What `task.eval_outputs` keeps of the examples in record files, in their order.

    Args:
        max_batches: look at so many batches only; with "bucketed" those are the shortest.
        lengths: one of `LENGTHS`; see `train`.
    """
    lengths = _possible_lengths(lengths, trainer)
    by_length = lengths == "bucketed"
    dataset = read_records(
        files,
        task.record_features,
        batch_size=batch_size,
        shuffle=False,
        repeat=False,
        drop_remainder=False,
        by_length=by_length,
    )
    dataset = task.complete(dataset, seed=0)  # the same at every evaluation
    dataset = _without_needless_padding(dataset, task, lengths)
    outputs_of = _with_record_number(task.eval_outputs) if by_length else task.eval_outputs
    with naming_damaged_file(files):
        kept = trainer.predict(
            dataset, outputs_of, batch_size, label=label, max_batches=max_batches
        )
    if not by_length:
        return kept
    order = np.argsort(kept.pop(RECORD_NUMBER))
    return {name: values[order] for name, values in kept.items()}


@functools.lru_cache(maxsize=8)  # the trainer compiles a step for each function it is given
def _with_record_number(eval_outputs: Callable) -> Callable:
    return lambda outputs, features: {
        **eval_outputs(outputs, features),
        RECORD_NUMBER: features[RECORD_NUMBER],
    }


def _possible_lengths(lengths: str, trainer: Trainer) -> str:
    if lengths not in LENGTHS:
        raise ValueError(f"`lengths` is {lengths!r}, but must be one of {', '.join(LENGTHS)}.")
    return "full" if strategy.needs_static_shapes(trainer.strategy) else lengths


def _without_needless_padding(
    dataset: tf.data.Dataset, task: Task, lengths: str
) -> tf.data.Dataset:
    if lengths == "full":
        return dataset
    step = length_step(task.max_seq_length)
    return dataset.map(lambda features: trim_padding(features, task.features, step))


def describe_model(model: keras.Model) -> str:
    """One line for the log."""
    config = model.config
    millions = sum(int(weight.shape.num_elements()) for weight in model.weights) / 1e6
    return (
        f"BERT with L={config.num_hidden_layers}, H={config.hidden_size}, "
        f"A={config.num_attention_heads}, {config.vocab_size:,} WordPieces: "
        f"{millions:.1f} million parameters"
    )


def write_results(path: str, results: dict[str, Any], title: str) -> None:
    """`eval_results.txt`: "key = value" lines in the order of the keys; also logged."""
    lines = [f"{key} = {results[key]}" for key in sorted(results)]
    write_text(path, "\n".join(lines) + "\n")
    logger.info("***** %s *****", title)
    for line in lines:
        logger.info("  %s", line)
