"""Lengths of the sequences in a batch, and what the devices allow."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from bert_tf.data.batching import length_step
from bert_tf.data.features import trim_padding
from bert_tf.data.records import count_records
from bert_tf.tasks.base import Task
from bert_tf.training import strategy
from bert_tf.training.options import TrainingOptions

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
        raise ValueError(
            f"train_batch_size is {size}, but pack_sequences and a TPU need a multiple of {num_parts}: "
            "devices x gradient_accumulation_steps."
        )
    if files and (count := count_records(files, limit=size)) < size:  # would repeat examples
        raise ValueError(
            f"train_batch_size is {size}, but {', '.join(files[:3])} has only {count} examples."
        )
    return lengths


def possible_lengths(lengths: str, devices: tf.distribute.Strategy) -> str:
    """Return `lengths`, or "full" if the devices need static shapes."""
    if not strategy.needs_static_shapes(devices):
        return lengths
    if lengths == "packed":
        raise ValueError(
            "pack_sequences makes dynamic shapes, but a TPU needs static ones. Omit it."
        )
    return "full"


def without_needless_padding(dataset: tf.data.Dataset, task: Task, lengths: str) -> tf.data.Dataset:
    """Return batches without the padding that `lengths` does not need."""
    if lengths == "full":
        return dataset
    step = length_step(task.max_seq_length)
    trim = tf.autograph.experimental.do_not_convert(trim_padding)
    return dataset.map(lambda features: trim(features, task.features, step))
