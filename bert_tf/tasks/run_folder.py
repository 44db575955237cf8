"""`output_dir` as an earlier process left it: checkpoint, training.json, and what a run changes."""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import zip_longest
from typing import Any

import tensorflow as tf

from bert_tf.checkpoints.checkpoint import PretrainedCheckpoint
from bert_tf.checkpoints.heads import HEADS
from bert_tf.checkpoints.read import read_checkpoint
from bert_tf.checkpoints.tf1 import latest_checkpoint
from bert_tf.config import BertConfig
from bert_tf.data.records import count_records
from bert_tf.files import file_facts, write_text
from bert_tf.limits import read_json
from bert_tf.options import OptionError, flag_values, flags_of
from bert_tf.report.model_card import changed_options, code, without_folders
from bert_tf.tasks.load import make_task
from bert_tf.training.checkpoints import checkpoint_step

logger = logging.getLogger(__name__)

RECORD_FILE = "training.json"
# Flags that a run which resumes does not use; its record keeps those of the first run.
INITIAL_FLAGS = ("init_checkpoint", "init_layers", "init_optimizer")

# Arguments of a task of ours that its model in the folder must share; task.json omits unset `_OPTIONAL`.
_OPTIONAL = ("feature_layers", "crf")
_MODEL_ARGUMENTS = (
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
        names = {own.name for own in fields(cls)} & set(values)
        return cls(**{name: values.pop(name) for name in names}, options=values)

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
        weights, record = self.weights, self.record
        if weights is None:
            return {}
        tokenizer = weights.tokenizer
        saved = model_values(weights.task, weights.config, tokenizer.vocab, tokenizer.do_lower_case)
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
        texts = {name: _describe_change(name, *values) for name, values in changes.items()}
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

    def compare(
        self,
        model: Mapping[str, Any],
        options: Any,
        values: Mapping[str, Any],
        num_train_steps: int,
    ) -> dict[str, Any]:
        """Return the `changes` of a run.

        Args:
            model: `model_values`.
            options: of the program.
            values: `compared_options`; only those of a training are compared.
            num_train_steps: 0 without a training.
        """
        rules, current = {"steps": "warn", **resume_rules(options)}, dict(model)
        if num_train_steps:
            current |= values
            if "num_train_steps" not in rules:
                current["steps"] = num_train_steps
        return self.changes(current, rules)

    def compare_data(self, rows: Sequence[Any]) -> None:
        """Log the rows of the data in the model card that a run changes."""
        if before := self.record.data:
            none = [(name, "none") for name, _ in rows if name != _HASH]
            record = replace(self.record, data=[*none, *before])
            replace(self, record=record).changes(dict(rows), {name: "warn" for name, _ in rows})

    def next_record(
        self, options: Any, values: Mapping[str, Any], steps: int, changes: Mapping[str, Any]
    ) -> RunRecord:
        """Return the record of a training that begins or resumes here, without its data.

        Args:
            changes: name -> value before the run resumed.
        """
        before, flags = self.record, changed_options(options)
        if path := options.training.init_checkpoint:
            # An absolute path is valid in every working folder.
            flags["init_checkpoint"] = path if "://" in path else os.path.abspath(path)
        if before.flags:
            flags = {name: value for name, value in flags.items() if name not in INITIAL_FLAGS}
            flags |= {name: before.flags[name] for name in INITIAL_FLAGS if name in before.flags}
        texts = [f"{n} {_format_value(v)}" for n, v in changes.items() if n in values]
        resumed = list(before.resumed)
        if texts:
            resumed.append(f"Resumed at step {self.step}; before: {', '.join(texts)}.")
        return RunRecord(values, steps, flags, resumed=resumed)


def resume_rules(options: Any) -> dict[str, str]:
    """Return name -> `on_resume` of the options that have it."""
    flags = flags_of(type(options)).items()
    return {
        name: flag.metadata["on_resume"] for name, flag in flags if "on_resume" in flag.metadata
    }


def compared_options(options: Any, resolved: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Return name -> value of the options that a run which resumes is compared with.

    Args:
        resolved: values of options whose default depends on the data.
    """
    values = flag_values(options)
    compared = {name: values[name] for name in resume_rules(options)}
    compared["precision"] = options.devices.policy  # auto may differ between machines
    return {**compared, **resolved}


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
        names = _MODEL_ARGUMENTS if is_ours else ("task", "problem_type")
        values |= {name: task[name] for name in names if task.get(name) is not None}
        if is_ours:
            values |= {name: task.get(name) for name in _OPTIONAL}
        if isinstance(labels, (list, tuple)):
            values["labels"] = list(map(str, labels))
    if tokens is not None:
        values["vocabulary"] = [token.strip() for token in tokens]
    if do_lower_case is not None:
        values["do_lower_case"] = do_lower_case
    return values


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "the default" if value is None else str(value)


def _describe_change(name: str, saved: Any, current: Any) -> str:
    if name == "vocabulary":
        pairs = enumerate(zip_longest(saved, current))
        number, (saved, current) = next((n, pair) for n, pair in pairs if pair[0] != pair[1])
        name = f"vocabulary, the token of id {number}"
        saved, current = repr(saved), repr(current)
    hint = ". For other data use another output_dir" if name == "steps" else ""
    return f"{name}: {_format_value(saved)} there, {_format_value(current)} now{hint}"


# Files of a run of bert_tf or of the original.
_RUN_FILES = (
    *("training.json", "model.ckpt-*.index", "*.tf_record*", "eval_results.txt"),
    "nbest_predictions.json",
)
_OVERWRITTEN = (
    *("bert_config.json", "vocab.txt", "tokenizer_config.json", "task.json", "labels.txt"),
    *("metrics.jsonl", "report.html", "predictions.json", "test_results.tsv"),
)


def check_output_folder(folder: str) -> None:
    """Raise ValueError if a folder without a run has files that a run would overwrite."""
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    overwritten = sorted(set(names) & set(_OVERWRITTEN))
    if overwritten and not any(fnmatch.filter(names, pattern) for pattern in _RUN_FILES):
        raise OptionError(
            "output_dir", f"{folder} has {', '.join(overwritten)}, but no run: use a new folder."
        )


# Bytes of records that are read to count and to hash them.
_MAX_COUNTED = 1 << 30
COUNT, _HASH = "records to train on", "hash of the records"  # 16 digits of the files' SHA-256
_DATA_FLAGS = ("task_name", "data_dir", "input_file", "train_file")


def describe_data(
    flags: Mapping[str, Any], files: Sequence[str], described: Sequence[Any]
) -> list[Any]:
    """Return the rows of the data in the model card: name and text.

    Args:
        flags: name -> value of those that differ from their defaults.
        files: records to train on.
        described: rows that are known; the files are read unless one of them is `COUNT`.
    """
    data_flags = without_folders({name: flags[name] for name in _DATA_FLAGS if name in flags})
    rows: list[Any] = [[f"`--{name}`", code(value)] for name, value in data_flags.items()]
    size = sum(tf.io.gfile.stat(file).length for file in files)
    if files and COUNT not in dict(described) and size <= _MAX_COUNTED:
        digests = "".join(file_facts(file)["sha256"] for file in files)
        digest = hashlib.sha256(digests.encode()).hexdigest()[:16]
        rows += [[COUNT, f"{count_records(files):,}"], [_HASH, code(digest)]]
    return [*rows, *described]
