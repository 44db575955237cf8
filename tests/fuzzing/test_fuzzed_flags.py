"""Every flag of every program with any value: the options are made, or a message names the flag."""

import dataclasses
import math

import pytest
from absl import flags
from fuzz_cases import COUNTS, cases
from hypothesis import given
from hypothesis import strategies as st
from test_cli import LEAST, OPTION_CLASSES, flags_of

from bert_tf import cli

NUMBERS = ["0", "1", "-1", "2", "7", "0.5", "-0.5", "1.5", "1e-5", "1e309", "-1e309", "nan", "inf"]
SHORT = [*NUMBERS, "-inf", "true", "false", "1,2", "1,0", "a,b", ",", ",,", "..", "/", "-"]
THRESHOLDS = ("null_score_diff_threshold",)  # whose infinite values have a meaning
VALUES = st.one_of(
    st.sampled_from(SHORT),
    st.sampled_from(["", " ", "9" * 25, "\x00", "../../etc/passwd", "é漢", "*", "[", "{}", "None"]),
    st.integers().map(str),
    st.floats().map(str),
    st.text(max_size=8),
)


@st.composite
def command_lines(draw, name):
    """The least flags of a program, and one to three of its others with any values."""
    fields = [f for f in dataclasses.fields(OPTION_CLASSES[name]) if "positional" not in f.metadata]
    chosen = draw(st.lists(st.sampled_from(fields), min_size=1, max_size=3, unique=True))
    given_values = {}
    for field in chosen:
        choices = [str(c) for c in field.metadata.get("choices", ()) if c is not None]
        one_of_them = st.sampled_from(choices) if choices else st.nothing()
        given_values[field.name] = draw(st.one_of(one_of_them, VALUES))
    return given_values


@pytest.mark.parametrize("name", LEAST)
@given(data=st.data())
@cases(150)
def test_any_values_of_some_flags(name, data):
    chosen = data.draw(command_lines(name))
    values = flags_of(name)
    COUNTS[f"flags of {name}"] += 1
    try:
        values(["script", *LEAST[name], *(f"--{key}={value}" for key, value in chosen.items())])
        options = cli.options_from_flags(OPTION_CLASSES[name], values)
    except (ValueError, flags.Error) as error:
        assert any(key in str(error) for key in values), error
        return
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if isinstance(value, float) and field.name not in THRESHOLDS:
            assert math.isfinite(value), f"--{field.name}={value} was taken"
