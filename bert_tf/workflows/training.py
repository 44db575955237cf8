"""From a task and options to a ready Trainer, and from record files to training and results."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.features import trim_padding
from bert_tf.data.files import write_text
from bert_tf.data.records import naming_damaged_file, read_records
from bert_tf.interop.checkpoint import PretrainedCheckpoint
from bert_tf.interop.initial import initialize
from bert_tf.tasks.base import Task
from bert_tf.training import strategy
from bert_tf.training.optimization import AdamWeightDecay, WarmupLinearDecay
from bert_tf.training.trainer import Trainer
from bert_tf.workflows.options import TrainingOptions

logger = logging.getLogger(__name__)


def make_trainer(
    task: Task,
    config: BertConfig,
    options: TrainingOptions,
    checkpoint: PretrainedCheckpoint | None,
    num_train_steps: int = 0,
    num_warmup_steps: int = 0,
) -> Trainer:
    """A Trainer with its weights in place.

    If --output_dir holds checkpoints of this run, the weights (and, with training steps, the
    optimizer) come from the latest; else from `checkpoint`; else they are random.

    Args:
        num_train_steps: 0 for a model that is only evaluated.

    Raises:
        ValueError: the weights do not fit, or a model that is only evaluated has untrained ones.
    """
    keras.utils.set_random_seed(options.seed)
    devices = options.make_strategy()
    with devices.scope():
        model = task.build_model(config, dtype=options.precision)
        optimizer = None
        if num_train_steps:
            schedule = WarmupLinearDecay(options.learning_rate, num_train_steps, num_warmup_steps)
            optimizer = AdamWeightDecay(schedule)
    trainer = Trainer(
        model,
        task.losses,
        strategy=devices,
        input_names=task.input_names,
        optimizer=optimizer,
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


def train(
    trainer: Trainer,
    task: Task,
    files: Sequence[str],
    options: TrainingOptions,
    num_train_steps: int,
    evaluate: Callable[[], Mapping[str, float]] | None = None,
    evaluate_steps: int = 0,
) -> None:
    """Trains on record files up to `num_train_steps`, from where the trainer stands."""
    logger.info("***** Running training *****")
    logger.info("  %s", strategy.describe(trainer.strategy, options.train_batch_size))

    def batches_from(step: int) -> tf.data.Dataset:
        dataset = read_records(
            files,
            task.features,
            batch_size=options.train_batch_size,
            shuffle=True,
            seed=options.seed,
            repeat=True,
            drop_remainder=True,
            skip_batches=step,
        )
        return _without_needless_padding(dataset, task, trainer)

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
        )


def run_model(
    trainer: Trainer,
    task: Task,
    files: Sequence[str],
    batch_size: int,
    label: str = "eval",
    max_batches: int | None = None,
) -> dict[str, np.ndarray]:
    """What `task.eval_outputs` keeps of the examples in record files, in their order."""
    dataset = read_records(
        files,
        task.features,
        batch_size=batch_size,
        shuffle=False,
        repeat=False,
        drop_remainder=False,
    )
    dataset = _without_needless_padding(dataset, task, trainer)
    with naming_damaged_file(files):
        return trainer.predict(
            dataset, task.eval_outputs, batch_size, label=label, max_batches=max_batches
        )


def _without_needless_padding(
    dataset: tf.data.Dataset, task: Task, trainer: Trainer
) -> tf.data.Dataset:
    if strategy.needs_static_shapes(trainer.strategy):
        return dataset
    return dataset.map(lambda features: trim_padding(features, task.features))


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
