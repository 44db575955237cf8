"""Ranges of the options of every program, and the options that several programs share."""

import dataclasses
import math
import pickle

import pytest
from helpers import cause_of
from models import options as golden_options
from test_cli import LEAST, OPTION_CLASSES, absl_flags

from bert_tf import cli
from bert_tf.options import (
    OptionError,
    changes,
    flag_values,
    flags_of,
    make_options,
    option,
)


def wrong_values(flag):
    """(a value that a flag refuses, the error)."""
    for kind, step in {"min": -1, "above": 0, "max": 1, "below": 0}.items():
        if kind in flag.metadata:
            yield flag.metadata[kind] + step, OptionError
            yield "many", TypeError
    if flag.type is int:
        yield 1.5, TypeError
    if flag.type is float:
        can_be_infinite = flag.name == "null_score_diff_threshold"
        for value in (math.nan,) if can_be_infinite else (math.nan, math.inf, -math.inf):
            yield value, OptionError
    if "choices" in flag.metadata:
        yield f"{flag.metadata['choices'][0]}_", OptionError


def test_values_that_an_option_does_not_take_are_refused():
    for name, least in LEAST.items():
        values = absl_flags(name)
        values(["script", *least])
        values = {flag: values[flag].value for flag in values if values[flag].present}
        for flag in flags_of(OPTION_CLASSES[name]).values():
            for value, error in wrong_values(flag):
                with pytest.raises(error) as refusal:
                    make_options(OPTION_CLASSES[name], **values | {flag.name: value})
                is_named = str(refusal.value).startswith(f"{flag.name}: ")
                assert is_named or value == "many", (name, flag.name, value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    share: float = option("Share.", default=0.5, min=0, max=1)
    mode: str = option("Mode.", default="plain")
    path: str = option("Path.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grouped:
    first: Group = changes(share={"default": 2.0, "max": 3, "help": "More."}, mode=None)
    number: int = option("Number.", default=4)


def test_a_program_has_the_flags_of_its_groups():
    options = make_options(Grouped, path="x", share=3.0)
    assert options == Grouped(first=Group(share=3.0, path="x"), number=4)
    assert flag_values(options) == {"share": 3.0, "path": "x", "number": 4}
    flags = flags_of(Grouped)
    assert (flags["share"].default, flags["share"].metadata["help"]) == (2.0, "More.")
    assert flags["path"].default is dataclasses.MISSING
    for wrong in ({"mode": "fancy", "path": "x"}, {"first": options.first, "path": "x"}, {}):
        with pytest.raises(TypeError):
            make_options(Grouped, **wrong)
    assert cause_of(make_options, Grouped, path="x", share=4.0) == "share"


def test_flags_of_groups_that_a_program_reads_are_noted():
    unread = {"share", "number", "path"}
    made = make_options(Grouped, path="x")
    options = cli.recorded(made, unread)
    assert pickle.loads(pickle.dumps(options)) == made
    assert flag_values(options)["share"] == options.first.share == 2.0
    assert unread == {"number", "path"}


def test_nothing_to_do_is_refused():
    with pytest.raises(ValueError, match=r"do_eval.*do_predict"):
        golden_options("swag", "x", do_train=False, do_eval=False, do_predict=False)
