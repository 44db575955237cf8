"""What a run starts from: flags, devices, `output_dir`, weights, architecture, tokenizer, length."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import tensorflow as tf

from bert_tf.checkpoints.checkpoint import PretrainedCheckpoint, find_config
from bert_tf.checkpoints.heads import HEADS
from bert_tf.checkpoints.initial import select_layers
from bert_tf.checkpoints.read import read_checkpoint
from bert_tf.config import BertConfig
from bert_tf.options import OptionError, option
from bert_tf.tasks.base import Task
from bert_tf.tasks.load import load_task
from bert_tf.tasks.run_folder import RunFolder
from bert_tf.tokenization import FullTokenizer, load_tokenizer
from bert_tf.training.options import parse_layers

AnyOptions = TypeVar("AnyOptions", bound=Any)  # with groups `devices`, `training` and `model`


@dataclass(frozen=True, kw_only=True)
class FineTuningOptions:
    """Epochs, teacher, head and files of a fine-tuning program."""

    do_predict: bool = option("Predict the test set.", group="Actions", default=False)
    predict_batch_size: int = option("Examples per prediction batch.", default=8, min=1)
    num_train_epochs: float = option(
        "Passes over the training set.", group="Training", default=3.0, min=0, on_resume="warn"
    )
    warmup_proportion: float = option(
        "Fraction of the steps that warm up, 0 to 1.",
        group="Training",
        default=0.1,
        min=0,
        max=1,
        on_resume="warn",
    )
    teacher: str | None = option(
        "Trained model whose outputs the model learns, half and half with the labels: the --output_dir "
        "of a run, or any checkpoint with a head for the task.",
        default=None,
        on_resume="warn",
    )
    temperature: float = option(
        "Divisor of the logits of --teacher and of the model, before the softmax. Higher values give "
        "the smaller probabilities more influence.",
        default=2.0,
        above=0,
        on_resume="warn",
    )
    num_bilstm_layers: int | None = option(
        "BiLSTM layers between the encoder and the head, as in the paper's ablation; stored in the "
        "bert_config.json of --output_dir. Default: the value in --bert_config_file.",
        default=None,
        min=0,
    )
    train_file: str | None = option("File to train on.", group="Data", default=None)
    eval_file: str | None = option("File to evaluate on.", group="Data", default=None)
    predict_file: str | None = option("File to predict.", group="Data", default=None)


# Split -> flag of its action, flag of its file.
_FLAGS = {
    "train": ("do_train", "train_file"),
    "dev": ("do_eval", "eval_file"),
    "test": ("do_predict", "predict_file"),
}


def select_files(options: Any) -> dict[str, str | None]:
    """Return split -> file of the splits that a run needs: "train", "dev" and "test"."""
    training, fine_tuning = options.training, options.fine_tuning
    files = {}
    if training.do_train:
        files["train"] = fine_tuning.train_file
    if training.do_eval:
        files["dev"] = fine_tuning.eval_file
    if fine_tuning.do_predict:
        files["test"] = fine_tuning.predict_file
    return files


def check_files(options: Any, are_needed: bool = True) -> None:
    """Raise unless there is something to do, with the files for it if they are needed."""
    files = select_files(options)
    if not files:
        raise ValueError("Nothing to do: give at least one of do_train, do_eval, do_predict.")
    for split, file in files.items():
        action, flag = _FLAGS[split]
        if are_needed and not file:
            raise OptionError(flag, f"is needed by `{action}`.")


def check_data(options: Any, task_name: str | None, data_dir: str | None) -> None:
    """Raise unless there is something to do, with a data set in its folder or with files."""
    fine_tuning = options.fine_tuning
    has_files = any((fine_tuning.train_file, fine_tuning.eval_file, fine_tuning.predict_file))
    if bool(task_name) == has_files or bool(task_name) > bool(data_dir):
        raise OptionError("task_name", "give it with data_dir, or files of your own.")
    check_files(options, are_needed=has_files)


@dataclass(frozen=True, repr=False, eq=False)
class Setup(Generic[AnyOptions]):
    """What a program has resolved before it reads its data; `resolve` makes it.

    Args:
        devices: strategy of the training.
        folder: `output_dir`, as an earlier process left it.
        checkpoint: initial weights, None for random ones.
        config: architecture of the model.
        max_seq_length: S.
        task_type: key of `HEADS`; None if the program does not choose the task.
        trained: task that a resumed or evaluated model was trained for; None for a new model, or if no
            file states it.
        tokenizer: of a run that reads texts.
        vocabulary, do_lower_case: of the texts; None if unknown.
    """

    options: AnyOptions
    devices: tf.distribute.Strategy
    folder: RunFolder
    checkpoint: PretrainedCheckpoint | None
    config: BertConfig
    max_seq_length: int
    task_type: str | None = None
    trained: Any = None
    tokenizer: Any = None
    vocabulary: Sequence[str] | None = None
    do_lower_case: bool | None = None

    @property
    def policy(self) -> str:
        """Keras precision policy of the model."""
        return self.options.devices.policy

    @functools.cached_property
    def known(self) -> Any:
        """Task of the weights that the run begins with; None if no file states it."""
        if self.folder.weights is not None:
            return self.folder.task
        return None if self.checkpoint is None else load_task(self.checkpoint)[0]

    @property
    def labels(self) -> Sequence[str]:
        """Labels of the initial weights, in the order of the outputs; () without a head of this type."""
        is_same = self.known is not None and self.known.name == self.task_type
        return getattr(self.known, "labels", ()) if is_same else ()

    def with_tokenizer(self, tokenizer: FullTokenizer) -> Setup[AnyOptions]:
        tokens, case = list(tokenizer.vocab), tokenizer.do_lower_case
        return replace(self, tokenizer=tokenizer, vocabulary=tokens, do_lower_case=case)


def resolve(
    options: Any,
    task_type: str | None = None,
    default_length: int = 128,
    config: BertConfig | None = None,
    attention: str | None = None,
) -> Setup[Any]:
    """Resolve the devices, `output_dir`, initial weights, architecture, tokenizer and S of a run.

    Args:
        task_type: key of `HEADS`. Without it neither a tokenizer nor a trained task.
        default_length: S if neither the options nor an earlier training set it.
        config: architecture. Default: that of the flags or of the weights.
        attention: direction of the model. Default: that of the architecture.

    Raises:
        ValueError: there are no weights, or they are for another type of task.
    """
    training, model = options.training, options.model
    devices, folder = options.devices.make_strategy(), RunFolder.read(training.output_dir)
    path = training.init_checkpoint
    checkpoint = read_checkpoint(path) if path else folder.weights
    if checkpoint is None and not training.do_train:
        raise OptionError(
            "init_checkpoint", f"give it, or train: output_dir={folder.path} has no checkpoint."
        )
    if config is None:
        config = find_config(model.bert_config_file, checkpoint)
    if checkpoint is not None and training.init_layers is not None:
        checkpoint, config = choose_layers(training.init_layers, checkpoint, config)
    if attention is not None:
        config = replace(config, attention_direction=attention)
        if checkpoint is not None and checkpoint.config is not None:
            same = replace(checkpoint.config, attention_direction=attention)
            checkpoint = replace(checkpoint, config=same)
    if task_type is not None and options.fine_tuning.num_bilstm_layers is not None:
        config = replace(config, num_bilstm_layers=options.fine_tuning.num_bilstm_layers)
    if model.max_seq_length is not None:
        config.check_sequence_length(model.max_seq_length)
    length = min(model.max_seq_length or default_length, config.max_position_embeddings)
    setup = Setup(options, devices, folder, checkpoint, config, length, task_type)
    if task_type is None:
        return setup
    trained = find_trained_task(setup, task_type)
    if trained is not None and model.max_seq_length is None:
        length = trained.max_seq_length
    tokenizer = load_tokenizer(model.vocab_file, model.do_lower_case, checkpoint, config)
    return replace(setup, trained=trained, max_seq_length=length).with_tokenizer(tokenizer)


def choose_layers(
    init_layers: str, checkpoint: PretrainedCheckpoint, config: BertConfig
) -> tuple[PretrainedCheckpoint, BertConfig]:
    """Return the weights and the architecture with the layers of `init_layers`.

    Raises:
        ValueError: the checkpoint lacks a layer.
    """
    layers = parse_layers(init_layers)
    return select_layers(checkpoint, layers), replace(config, num_hidden_layers=len(layers))


def find_trained_task(setup: Setup, task_type: str) -> Task | None:
    """Return the task that the model was trained for. A resumed run or an evaluation uses it.

    None for a new model, or if no file states the task.

    Raises:
        ValueError: the weights are for another type of task.
    """
    folder, checkpoint = setup.folder, setup.checkpoint
    resumes = folder.weights is not None
    if resumes:
        source, task = folder.path, folder.task
    elif setup.options.training.do_train or checkpoint is None:
        return None
    else:
        source, (task, _) = checkpoint.folder, load_task(checkpoint, setup.max_seq_length)
    if task is None or task.name == task_type:
        return task
    if not resumes and not HEADS[task_type].variables:
        return None  # it needs no head, so any encoder will do
    raise OptionError(
        "output_dir" if resumes else "init_checkpoint",
        f"{source} contains a model for {task.name}, but this program is for {task_type}. Use "
        + ("another folder." if resumes else "do_train, to train it for this first."),
    )
