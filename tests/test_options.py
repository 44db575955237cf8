"""Ranges of the options of every program, and the options that several programs share."""

import copy
import dataclasses
import math

import pytest
from helpers import cause_of
from models import options as golden_options
from test_cli import LEAST, OPTION_CLASSES, flags_of

from bert_tf import cli
from bert_tf.options import OptionError, check_ranges, option, require_one_of

WRONG = {"min": -1, "above": 0, "max": 1, "below": 0}  # from the limit


def declared(condition):
    """(the program's options with only the flags that it needs, field) of each field that fits."""
    for name in LEAST:
        values = flags_of(name)
        values(["script", *LEAST[name]])
        options = cli.options_from_flags(OPTION_CLASSES[name], values)
        for field in filter(condition, dataclasses.fields(OPTION_CLASSES[name])):
            yield options, field


def refusal(options, field, value):
    """(class of the error, name that it has) of a value; None where the value is valid."""
    try:
        dataclasses.replace(options, **{field.name: value})
    except OptionError as error:
        return OptionError, error.option
    except TypeError as error:
        return TypeError, str(error).partition(":")[0]
    return None


def test_numbers_out_of_range_are_refused():
    for options, field in declared(lambda f: set(f.metadata) & set(WRONG)):
        row = f"{type(options).__name__}.{field.name}"
        for kind in set(field.metadata) & set(WRONG):
            limit = field.metadata[kind]
            found = refusal(options, field, limit + WRONG[kind])
            assert found == (OptionError, field.name), (row, kind)
            if kind in ("min", "max"):
                allowed = copy.copy(options)
                object.__setattr__(allowed, field.name, limit)
                check_ranges(allowed)
        if field.default is None:
            assert refusal(options, field, None) is None, row
        assert refusal(options, field, "many")[0] is TypeError, row


def test_fractions_of_whole_numbers_are_refused():
    for options, field in declared(lambda f: f.type.startswith("int")):
        row = f"{type(options).__name__}.{field.name}"
        assert refusal(options, field, 1.5) == (TypeError, field.name), row


def test_values_that_are_no_choice_are_refused():
    for options, field in declared(lambda f: "choices" in f.metadata):
        found = refusal(options, field, f"{field.metadata['choices'][0]}_")
        assert found == (OptionError, field.name), f"{type(options).__name__}.{field.name}"


def test_only_thresholds_may_be_infinite():
    for options, field in declared(lambda f: isinstance(f.default, float)):
        for value in (math.nan, math.inf, -math.inf):
            is_valid = value == value and field.name == "null_score_diff_threshold"
            expected = None if is_valid else (OptionError, field.name)
            row = f"{type(options).__name__}.{field.name}={value}"
            assert refusal(options, field, value) == expected, row


def test_check_ranges_needs_no_base_class():
    @dataclasses.dataclass
    class Settings:
        share: float = option("Share.", default=0.5, between=(0, 1))

    check_ranges(Settings())
    with pytest.raises(OptionError, match=r"1\.5") as error:
        check_ranges(Settings(share=1.5))
    assert error.value.option == "share"


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
