"""What a run starts from: `output_dir` as an earlier process left it, weights, tokenizer, length."""

from __future__ import annotations

import fnmatch
import functools
import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import zip_longest
from typing import Any, Generic, TypeVar

import tensorflow as tf

from bert_tf.checkpoints.checkpoint import PretrainedCheckpoint, find_config
from bert_tf.checkpoints.heads import HEADS
from bert_tf.checkpoints.initial import select_layers
from bert_tf.checkpoints.read import read_checkpoint
from bert_tf.config import BertConfig
from bert_tf.files import write_text
from bert_tf.limits import read_json
from bert_tf.modeling.pooling import parse_layers
from bert_tf.options import OptionError, flag_values, flags_of
from bert_tf.tasks.base import Task
from bert_tf.tasks.load import load_task, make_task
from bert_tf.tokenization import FullTokenizer, load_tokenizer
from bert_tf.training.checkpoints import checkpoint_step, latest_checkpoint

logger = logging.getLogger(__name__)

AnyOptions = TypeVar("AnyOptions", bound=Any)  # with groups `devices`, `training` and `model`

RECORD_FILE = "training.json"

# Arguments of a task of ours that its model in the folder must share; task.json omits unset `_OPTIONAL`.
_OPTIONAL = ("feature_layers", "crf")
_OF_THE_MODEL = (
    *("task", "problem_type", "is_pair"),
    *("pooling", "projection_size", "normalize", "query_prefix", "document_prefix"),
)


@dataclass
class RunRecord:
    """How a model was trained: for the comparison with a run that resumes, the card and the report.

    Args:
        options: name -> value of the options that have `on_resume`.
        steps: of the whole training, without `stop_step`.
        flags: name -> value of those that differ from their defaults.
        used: name -> text of resolved values.
        data: rows of the data in the model card, name and text.
        resumed: texts about resumptions with other options.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    steps: int | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    used: Mapping[str, str] = field(default_factory=dict)
    data: Sequence[Any] = ()
    resumed: Sequence[str] = ()

    @classmethod
    def load(cls, folder: str) -> RunRecord:
        """Read training.json; without that file the record is empty."""
        path = os.path.join(folder, RECORD_FILE)
        values = read_json(path) if tf.io.gfile.exists(path) else {}
        names = {each.name for each in fields(cls)} & set(values)
        own = {name: values.pop(name) for name in names}
        return cls(values, **own)

    def save(self, folder: str) -> None:
        own = {name: value for name, value in vars(self).items() if name != "options" and value}
        values = {**self.options, **own}
        write_text(os.path.join(folder, RECORD_FILE), json.dumps(values, indent=2) + "\n")


@dataclass(frozen=True)
class RunFolder:
    """What an earlier process left in `output_dir`. Without a checkpoint there is nothing to resume.

    Args:
        path: the folder.
        weights: the newest checkpoint, with the files next to it, or None.
        record: how the model was trained.
    """

    path: str
    weights: PretrainedCheckpoint | None = None
    record: RunRecord = field(default_factory=RunRecord)

    @classmethod
    def read(cls, path: str) -> RunFolder:
        """Read a folder, which may be missing."""
        prefix = latest_checkpoint(path)
        return cls(path, read_checkpoint(prefix), RunRecord.load(path)) if prefix else cls(path)

    @functools.cached_property
    def task(self) -> Any:
        """Task of the newest checkpoint; None if no file states it."""
        if self.weights is None or self.weights.task is None:
            return None
        return make_task(self.weights.task, self.path)

    @property
    def step(self) -> int:
        """Optimizer steps of the newest checkpoint."""
        return 0 if self.weights is None else checkpoint_step(self.weights.source)

    def changes(self, current: Mapping[str, Any], rules: Mapping[str, str]) -> dict[str, Any]:
        """Return name -> value in the folder of all that a run changes, and log them.

        Args:
            current: name -> value of the run. Names without a value in the folder are not compared.
            rules: name -> `on_resume`; others have to be the same.

        Raises:
            OptionError: a value differs that has to be the same.
        """
        there, record = self.weights, self.record
        if there is None:
            return {}
        saved = model_values(there.task, there.config, there.vocab, there.do_lower_case)
        saved |= {**record.options, **dict(record.data)}
        if record.steps is not None:
            saved["steps"] = record.steps
        changes = {
            name: (saved[name], value)
            for name, value in current.items()
            if name in saved
            and saved[name] != value
            and not (value is None and rules.get(name) == "model")
        }
        texts = {name: _difference(name, *values) for name, values in changes.items()}
        rejected = [text for name, text in texts.items() if rules.get(name, "same") == "same"]
        if rejected:
            raise OptionError(
                "output_dir",
                f"{self.path} contains checkpoints of another model or optimizer. Use another; "
                "init_checkpoint starts from its weights.\n  " + "\n  ".join(rejected),
            )
        for text in texts.values():
            logger.warning("The run resumes with a change: %s", text)
        return {name: before for name, (before, _) in changes.items()}


def resume_rules(options: Any) -> dict[str, str]:
    """Return name -> `on_resume` of the options that have it."""
    flags = flags_of(type(options)).items()
    return {
        name: flag.metadata["on_resume"] for name, flag in flags if "on_resume" in flag.metadata
    }


def compared_options(options: Any) -> dict[str, Any]:
    """Return name -> value of the options that a run which resumes is compared with."""
    values = flag_values(options)
    compared = {name: values[name] for name in resume_rules(options)}
    return {**compared, "precision": options.devices.policy}  # auto may differ between machines


def model_values(
    task: Mapping[str, Any] | None,
    config: BertConfig | None,
    tokens: Iterable[str] | None,
    do_lower_case: bool | None,
) -> dict[str, Any]:
    """Return name -> value of all in which two models may differ; nothing for what is None.

    Args:
        task: content of `task.json`. Labels in folders of older versions may be numbers.
        tokens: the vocabulary, in the order of the ids.
    """
    values: dict[str, Any] = {}
    if config is not None:
        values |= {f.name: getattr(config, f.name) for f in fields(config) if f.compare}
    if task is not None:
        is_ours, labels = task.get("task") in HEADS, task.get("labels")
        names = _OF_THE_MODEL if is_ours else ("task", "problem_type")
        values |= {name: task[name] for name in names if task.get(name) is not None}
        if is_ours:
            values |= {name: task.get(name) for name in _OPTIONAL}
        if isinstance(labels, (list, tuple)):
            values["labels"] = ", ".join(map(str, labels))
    if tokens is not None:
        values["vocabulary"] = [token.strip() for token in tokens]
    if do_lower_case is not None:
        values["do_lower_case"] = do_lower_case
    return values


def format_value(value: Any) -> str:
    return "the default" if value is None else str(value)


def _difference(name: str, there: Any, now: Any) -> str:
    if name == "vocabulary":
        pairs = enumerate(zip_longest(there, now))
        number, (there, now) = next((n, pair) for n, pair in pairs if pair[0] != pair[1])
        name, there, now = f"vocabulary, the token of id {number}", repr(there), repr(now)
    hint = ". For other data use another output_dir" if name == "steps" else ""
    return f"{name}: {format_value(there)} there, {format_value(now)} now{hint}"


# Files of a run of bert_tf or of the original.
_OF_A_RUN = (
    *("training.json", "model.ckpt-*.index", "*.tf_record*", "eval_results.txt"),
    "nbest_predictions.json",
)
_WRITTEN = (
    *("bert_config.json", "vocab.txt", "tokenizer_config.json", "task.json", "labels.txt"),
    *("metrics.jsonl", "report.html", "predictions.json", "test_results.tsv"),
)


def check_output_folder(folder: str) -> None:
    """Raise ValueError if a folder without a run has files that a run would overwrite."""
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    overwritten = sorted(set(names) & set(_WRITTEN))
    if overwritten and not any(fnmatch.filter(names, pattern) for pattern in _OF_A_RUN):
        raise OptionError(
            "output_dir", f"{folder} has {', '.join(overwritten)}, but no run: use a new folder."
        )


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
    layers = parse_layers(init_layers, name="init_layers")
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
