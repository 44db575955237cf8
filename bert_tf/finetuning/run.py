"""What the programs that fine-tune share: their flags, the way from flags to a model, and the way from
examples to records and to what the model makes of them."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.files import write_text
from bert_tf.data.parallel import usable_cores
from bert_tf.data.record_cache import make_once
from bert_tf.finetuning import loop, setup
from bert_tf.finetuning.output_folder import check_output_folder
from bert_tf.interop.checkpoint import PretrainedCheckpoint
from bert_tf.interop.initial import folder_of
from bert_tf.model_folder import known_task, model_files, read_task, write_model_folder
from bert_tf.options import TrainingOptions, option, require_one_of
from bert_tf.tasks.base import ExampleTask, Task
from bert_tf.tasks.of_checkpoint import align_head
from bert_tf.tokenization import FullTokenizer
from bert_tf.training import checkpoints
from bert_tf.training.strategy import is_chief
from bert_tf.training.trainer import Trainer

logger = logging.getLogger(__name__)

KindOfTask = TypeVar("KindOfTask", bound=Task)
KindOfExampleTask = TypeVar("KindOfExampleTask", bound=ExampleTask)
Options = TypeVar("Options", bound="FineTuningOptions")

# Name of the split, flag that asks for it, flag of its file.
SPLITS = (
    ("train", "do_train", "train_file"),
    ("dev", "do_eval", "eval_file"),
    ("test", "do_predict", "predict_file"),
)

_SEQUENCES_PER_WORKER = 100_000  # with fewer, starting a process takes longer than it saves


@dataclass(frozen=True, kw_only=True)
class FineTuningOptions(TrainingOptions):
    """Flags of every program that fine-tunes."""

    actions: ClassVar[tuple[str, ...]] = ("do_train", "do_eval", "do_predict")

    bert_config_file: str | None = option(
        "Architecture. Default: the one beside --init_checkpoint or in --output_dir.", default=None
    )
    vocab_file: str | None = option(
        "Vocabulary. Default: the one beside --init_checkpoint or in --output_dir.", default=None
    )
    do_lower_case: bool | None = option(
        "Lower-case the text. Default: as the checkpoint says, else true.", default=None
    )
    max_seq_length: int | None = option(
        "WordPieces of an input, with [CLS] and [SEP]. Default: as the model in --output_dir was "
        "trained, else 128 (or all that the model has positions for).",
        default=None,
    )
    do_predict: bool = option("Predict the test set.", default=False)
    predict_batch_size: int = option("Examples per prediction batch.", default=8, min=1)
    num_train_epochs: float = option("Passes over the training set.", default=3.0, min=0)
    warmup_proportion: float = option(
        "Share of the steps that warm up, 0 to 1.", default=0.1, between=(0, 1)
    )
    pad_to_max_length: bool = option(
        "Let every batch have --max_seq_length tokens, as in the reference and on a TPU. Default: "
        "examples of similar length share a batch that is as long as they are.",
        default=False,
    )
    num_workers: int | None = option(
        "Processes that make the records. Default: one for each 100,000 sequences, as far as there are "
        "cores, else one.",
        default=None,
        min=1,
    )
    feature_cache_dir: str | None = option(
        "Folder where records are kept for other runs on the same data. Default: --output_dir.",
        default=None,
    )
    num_bilstm_layers: int | None = option(
        "BiLSTM layers between the encoder and the head, as in the paper's ablation; noted in the "
        "bert_config.json of --output_dir. Default: what --bert_config_file says.",
        default=None,
    )
    report: bool = option(
        "After an evaluation write report.html: what was learned, and where it errs.", default=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of(self, self.actions)

    @property
    def lengths(self) -> str:
        """One of `training.LENGTHS`."""
        return "full" if self.pad_to_max_length else "bucketed"

    def workers_for(self, num_sequences: int) -> int:
        """Processes that make the records of so many sequences: --num_workers, or what pays."""
        if self.num_workers is not None:
            return self.num_workers
        return max(1, min(usable_cores(), num_sequences // _SEQUENCES_PER_WORKER))

    def require_files(self, files: Iterable[tuple[str, str]]) -> None:
        """What is to be done needs its file.

        Args:
            files: pairs of the flag that asks and the flag of the file.

        Raises:
            ValueError: a file is not given; the message names it.
        """
        for wanted, file in files:
            if getattr(self, wanted) and not getattr(self, file):
                raise ValueError(f"`{wanted}` needs `{file}`.")


@dataclass(frozen=True, kw_only=True)
class ThreeFilesOptions(FineTuningOptions):
    """Flags of a program that reads a training, a dev and a test set from a file each."""

    train_file: str | None = option("File to train on.", default=None)
    eval_file: str | None = option("File to evaluate on.", default=None)
    predict_file: str | None = option("File to predict.", default=None)


class Start(NamedTuple):
    """What a fine-tuning starts from."""

    devices: tf.distribute.Strategy
    checkpoint: PretrainedCheckpoint | None
    config: BertConfig
    tokenizer: FullTokenizer


def prepare(
    options: Options,
    kind: type[KindOfTask],
    devices: tf.distribute.Strategy | None = None,
    default_length: int = 128,
) -> tuple[Options, Start, KindOfTask | None]:
    """Looks up what the flags leave open.

    Args:
        kind: of the task.
        devices: of `options.make_strategy()`, if it was made before.
        default_length: tokens, where neither the flags nor an earlier training say it.

    Returns:
        The options with a `max_seq_length`; the start; and the task that the model was trained for,
        None for a new model.
    """
    devices = options.make_strategy() if devices is None else devices
    setup.trained_weights_needed(options)
    checkpoint = setup.read_initial_checkpoint(options)
    config = setup.find_config(options.bert_config_file, checkpoint)
    if options.num_bilstm_layers is not None:
        config = replace(config, num_bilstm_layers=options.num_bilstm_layers)
    setup.check_same_architecture(options.output_dir, config)
    default = min(default_length, config.max_position_embeddings)
    trained = trained_task(options, kind, checkpoint, default)
    if options.max_seq_length is None:
        options = replace(options, max_seq_length=trained.max_seq_length if trained else default)
    setup.check_sequence_length(options.max_seq_length, config)
    tokenizer = setup.load_tokenizer(options.vocab_file, options.do_lower_case, checkpoint, config)
    return options, Start(devices, checkpoint, config, tokenizer), trained


def trained_task(
    options: FineTuningOptions,
    kind: type[KindOfTask],
    checkpoint: PretrainedCheckpoint | None,
    default_length: int,
) -> KindOfTask | None:
    """What the model was trained for, which a run that goes on or only evaluates keeps to.

    None for a new model, and where nobody noted it.

    Args:
        checkpoint: the initial weights. In a Hugging Face folder the head names the task.
        default_length: tokens of an input, for such a task.

    Raises:
        ValueError: the weights are of another kind of task.
    """
    folder = options.output_dir
    resumes = checkpoints.latest_checkpoint(folder) is not None
    if resumes:
        task = read_task(folder)
    elif options.do_train or checkpoint is None:
        return None
    else:
        folder = folder_of(checkpoint.source)
        task = known_task(checkpoint, default_length)
    if task is None or isinstance(task, kind):
        return task
    raise ValueError(
        f"{folder} holds a model for {task.name}, and this program is for {kind.name}. Use "
        + ("another output_dir." if resumes else "do_train, to train it for this first.")
    )


def count_steps(num_examples: int, options: FineTuningOptions) -> tuple[int, int]:
    """Steps of the training, and how many of them warm up.

    Raises:
        ValueError: there are too few examples for one step.
    """
    num_train_steps = int(num_examples / options.train_batch_size * options.num_train_epochs)
    if num_train_steps == 0:
        raise ValueError(
            f"{num_examples} examples make no step: train_batch_size is "
            f"{options.train_batch_size} and num_train_epochs {options.num_train_epochs}. "
            "Lower the batch size or raise the number of epochs."
        )
    return num_train_steps, int(num_train_steps * options.warmup_proportion)


def write_beside_checkpoints(
    output_dir: str, start: Start, task: Task, labels: Sequence[str] = ()
) -> None:
    """All that the model needs besides its weights."""
    tokenizer = start.tokenizer
    write_model_folder(
        output_dir, start.config, task, list(tokenizer.vocab), tokenizer.do_lower_case
    )
    if labels:
        write_text(os.path.join(output_dir, "labels.txt"), _labels_text(labels))


def _labels_text(labels: Sequence[str]) -> str:
    return "".join(f"{label}\n" for label in labels)


def _beside_checkpoints(start: Start, task: Task) -> dict[str, str]:
    """Name -> text of what `write_beside_checkpoints` writes."""
    tokenizer, labels = start.tokenizer, getattr(task, "labels", ())
    files = model_files(start.config, task, list(tokenizer.vocab), tokenizer.do_lower_case)
    return {**files, "labels.txt": _labels_text(labels)} if labels else files


def make_trainer(
    task: Task,
    start: Start,
    options: Options,
    num_train_steps: int,
    num_warmup_steps: int,
    label_names: Sequence[str] = (),
) -> tuple[Trainer, Options]:
    """The Trainer, and the options with the folder that this process may write to.

    Args:
        label_names: second names of the task's labels, which the checkpoint may have.

    Raises:
        ValueError: --output_dir has files that are not from a run of ours and would be overwritten, or
            the checkpoint's classifier is for other labels, and is not trained.
    """
    if is_chief(start.devices):
        check_output_folder(options, _beside_checkpoints(start, task) if options.do_train else {})
    checkpoint = start.checkpoint
    if checkpoint is not None and checkpoints.latest_checkpoint(options.output_dir) is None:
        known = known_task(checkpoint)
        checkpoint = align_head(checkpoint, known, task, label_names, is_trained=options.do_train)
    trainer = setup.make_trainer(
        task,
        start.config,
        options,
        start.devices,
        checkpoint,
        num_train_steps,
        num_warmup_steps,
    )
    logger.info("%s", loop.describe_model(trainer.model))
    folder = loop.folder_to_write(trainer, options.output_dir)
    return trainer, replace(options, output_dir=folder)


@dataclass(frozen=True)
class Run(Generic[KindOfExampleTask, Options]):
    """What training, evaluation and prediction need, of a task whose records are made of examples."""

    trainer: Trainer
    task: KindOfExampleTask
    tokenizer: FullTokenizer
    options: Options

    def records(self, examples: Sequence[Any], name: str) -> str:
        """The path of `<name>.tf_record` with the examples, which is written unless it is there."""
        key = self.task.records_key(examples, self.tokenizer)
        write = functools.partial(self.task.write_records, examples, self.tokenizer)
        num_sequences = self.task.num_sequences(examples)
        return record_file(self.trainer, self.options, name, key, num_sequences, write)

    def outputs(self, examples: Sequence[Any], name: str, batch_size: int) -> dict[str, np.ndarray]:
        """What `task.eval_outputs` keeps of the examples."""
        return loop.run_model(
            self.trainer,
            self.task,
            [self.records(examples, name)],
            batch_size,
            label=name,
            lengths=self.options.lengths,
        )


def record_file(
    trainer: Trainer,
    options: FineTuningOptions,
    name: str,
    key: str,
    num_sequences: int,
    write: Callable[..., int],
) -> str:
    """The path of `<name>.tf_record`, which is written unless it is there.

    It lies in the output folder, or under a name with its key in --feature_cache_dir. A worker that is
    not the chief keeps its own.

    Args:
        key: of what it holds, see `record_files.content_key`.
        num_sequences: about how many the records have in all.
        write: (path=, num_workers=) -> number of records written.
    """
    path = os.path.join(options.output_dir, f"{name}.tf_record")
    if options.feature_cache_dir and trainer.is_chief:
        path = os.path.join(options.feature_cache_dir, f"{name}-{key[:16]}.tf_record")
    workers = options.workers_for(num_sequences)
    make_once(path, key, lambda path: write(path=path, num_workers=workers))
    return path
