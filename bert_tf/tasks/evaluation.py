"""Batches of record files for a `TrainLoop`, and outputs of its model."""

from __future__ import annotations

import functools
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.data.batching import RECORD_NUMBER, length_step, pack_batch
from bert_tf.data.features import trim_padding
from bert_tf.data.records import assert_ids, count_records, naming_damaged_file, read_records
from bert_tf.files import write_text
from bert_tf.options import OptionError
from bert_tf.report.model_card import write_card
from bert_tf.tasks.base import Task
from bert_tf.training import strategy
from bert_tf.training.loop import TrainLoop
from bert_tf.training.options import TrainingOptions

logger = logging.getLogger(__name__)

# Length of the sequences in a batch. full: S. trimmed: the longest of the batch. bucketed: trimmed, with
# examples of similar length per batch. packed: rows of S tokens with several examples each.
LENGTHS = ("full", "trimmed", "bucketed", "packed")


def check_lengths(
    training: TrainingOptions,
    devices: tf.distribute.Strategy,
    files: Sequence[str],
    lengths: str = "trimmed",
    size: int | None = None,
) -> str:
    """Return the `lengths` of a training that are possible on the devices.

    Args:
        files: record files; none if the batches are made otherwise.
        size: examples per step. Default: `train_batch_size`.

    Raises:
        ValueError: the devices need static shapes or parts of one size, which the options prevent, or
            there are fewer examples than one batch needs.
    """
    lengths = possible_lengths("packed" if training.pack_sequences else lengths, devices)
    size = size or training.train_batch_size
    num_parts = devices.num_replicas_in_sync * training.gradient_accumulation_steps
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


def stream(
    trainer: TrainLoop,
    task: Task,
    data: Sequence[str] | tf.data.Dataset,
    training: TrainingOptions,
    size: int,
    lengths: str,
) -> Callable[[int], tf.data.Dataset]:
    """Return the function step -> endless dataset of training batches from that step on.

    Args:
        data: record files; or batches of `task.record_features`, repeated when they end.
        size: examples of a batch.
        lengths: see `Run.train_on`.

    Raises:
        ValueError: there are fewer examples than one batch needs.
    """
    batches = data if isinstance(data, tf.data.Dataset) else None
    files = [] if isinstance(data, tf.data.Dataset) else data
    if training.pack_sequences and (batches is not None or len(task.features[0].shape) != 1):
        raise OptionError("pack_sequences", "is for record files with one sequence per example.")
    devices = trainer.strategy
    lengths = check_lengths(training, devices, files, lengths, size)
    id_limits = task.id_limits(trainer.model.config)
    num_parts = devices.num_replicas_in_sync * training.gradient_accumulation_steps
    if batches is None:
        return lambda step: training_batches(
            task, files, training, lengths, step, num_parts, id_limits
        )
    # The model checks the inputs.
    labels = [spec.name for spec in task.record_features if spec.role == "label"]
    id_limits = {name: id_limits[name] for name in labels if name in id_limits}

    @tf.autograph.experimental.do_not_convert
    def checked(batch):
        assert_ids(batch, id_limits)
        return batch

    batches = batches.map(checked).repeat()
    return lambda step: task.complete(batches.skip(step), training.seed, first_batch=step)


def batch_size(dataset: tf.data.Dataset) -> int:
    """Return the number of examples of the first batch."""
    features = next(iter(dataset))
    return int(tf.shape(next(iter(features.values())))[0])


def training_batches(
    task: Task,
    files: Sequence[str],
    training: TrainingOptions,
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
        batch_size=training.train_batch_size,
        shuffle=True,
        seed=training.seed,
        repeat=True,
        drop_remainder=True,
        skip_batches=first_batch,
        by_length=lengths == "bucketed",
        id_limits=id_limits,
    )
    dataset = task.complete(dataset, training.seed, first_batch=first_batch)
    dataset = without_needless_padding(dataset, task, lengths)
    if lengths != "packed":
        return dataset
    pack = tf.autograph.experimental.do_not_convert(pack_batch)
    return dataset.map(
        lambda features: pack(features, task.max_seq_length, num_parts),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    ).prefetch(tf.data.AUTOTUNE)


def describe(trainer: TrainLoop, options: Any, size: int) -> str:
    """Return one line for the log: devices, batch of each, precision."""
    devices = strategy.describe(trainer.strategy, size)
    num_parts = options.training.gradient_accumulation_steps
    parts = f" in {num_parts} parts" if num_parts > 1 else ""
    jit = options.training.jit_compile
    compiled = f", --jit_compile={jit}" if jit != "auto" else ""
    return f"{devices}{parts}; {options.devices.policy}{compiled}"


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
