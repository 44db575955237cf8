"""Commands of a run as text, from its options."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Callable, Collection
from typing import Any

from bert_tf.interop.hub import SCHEME


def changed_flags(
    options: Any,
    left_out: Collection[str] = (),
    shown: Callable[[str, Any], str] = lambda name, value: str(value),
) -> list[str]:
    """Return the flags that differ from their defaults or from those of a recipe, quoted for a shell.

    Args:
        options: dataclass of a program's flags.
        left_out: names of flags to skip.
        shown: (name, value) -> text of the value; default: `str`.
    """
    flags, of_recipe = [], getattr(options, "of_recipe", {})
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        is_default = value == field.default == of_recipe.get(field.name, field.default)
        if is_default or value is None or field.name in left_out:
            continue
        if isinstance(value, bool):
            flags.append(f"--{'' if value else 'no'}{field.name}")
        else:
            flags.append(f"--{field.name}={shlex.quote(shown(field.name, value))}")
    return flags


def without_folders(flag: str, value: Any) -> str:
    """Return the value of a flag; only the last part of a path."""
    is_path = flag in ("teacher", "retriever") or flag.endswith(("_file", "_dir", "_checkpoint"))
    if not is_path or value.startswith(SCHEME):
        return str(value)
    parts = (part.strip() for part in value.split(","))
    return ",".join(os.path.basename(os.path.abspath(part)) for part in parts if part)
