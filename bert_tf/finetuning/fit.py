"""Trainer: the training loop for custom tasks, from Python."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.files import expand_files
from bert_tf.finetuning import loop
from bert_tf.finetuning.best_checkpoint import check_best_metric
from bert_tf.finetuning.initial_weights import with_init_layers, with_labels_of
from bert_tf.finetuning.same_run import (
    check_output_folder,
    check_same_architecture,
    check_same_task,
    check_same_tokenizer,
)
from bert_tf.finetuning.setup import Setup, make_trainer
from bert_tf.interop.read import read_checkpoint
from bert_tf.interop.sidecar import find_config, load_tokenizer
from bert_tf.model_files import model_files, write_files
from bert_tf.registry import TYPES
from bert_tf.tasks.base import Task
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.loop import TrainLoop
from bert_tf.training.options import TrainingOptions

logger = logging.getLogger(__name__)

Data: TypeAlias = "str | os.PathLike | Sequence[str | os.PathLike] | tf.data.Dataset"


class Trainer:
    """Training and evaluation of the model of a task.

    Checkpoints, exact resume, mixed precision, several devices, the best weights and the model card work
    as in the programs. The same call resumes an interrupted one.

    >>> import bert_tf
    >>> trainer = bert_tf.Trainer(
    ...     task, init_checkpoint="uncased_L-12_H-768_A-12", output_dir="counting", num_train_steps=500
    ... )  # doctest: +SKIP
    >>> trainer.fit("train.tf_record", evaluate="dev.tf_record")  # doctest: +SKIP
    {'eval_loss': 0.12, 'global_step': 500}

    Args:
        task: the task to learn.
        output_dir: folder of the checkpoints and results.
        num_train_steps: all optimizer steps, including those before a resume.
        init_checkpoint: initial weights, as in --init_checkpoint. Default: random ones. A head for the
            labels of `task` gets their order, and one for other labels is left out.
        num_warmup_steps: steps of linear warm-up. Default: a tenth.
        config: architecture. Default: that of the checkpoint.
        tokenizer: written next to the weights. Default: that of the checkpoint.
        **options: other fields of `TrainingOptions`, the flags that all programs share, such as
            `learning_rate`, `train_batch_size`, `precision`, `evaluate_steps`, `seed`.

    Attributes:
        model: has the current weights.
        tokenizer: as above; None if not found.

    Raises:
        TypeError: an option is unknown, or a whole number has another type than int.
        ValueError: the run would overwrite other files in `output_dir`, an option is out of range, no
            architecture was found, or `output_dir` contains a model of another architecture, task or
            labels. `best_metric` is not a metric of the task.
    """

    def __init__(
        self,
        task: Task,
        *,
        output_dir: str | os.PathLike,
        num_train_steps: int,
        init_checkpoint: str | os.PathLike | None = None,
        num_warmup_steps: int | None = None,
        config: BertConfig | None = None,
        tokenizer: FullTokenizer | None = None,
        **options: Any,
    ):
        if init_checkpoint is not None:
            init_checkpoint = os.fspath(init_checkpoint)
        self.task = task
        self._options = TrainingOptions(
            output_dir=os.fspath(output_dir),
            init_checkpoint=init_checkpoint,
            do_train=True,
            **options,
        )
        check_best_metric(self._options.best_metric, task.metric_keys)
        self._num_train_steps = num_train_steps
        devices = self._options.make_strategy()
        checkpoint = None if init_checkpoint is None else read_checkpoint(init_checkpoint)
        config = find_config(None, checkpoint) if config is None else config
        checkpoint, self._config = with_init_layers(self._options, checkpoint, config)
        check_same_architecture(self._options.output_dir, self._config)
        check_same_task(self._options.output_dir, task)
        own = TYPES.get(task.name)
        is_custom = own is None or own.load("task") is not type(task)
        # The task.json of a custom task may have arguments that ours do not take.
        if checkpoint is not None and not is_custom:
            checkpoint = with_labels_of(self._options, checkpoint, task)
        if tokenizer is None and checkpoint is not None:
            tokenizer = load_tokenizer(None, None, checkpoint, self._config)
        if tokenizer is not None:
            check_same_tokenizer(self._options.output_dir, tokenizer.vocab, tokenizer.do_lower_case)
        self.tokenizer = tokenizer
        check_output_folder(self._options.output_dir)
        self._loop: TrainLoop = make_trainer(
            Setup(self._options, devices, checkpoint, self._config, task.max_seq_length),
            task,
            num_train_steps,
            num_train_steps // 10 if num_warmup_steps is None else num_warmup_steps,
        )
        self._folder = loop.folder_to_write(self._loop, self._options.output_dir)

    @property
    def model(self) -> keras.Model:
        return self._loop.model

    def _files(self) -> dict[str, str]:
        """Name -> text of the files next to the checkpoints."""
        tokenizer = self.tokenizer
        if tokenizer is None:
            return model_files(self._config, self.task)
        return model_files(self._config, self.task, list(tokenizer.vocab), tokenizer.do_lower_case)

    def fit(self, data: Data, evaluate: Data | None = None) -> dict[str, float]:
        """Train up to `num_train_steps`, and return the metrics of `evaluate`.

        Args:
            data: TFRecord files with the features of the task, or a `tf.data.Dataset` of batches of
                them. Files are a path, a comma list, a glob or a list of these. Their records are
                shuffled and batched by length. A dataset keeps its order and repeats when it ends. A
                resumed run skips the batches it has seen.
            evaluate: data for the evaluation at the end, and at every `evaluate_steps`. A dataset must
                end, and its first batch must be the largest.

        Returns:
            `task.metrics` of `evaluate`, and `global_step`.

        Raises:
            ValueError: a file does not exist, or `data` has fewer examples than a batch. A dataset has a
                label or a weight of another rank than the task's. A label is unknown. `evaluate` repeats
                without end.
        """
        source, options = _source(data, self.task), self._options
        if isinstance(source, tf.data.Dataset):
            options = replace(options, train_batch_size=_batch_size(source))
        held_out = None if evaluate is None else _held_out(evaluate, self.task)
        if self._loop.step < self._num_train_steps:
            write_files(self._folder, self._files())
        results = loop.train(
            self._loop,
            self.task,
            source,
            options,
            self._num_train_steps,
            None if held_out is None else functools.partial(self._metrics, held_out),
            lengths="bucketed",
            folder=self._folder,
        )
        if held_out is None:
            return {"global_step": self._loop.step}
        return self._results(self._metrics(held_out) if results is None else results)

    def evaluate(self, data: Data) -> dict[str, float]:
        """Return the metrics of a data set. Write them to `eval_results.txt`.

        Args:
            data: as `evaluate` in `fit`.
        """
        return self._results(self._metrics(_held_out(data, self.task)))

    def _results(self, metrics: Mapping[str, float]) -> dict[str, float]:
        results = {"global_step": self._loop.step, **metrics}
        path = os.path.join(self._folder, "eval_results.txt")
        loop.write_results(path, results, "Eval results")
        return results

    def _metrics(self, source: list[str] | tf.data.Dataset) -> Mapping[str, float]:
        batch_size = self._options.eval_batch_size
        if isinstance(source, tf.data.Dataset):
            batch_size = _batch_size(source)
        return self.task.metrics(loop.run_model(self._loop, self.task, source, batch_size))


def _source(data: Data, task: Task) -> list[str] | tf.data.Dataset:
    """Return the paths of record files, or a dataset whose labels and weights have the task's ranks."""
    if not isinstance(data, tf.data.Dataset):
        paths = [data] if isinstance(data, (str, os.PathLike)) else data
        return [file for path in paths for file in expand_files(os.fspath(path))]
    for spec in task.record_features:
        if spec.role not in ("label", "weight"):
            continue
        rank, shape = data.element_spec[spec.name].shape.rank, ("batch", *spec.shape)
        if rank not in (None, len(shape)):  # would be broadcast
            raise ValueError(
                f"The batches have {spec.name} of rank {rank}, but {task.name} needs "
                f"[{', '.join(map(str, shape))}]."
            )
    return data


def _held_out(data: Data, task: Task) -> list[str] | tf.data.Dataset:
    """Return `_source`, but a dataset of known size."""
    source = _source(data, task)
    if isinstance(source, tf.data.Dataset):
        if source.cardinality() == tf.data.INFINITE_CARDINALITY:
            raise ValueError("The evaluation data repeat without end: omit `repeat()`.")
        if source.cardinality() == tf.data.UNKNOWN_CARDINALITY:
            count = source.reduce(tf.constant(0, tf.int64), lambda count, _: count + 1)
            source = source.apply(tf.data.experimental.assert_cardinality(count))
    return source


def _batch_size(dataset: tf.data.Dataset) -> int:
    features = next(iter(dataset))
    return int(tf.shape(next(iter(features.values())))[0])
