"""Training and evaluation on record files, with a `TrainLoop` made by setup.py."""

from __future__ import annotations

import atexit
import functools
import logging
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.data.batching import RECORD_NUMBER, length_step, pack_batch
from bert_tf.data.features import trim_padding
from bert_tf.data.files import write_text
from bert_tf.data.records import assert_ids, count_records, naming_damaged_file, read_records
from bert_tf.finetuning.best_checkpoint import BestCheckpoint, copy_record
from bert_tf.finetuning.same_run import check_same_data, note_training
from bert_tf.modeling.flops import flops_per_token
from bert_tf.options import OptionError
from bert_tf.report.model_card import described_step, write_card, write_training_card
from bert_tf.report.run_facts import changed_options, data_rows, resolved_values
from bert_tf.tasks.base import Task
from bert_tf.training import strategy
from bert_tf.training.checkpoints import (
    ALL_STEPS,
    DATA,
    FLAGS,
    USED,
    checkpoint_step,
    latest_checkpoint,
)
from bert_tf.training.loop import StopTraining, TrainLoop
from bert_tf.training.options import TrainingOptions
from bert_tf.training.progress import MetricsLog, Speed

logger = logging.getLogger(__name__)

# Length of the sequences in a batch. full: S. trimmed: the longest of the batch. bucketed: trimmed, with
# examples of similar length per batch. packed: rows of S tokens with several examples each.
LENGTHS = ("full", "trimmed", "bucketed", "packed")


def checked_lengths(
    options: TrainingOptions,
    devices: tf.distribute.Strategy,
    files: Sequence[str],
    lengths: str = "trimmed",
) -> str:
    """Return the `lengths` of `train` that are possible on the devices.

    Args:
        files: record files; none if the batches are made otherwise.

    Raises:
        ValueError: the devices need static shapes or parts of one size, which the options prevent, or
            there are fewer examples than one batch needs.
    """
    lengths = possible_lengths("packed" if options.pack_sequences else lengths, devices)
    size = options.train_batch_size
    num_parts = devices.num_replicas_in_sync * options.gradient_accumulation_steps
    if (lengths == "packed" or strategy.needs_static_shapes(devices)) and size % num_parts:
        raise OptionError(
            "train_batch_size",
            f"{size}, but pack_sequences and a TPU need a multiple of the {num_parts} parts.",
        )
    if files and (count := count_records(files, limit=size)) < size:  # would repeat examples
        raise OptionError(
            "train_batch_size", f"{size}, but {', '.join(files[:3])} has only {count} examples."
        )
    return lengths


def possible_lengths(lengths: str, devices: tf.distribute.Strategy) -> str:
    """Return `lengths`, or "full" if the devices need static shapes."""
    if not strategy.needs_static_shapes(devices):
        return lengths
    if lengths == "packed":
        raise OptionError("pack_sequences", "a TPU needs static shapes. Omit it.")
    return "full"


def without_needless_padding(dataset: tf.data.Dataset, task: Task, lengths: str) -> tf.data.Dataset:
    """Return batches without the padding that `lengths` does not need."""
    if lengths == "full":
        return dataset
    step = length_step(task.max_seq_length)
    trim = tf.autograph.experimental.do_not_convert(trim_padding)
    return dataset.map(lambda features: trim(features, task.features, step))


def folder_to_write(trainer: TrainLoop, output_dir: str) -> str:
    """Return `output_dir`; in a worker that is not the chief, a temporary folder."""
    if trainer.is_chief:
        return output_dir
    folder = _scratch_folder()
    copy_record(output_dir, folder)
    return folder


@functools.cache
def _scratch_folder() -> str:
    folder = tempfile.mkdtemp(prefix="bert_tf-worker-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def train(
    trainer: TrainLoop,
    task: Task,
    files: Sequence[str] | tf.data.Dataset,
    options: TrainingOptions,
    num_train_steps: int,
    evaluate: Callable[[], Mapping[str, float]] | None = None,
    lengths: str = "trimmed",
    folder: str | None = None,
    command: TrainingOptions | None = None,
    stop_step: int | None = None,
) -> Mapping[str, float] | None:
    """Train on record files from the trainer's step up to `num_train_steps`, and write README.md.

    Args:
        files: record files; or batches of `task.record_features`, repeated when they end. A resumed run
            skips those it has seen, so their order must be the same.
        evaluate: called every `evaluate_steps` of the options, if that is set.
        lengths: one of `LENGTHS`. Becomes "full" under a strategy that needs static shapes, and "packed"
            with `pack_sequences`.
        folder: result of `folder_to_write`; default: `output_dir` of the options.
        command: options that README.md shows; default: `options`.
        stop_step: last step, with the learning rates of `num_train_steps`. Default: `num_train_steps`.

    Returns:
        Metrics of an evaluation at the last step, or None without one.

    Raises:
        ValueError: there are fewer examples than one batch needs, or there is nothing to evaluate every
            `evaluate_steps`.
    """
    if options.evaluate_steps and evaluate is None:
        raise OptionError("evaluate_steps", "needs an evaluation: give do_eval or `evaluate`.")
    folder = folder or options.output_dir
    num_all_steps, num_train_steps = num_train_steps, stop_step or num_train_steps
    batches = files if isinstance(files, tf.data.Dataset) else None
    has_one_sequence = len(task.features[0].shape) == 1
    if options.pack_sequences and not (has_one_sequence and batches is None):
        raise OptionError("pack_sequences", "is for record files with one sequence per example.")
    files = [] if batches is not None else files
    lengths = checked_lengths(options, trainer.strategy, files, lengths)
    logger.info("***** Running training *****")
    logger.info("  %s", describe(trainer, options))

    id_limits = task.id_limits(trainer.model.config)
    if batches is not None:  # whose inputs the model checks
        labels = [spec.name for spec in task.record_features if spec.role == "label"]
        id_limits = {name: id_limits[name] for name in labels if name in id_limits}

    @tf.autograph.experimental.do_not_convert
    def checked(batch):
        assert_ids(batch, id_limits)
        return batch

    def batches_from(step: int) -> tf.data.Dataset:
        if batches is not None:
            return task.complete(
                batches.map(checked).repeat().skip(step), options.seed, first_batch=step
            )
        num_parts = trainer.strategy.num_replicas_in_sync * options.gradient_accumulation_steps
        return training_batches(task, files, options, lengths, step, num_parts, id_limits)

    evaluations = _Evaluations(trainer, task, options, evaluate, folder)
    if evaluations.are_over:
        logger.info("Training ended early, at step %d", trainer.step)
        num_train_steps = min(num_train_steps, trainer.step)
    first_step = trainer.step
    is_over = first_step >= num_train_steps
    if trainer.is_chief and is_over and first_step:
        check_same_data(options, num_all_steps)
    elif trainer.is_chief and not is_over:
        note: dict[str, Any] = {
            ALL_STEPS: num_all_steps,
            FLAGS: changed_options(command or options),
            USED: resolved_values(options, trainer.optimizer.schedule),
            DATA: data_rows(options, files),
        }
        if first_step:
            check_same_data(options, num_all_steps, note[DATA])
        note_training(options, note, is_batched=batches is not None)
    config = trainer.model.config
    flops = flops_per_token(config, task.max_seq_length, task.predictions_per_token)
    with naming_damaged_file(files, id_limits):
        trainer.train(
            batches_from,
            num_train_steps,
            output_dir=folder,
            save_checkpoints_steps=options.save_checkpoints_steps,
            max_steps_per_loop=options.iterations_per_loop,
            keep_checkpoint_max=options.keep_checkpoint_max,
            evaluate=evaluations,
            evaluate_steps=options.evaluate_steps,
            evaluate_first=evaluations.are_missing_at(first_step),
            tensorboard=options.tensorboard,
            speed=Speed(options.train_batch_size, flops),
        )
    if trainer.is_chief and (not is_over or described_step(folder) != trainer.step):
        write_training_card(command or options, task, num_parameters(trainer.model), trainer.step)
    results, is_new = evaluations.at(trainer.step)
    if is_new and trainer.is_chief:
        MetricsLog(folder, options.tensorboard).write("eval", trainer.step, results or {})
    return results


def training_batches(
    task: Task,
    files: Sequence[str],
    options: TrainingOptions,
    lengths: str,
    first_batch: int = 0,
    num_parts: int = 1,
    id_limits: Mapping[str, int] | None = None,
) -> tf.data.Dataset:
    """Return an endless dataset of training batches.

    Args:
        first_batch: number of batches to skip.
        num_parts: parts of a batch that are computed apart; rows are packed for each.
        id_limits: of `read_records`.
    """
    dataset = read_records(
        files,
        task.record_features,
        batch_size=options.train_batch_size,
        shuffle=True,
        seed=options.seed,
        repeat=True,
        drop_remainder=True,
        skip_batches=first_batch,
        by_length=lengths == "bucketed",
        id_limits=id_limits,
    )
    dataset = task.complete(dataset, options.seed, first_batch=first_batch)
    dataset = without_needless_padding(dataset, task, lengths)
    if lengths != "packed":
        return dataset
    pack = tf.autograph.experimental.do_not_convert(pack_batch)
    return dataset.map(
        lambda features: pack(features, task.max_seq_length, num_parts),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    ).prefetch(tf.data.AUTOTUNE)


def has_steps_to_train(options: TrainingOptions, task: Task, num_train_steps: int) -> bool:
    """Return True if `train` has steps to take after the newest checkpoint in `output_dir`.

    Args:
        num_train_steps: last step; 0 without a training.
    """
    newest = latest_checkpoint(options.output_dir)
    step = checkpoint_step(newest) if newest else 0
    if step >= num_train_steps:
        return False
    best = _best_checkpoint(options, task, options.output_dir)
    return not _ended_early(best, options.early_stopping)


def _best_checkpoint(options: TrainingOptions, task: Task, folder: str) -> BestCheckpoint | None:
    if not options.evaluate_steps:
        return None
    metric = options.best_metric or task.best_metric
    is_new_run = latest_checkpoint(options.output_dir) is None
    return BestCheckpoint(folder, metric, metric in task.lower_is_better, is_new_run)


def _ended_early(best: BestCheckpoint | None, early_stopping: int) -> bool:
    return best is not None and 0 < early_stopping <= best.evaluations_since


class _Evaluations:
    """Evaluations during training. They keep the best weights, and may end the training early."""

    def __init__(
        self, trainer: TrainLoop, task: Task, options: TrainingOptions, evaluate, folder: str
    ):
        self._trainer = trainer
        self._evaluate = evaluate
        self._evaluate_steps = options.evaluate_steps
        self._patience = options.early_stopping
        self._last: tuple[int, Mapping[str, float]] | None = None
        self._best: Any = _best_checkpoint(options, task, folder)

    def __call__(self) -> Mapping[str, float]:
        results = self._evaluate()
        self._last = self._trainer.step, results
        self._best.offer(results, self._trainer)
        if self.are_over:
            logger.warning(
                "Training ends at step %d: the last %d evaluations were not better than the best one, "
                "whose weights are in %s",
                self._trainer.step,
                self._patience,
                self._best.folder,
            )
            raise StopTraining(results)
        return results

    @property
    def are_over(self) -> bool:
        """True after `early_stopping` evaluations without a better value, earlier processes included."""
        return _ended_early(self._best, self._patience)

    def are_missing_at(self, step: int) -> bool:
        """Return True if a run that resumes at `step` ended before it had evaluated that step."""
        if self._best is None or self._best.is_new_run or step % self._evaluate_steps:
            return False
        return not self._best.has_seen(step)

    def at(self, step: int) -> tuple[Mapping[str, float] | None, bool]:
        """Return the results at the last step, and True if no process has logged them.

        They are computed if they can be the best.
        """
        if self._last is not None and self._last[0] == step:
            return self._last[1], False
        if self._best is None:
            return None, False
        results, is_new = self._evaluate(), not self._best.has_seen(step)
        self._best.offer(results, self._trainer)
        return results, is_new


def describe(trainer: TrainLoop, options: TrainingOptions) -> str:
    """Return one line for the log: devices, batch of each, precision."""
    devices = strategy.describe(trainer.strategy, options.train_batch_size)
    num_parts = options.gradient_accumulation_steps
    parts = f" in {num_parts} parts" if num_parts > 1 else ""
    compiled = f", --jit_compile={options.jit_compile}" if options.jit_compile != "auto" else ""
    return f"{devices}{parts}; {options.policy}{compiled}"


def run_model(
    trainer: TrainLoop,
    task: Task,
    files: Sequence[str] | tf.data.Dataset,
    batch_size: int,
    label: str = "eval",
    max_batches: int | None = None,
    lengths: str = "trimmed",
) -> dict[str, np.ndarray]:
    """Return the outputs for `task.metrics`, in the order of the examples.

    Args:
        max_batches: most batches to read; with "bucketed" the shortest examples.
    """
    return task.decode(
        collect_outputs(
            *(trainer, task, files, task.eval_outputs, batch_size, label, max_batches, lengths)
        )
    )


def collect_outputs(
    trainer: TrainLoop,
    task: Task,
    files: Sequence[str] | tf.data.Dataset,
    eval_outputs: Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]],
    batch_size: int,
    label: str = "eval",
    max_batches: int | None = None,
    lengths: str = "trimmed",
) -> dict[str, np.ndarray]:
    """Return the tensors of `eval_outputs` for all records, in their order; see `run_model`."""
    if isinstance(files, tf.data.Dataset):
        dataset = task.complete(files, seed=0)
        return trainer.predict(dataset, eval_outputs, batch_size, label=label)
    lengths = possible_lengths(lengths, trainer.strategy)
    by_length = lengths == "bucketed"
    id_limits = task.id_limits(trainer.model.config)
    dataset = read_records(
        files,
        task.record_features,
        batch_size=batch_size,
        shuffle=False,
        repeat=False,
        drop_remainder=False,
        by_length=by_length,
        id_limits=id_limits,
    )
    dataset = task.complete(dataset, seed=0)  # the same at every evaluation
    dataset = without_needless_padding(dataset, task, lengths)
    outputs_of = _with_record_number(eval_outputs) if by_length else eval_outputs
    with naming_damaged_file(files, id_limits):
        kept = trainer.predict(
            dataset, outputs_of, batch_size, label=label, max_batches=max_batches
        )
    if by_length:
        order = np.argsort(kept.pop(RECORD_NUMBER))
        kept = {name: values[order] for name, values in kept.items()}
    return kept


@functools.lru_cache(maxsize=8)  # the trainer compiles a step for each function it is given
def _with_record_number(eval_outputs: Callable) -> Callable:
    return lambda outputs, features: {
        **eval_outputs(outputs, features),
        RECORD_NUMBER: features[RECORD_NUMBER],
    }


def num_parameters(model: keras.Model) -> int:
    return sum(math.prod(weight.shape) for weight in model.weights)


def describe_model(model: keras.Model) -> str:
    config = model.config
    millions = num_parameters(model) / 1e6
    return (
        f"BERT with L={config.num_hidden_layers}, H={config.hidden_size}, "
        f"A={config.num_attention_heads}, {config.vocab_size:,} WordPieces: "
        f"{millions:.1f} million parameters"
    )


def write_results(path: str, results: dict[str, Any], title: str) -> None:
    """Write "key = value" lines, sorted by key. Log them, and update the model card next to the file."""
    lines = [f"{key} = {results[key]}" for key in sorted(results)]
    write_text(path, "\n".join(lines) + "\n")
    logger.info("***** %s *****", title)
    for line in lines:
        logger.info("  %s", line)
    write_card(os.path.dirname(path))
