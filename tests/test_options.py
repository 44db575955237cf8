"""Ranges of the options of every program, and the options that several programs share."""

import copy
import dataclasses
import math

import pytest
from test_cli import LEAST, OPTION_CLASSES, flags_of
from tiny_runs import classifier_options

from bert_tf import cli
from bert_tf.options import OptionError, check_ranges, option, require_one_of

LIMITS = ("min", "above", "max", "below")


def least_options(name):
    """The options of a program with only the flags that it needs."""
    values = flags_of(name)
    values(["script", *LEAST[name]])
    return cli.options_from_flags(OPTION_CLASSES[name], values)


def declared(condition):
    return [
        pytest.param(name, field, id=f"{name}-{field.name}")
        for name in LEAST
        for field in dataclasses.fields(OPTION_CLASSES[name])
        if condition(field)
    ]


@pytest.mark.parametrize("name, field", declared(lambda f: set(f.metadata) & set(LIMITS)))
def test_a_number_out_of_its_range_is_rejected(name, field):
    options, limits = least_options(name), field.metadata
    wrong = {"min": -1, "above": 0, "max": 1, "below": 0}  # from the limit
    for kind in set(limits) & set(LIMITS):
        value = limits[kind] + wrong[kind]
        with pytest.raises(ValueError, match=f"^{field.name}: "):
            dataclasses.replace(options, **{field.name: value})
        if kind in ("min", "max"):
            allowed = copy.copy(options)
            object.__setattr__(allowed, field.name, limits[kind])
            check_ranges(allowed)
    if field.default is None:
        assert getattr(dataclasses.replace(options, **{field.name: None}), field.name) is None
    with pytest.raises(TypeError):
        dataclasses.replace(options, **{field.name: "many"})


@pytest.mark.parametrize("name, field", declared(lambda f: f.type.startswith("int")))
def test_a_fraction_of_a_whole_number_is_rejected(name, field):
    with pytest.raises(TypeError, match=f"^{field.name}: "):
        dataclasses.replace(least_options(name), **{field.name: 1.5})


@pytest.mark.parametrize("name, field", declared(lambda f: "choices" in f.metadata))
def test_a_value_that_is_no_choice_is_rejected(name, field):
    options, first = least_options(name), field.metadata["choices"][0]
    with pytest.raises(OptionError, match=f"^{field.name}: "):
        dataclasses.replace(options, **{field.name: f"{first}_"})


@pytest.mark.parametrize("name, field", declared(lambda f: isinstance(f.default, float)))
def test_only_thresholds_may_be_infinite(name, field):
    options = least_options(name)
    for value in (math.nan, math.inf, -math.inf):
        if value != value or field.name != "null_score_diff_threshold":
            with pytest.raises(ValueError, match=f"^{field.name}: "):
                dataclasses.replace(options, **{field.name: value})
        else:
            assert dataclasses.replace(options, **{field.name: value})


def test_check_ranges_needs_no_base_class():
    @dataclasses.dataclass
    class Settings:
        share: float = option("Share.", default=0.5, between=(0, 1))

    check_ranges(Settings())
    with pytest.raises(OptionError, match=r"^share: must be from 0 to 1, but is 1\.5\.$"):
        check_ranges(Settings(share=1.5))


def test_nothing_to_do_is_refused():
    options = classifier_options("x", train_file="x.tsv", do_train=True)
    require_one_of(options, ("do_train", "do_eval"))
    with pytest.raises(ValueError, match="at least one of `do_eval`, `do_predict`"):
        require_one_of(options, ("do_eval", "do_predict"))


def test_a_batch_cannot_be_cut_into_more_parts_than_examples():
    options = {"train_file": "x.tsv", "do_train": True, "train_batch_size": 4}
    assert classifier_options("x", **options, gradient_accumulation_steps=4)
    with pytest.raises(ValueError, match="gradient_accumulation_steps"):
        classifier_options("x", **options, gradient_accumulation_steps=5)
