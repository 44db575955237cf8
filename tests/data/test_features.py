"""One FeatureSpec and its views."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.data.features import (
    FeatureSpec,
    check_specs,
    encode_example,
    parse_examples,
    split,
    trim_padding,
)
from bert_tf.data.parallel import encode_columns

# S=5, P=2, K=3
SPECS = (
    FeatureSpec("input_ids", (5,)),
    FeatureSpec("choice_ids", (3, 5)),
    FeatureSpec("masked_lm_ids", (2,), role="label", output="masked_lm"),
    FeatureSpec("masked_lm_weights", (2,), "float32", role="weight", output="masked_lm"),
    FeatureSpec("next_sentence_labels", role="label", output="next_sentence"),
    FeatureSpec("is_real_example", role="weight"),
    FeatureSpec("unique_ids", role="id"),
)


def example(**changes):
    return {
        "input_ids": [101, 7, 8, 102, 0],
        "choice_ids": np.arange(15).reshape(3, 5),
        "masked_lm_ids": [7, 0],
        "masked_lm_weights": [1.0, 0.0],
        "next_sentence_labels": 1,
        "is_real_example": 1,
        "unique_ids": 1_000_000_000,
    } | changes


def test_parse_examples_gives_what_was_encoded():
    rows = [example(), example(next_sentence_labels=0)]
    parsed = parse_examples(SPECS)(tf.constant([encode_example(SPECS, row) for row in rows]))
    for name, value in example().items():
        np.testing.assert_array_equal(parsed[name][0], value)
    assert parsed["next_sentence_labels"].numpy().tolist() == [1, 0]
    assert [parsed[s.name].dtype.name for s in SPECS] == [s.dtype for s in SPECS]


def test_encode_example_refuses_values_by_name():
    for name, value in (
        ("input_ids", [1, 2]),
        ("choice_ids", [[1] * 5] * 2),
        ("next_sentence_labels", [1]),
        ("unique_ids", 2**31),
        ("input_ids", [0, -(2**31) - 1, 0, 0, 0]),
        ("input_ids", [1, 2, 0.5, 3, 4]),
        ("masked_lm_weights", [1.0, float("nan")]),
        ("masked_lm_weights", [1e39, 1.0]),
        ("label_ids", 1),
    ):
        with pytest.raises(ValueError, match=f"`{name}`"):
            encode_example(SPECS, example(**{name: value}))


def test_split_makes_weights_in_the_shape_of_the_loss():
    specs = (
        FeatureSpec("label_ids", (4,), role="label", output="tokens"),
        FeatureSpec("targets", (4,), "float32", role="label", output="vector"),
    )
    features = {"label_ids": tf.zeros([2, 4], tf.int32), "targets": tf.zeros([2, 4])}
    _, _, sample_weight = split(specs, features)
    assert sample_weight["tokens"].numpy().tolist() == [[1.0] * 4] * 2
    assert sample_weight["vector"].numpy().tolist() == [1.0, 1.0]


def sequences(length, used, choices=()):
    """Features of sequences [B, *choices, length] of which `used` tokens (array) are real."""
    used = np.asarray(used)[..., None]
    ids = np.arange(1, length + 1) * np.ones_like(used)
    mask = (np.arange(length) < used).astype("int32")
    names = ("input_ids", "input_mask", "segment_ids")
    specs = tuple(FeatureSpec(name, (*choices, length)) for name in names)
    values = {"input_ids": ids * mask, "input_mask": mask, "segment_ids": mask * 2}
    return {name: tf.constant(value, tf.int32) for name, value in values.items()}, specs


def test_trim_padding_keeps_a_multiple_that_holds_the_longest():
    for length, used, multiple, expected in (
        (40, [3, 9], 8, 16),
        (40, [3, 8], 8, 8),
        (13, [2, 9], 8, 13),  # 16 would be beyond the end
        (40, [3, 9], 1, 9),
        (40, [0, 0], 8, 8),  # a batch without a token keeps something to compute on
        (40, [0, 0], 1, 1),
    ):
        features, specs = sequences(length, used)
        trimmed = trim_padding(features, specs, multiple)
        assert trimmed.keys() == features.keys()
        for name, value in features.items():
            np.testing.assert_array_equal(trimmed[name], value[:, :expected])
            assert not value[:, expected:].numpy().any()


def test_trim_padding_keeps_a_token_behind_padding():
    features, specs = sequences(20, [0])
    features["input_mask"] = tf.constant([[0] * 9 + [1] + [0] * 10])
    assert trim_padding(features, specs, multiple=2)["input_ids"].shape == (1, 10)


def test_trim_padding_keeps_the_longest_choice():
    features, specs = sequences(20, [[1, 7, 3], [2, 2, 2]], choices=(3,))
    trimmed = trim_padding(features, specs, multiple=4)
    assert trimmed["input_ids"].shape == (2, 3, 8)
    assert trimmed["input_ids"][0, 1].numpy().tolist() == [1, 2, 3, 4, 5, 6, 7, 0]


def test_trim_padding_keeps_what_is_no_sequence():
    features, specs = sequences(20, [3, 4])
    positions = FeatureSpec("masked_lm_positions", (20,))  # P = S
    ids = FeatureSpec("masked_lm_ids", (20,), role="label", output="masked_lm_logits")
    others = {spec.name: tf.ones([2, 20], tf.int32) for spec in (positions, ids)}
    trimmed = trim_padding({**features, **others}, (*specs, positions, ids))
    assert trimmed["input_ids"].shape == (2, 8)
    assert trimmed["masked_lm_positions"].shape == trimmed["masked_lm_ids"].shape == (2, 20)


def test_check_specs_refuses_contradictions():
    for specs, name in (
        ((FeatureSpec("f"), FeatureSpec("f", (2,))), "`f`"),
        (tuple(FeatureSpec(n, role="label", output="logits") for n in "ab"), "'logits'"),
        ((FeatureSpec("w", role="weight", output="logit"),), "'logit'"),
    ):
        with pytest.raises(ValueError, match=name):
            check_specs(specs)


BORDERS = [127, 128, 16383, 16384, 2**21 - 1, 2**21, 2**28 - 1, 2**28, 2**31 - 1]


@given(
    numbers=st.lists(st.one_of(st.integers(0, 200), st.sampled_from(BORDERS)), min_size=1),
    length=st.integers(min_value=1, max_value=4),
)
def test_encode_columns_equals_encode_example(numbers, length):
    specs = (
        FeatureSpec("input_ids", (length,)),
        FeatureSpec("masked_lm_weights", (2,), "float32"),
        FeatureSpec("label_ids"),
    )
    numbers = numbers * length
    columns = {
        "input_ids": np.array(numbers, np.int32).reshape(-1, length),
        "masked_lm_weights": np.array(numbers, np.float32).reshape(-1, length)[:, :1] * [0.5, 1e-3],
        "label_ids": np.array(numbers[::length], np.int32),
    }
    for index, data in enumerate(encode_columns(columns)):
        one = encode_example(specs, {name: column[index] for name, column in columns.items()})
        assert tf.train.Example.FromString(data) == tf.train.Example.FromString(one)
        assert len(data) == len(one)
