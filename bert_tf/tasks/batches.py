"""Batches of record files or of a `tf.data.Dataset` for a `TrainLoop`, and outputs of its model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from bert_tf.data.batching import RECORD_NUMBER, length_step, pack_batch
from bert_tf.data.features import trim_padding
from bert_tf.data.records import assert_ids, count_records, explain_read_errors, read_records
from bert_tf.options import OptionError
from bert_tf.tasks.base import Task
from bert_tf.training.loop import TrainLoop
from bert_tf.training.options import TrainingOptions
from bert_tf.training.strategy import needs_static_shapes

Outputs = Callable[
    [Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]
]  # of a model, features


@dataclass(frozen=True)
class RecordFiles:
    """Record files of a task.

    Args:
        lengths: of the sequences in a batch. "full": S; always on devices that need static shapes.
            "trimmed": the longest of the batch. "bucketed": trimmed, with examples of similar length per
            batch. A training with `pack_sequences` has "packed" rows of S tokens, several examples each.
        batch_size: None for that of the options.
    """

    files: Sequence[str]
    lengths: str = "trimmed"
    batch_size: int | None = None

    def check(self, training: TrainingOptions, devices: tf.distribute.Strategy) -> str:
        """Return the `lengths` of a training on the devices."""
        is_static, size = needs_static_shapes(devices), training.train_batch_size
        lengths = "packed" if training.pack_sequences else self.lengths
        if is_static or (training.jit_compile == "cudnn" and lengths != "packed"):
            lengths = "full"  # cuDNN's attention is compiled for one shape
        if lengths == "packed" or is_static:
            _check_parts(size, training, devices)
        if (count := count_records(self.files, limit=size)) < size:  # would repeat examples
            names = ", ".join(self.files[:3])
            raise OptionError("train_batch_size", f"{size}, but {names} has only {count} examples.")
        return lengths

    def stream(
        self, loop: TrainLoop, task: Task, training: TrainingOptions
    ) -> Callable[[int], tf.data.Dataset]:
        """Return the function step -> endless dataset of training batches from that step on."""
        lengths, id_limits = self.check(training, loop.strategy), task.id_limits(loop.model.config)
        parts = loop.strategy.num_replicas_in_sync * training.gradient_accumulation_steps
        return lambda step: training_batches(
            task, self.files, training, lengths, step, parts, id_limits
        )

    def batches(
        self, loop: TrainLoop, task: Task, lengths: str, batch_size: int
    ) -> tf.data.Dataset:
        """Return the batches of an evaluation."""
        return read_records(
            self.files,
            task.record_features,
            batch_size,
            by_length=lengths == "bucketed",
            id_limits=task.id_limits(loop.model.config),
        )


@dataclass(frozen=True)
class DatasetBatches:
    """Batches of `task.record_features`, repeated for a training when they end."""

    dataset: tf.data.Dataset
    batch_size: int
    files: Sequence[str] = ()
    lengths: str = "full"

    def stream(
        self, loop: TrainLoop, task: Task, training: TrainingOptions
    ) -> Callable[[int], tf.data.Dataset]:
        """Return the function step -> endless dataset of training batches from that step on."""
        if needs_static_shapes(loop.strategy):
            _check_parts(self.batch_size, training, loop.strategy)
        batches = self.batches(loop, task).repeat()
        return lambda step: task.complete(batches.skip(step), training.seed, first_batch=step)

    def batches(self, loop: TrainLoop, task: Task, *_: Any) -> tf.data.Dataset:
        """Return the batches, whose ids are checked."""
        limits = task.id_limits(loop.model.config)

        @tf.autograph.experimental.do_not_convert
        def check(batch):
            assert_ids(batch, limits)
            return batch

        return self.dataset.map(check)


Source: TypeAlias = RecordFiles | DatasetBatches


def collect(
    loop: TrainLoop,
    task: Task,
    source: Source,
    outputs: Outputs,
    batch_size: int,
    label: str = "eval",
    max_batches: int | None = None,
) -> dict[str, np.ndarray]:
    """Return the tensors of `outputs` for all examples, in their order."""
    lengths = "full" if needs_static_shapes(loop.strategy) else source.lengths
    size = source.batch_size or batch_size
    dataset = source.batches(loop, task, lengths, size)
    dataset = task.complete(dataset, seed=0)  # the same at every evaluation
    dataset = without_needless_padding(dataset, task, lengths)
    is_ordered = lengths != "bucketed"
    outputs = outputs if is_ordered else _with_record_number(outputs)
    with explain_read_errors(source.files):
        columns = loop.predict(dataset, outputs, size, label=label, max_batches=max_batches)
    if is_ordered:
        return columns
    order = np.argsort(columns.pop(RECORD_NUMBER))
    return {name: values[order] for name, values in columns.items()}


def run_model(
    loop: TrainLoop, task: Task, source: Source, batch_size: int, **settings: Any
) -> dict[str, np.ndarray]:
    """Return the outputs for `task.metrics`, in the order of the examples; see `collect`."""
    return task.decode(collect(loop, task, source, task.eval_outputs, batch_size, **settings))


def _check_parts(size: int, training: TrainingOptions, devices: tf.distribute.Strategy) -> None:
    num_parts = devices.num_replicas_in_sync * training.gradient_accumulation_steps
    if size % num_parts:
        text = f"{size}, but pack_sequences and a TPU need a multiple of the {num_parts} parts."
        raise OptionError("train_batch_size", text)


def without_needless_padding(dataset: tf.data.Dataset, task: Task, lengths: str) -> tf.data.Dataset:
    """Return batches without the padding that `lengths` does not need."""
    if lengths == "full":
        return dataset
    step = length_step(task.max_seq_length)
    trim = tf.autograph.experimental.do_not_convert(trim_padding)
    return dataset.map(lambda features: trim(features, task.features, step))


def training_batches(
    task: Task,
    files: Sequence[str],
    training: TrainingOptions,
    lengths: str,
    first_batch: int = 0,
    num_parts: int = 1,
    id_limits: Mapping[str, int] | None = None,
) -> tf.data.Dataset:
    """Return an endless dataset of training batches from `first_batch` on."""
    dataset = read_records(
        files,
        task.record_features,
        training.train_batch_size,
        seed=training.seed,
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


@functools.lru_cache(maxsize=8)  # the loop compiles a step for each function it is given
def _with_record_number(outputs: Outputs) -> Outputs:
    return lambda answers, features: {
        **outputs(answers, features),
        RECORD_NUMBER: features[RECORD_NUMBER],
    }
