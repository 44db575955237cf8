"""Declaration of options, from which bert_tf/cli.py makes flags, and the options shared by programs."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from typing import Any

from bert_tf.data.tables import SEPARATORS

_CHECKS = {
    "min": (operator.ge, "{} or more"),
    "above": (operator.gt, "above {}"),
    "max": (operator.le, "at most {}"),
    "below": (operator.lt, "below {}"),
}


# Headings of --help, in their order.
GROUPS = ("Actions", "Data", "Masking", "Model", "Training", "Machine")


class OptionError(ValueError):
    """An option has a value that cannot be used. `cli` shows it as `--option: text`.

    >>> print(OptionError("top_k", "must be 1 or more, but is 0."))
    top_k: must be 1 or more, but is 0.
    """

    def __init__(self, option: str, text: str) -> None:
        super().__init__(option, text)  # `args`, from which pickle makes it again
        self.option = option

    def __str__(self) -> str:
        return ": ".join(self.args)


def option(help_text: str, *, between: tuple[float, float] | None = None, **kwargs: Any) -> Any:
    """Return a dataclass field that becomes a flag. Without `default` the flag is required.

    Args:
        help_text: shown by --help.
        between: minimum and maximum, both valid.
        **kwargs: `default`. `group`: one of GROUPS; without one, only --helpfull shows the flag.
            `choices`: the valid values. `min`, `max`: limits, both valid. `above`, `below`: limits,
            both invalid. `infinite=True`: inf and -inf are valid. `hint`: end of the message about an
            invalid number. `positional=True`: the one field for arguments without a flag.
            `on_resume`: "same" if a run cannot resume with another value; "warn" to log a change;
            "model" to log it unless it is None, for the value of the model in the folder.
    """
    if between is not None:
        kwargs["min"], kwargs["max"] = between
    metadata = {"help": help_text}
    for name in ("choices", "positional", "hint", "infinite", "group", "on_resume", *_CHECKS):
        if name in kwargs:
            metadata[name] = kwargs.pop(name)
    return field(metadata=metadata, **kwargs)


def valid_range(limits: Mapping[str, Any]) -> str:
    """Return the valid range of an option in words, or "" without limits.

    >>> valid_range({"help": "Fraction.", "min": 0, "below": 1})
    '0 or more and below 1'
    """
    if "min" in limits and "max" in limits:
        return f"from {limits['min']} to {limits['max']}"
    return " and ".join(
        words.format(limits[name]) for name, (_, words) in _CHECKS.items() if name in limits
    )


def check_ranges(options: Any) -> None:
    """Raise unless a dataclass has only finite numbers, in the range of each `option`, and choices.

    Raises:
        OptionError: a value is invalid.
        TypeError: a value with a range cannot be compared with a number.
    """
    for field_ in fields(options):
        value = getattr(options, field_.name)
        if value is not None or field_.default is not None:
            if field_.type in ("int", "int | None") and not isinstance(value, int):
                raise TypeError(f"{field_.name}: must be an int, but is {value!r}.")
            check_value(field_.name, value, field_.metadata)


def check_value(name: str, value: Any, limits: Mapping[str, Any]) -> None:
    """Raise as `check_ranges` unless a value is within the limits of an `option`."""
    if value not in (choices := limits.get("choices", (value,))):
        raise OptionError(name, f"must be one of {', '.join(choices)}, but is {value!r}.")
    valid = valid_range(limits)
    if isinstance(value, float) and not math.isfinite(value):
        if limits.get("infinite") and not math.isnan(value):
            return
        number = "a number" if limits.get("infinite") else "a finite number"
        valid = f"{number} {valid}".rstrip()
    elif all(
        holds(value, limits[check]) for check, (holds, _) in _CHECKS.items() if check in limits
    ):
        return
    raise OptionError(name, f"must be {valid}, but is {value}{limits.get('hint', '.')}")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Base of the options of all programs."""

    def __post_init__(self) -> None:
        check_ranges(self)

    def with_values(self, **changes: Any) -> Any:
        """Return a copy with other values. `dataclasses.replace` would count as reading them all."""
        return type(self)(**{**vars(self), **changes})


@dataclass(frozen=True, kw_only=True)
class EncoderFilesOptions(Options):
    """Options of programs that read a checkpoint and the files next to it."""

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


@dataclass(frozen=True, kw_only=True)
class TableOptions(Options):
    """Options of programs that read tables."""

    header: bool = option(
        "The first line of a table names the columns. With --noheader, columns have numbers from 0: "
        "--text_a_column=3.",
        default=True,
    )
    column_separator: str | None = option(
        f"Separator of the columns of TSV and CSV: a character, or {', '.join(SEPARATORS)}. Default: "
        "comma in CSV, tab in TSV.",
        default=None,
    )


def require_packages(name: str, packages: Sequence[str], extra: str) -> None:
    """Raise unless the packages that the value of an option needs are installed.

    Args:
        extra: of bert_tf, which has them.

    Raises:
        OptionError: one is missing.
    """
    if missing := [package for package in packages if find_spec(package) is None]:
        raise OptionError(
            name,
            f"needs {', '.join(missing)}: pip install -e '.[{extra}]' in the checkout of bert_tf.",
        )


def require_one_of(options: Any, names: Sequence[str]) -> None:
    """Raise unless at least one of several boolean options is set."""
    if not any(getattr(options, name) for name in names):
        listed = ", ".join(f"`{name}`" for name in names)
        raise ValueError(f"Nothing to do: give at least one of {listed}.")
