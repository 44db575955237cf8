"""Trainer: the training loop for custom tasks, from Python."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from bert_tf.checkpoints.tokenizer_files import compare_vocabularies
from bert_tf.config import BertConfig
from bert_tf.files import expand_files
from bert_tf.options import ModelOptions, changes, make_options
from bert_tf.tasks.base import Task
from bert_tf.tasks.batches import DatasetBatches, RecordFiles, Source, run_model
from bert_tf.tasks.run import Plan, Run, start
from bert_tf.tasks.setup import Setup, resolve
from bert_tf.tokenization import FullTokenizer, load_tokenizer
from bert_tf.training.options import DeviceOptions, TrainingOptions

Data: TypeAlias = "str | os.PathLike | Sequence[str | os.PathLike] | tf.data.Dataset"


@dataclass(frozen=True, kw_only=True)
class TrainerOptions:
    devices: DeviceOptions
    training: TrainingOptions
    model: ModelOptions = changes(
        bert_config_file=None, vocab_file=None, do_lower_case=None, max_seq_length=None
    )


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
        **options: other flags that all programs that train share, such as
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
        values = make_options(
            TrainerOptions,
            output_dir=os.fspath(output_dir),
            init_checkpoint=init_checkpoint and os.fspath(init_checkpoint),
            do_train=True,
            **options,
        )
        self.task = task
        setup: Setup[TrainerOptions] = resolve(values, config=config)
        if tokenizer is not None:
            compare_vocabularies("`tokenizer`", list(tokenizer.vocab), setup.checkpoint)
        elif setup.checkpoint is not None and setup.checkpoint.tokenizer.vocab is not None:
            tokenizer = load_tokenizer(None, None, setup.checkpoint, setup.config)
        self.tokenizer = tokenizer
        if tokenizer is not None:
            setup = setup.with_tokenizer(tokenizer)
        if num_warmup_steps is None:
            num_warmup_steps = num_train_steps // 10
        self._run: Run[Task, TrainerOptions] = start(
            setup, task, Plan(num_train_steps, num_warmup_steps)
        )

    @property
    def model(self) -> keras.Model:
        return self._run.loop.model

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
        source = _make_source(data, self.task)
        if evaluate is None:
            self._run.train_on(source)
            return {"global_step": self._run.loop.step}
        held_out = _make_source(evaluate, self.task, held_out=True)
        results = self._run.train_on(source, functools.partial(self._metrics, held_out))
        metrics = self._metrics(held_out) if results is None else results
        return self._run.write_results("eval", metrics)

    def evaluate(self, data: Data) -> dict[str, float]:
        """Return the metrics of a data set. Write them to `eval_results.txt`.

        Args:
            data: as `evaluate` in `fit`.
        """
        source = _make_source(data, self.task, held_out=True)
        return self._run.write_results("eval", self._metrics(source))

    def _metrics(self, source: Source) -> Mapping[str, float]:
        size = self._run.options.training.eval_batch_size
        return self.task.metrics(run_model(self._run.loop, self.task, source, size))


def _make_source(data: Data, task: Task, held_out: bool = False) -> Source:
    """Return record files, or a dataset whose labels and weights have the task's ranks."""
    if not isinstance(data, tf.data.Dataset):
        paths = [data] if isinstance(data, (str, os.PathLike)) else data
        files = [file for path in paths for file in expand_files(os.fspath(path))]
        return RecordFiles(files, "trimmed" if held_out else "bucketed")
    for spec in task.record_features:
        rank, shape = data.element_spec[spec.name].shape.rank, ("batch", *spec.shape)
        if spec.role in ("label", "weight") and rank not in (None, len(shape)):
            text = f"rank {rank}, but {task.name} needs [{', '.join(map(str, shape))}]"
            raise ValueError(f"The batches have {spec.name} of {text}.")  # it would be broadcast
    if held_out and data.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise ValueError("The evaluation data repeat without end: omit `repeat()`.")
    if held_out and data.cardinality() == tf.data.UNKNOWN_CARDINALITY:
        count = data.reduce(tf.constant(0, tf.int64), lambda count, _: count + 1)
        data = data.apply(tf.data.experimental.assert_cardinality(count))
    first = next(iter(data))
    return DatasetBatches(data, int(tf.shape(next(iter(first.values())))[0]))
