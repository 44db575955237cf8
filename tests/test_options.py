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
    check_value,
    flag_values,
    flags_of,
    make_options,
    option,
    require_one_of,
)

WRONG = {"min": -1, "above": 0, "max": 1, "below": 0}  # from the limit


def declared(condition):
    """(the program, the values of the flags that it needs, flag) of each flag that fits."""
    for name, least in LEAST.items():
        values = absl_flags(name)
        values(["script", *least])
        values = {flag: values[flag].value for flag in values if values[flag].present}
        for flag in filter(condition, flags_of(OPTION_CLASSES[name]).values()):
            yield name, values, flag


def refusal(name, values, flag, value):
    """(class of the error, name that it has) of a value; None where the value is valid."""
    try:
        make_options(OPTION_CLASSES[name], **values | {flag.name: value})
    except OptionError as error:
        return OptionError, error.option
    except TypeError as error:
        return TypeError, str(error).partition(":")[0]
    return None


def test_numbers_out_of_range_are_refused():
    for name, values, flag in declared(lambda f: set(f.metadata) & set(WRONG)):
        row = f"{name}.{flag.name}"
        for kind in set(flag.metadata) & set(WRONG):
            limit = flag.metadata[kind]
            found = refusal(name, values, flag, limit + WRONG[kind])
            assert found == (OptionError, flag.name), (row, kind)
            if kind in ("min", "max"):
                check_value(flag.name, limit, flag.metadata)
        if flag.default is None:
            assert refusal(name, values, flag, None) is None, row
        assert refusal(name, values, flag, "many")[0] is TypeError, row


def test_fractions_of_whole_numbers_are_refused():
    for name, values, flag in declared(lambda f: f.type is int):
        found = refusal(name, values, flag, 1.5)
        assert found == (TypeError, flag.name), f"{name}.{flag.name}"


def test_values_that_are_no_choice_are_refused():
    for name, values, flag in declared(lambda f: "choices" in f.metadata):
        found = refusal(name, values, flag, f"{flag.metadata['choices'][0]}_")
        assert found == (OptionError, flag.name), f"{name}.{flag.name}"


def test_only_thresholds_may_be_infinite():
    for name, values, flag in declared(lambda f: isinstance(f.default, float)):
        for value in (math.nan, math.inf, -math.inf):
            is_valid = value == value and flag.name == "null_score_diff_threshold"
            expected = None if is_valid else (OptionError, flag.name)
            assert refusal(name, values, flag, value) == expected, f"{name}.{flag.name}={value}"


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
    options = golden_options("classifier", "x", do_eval=False, do_predict=False)
    require_one_of(options, ("do_train", "do_eval"))
    with pytest.raises(ValueError, match=r"do_eval.*do_predict"):
        require_one_of(options, ("do_eval", "do_predict"))


def test_a_batch_cannot_be_cut_into_more_parts_than_examples():
    values = {"train_batch_size": 4}
    assert golden_options("classifier", "x", **values, gradient_accumulation_steps=4)
    values["gradient_accumulation_steps"] = 5
    assert cause_of(golden_options, "classifier", "x", **values) == "gradient_accumulation_steps"
