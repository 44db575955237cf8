"""Signatures under the names of other libraries: the same numbers as under ours."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from export_kinds import TEXTS, served
from helpers import assert_bit_equal

from bert_tf.serving.saved_model import write_saved_model
from bert_tf.serving.served import trace_signatures
from bert_tf.serving.signatures import INPUT_NAMES

NAMES = ("serving_default", "tokens", "tf_example", "hugging_face")
HF_NAMES = ("input_ids", "attention_mask", "token_type_ids")
TEXT_INPUTS = {
    "classifier": {"text_a": TEXTS[:4]},
    "pair": {"text_a": TEXTS[:4], "text_b": TEXTS[2:]},
    "swag": {
        "text_a": TEXTS[:4],
        "choices": [["a log", "owls"], ["京", ""], ["a", "the"], ["on", ""]],
    },
    "masked_lm": {"text": ["a [MASK] .", "[MASK] [MASK]", "", "the cat"]},
}


@functools.cache
def signatures(kind):
    """The model, which owns the weights, and its signatures."""
    model = served(kind)
    return model, trace_signatures(model, NAMES if kind in TEXT_INPUTS else NAMES[1::2])


def some_ids(shape=(3, 9)):
    """Ids, mask and segments of rows of different lengths."""
    rng = np.random.default_rng(3)
    lengths = np.resize([shape[-1], 4, 1], shape[:-1])
    mask = (np.arange(shape[-1]) < lengths[..., None]).astype(np.int32)
    ids = rng.integers(5, 150, shape).astype(np.int32) * mask
    segments = rng.integers(0, 2, shape).astype(np.int32) * mask
    return [tf.constant(values) for values in (ids, mask, segments)]


def ask(kind, name, ids, names=INPUT_NAMES):
    return signatures(kind)[1][name](**dict(zip(names, ids, strict=True)))


def example(row):
    """A serialized tf.train.Example of texts, numbers or lists of texts by name."""
    features = {}
    for name, value in row.items():
        if isinstance(value, int):
            features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        else:
            texts = [value] if isinstance(value, str) else value
            values = tf.train.BytesList(value=[text.encode() for text in texts])
            features[name] = tf.train.Feature(bytes_list=values)
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


# ------------------------------------------------------------------------------- the same numbers


@pytest.mark.parametrize(
    "kind", ["classifier", *(pytest.param(k, marks=pytest.mark.night) for k in ("swag", "squad"))]
)
def test_hugging_face_gives_the_logits_of_tokens_bit_for_bit(kind):
    ids = some_ids((2, 3, 9)) if kind == "swag" else some_ids()
    expected = ask(kind, "tokens", ids)
    outputs = ["start_logits", "end_logits"] if kind == "squad" else ["logits"]
    found = ask(kind, "hugging_face", ids, HF_NAMES)
    assert_bit_equal(found, {name: expected[name] for name in outputs})


@pytest.mark.night
def test_hugging_face_gives_the_vectors_of_an_encoder():
    model, _ = signatures("encoder")
    ids = some_ids()
    found = ask("encoder", "hugging_face", ids, HF_NAMES)
    outputs = model.model(dict(zip(INPUT_NAMES, ids, strict=True)))
    assert sorted(found) == ["last_hidden_state", "pooler_output"]
    for name, own in (("last_hidden_state", "sequence_output"), ("pooler_output", "pooled_output")):
        np.testing.assert_allclose(found[name], outputs[own], rtol=0, atol=1e-5)


@pytest.mark.night
def test_hugging_face_gives_the_masked_lm_logits_of_every_position():
    ids = some_ids()
    logits = ask("masked_lm", "hugging_face", ids, HF_NAMES)["logits"]
    model, _ = signatures("masked_lm")
    assert logits.shape == (3, 9, model.config.vocab_size)
    positions = tf.constant([[1, 3], [2, 0], [0, 0]])
    names = (*INPUT_NAMES, "masked_lm_positions")
    expected = ask("masked_lm", "tokens", [*ids, positions], names)
    chosen = tf.gather(logits, positions, batch_dims=1)[:, :, : len(model.pieces)]
    best, indexes = tf.math.top_k(tf.nn.softmax(chosen), 5)
    np.testing.assert_array_equal(indexes, expected["token_id"])
    np.testing.assert_allclose(best, expected["probability"], rtol=1e-5)


@pytest.mark.parametrize(
    "kind", ["classifier", *(pytest.param(k, marks=pytest.mark.night) for k in (*TEXT_INPUTS,)[1:])]
)
def test_examples_are_answered_as_their_texts_bit_for_bit(kind):
    columns = TEXT_INPUTS[kind]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if kind == "swag":
        rows[1]["choices"] = ["京"]  # fewer than the others
    more = [row | {"label": 1, "another": "text"} for row in rows]
    functions = signatures(kind)[1]
    inputs = {name: tf.constant(values) for name, values in columns.items()}
    expected = functions["serving_default"](**inputs)
    assert_bit_equal(functions["tf_example"](tf.constant([example(row) for row in more])), expected)
    none = functions["tf_example"](tf.zeros([0], tf.string))
    assert {value.shape[0] for value in none.values()} == {0}


# -------------------------------------------------------------------------------------- bad input


def test_examples_with_other_texts_are_refused():
    function = signatures("classifier")[1]["tf_example"]
    for rows in ([{"text_a": "a"}, {"text_b": "b"}], [{"text_a": ["a", "b"]}], [{"text_a": 5}]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="text_a"):
            function(tf.constant([example(row) for row in rows]))


@pytest.mark.parametrize("name, names", [("tokens", INPUT_NAMES), ("hugging_face", HF_NAMES)])
def test_ids_of_a_wrong_length_or_dtype_are_refused(name, names):
    ids = some_ids()
    for bad, named in (
        ([tf.ones([2, 32], tf.int32)] * 3, "`input_ids`"),  # there are 31 positions
        ([*ids[:2], ids[2][:, :8]], f"`{names[2]}`"),
        ([tf.cast(value, tf.int64) for value in ids], "int64"),
    ):
        with pytest.raises((TypeError, tf.errors.InvalidArgumentError)) as caught:
            ask("classifier", name, bad, names)
        assert named in str(caught.value)


def test_positions_outside_of_their_row_are_refused():
    """They would be answered from another row of the batch."""
    function = trace_signatures(served("masked_lm"), ["tokens"])["tokens"]
    for positions in ([[9], [2], [0]], [[2], [-1], [0]], [[2], [1]]):
        inputs = dict(zip(INPUT_NAMES, some_ids(), strict=True))
        with pytest.raises(tf.errors.InvalidArgumentError, match="`masked_lm_positions`"):
            function(**inputs, masked_lm_positions=tf.constant(positions))


# ------------------------------------------------------------------------------ what lies in a file


def test_without_serving_default_hugging_face_is_the_default(tmp_path):
    model = served("classifier")
    values = write_saved_model(model, str(tmp_path / "1"), ["tokens", "hugging_face"])
    assert values["custom_ops"] == []
    default, named = (values["signatures"][name] for name in ("serving_default", "hugging_face"))
    assert default == named
    assert sorted(named["inputs"]) == sorted(HF_NAMES)
