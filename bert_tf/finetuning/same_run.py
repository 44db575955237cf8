"""A run that resumes: its options and its model, compared with those in the folder."""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.interop.checkpoint import file_beside
from bert_tf.interop.tokenizer_files import stated_cases
from bert_tf.limits import read_json
from bert_tf.model_files import task_text
from bert_tf.options import OptionError, flag_values, flags_of
from bert_tf.registry import TASK_FILE
from bert_tf.report.run_facts import HASH, shown_value
from bert_tf.tasks.base import Task
from bert_tf.training.checkpoints import (
    ALL_STEPS,
    DATA,
    FLAGS,
    INITIAL,
    RESUMED,
    checkpoint_step,
    latest_checkpoint,
    read_note,
    write_note,
)
from bert_tf.training.options import TrainingOptions
from bert_tf.vocabulary import load_vocab

logger = logging.getLogger(__name__)


def _rules(options: TrainingOptions) -> dict[str, str]:
    """Return name -> `on_resume` of the options that have it."""
    flags = flags_of(type(options)).items()
    return {
        name: flag.metadata["on_resume"] for name, flag in flags if "on_resume" in flag.metadata
    }


def check_same_training(options: TrainingOptions, folder: str) -> None:
    """Raise if the checkpoints of `folder` have another optimizer. Log other changes."""
    if latest_checkpoint(folder) is None:
        return
    changed = {
        name: f"{shown_value(there)} there, {shown_value(now)} now"
        for name, (there, now) in _changes(read_note(folder), _noted(options), options).items()
    }
    rules = _rules(options)
    rejected = [f"`{name}`: {text}" for name, text in changed.items() if rules[name] == "same"]
    _reject(folder, "another optimizer", rejected)
    for name, text in changed.items():
        logger.warning("The run resumes with a change: %s: %s", name, text)


def _changes(
    there: Mapping[str, Any], now: Mapping[str, Any], options: TrainingOptions
) -> dict[str, tuple[Any, Any]]:
    """Return name -> (value there, value now) of noted values that differ."""
    rules = _rules(options)
    return {
        name: (there[name], value)
        for name, value in now.items()
        if name in there
        and there[name] != value
        and not (value is None and rules.get(name) == "model")
    }


def check_same_data(
    options: TrainingOptions, num_train_steps: int, data: Sequence[Sequence[str]] = ()
) -> None:
    """Warn if a run that resumes has other data, or another number of steps.

    Args:
        data: rows of the data in the model card.
    """
    note = read_note(options.output_dir)
    known = dict(note.get(DATA, ()))
    for name, text in data if known else ():
        if name == HASH and name not in known:  # a note of an earlier version
            continue
        if known.get(name) != text:
            logger.warning(
                "The run resumes with other data: %s: %s there, %s now",
                *(name, known.get(name, "none"), text),
            )
    there = note.get(ALL_STEPS)
    is_compared = hasattr(options, "num_train_steps")  # by `check_same_training`
    if not is_compared and there not in (None, num_train_steps):
        logger.warning(
            "The run resumes with a change: %d steps there, %d now. For other data use another "
            "output_dir.",
            *(there, num_train_steps),
        )


def note_training(
    options: TrainingOptions,
    note: Mapping[str, Any],
    is_batched: bool = False,
) -> None:
    """Write `training.json` of a run with steps to train.

    The functions above, the model card and report.html read it.

    Args:
        note: values of ALL_STEPS, FLAGS, USED and DATA.
        is_batched: the data have batches of their own, whose size is not an option to compare.
    """
    note = {**_noted(options), **note}
    if is_batched:
        note.pop("train_batch_size", None)
    flags = dict(note[FLAGS])
    if options.init_checkpoint:
        path = options.init_checkpoint  # an absolute path is valid in every working folder
        flags["init_checkpoint"] = path if "://" in path else os.path.abspath(path)
    if (prefix := latest_checkpoint(options.output_dir)) is not None:
        there = read_note(options.output_dir)
        options_now = {name: note[name] for name in _rules(options) if name in note}
        changes = _changes(there, options_now, options)
        before = [f"{name} {shown_value(value)}" for name, (value, _) in changes.items()]
        text = f"Resumed at step {checkpoint_step(prefix)}; before: {', '.join(before)}."
        if resumed := there.get(RESUMED, []) + [text] * bool(before):
            note[RESUMED] = resumed
        if FLAGS in there:
            flags = {name: value for name, value in flags.items() if name not in INITIAL}
            flags |= {name: there[FLAGS][name] for name in INITIAL if name in there[FLAGS]}
    note[FLAGS] = flags
    write_note(options.output_dir, note)


def _noted(options: TrainingOptions) -> dict[str, object]:
    values = flag_values(options)
    noted = {name: values[name] for name in _rules(options)}
    noted["learning_rate"] = options.base_learning_rate
    return {**noted, "precision": options.policy}  # auto may differ between machines


def check_same_architecture(output_dir: str, config: BertConfig) -> None:
    """Raise if a folder contains checkpoints of another model, even with the same shapes."""
    path = os.path.join(output_dir, "bert_config.json")
    if latest_checkpoint(output_dir) is None or not tf.io.gfile.exists(path):
        return
    there = BertConfig.from_json_file(path)
    compared = (field.name for field in dataclasses.fields(BertConfig) if field.compare)
    differences = [
        f"{name}: {getattr(there, name)} there, {getattr(config, name)} now"
        for name in compared
        if getattr(there, name) != getattr(config, name)
    ]
    _reject(output_dir, "another architecture", differences)


def check_same_task(folder: str, task: Task) -> None:
    """Raise if a folder contains checkpoints of a model for another task, or for other labels.

    The files are compared, because a custom task has no class here.
    """
    path = os.path.join(folder, TASK_FILE)
    if latest_checkpoint(folder) is None or not tf.io.gfile.exists(path):
        return
    there, now = read_json(path), json.loads(task_text(task))
    texts = {
        name: (_listed(there[name]), _listed(now.get(name)))
        for name in ("task", "labels", "problem_type")
        if name in there
    }
    differences = [f"{name}: {a} there, {b} now" for name, (a, b) in texts.items() if a != b]
    _reject(folder, "another task", differences)


def _listed(value: Any) -> str:
    """Return a value or a list as text. Labels in folders of older versions may be numbers."""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def check_same_tokenizer(
    output_dir: str, tokens: Iterable[str], do_lower_case: bool | None
) -> None:
    """Raise if a folder contains checkpoints of a model with another vocabulary or case.

    A folder without vocab.txt or tokenizer_config.json is not compared.

    Args:
        tokens: the vocabulary of the run, in the order of the ids.
        do_lower_case: None if unknown.
    """
    if latest_checkpoint(output_dir) is None:
        return
    differences = []
    if path := file_beside(output_dir, "vocab.txt"):
        pairs = zip_longest(load_vocab(path), (token.strip() for token in tokens))
        differing = ((n, *pair) for n, pair in enumerate(pairs) if pair[0] != pair[1])
        if (found := next(differing, None)) is not None:
            number, theirs, ours = found
            differences.append(f"the token of id {number} is {theirs!r} in {path}, {ours!r} now")
    cased = next(stated_cases(output_dir), None)
    if cased is not None and do_lower_case not in (None, cased[0]):
        differences.append(f"do_lower_case: {cased[0]} in {cased[1]}, {do_lower_case} now")
    _reject(output_dir, "another tokenizer", differences)


def _reject(folder: str, what: str, differences: Sequence[str]) -> None:
    if differences:
        raise OptionError(
            "output_dir",
            f"{folder} contains checkpoints of {what}. Use another; init_checkpoint starts from its "
            "weights.\n  " + "\n  ".join(differences),
        )


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
