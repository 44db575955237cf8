"""Signatures on ids, and those under the names of other libraries: the same numbers as under ours."""

import numpy as np
import pytest
import tensorflow as tf
from export_kinds import served
from helpers import assert_bit_equal

from bert_tf.serving.saved_model import write_saved_model
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


# ------------------------------------------------------- signatures under the names of other libraries

HF_NAMES = ("input_ids", "attention_mask", "token_type_ids")


def renamed(ids):
    return dict(zip(HF_NAMES, ids.values(), strict=True))


@pytest.mark.parametrize(
    "kind, outputs",
    [
        ("classifier", ["logits"]),
        pytest.param("squad", ["start_logits", "end_logits"], marks=pytest.mark.night),
    ],
)
def test_hugging_face_gives_the_logits_of_tokens_bit_for_bit(kind, outputs):
    functions, ids = trace_signatures(served(kind), ["tokens", "hugging_face"]), some_ids()
    expected = functions["tokens"](**ids)
    answers = functions["hugging_face"](**renamed(ids))
    assert_bit_equal(answers, {name: expected[name] for name in outputs})


@pytest.mark.night
def test_hugging_face_gives_the_vectors_of_an_encoder():
    model, ids = served("encoder"), some_ids()
    answers = trace_signatures(model, ["hugging_face"])["hugging_face"](**renamed(ids))
    outputs = model.model(ids)
    assert sorted(answers) == ["last_hidden_state", "pooler_output"]
    for name, own in (("last_hidden_state", "sequence_output"), ("pooler_output", "pooled_output")):
        np.testing.assert_allclose(answers[name], outputs[own], rtol=0, atol=1e-5)


@pytest.mark.night
def test_hugging_face_gives_the_masked_lm_logits_of_every_position():
    model, ids = served("masked_lm"), some_ids()
    functions = trace_signatures(model, ["tokens", "hugging_face"])
    logits = functions["hugging_face"](**renamed(ids))["logits"]
    assert logits.shape == (3, 9, model.config.vocab_size)
    positions = tf.constant([[1, 3], [2, 0], [0, 0]])
    expected = functions["tokens"](**ids, masked_lm_positions=positions)
    chosen = tf.gather(logits, positions, batch_dims=1)[:, :, : len(model.pieces)]
    best, indexes = tf.math.top_k(tf.nn.softmax(chosen), 5)
    np.testing.assert_array_equal(indexes, expected["token_id"])
    np.testing.assert_allclose(best, expected["probability"], rtol=1e-5)


def example(row):
    """A serialized tf.train.Example of texts, or lists of texts, by name."""
    features = {}
    for name, value in row.items():
        texts = [value] if isinstance(value, str) else value
        values = tf.train.BytesList(value=[text.encode() for text in texts])
        features[name] = tf.train.Feature(bytes_list=values)
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


@pytest.mark.parametrize(
    "kind, columns",
    [
        ("classifier", {"text_a": ["a", "the cat", "京"]}),
        pytest.param(
            "swag",
            {"text_a": ["a", "the"], "choices": [["a log", "owls"], ["京", ""]]},
            marks=pytest.mark.night,
        ),
    ],
)
def test_examples_are_answered_as_their_texts_bit_for_bit(kind, columns):
    functions = trace_signatures(served(kind), ["serving_default", "tf_example"])
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if kind == "swag":
        rows[1]["choices"] = ["京"]  # fewer than the others
    more = tf.constant([example(row | {"another": "text"}) for row in rows])
    inputs = {name: tf.constant(values) for name, values in columns.items()}
    assert_bit_equal(functions["tf_example"](more), functions["serving_default"](**inputs))
    for bad in ({"text_b": "b"}, {"text_a": ["a", "b"]}):
        with pytest.raises(tf.errors.InvalidArgumentError, match="text_a"):
            functions["tf_example"](tf.constant([example(bad)]))


def test_without_serving_default_hugging_face_is_the_default(tmp_path):
    model = served("classifier")
    values = write_saved_model(model, str(tmp_path / "1"), ["tokens", "hugging_face"])
    assert values["custom_ops"] == []
    default, named = (values["signatures"][name] for name in ("serving_default", "hugging_face"))
    assert default == named
    assert sorted(named["inputs"]) == sorted(HF_NAMES)
