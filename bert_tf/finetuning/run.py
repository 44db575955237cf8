"""The run of every fine-tuning program: set up, read, train, evaluate, predict.

The module of each type of task has a subclass of `Program` with its own parts.
"""

from __future__ import annotations

import abc
import functools
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import tensorflow as tf

from bert_tf.data.parallel import workers_for
from bert_tf.data.records import make_once
from bert_tf.finetuning import loop
from bert_tf.finetuning.best_checkpoint import check_best_metric
from bert_tf.finetuning.distillation import Teacher, load_teacher
from bert_tf.finetuning.initial_weights import with_labels_of
from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.finetuning.same_run import check_output_folder
from bert_tf.finetuning.setup import Setup, make_trainer
from bert_tf.model_files import model_files, write_files
from bert_tf.options import OptionError
from bert_tf.pretraining.wordpieces import warn_of_unknown_words
from bert_tf.tasks.base import ExampleTask
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.loop import TrainLoop
from bert_tf.training.strategy import is_chief

logger = logging.getLogger(__name__)

AnyTask = TypeVar("AnyTask", bound=ExampleTask)
AnyOptions = TypeVar("AnyOptions", bound=FineTuningOptions)
Splits = Mapping[str, Sequence[Any]]

# Examples of each split, and characters of a text, that the check of the vocabulary reads.
_SAMPLED_EXAMPLES, _SAMPLED_LENGTH = 500, 1_000


@dataclass(frozen=True)
class Run(Generic[AnyTask, AnyOptions]):
    """A run with its model and data.

    Args:
        splits: name of a split -> its examples.
        folder: `output_dir`; for a worker that is not the chief, a temporary folder.
    """

    options: AnyOptions
    setup: Setup
    trainer: TrainLoop
    task: AnyTask
    splits: Splits
    folder: str
    _kept: dict[tuple, dict[str, np.ndarray]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )  # outputs of one step

    @property
    def tokenizer(self) -> FullTokenizer:
        return self.setup.tokenizer

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def records(self, examples: Sequence[Any], name: str, task: ExampleTask | None = None) -> str:
        """Return the path of `<name>.tf_record`. Write it unless it exists.

        Args:
            task: writes the records; default: the task of the run.
        """
        task = task or self.task
        path, key = self.path(f"{name}.tf_record"), task.records_key(examples, self.tokenizer)
        workers = workers_for(task.num_sequences(examples))
        make_once(
            path, key, lambda path: task.write_records(examples, self.tokenizer, path, workers)
        )
        return path

    def outputs(
        self,
        examples: Sequence[Any],
        name: str,
        batch_size: int,
        task: ExampleTask | None = None,
        label: str | None = None,
    ) -> dict[str, np.ndarray]:
        """Return the outputs that `task.eval_outputs` keeps, in the order of the examples.

        With `evaluate_steps`, outputs of the current step are kept, because the last evaluation during
        the training and the final one use the same weights.

        Args:
            name: of the records; with one task it always means the same examples.
            label: of the progress; default: `name`.
        """
        task = task or self.task
        if not self.options.evaluate_steps:
            return self._compute(examples, name, batch_size, task, label or name)
        key = (self.trainer.step, name, task, batch_size)
        if any(step != key[0] for step, *_ in self._kept):
            self._kept.clear()
        if key not in self._kept:
            self._kept[key] = self._compute(examples, name, batch_size, task, label or name)
        return dict(self._kept[key])

    def _compute(
        self, examples: Sequence[Any], name: str, batch_size: int, task: ExampleTask, label: str
    ) -> dict[str, np.ndarray]:
        files = [self.records(examples, name, task)]
        return loop.run_model(
            self.trainer, task, files, batch_size, label=label, lengths="bucketed"
        )


class Program(abc.ABC, Generic[AnyTask, AnyOptions]):
    """The task-specific parts of `fine_tune`.

    Attributes:
        task_type: key of `registry.TYPES`.
        default_length: S if neither the options nor an earlier training set it.
        examples: word for the training examples in the log.
    """

    task_type: ClassVar[str]
    default_length: ClassVar[int] = 128
    examples: ClassVar[str] = "examples"

    @abc.abstractmethod
    def read(self, options: AnyOptions, setup: Setup) -> tuple[AnyTask, Splits]:
        """Return the task and the splits that the options need.

        "train" only for training.
        """

    def count(self, task: AnyTask, examples: Sequence[Any], setup: Setup) -> int:
        """Return the number of examples or windows that make an epoch."""
        return len(examples)

    def label_names(self, options: AnyOptions) -> Sequence[str]:
        """Return other names of the task's labels, which a checkpoint may use."""
        return ()

    def metrics_while_training(self, run: Run) -> Callable[[], Mapping[str, float]] | None:
        """Return a function that evaluates the current model, or None."""
        return functools.partial(self.metrics, run) if run.options.do_eval else None

    def metric_keys(self, task: AnyTask, splits: Splits) -> Sequence[str] | None:
        """Return the keys of `metrics`, or None if they are unknown before an evaluation."""
        return task.metric_keys

    def metrics(self, run: Run) -> Mapping[str, float]:
        """Return the metrics of the split "dev"."""
        kept = run.outputs(run.splits["dev"], "eval", run.options.eval_batch_size)
        return run.task.metrics(kept)

    def finish(self, run: Run) -> dict[str, float]:
        """Evaluate and predict, as the options set. Return the metrics of the evaluation, if any."""
        results = self.evaluate(run) if run.options.do_eval else {}
        if run.options.do_predict:
            self.predict(run)
        return results

    @abc.abstractmethod
    def evaluate(self, run: Run) -> dict[str, float]:
        """Write and return the metrics of the split "dev"."""

    @abc.abstractmethod
    def predict(self, run: Run) -> Any:
        """Write the predictions of the split "test"."""


def fine_tune(
    program: Program, options: AnyOptions, devices: tf.distribute.Strategy | None = None
) -> dict[str, float]:
    """Train, evaluate and predict, as the options set. Return the metrics of the evaluation, if any.

    Args:
        devices: result of `options.make_strategy()`, if that was called before.
    """
    setup = Setup.for_task(options, program.task_type, devices, program.default_length)
    task, splits = program.read(options, setup)
    setup.config.check_sequence_length(task.max_seq_length, task.min_seq_length)
    if options.best_metric is not None:
        check_best_metric(options.best_metric, program.metric_keys(task, splits))
    num_train_steps = num_warmup_steps = 0
    if options.do_train:
        num_examples = program.count(task, splits["train"], setup)
        num_train_steps, num_warmup_steps = count_steps(num_examples, options)
    files = _files(setup, task)
    if is_chief(setup.devices):
        check_output_folder(options.output_dir)
        warn_of_unknown_words(_sample_texts(task, splits), setup.tokenizer)
    label_names = program.label_names(options)
    checkpoint = with_labels_of(options, setup.checkpoint, task, label_names)
    setup = replace(setup, checkpoint=checkpoint)
    teacher: Teacher | None = None
    if options.teacher and loop.has_steps_to_train(options, task, num_train_steps):
        teacher = load_teacher(options, setup, task, label_names)
    learned = task if teacher is None else teacher.student
    trainer = make_trainer(setup, learned, num_train_steps, num_warmup_steps)
    logger.info("%s", loop.describe_model(trainer.model))
    folder = loop.folder_to_write(trainer, options.output_dir)
    run = Run(options, setup, trainer, task, splits, folder)
    if options.do_train:
        if trainer.step < num_train_steps:
            write_files(folder, files)
        if teacher is None:
            path = run.records(splits["train"], "train")
        else:
            path = teacher.write_records(run, splits["train"])
            teacher = None  # frees its weights
        shown = f"{len(splits['train'])} {program.examples}"
        if num_examples != len(splits["train"]):
            shown += f" in {num_examples} windows"
        logger.info("%s, %d step%s", shown, num_train_steps, "s" * (num_train_steps > 1))
        loop.train(
            trainer,
            learned,
            [path],
            options,
            num_train_steps,
            program.metrics_while_training(run),
            lengths="bucketed",
            folder=folder,
        )
    return program.finish(run)


def _sample_texts(task: ExampleTask, splits: Splits) -> Iterator[str]:
    """Yield the texts of the first examples of each split, truncated."""
    for examples in splits.values():
        for example in examples[:_SAMPLED_EXAMPLES]:
            yield from (text[:_SAMPLED_LENGTH] for text in task.texts(example))


def count_steps(num_examples: int, options: FineTuningOptions) -> tuple[int, int]:
    """Return the numbers of training steps and of warm-up steps.

    Raises:
        ValueError: there are too few examples for one step.
    """
    num_train_steps = int(num_examples / options.train_batch_size * options.num_train_epochs)
    if num_train_steps == 0:
        raise OptionError(
            "train_batch_size",
            f"{num_examples} examples make no step in {options.num_train_epochs} epochs. Lower it.",
        )
    return num_train_steps, int(num_train_steps * options.warmup_proportion)


def _files(setup: Setup, task: ExampleTask) -> dict[str, str]:
    """Return name -> text of the files next to the checkpoints."""
    tokenizer, labels = setup.tokenizer, getattr(task, "labels", ())
    files = model_files(setup.config, task, list(tokenizer.vocab), tokenizer.do_lower_case)
    return {**files, "labels.txt": "".join(f"{label}\n" for label in labels)} if labels else files


def renamed(metrics: Mapping[str, float], name: str) -> dict[str, float]:
    """Return metrics of another split than "dev": `eval_loss` becomes `test_loss` for "test"."""
    return {key.replace("eval_", f"{name}_", 1): value for key, value in metrics.items()}
