"""Declaration of options, from which bert_tf/cli.py makes flags.

The options of a program are a frozen dataclass of `option`s and of groups, which are dataclasses of
options that several programs share. Each option is a flag.

    @dataclass(frozen=True, kw_only=True)
    class CountingOptions:
        table: TableOptions  # a group
        column: str = option("Column to count.", group="Data", default="label")

    options = make_options(CountingOptions, header=False, column="3")
    options.table.header, options.column  # False, "3"
"""

from __future__ import annotations

import math
import numbers
import operator
import os
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from importlib.util import find_spec
from typing import Any, TypeVar

AnyOptions = TypeVar("AnyOptions")

_CHECKS = {
    "min": (operator.ge, "{} or more"),
    "above": (operator.gt, "above {}"),
    "max": (operator.le, "at most {}"),
    "below": (operator.lt, "below {}"),
}


# Type of a flag -> types of its values from Python.
_ACCEPTED: dict[type, Any] = {
    str: (str, os.PathLike),
    bool: int,
    int: int,
    float: numbers.Real,
    tuple: tuple,
}

# Headings of --help, in their order.
GROUPS = ("Actions", "Data", "Masking", "Model", "Training", "Machine")


class OptionError(ValueError):
    """An option has a value that cannot be used. `cli` shows it as `--option: text`."""

    def __init__(self, option: str, text: str) -> None:
        super().__init__(option, text)  # `args`, from which pickle makes it again
        self.option = option

    def __str__(self) -> str:
        return ": ".join(self.args)


def option(help_text: str, *, default: Any = MISSING, **metadata: Any) -> Any:
    """Return a dataclass field that becomes a flag. Without `default` the flag is required.

    A tuple of strings is no flag, but has the arguments without one.

    Args:
        help_text: shown by --help.
        **metadata: `group`: one of GROUPS; without one, only --helpfull shows the flag. `choices`: the
            valid values. `min`, `max`: limits, both valid. `above`, `below`: limits, both invalid.
            `infinite=True`: inf and -inf are valid. `on_resume`: "same" if a run cannot resume with
            another value; "warn" to log a change; "model" to log it unless it is None, for the value of
            the model in the folder; "first" if only the run that begins uses it.
    """
    return field(default=default, metadata={"help": help_text, **metadata})


def valid_range(limits: Mapping[str, Any]) -> str:
    """Return the valid range of an option in words, such as "from 0 to 1"; "" without limits."""
    if "min" in limits and "max" in limits:
        return f"from {limits['min']} to {limits['max']}"
    return " and ".join(
        words.format(limits[name]) for name, (_, words) in _CHECKS.items() if name in limits
    )


def changes(**flags: Mapping[str, Any] | None) -> Any:
    """Return the field of a group with other `option` arguments for flags; None: no such flag."""
    return field(metadata=flags)


@dataclass(frozen=True)
class Flag:
    """An option of a program; `group` is the field that contains it, None for one of its own."""

    name: str
    type: type
    default: Any
    metadata: Mapping[str, Any]
    group: str | None = None


def flags_of(options_class: Any) -> Mapping[str, Flag]:
    """Return name -> flag of the options of a program, those of its groups included."""
    flags, hints = {}, typing.get_type_hints(options_class)
    for own in fields(options_class):
        name, hint = own.name, hints[own.name]
        if not is_dataclass(hint):
            flags[name] = Flag(name, _value_type(hint), own.default, own.metadata)
            continue
        for flag in flags_of(hint).values():
            changed = own.metadata.get(flag.name, {})
            if changed is not None:
                metadata = {**flag.metadata, **changed}
                default = metadata.pop("default", flag.default)
                flags[flag.name] = Flag(flag.name, flag.type, default, metadata, name)
    return flags


def _value_type(hint: Any) -> type:
    """Return `int` for `int | None`, and `tuple` for a tuple."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = (part for part in typing.get_args(hint) if part is not type(None))
    return typing.get_origin(hint) or hint


def make_options(options_class: type[AnyOptions], **values: Any) -> AnyOptions:
    """Return the options of a program from values of its flags, as its command line does.

    >>> from bert_tf.tasks.run_classifier import ClassifierOptions, run_classifier
    >>> options = make_options(
    ...     ClassifierOptions, do_train=True, train_file="train.tsv", output_dir="output", seed=1
    ... )
    >>> run_classifier(options)  # doctest: +SKIP

    Args:
        **values: flag -> value; the others have their defaults.
    """
    flags, hints = flags_of(options_class), typing.get_type_hints(options_class)
    if unknown := sorted(values.keys() - flags.keys()):
        raise TypeError(f"{options_class.__name__} has no option {', '.join(unknown)}.")
    parts: dict[str | None, dict[str, Any]] = {n: {} for n, h in hints.items() if is_dataclass(h)}
    own = parts[None] = {}
    for name, flag in flags.items():
        value = values.get(name, flag.default)
        if value is MISSING:  # an error of the class
            continue
        parts[flag.group][name] = value
        if value is not None or flag.default is not None:
            if not isinstance(value, _ACCEPTED[flag.type]):
                raise TypeError(f"{name}: must be of type {flag.type.__name__}, but is {value!r}.")
            check_value(name, value, flag.metadata)
    return options_class(**own, **{n: hints[n](**part) for n, part in parts.items() if n})


def flag_values(options: Any) -> dict[str, Any]:
    """Return flag -> value. `cli` does not take the options for read."""
    values = vars(options)
    return {
        name: (values if flag.group is None else vars(values[flag.group]))[name]
        for name, flag in flags_of(type(options)).items()
    }


def check_value(name: str, value: Any, limits: Mapping[str, Any]) -> None:
    """Raise OptionError unless a value is finite and within the limits of an `option`."""
    valid, choices = valid_range(limits), limits.get("choices")
    if choices is not None:
        is_valid, valid = value in choices, f"one of {', '.join(choices)}"
    elif isinstance(value, float) and not math.isfinite(value):
        is_valid = limits.get("infinite", False) and not math.isnan(value)
        valid = f"a finite number {valid}".rstrip()
    else:
        is_valid = all(holds(value, limits[c]) for c, (holds, _) in _CHECKS.items() if c in limits)
    if not is_valid:
        raise OptionError(name, f"must be {valid}, but is {value}.")


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The model: its architecture, its tokenizer and its longest input."""

    bert_config_file: str | None = option(
        "Architecture. Default: the one next to the weights.", group="Model", default=None
    )
    vocab_file: str | None = option(
        "Vocabulary. Default: the one next to the weights.", group="Model", default=None
    )
    do_lower_case: bool | None = option(
        "Lower-case the text. Default: by the files next to the weights or to --vocab_file, else by the "
        "vocabulary, else true.",
        group="Model",
        default=None,
    )
    max_seq_length: int | None = option(
        "WordPieces of an input, with [CLS] and [SEP]. Default: that of the model in --output_dir; "
        "without --do_train, that of --init_checkpoint; else 128 (or the model's number of positions, "
        "if lower).",
        group="Model",
        default=None,
        on_resume="model",
    )


def require_packages(name: str, packages: Sequence[str], extra: str) -> None:
    """Raise OptionError unless the packages for an option's value, in an extra of bert_tf, are there."""
    if missing := [package for package in packages if find_spec(package) is None]:
        raise OptionError(name, f"needs {', '.join(missing)}: pip install -e '.[{extra}]'.")


def require_files(options: Any, files: Mapping[str, str]) -> None:
    """Raise unless a program has something to do; `files`: flag of an action -> flag of its file."""
    values = flag_values(options)
    actions = [action for action in files if values[action]]
    if not actions:
        raise ValueError(f"Nothing to do: give at least one of {', '.join(files)}.")
    for action in actions:
        if not values[files[action]]:
            raise OptionError(files[action], f"is needed by `{action}`.")
