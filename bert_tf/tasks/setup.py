"""What a run starts from: flags, devices, `output_dir`, weights, architecture, tokenizer, length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import tensorflow as tf

from bert_tf.checkpoints.checkpoint import PretrainedCheckpoint, find_config
from bert_tf.checkpoints.heads import HEADS, task_values
from bert_tf.checkpoints.initial import select_layers
from bert_tf.checkpoints.read import read_checkpoint
from bert_tf.config import BertConfig
from bert_tf.options import OptionError, option, require_files
from bert_tf.tasks.base import Task
from bert_tf.tasks.load import make_task
from bert_tf.tasks.run_folder import RunFolder
from bert_tf.tokenization import FullTokenizer, load_tokenizer
from bert_tf.training.options import TrainingOptions, parse_layers

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


_FILES = {"do_train": "train_file", "do_eval": "eval_file", "do_predict": "predict_file"}


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


def check_files(options: Any) -> None:
    """Raise unless there is something to do, with the files for it."""
    require_files(options, _FILES)


def check_data(options: Any, data_set: str | None) -> None:
    """Raise unless there is something to do, with a data set in its folder or with files."""
    has_files = any(vars(options.fine_tuning)[file] for file in _FILES.values())
    if bool(data_set) == has_files:
        raise OptionError("task_name", "give it with data_dir, or files of your own.")
    require_files(options, _FILES if has_files else dict.fromkeys(_FILES, "data_dir"))


@dataclass(frozen=True, repr=False, eq=False)
class Setup(Generic[AnyOptions]):
    """What a program has resolved before it reads its data; `resolve` makes it."""

    options: AnyOptions
    strategy: tf.distribute.Strategy
    folder: RunFolder  # `output_dir`, as an earlier process left it
    # Initial weights, the newest of `output_dir` or else of `init_checkpoint`; None for random ones.
    checkpoint: PretrainedCheckpoint | None
    config: BertConfig
    max_seq_length: int
    # Content of the `task.json` of the initial weights, or what their head states; {} if unknown.
    checkpoint_task: Mapping[str, Any]
    trained: Any = None  # the same as a task, for a model that is resumed or evaluated
    tokenizer: Any = None  # of a run that reads texts
    vocabulary: Sequence[str] | None = None
    do_lower_case: bool | None = None

    @property
    def policy(self) -> str:
        return self.options.devices.policy

    def checkpoint_labels(self, task_type: str | None) -> tuple[str, ...]:
        """Return the labels of the initial weights, by output; () for another type of task."""
        task = self.checkpoint_task
        return tuple(map(str, task.get("labels", ()))) if task.get("task") == task_type else ()

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
    """Resolve the devices, `output_dir`, initial weights, architecture, tokenizer and S of a run."""
    training, model = options.training, options.model
    strategy, folder = options.devices.make_strategy(), RunFolder.read(training.output_dir)
    checkpoint, config = _read_weights(training, folder, model.bert_config_file, config)
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
    task = {} if checkpoint is None else task_values(checkpoint, length)[0] or {}
    trained = None
    if task_type and task and (folder.weights is not None or not training.do_train):
        trained = _make_trained(task, task_type, checkpoint, resumes=folder.weights is not None)
    if trained is not None and model.max_seq_length is None:
        length = trained.max_seq_length
    setup = Setup(options, strategy, folder, checkpoint, config, length, task, trained)
    if task_type is None:
        return setup
    tokenizer = load_tokenizer(model.vocab_file, model.do_lower_case, checkpoint, config)
    return setup.with_tokenizer(tokenizer)


def _read_weights(
    training: TrainingOptions, folder: RunFolder, config_file: str | None, config: BertConfig | None
) -> tuple[PretrainedCheckpoint | None, BertConfig]:
    """Return the initial weights, if any, and the architecture, both with the layers of the options."""
    checkpoint = folder.weights
    layers: Sequence[int] = ()
    if checkpoint is None and training.init_checkpoint:
        checkpoint = read_checkpoint(training.init_checkpoint)
        if training.init_layers:
            layers = parse_layers(training.init_layers)
            checkpoint = select_layers(checkpoint, layers)
    if checkpoint is None and not training.do_train:
        text = f"give it, or train: output_dir={folder.path} has no checkpoint."
        raise OptionError("init_checkpoint", text)
    config = config or find_config(config_file, checkpoint)
    return checkpoint, replace(config, num_hidden_layers=len(layers)) if layers else config


def _make_trained(
    values: Mapping[str, Any], task_type: str, checkpoint: Any, resumes: bool
) -> Task | None:
    """Return the task of a model that is resumed or evaluated; None if `task_type` needs no head."""
    if values["task"] == task_type:
        return make_task(values, checkpoint.folder)
    if not resumes and task_type in HEADS and not HEADS[task_type].variables:
        return None
    raise OptionError(
        "output_dir" if resumes else "init_checkpoint",
        f"{checkpoint.source} is a model for {values['task']}, but this program is for {task_type}. Use "
        + ("another folder." if resumes else "do_train, to train it for this first."),
    )
