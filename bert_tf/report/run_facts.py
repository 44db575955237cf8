"""A run as text, for training.json, the model card and the report: flags, data, resolved values."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.checkpoints.hub import SCHEME
from bert_tf.data.records import count_records
from bert_tf.files import file_facts
from bert_tf.options import flag_values, flags_of
from bert_tf.pretraining.manifest import read_manifests

_PATHS = ("_file", "_dir", "_checkpoint")  # endings of flags
# Flags that a run that resumes does not use. `RunRecord.flags` keeps those of the first run.
INITIAL = ("init_checkpoint", "init_layers", "init_optimizer")


def changed_options(options: Any) -> dict[str, Any]:
    """Return name -> value of the options that differ from their defaults.

    Args:
        options: of a program.
    """
    flags, values = flags_of(type(options)), flag_values(options)
    return {n: value for n, value in values.items() if value not in (flags[n].default, None)}


def as_flags(
    values: Mapping[str, Any],
    left_out: Collection[str] = (),
    shown: Callable[[str, Any], str] = lambda name, value: str(value),
) -> list[str]:
    """Return options as flags, quoted for a shell.

    Args:
        values: name -> value.
        left_out: names of flags to skip.
        shown: (name, value) -> text of the value; default: `str`.
    """
    flags = []
    for name, value in values.items():
        if name in left_out:
            continue
        if isinstance(value, bool):
            flags.append(f"--{'' if value else 'no'}{name}")
        else:
            flags.append(f"--{name}={shlex.quote(shown(name, value))}")
    return flags


def shown_value(value: Any) -> str:
    return "the default" if value is None else str(value)


def without_folders(flag: str, value: Any) -> str:
    """Return the value of a flag; only the last part of a path."""
    is_path, text = flag in ("teacher", "retriever") or flag.endswith(_PATHS), str(value)
    if not is_path or text.startswith(SCHEME):
        return text
    parts = (part.strip() for part in text.split(","))
    return ",".join(os.path.basename(os.path.abspath(part)) for part in parts if part)


_MOST_FILES = 10
# Bytes of records that are read to count and to hash them, if no manifest describes them.
_MOST_COUNTED = 1 << 30
HASH = "hash of the records"  # 16 digits of the SHA-256 of the SHA-256 of each file
_TRAINED_ON_FLAGS = ("task_name", "data_dir", "input_file", "train_file")


def data_rows(flags: Mapping[str, Any], files: Sequence[str]) -> list[list[str]]:
    """Return the rows of the data in the card: name and text.

    Args:
        flags: name -> value of those that are given.
        files: records to train on. Without a manifest they are read to count and to hash them.
    """
    named = ((name, flags[name]) for name in _TRAINED_ON_FLAGS if name in flags)
    rows = [[f"`--{name}`", code(without_folders(name, value))] for name, value in named]
    if not files:
        return rows
    manifests = read_manifests(files)
    records = {
        os.path.normpath(os.path.join(os.path.dirname(path), shard.file)): shard.records
        for path, manifest in manifests.items()
        for shard in manifest.shards
    }
    names = [os.path.normpath(file) for file in files]
    if all(name in records for name in names):
        rows.append(["records to train on", f"{sum(records[name] for name in names):,}"])
    elif sum(tf.io.gfile.stat(file).length for file in files) <= _MOST_COUNTED:
        rows.append(["records to train on", f"{count_records(files):,}"])
        digests = "".join(file_facts(file)["sha256"] for file in files)
        rows.append([HASH, code(hashlib.sha256(digests.encode()).hexdigest()[:16])])
    for path, manifest in manifests.items():
        names = [os.path.basename(entry["file"]) for entry in manifest.input]
        more = f" and {len(names) - _MOST_FILES:,} more" if len(names) > _MOST_FILES else ""
        counts = manifest.counts
        text = (
            f"{', '.join(map(code, names[:_MOST_FILES]))}{more}: {counts.documents:,} documents, "
            f"{counts.sentences:,} sentences, {counts.tokens:,} tokens"
        )
        rows.append([f"text of {code(os.path.basename(path))}", text])
    return rows


def resolved_values(batch_size: int, schedule: Any, policy: str) -> dict[str, str]:
    """Return name -> text of values that do not follow from the flags alone.

    Args:
        schedule: `WarmupDecay`.
        policy: precision.
    """
    return {
        "examples per step": f"{batch_size:,}",
        "steps of warm-up": f"{schedule.num_warmup_steps:,} of {schedule.num_train_steps:,}",
        "peak learning rate": f"{schedule.learning_rate:g}",
        "precision": f"`{policy}`",
    }


def code(value: Any) -> str:
    """Return any text as Markdown code, on one line, inside a cell of a table."""
    text = re.sub(r"\s", " ", str(value)).replace("|", "\\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"`{text}`" if fence == "`" else f"{fence} {text} {fence}"
