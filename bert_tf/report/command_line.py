"""Commands of a run as text, from its options."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Callable, Collection, Mapping
from typing import Any

from bert_tf.interop.hub import SCHEME

_PATHS = ("_file", "_dir", "_checkpoint")  # endings of flags


def changed_options(options: Any) -> dict[str, Any]:
    """Return name -> value of the options that differ from their defaults.

    Args:
        options: dataclass of a program's flags.
    """
    values = {
        field.name: (getattr(options, field.name), field.default)
        for field in dataclasses.fields(options)
    }
    return {n: value for n, (value, default) in values.items() if value not in (default, None)}


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
