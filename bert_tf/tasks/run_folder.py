"""`output_dir` as an earlier process left it: checkpoint, training.json, and what a run changes."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from bert_tf.checkpoints.checkpoint import PretrainedCheckpoint
from bert_tf.checkpoints.read import read_checkpoint
from bert_tf.checkpoints.tf1 import latest_checkpoint
from bert_tf.checkpoints.write import CONFIG_FILES
from bert_tf.config import BertConfig
from bert_tf.data.records import count_records
from bert_tf.files import file_facts, write_text
from bert_tf.limits import read_json
from bert_tf.options import OptionError, flag_values, flags_of
from bert_tf.report.model_card import code, without_folders
from bert_tf.training.checkpoints import checkpoint_step
from bert_tf.vocabulary import vocabulary_digest

logger = logging.getLogger(__name__)

RECORD_FILE = "training.json"


@dataclass
class RunRecord:
    """How a model was trained: for the comparison with a run that resumes, and the card."""

    options: Mapping[str, Any] = field(default_factory=dict)  # `RunOptions.values`
    flags: Mapping[str, Any] = field(default_factory=dict)  # those that differ from their defaults
    used: Mapping[str, str] = field(default_factory=dict)  # name -> text of resolved values
    data: Sequence[Any] = ()  # rows of the data in the model card, name and text
    resumed: Sequence[str] = ()  # texts about resumptions with other options

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
    """What an earlier process left in `output_dir`. Without a checkpoint there is nothing to resume."""

    path: str
    weights: PretrainedCheckpoint | None = None  # the newest checkpoint, with the files next to it
    record: RunRecord = field(default_factory=RunRecord)

    @classmethod
    def read(cls, path: str) -> RunFolder:
        """Read a folder, which may be missing."""
        prefix = latest_checkpoint(path)
        return cls(path, read_checkpoint(prefix), RunRecord.load(path)) if prefix else cls(path)

    @property
    def step(self) -> int:
        """Optimizer steps of the newest checkpoint."""
        return 0 if self.weights is None else checkpoint_step(self.weights.source)

    def compare(self, current: Mapping[str, Any], rules: Mapping[str, str]) -> dict[str, Any]:
        """Return name -> value in the folder of all that a run changes, and log them.

        `rules`: name -> `on_resume`; others have to be the same, if the folder has a value.
        """
        weights = self.weights
        if weights is None:
            return {}
        tokenizer = weights.tokenizer
        model = weights.task or {}, weights.config, tokenizer.vocab, tokenizer.do_lower_case
        saved = {**model_values(*model), **self.record.options, **dict(self.record.data)}
        changes, rejected = {}, []
        for name, value in current.items():
            rule = rules.get(name, "same")
            if saved.get(name, value) == value or (value is None and rule == "model"):
                continue
            changes[name] = saved[name]
            text = f"{name}: {_format_value(saved[name])} there, {_format_value(value)} now"
            if rule == "same":
                rejected.append(f"\n  {text}")
            else:
                logger.warning("The run resumes with a change: %s", text)
        if rejected:
            text = f"{self.path} contains checkpoints of another model or optimizer. Use another; "
            remedy = "init_checkpoint starts from its weights."
            raise OptionError("output_dir", text + remedy + "".join(rejected))
        return changes

    def next_record(self, own: RunOptions, changes: Mapping[str, Any]) -> RunRecord:
        """Return the record of a training that begins or resumes here, without its data."""
        flags, before, resumed = dict(own.flags), self.record.flags, list(self.record.resumed)
        for name in own.first if before else ():
            first = before.get(name)
            if flags.pop(name, first) != first:
                logger.warning("The run resumes without %s; it began with %s", name, first)
            if first is not None:
                flags[name] = first
        texts = [f"{n} {_format_value(v)}" for n, v in changes.items() if n in own.values]
        if texts:
            resumed.append(f"Resumed at step {self.step}; before: {', '.join(texts)}.")
        return RunRecord(own.values, flags, resumed=resumed)


@dataclass(frozen=True)
class RunOptions:
    """The options of a run, for the comparison with `output_dir` and the record."""

    flags: Mapping[str, Any]  # those that differ from their defaults
    first: Sequence[str]  # names of those that only the run that begins uses
    rules: Mapping[str, str]  # name -> `on_resume` of the others, and of the number of steps
    values: Mapping[str, Any]  # of the names of `rules`

    @classmethod
    def read(
        cls, options: Any, num_train_steps: int, resolved: Mapping[str, Any] = MappingProxyType({})
    ) -> RunOptions:
        """Read the options of a program; `resolved` are those whose default depends on the data."""
        flags, values = flags_of(type(options)), flag_values(options)
        if path := values["init_checkpoint"]:  # valid in every working folder
            values["init_checkpoint"] = path if "://" in path else os.path.abspath(path)
        changed = {n: v for n, v in values.items() if v not in (flags[n].default, None)}
        rules = {name: flag.metadata.get("on_resume", "") for name, flag in flags.items()}
        first = [name for name, rule in rules.items() if rule == "first"]
        rules = {name: rule for name, rule in rules.items() if rule not in ("", "first")}
        rules["num_train_steps"] = "warn"
        values |= {"precision": options.devices.policy}  # auto may differ between machines
        values |= {"num_train_steps": num_train_steps, **resolved}
        return cls(changed, first, rules, {name: values[name] for name in rules})


def model_values(
    task: Mapping[str, Any],
    config: BertConfig | None,
    tokens: Iterable[str] | None,
    do_lower_case: bool | None,
) -> dict[str, Any]:
    """Return name -> value of all in which two models may differ; nothing for what is None."""
    values = dict(task)
    if isinstance(labels := values.get("labels"), (list, tuple)):
        values["labels"] = list(map(str, labels))  # those of older versions may be numbers
    if config is not None:
        values |= {f.name: getattr(config, f.name) for f in fields(config) if f.compare}
    if tokens is not None:
        values["vocabulary"] = vocabulary_digest(token.strip() for token in tokens)
    if do_lower_case is not None:
        values["do_lower_case"] = do_lower_case
    return values


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "the default" if value is None else str(value)


# Files of a run of bert_tf or of the original, and those that a run would overwrite.
_RUN_FILES = (RECORD_FILE, "model.ckpt-*.index", "*.tf_record*", "*_results.txt", "nbest_*.json")
_OVERWRITTEN = {*CONFIG_FILES, "labels.txt", "metrics.jsonl", "report.html", "predictions.json"}


def check_output_folder(folder: str) -> None:
    """Raise ValueError if a folder without a run has files that a run would overwrite."""
    if set(folder) & set("*?["):
        raise OptionError("output_dir", f"{folder} has *, ? or [, a pattern for TensorFlow.")
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    overwritten = ", ".join(sorted(_OVERWRITTEN.intersection(names)))
    if overwritten and not any(fnmatch.filter(names, pattern) for pattern in _RUN_FILES):
        raise OptionError(
            "output_dir", f"{folder} has {overwritten}, but no run: use a new folder."
        )


# Bytes of records that are read to count and to hash them.
_MAX_COUNTED = 1 << 30
COUNT, _HASH = "records to train on", "hash of the records"  # 16 digits of the files' SHA-256
_DATA_FLAGS = ("task_name", "data_dir", "input_file", "train_file")


def describe_data(
    flags: Mapping[str, Any], files: Sequence[str], described: Sequence[Any]
) -> list[Any]:
    """Return the rows of the data in the model card: name and text."""
    data_flags = without_folders({name: flags[name] for name in _DATA_FLAGS if name in flags})
    rows: list[Any] = [[f"`--{name}`", code(value)] for name, value in data_flags.items()]
    size = sum(tf.io.gfile.stat(file).length for file in files)
    if files and COUNT not in dict(described) and size <= _MAX_COUNTED:
        digests = "".join(file_facts(file)["sha256"] for file in files)
        digest = hashlib.sha256(digests.encode()).hexdigest()[:16]
        rows += [[COUNT, f"{count_records(files):,}"], [_HASH, code(digest)]]
    return [*rows, *described]
