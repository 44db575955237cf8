"""Ids that a signature refuses; other inputs are in test_serving_bad_input.py."""

import numpy as np
import pytest
import tensorflow as tf
from export_kinds import served

from bert_tf.serving.served import INPUT_NAMES, trace_signatures


def some_ids():
    """Ids, mask and segments of rows of different lengths."""
    rng = np.random.default_rng(3)
    mask = (np.arange(9) < np.array([[9], [4], [1]])).astype(np.int32)
    values = rng.integers(5, 150, (3, 9)), mask, rng.integers(0, 2, (3, 9))
    return {
        name: tf.constant(value * mask, tf.int32)
        for name, value in zip(INPUT_NAMES, values, strict=True)
    }


def test_ids_of_a_wrong_length_or_dtype_are_refused():
    model = served("classifier")
    function, ids = trace_signatures(model, ["tokens"])["tokens"], some_ids()
    for bad, named in (
        (dict.fromkeys(ids, tf.ones([2, 32], tf.int32)), "`input_ids`"),  # there are 31 positions
        (ids | {"segment_ids": ids["segment_ids"][:, :8]}, "`segment_ids`"),
        ({name: tf.cast(value, tf.int64) for name, value in ids.items()}, "int64"),
    ):
        with pytest.raises((TypeError, tf.errors.InvalidArgumentError)) as caught:
            function(**bad)
        assert named in str(caught.value)


def test_positions_outside_of_their_row_are_refused():
    """They would be answered from another row of the batch."""
    model = served("masked_lm")
    function = trace_signatures(model, ["tokens"])["tokens"]
    for positions in ([[9], [2], [0]], [[2], [-1], [0]], [[2], [1]]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="`masked_lm_positions`"):
            function(**some_ids(), masked_lm_positions=tf.constant(positions))
