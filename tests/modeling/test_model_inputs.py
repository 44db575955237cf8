"""Names and types of the inputs of every model."""

import re
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.modeling.bert import BertModel
from bert_tf.modeling.feature_based import BertBiLstmForTokenClassification
from bert_tf.modeling.models import (
    BertForMaskedLM,
    BertForMultipleChoice,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSentenceEmbedding,
    BertForSequenceClassification,
    BertForTokenClassification,
)

B, S, K, LABELS = 3, 7, 2, 5
CONFIG = BertConfig(
    vocab_size=23,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=11,
    max_position_embeddings=9,
    type_vocab_size=2,
    initializer_range=0.2,
)
MODELS = {
    "encoder": lambda **kwargs: BertModel(CONFIG, **kwargs),
    "pretraining": lambda **kwargs: BertForPreTraining(CONFIG, **kwargs),
    "masked_lm": lambda **kwargs: BertForMaskedLM(CONFIG, **kwargs),
    "classifier": lambda **kwargs: BertForSequenceClassification(CONFIG, LABELS, **kwargs),
    "tokens": lambda **kwargs: BertForTokenClassification(CONFIG, LABELS, **kwargs),
    "answers": lambda **kwargs: BertForQuestionAnswering(CONFIG, **kwargs),
    "choices": lambda **kwargs: BertForMultipleChoice(CONFIG, **kwargs),
    "embedding": lambda **kwargs: BertForSentenceEmbedding(CONFIG, **kwargs),
    "bilstm": lambda **kwargs: BertBiLstmForTokenClassification(
        CONFIG, LABELS, "last_hidden", units=4, **kwargs
    ),
}
EVERY_MODEL = pytest.mark.parametrize("kind", MODELS)
OTHER_NAMES = {"input_mask": "attention_mask", "segment_ids": "token_type_ids"}


def batch(kind):
    rng = np.random.default_rng(0)
    shape = (B, K, S) if kind == "choices" else (B, S)
    inputs = {
        "input_ids": rng.integers(5, 23, shape).astype("int32"),
        "input_mask": np.broadcast_to(np.arange(S) < 4, shape).astype("int32"),
        "segment_ids": np.broadcast_to(np.arange(S) >= 2, shape).astype("int32"),
    }
    if kind in ("pretraining", "masked_lm"):
        inputs["masked_lm_positions"] = np.array([[1, 2]] * B, "int32")
    return inputs


def renamed(inputs):
    return {OTHER_NAMES.get(name, name): value for name, value in inputs.items()}


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


@EVERY_MODEL
def test_attention_mask_and_token_type_ids_are_other_names(kind):
    model, inputs = MODELS[kind](), batch(kind)
    expected = model(inputs)
    assert_equal(model(renamed(inputs)), expected)
    assert_equal(model.call(renamed(inputs)), expected)
    bare = {n: v for n, v in inputs.items() if n not in OTHER_NAMES}
    first, other = (tf.nest.flatten(model(values))[0] for values in (bare, inputs))
    assert np.abs(first - other).max() > 1e-3


def test_predict_takes_the_other_names():
    model, inputs = MODELS["choices"](), batch("choices")
    dataset = tf.data.Dataset.from_tensor_slices(renamed(inputs)).batch(2)
    for batches in (renamed(inputs), dataset):
        assert_equal(model.predict(batches, verbose=0), model(inputs))


@pytest.mark.parametrize("kind", ["pretraining", "choices"])
def test_symbolic_inputs_may_have_the_other_names(kind, tmp_path):
    model, inputs = MODELS[kind](), batch(kind)
    symbols = {
        name: keras.Input(value.shape[1:], dtype="int32", name=name)
        for name, value in renamed(inputs).items()
    }
    whole = keras.Model(symbols, tf.nest.flatten(model(symbols))[0])
    expected = tf.nest.flatten(model(inputs))[0]
    np.testing.assert_allclose(whole(renamed(inputs)), expected, rtol=0, atol=1e-6)
    whole.save(tmp_path / "whole.keras")
    loaded = keras.saving.load_model(tmp_path / "whole.keras")
    np.testing.assert_allclose(loaded(renamed(inputs)), expected, rtol=0, atol=1e-6)


@EVERY_MODEL
def test_unknown_inputs_are_an_error_that_lists_the_known_ones(kind):
    model, inputs = MODELS[kind](), batch(kind)
    with pytest.raises(ValueError, match=r"token_types.*input_ids.*input_mask.*segment_ids"):
        model({**inputs, "token_types": inputs["segment_ids"]})


@EVERY_MODEL
def test_floats_are_no_ids(kind):
    model, inputs = MODELS[kind](dtype="mixed_bfloat16"), batch(kind)
    for name in inputs:
        with pytest.raises(TypeError, match=f"`{name}`.*float.*int32"):
            model({**inputs, name: inputs[name].astype("float32")})


def test_predict_refuses_unknown_inputs_floats_and_strings():
    model, inputs = MODELS["classifier"](), batch("classifier")
    with pytest.raises(ValueError, match="token_types"):
        model.predict({**inputs, "token_types": inputs["segment_ids"]}, verbose=0)
    with pytest.raises(TypeError, match=r"`input_ids`.*float32.*int32"):
        model.predict({"input_ids": inputs["input_ids"].astype("float32")}, verbose=0)
    symbol = keras.Input((S,), name="input_ids")  # float32 by default
    whole = keras.Model({"input_ids": symbol}, model({"input_ids": symbol}))
    with pytest.raises(TypeError, match=r"`input_ids`.*float32.*keras.Input"):
        whole({"input_ids": inputs["input_ids"]})
    with pytest.raises(TypeError, match=r"`input_ids`.*string.*int32"):
        model({"input_ids": tf.constant([["a text"]])})


def test_a_sequence_without_a_batch_is_an_error():
    with pytest.raises(ValueError, match=r"`input_ids`.*\(3,\).*\[batch, sequence\]"):
        MODELS["classifier"]()({"input_ids": np.array([1, 2, 3])})


@pytest.mark.parametrize(
    ("kind", "name", "shape"),
    [
        ("encoder", "input_mask", (B, S, 1)),
        ("classifier", "segment_ids", (B, 1)),
        ("choices", "input_mask", (B, K, S, S)),
        ("bilstm", "input_mask", (1, 1)),
        ("embedding", "input_mask", (B, S, S)),
    ],
)
def test_masks_and_segments_that_do_not_fit_the_ids_are_errors(kind, name, shape):
    model, inputs = MODELS[kind](), batch(kind)
    wanted = re.escape(f"`{name}` ({OTHER_NAMES[name]}) has the shape {shape}, but must be ({B}, ")
    for given in (name, OTHER_NAMES[name]):
        with pytest.raises(ValueError, match=wanted):
            model({"input_ids": inputs["input_ids"], given: np.ones(shape, "int32")})


def test_one_mask_for_all_rows_of_a_batch_is_that_of_each():
    model, ids = MODELS["encoder"](), batch("encoder")["input_ids"]
    causal = np.tril(np.ones((S, S), "int32"))
    for mask in (causal[1:2], causal[None]):
        whole = np.broadcast_to(mask, (B, *mask.shape[1:]))
        found, expected = (
            model({"input_ids": ids, "input_mask": each})["sequence_output"]
            for each in (mask, whole)
        )
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_shapes_are_compared_as_far_as_they_are_known():
    model = MODELS["encoder"]()
    ids, mask = keras.Input((None,), dtype="int32"), keras.Input((S,), dtype="int32")
    assert model({"input_ids": ids, "input_mask": mask})["pooled_output"].shape == (None, 8)
    with pytest.raises(ValueError, match=r"`input_mask`.*\(None, 7\).*\(None, 5\)"):
        model({"input_ids": keras.Input((5,), dtype="int32"), "input_mask": mask})


def test_ids_with_too_many_or_too_few_axes_are_errors():
    ids = {name: batch(name)["input_ids"] for name in ("encoder", "choices")}
    with pytest.raises(ValueError, match=r"\(3, 7\), but must be \[B, K, S\]"):
        MODELS["choices"]()({"input_ids": ids["encoder"]})
    with pytest.raises(ValueError, match=r"\(3, 2, 7\), but must be \[B, S\]"):
        MODELS["encoder"]()({"input_ids": ids["choices"]})
    with pytest.raises(ValueError, match=r"`input_ids`.*\[B, S\] or \[B, K, S\]"):
        MODELS["embedding"]()({"input_ids": ids["choices"][None]})


def test_a_ragged_tensor_is_an_error_that_names_its_dense_form():
    with pytest.raises(ValueError, match=r"`input_ids` is a RaggedTensor.*`.to_tensor\(\)`"):
        MODELS["encoder"]()({"input_ids": tf.ragged.constant([[5, 6], [7]])})


@pytest.mark.parametrize("name", ["sequence_ids", "packed_positions"])
def test_half_of_what_describes_packed_sequences_is_an_error(name):
    ids = batch("encoder")["input_ids"]
    with pytest.raises(ValueError, match=f"`{name}` is given without `(seq|pack)"):
        MODELS["encoder"]()({"input_ids": ids, name: np.ones_like(ids)})


@pytest.mark.parametrize(
    ("kind", "name", "value", "limit"),
    [
        ("classifier", "input_ids", -18, 23),
        ("masked_lm", "input_ids", 23, 23),
        ("embedding", "anchor_ids", -1, 23),
        ("encoder", "position_ids", 9, 9),
        ("encoder", "segment_ids", 7, 2),
        ("classifier", "token_type_ids", -1, 2),
        ("encoder", "input_mask", -1, 2),
        ("classifier", "attention_mask", 255, 2),
        ("pretraining", "masked_lm_positions", -1, S),
        ("masked_lm", "masked_lm_positions", S, S),
    ],
)
def test_values_out_of_range_are_errors_in_arrays_and_lists(kind, name, value, limit):
    model, inputs = MODELS[kind](), batch(kind)
    wrong = np.ones((B, S), "int32")
    wrong[-1, -1] = value
    for given in (wrong, wrong.tolist()):
        with pytest.raises(ValueError, match=f"`{name}` has the value {value}, .* below {limit}, "):
            model({**inputs, name: given})


def test_padding_without_a_mask_is_warned_of():
    model, ids = MODELS["classifier"](), np.array([[5, 6, 7], [5, 6, 0]])
    with pytest.warns(
        UserWarning, match="`input_ids` end with 0, but there is no `input_mask`"
    ) as w:
        model({"input_ids": ids})
    assert w[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model({"input_ids": ids, "attention_mask": ids != 0})
        model({"input_ids": ids[:1]})


def test_integers_of_any_size_and_masks_of_truth_values_are_taken():
    model, inputs = MODELS["pretraining"](), batch("pretraining")
    expected = model(inputs)
    for dtype in ("int64", "uint8"):
        assert_equal(model({n: v.astype(dtype) for n, v in inputs.items()}), expected)
    assert_equal(model({**inputs, "input_mask": inputs["input_mask"] > 0}), expected)


@pytest.mark.filterwarnings("error:You are using a softmax")
def test_one_token_is_taken_without_a_warning():
    outputs = MODELS["encoder"](output_attentions=True)({"input_ids": [[5]]})
    np.testing.assert_array_equal(outputs["attention_probs"][0], np.ones((1, 2, 1, 1)))


def test_lists_are_taken_if_their_rows_are_equally_long():
    model, inputs = MODELS["classifier"](), batch("classifier")
    lists = {name: value.tolist() for name, value in inputs.items()}
    assert_equal(model(lists), model(inputs))
    lists["attention_mask"] = lists.pop("input_mask")
    for first in ([1], [1, None, 1, 1, 1, 1, 1]):
        wrong = [first, *lists["attention_mask"][1:]]
        with pytest.raises(ValueError, match=r"`attention_mask` is a list that .*padding=True"):
            model({**lists, "attention_mask": wrong})


def test_a_list_of_tensors_has_a_gradient_and_may_stand_in_a_function():
    model, inputs = MODELS["encoder"](), batch("encoder")
    rows = [tf.constant(row) for row in inputs["input_ids"]]
    expected = model({"input_ids": inputs["input_ids"]})
    assert_equal(tf.function(lambda: model({"input_ids": rows}))(), expected)
    embedded = tf.zeros((S, CONFIG.hidden_size))
    with tf.GradientTape() as tape:
        tape.watch(embedded)
        found = model({"input_ids": rows, "embedding_output": [embedded] * B})["pooled_output"]
        loss = tf.reduce_sum(found**2)
    assert tape.gradient(loss, embedded) is not None


def test_an_input_under_both_names_is_an_error():
    inputs = batch("classifier")
    with pytest.raises(ValueError, match=r"`attention_mask`.*`input_mask`"):
        MODELS["classifier"]()({**inputs, "attention_mask": inputs["input_mask"]})


def test_missing_inputs_and_inputs_without_names_are_errors():
    inputs = batch("pretraining")
    with pytest.raises(TypeError, match=r"dict.*input_ids"):
        MODELS["classifier"]()(inputs["input_ids"])
    with pytest.raises(ValueError, match="`input_ids`"):
        MODELS["classifier"]()({"input_mask": inputs["input_mask"]})
    with pytest.raises(ValueError, match="`masked_lm_positions`"):
        MODELS["pretraining"]()({"input_ids": inputs["input_ids"]})


def test_none_counts_as_not_given():
    model, inputs = MODELS["classifier"](), batch("classifier")
    assert_equal(
        model({**inputs, "input_mask": None, "attention_mask": inputs["input_mask"]}),
        model(inputs),
    )


@EVERY_MODEL
def test_the_export_of_keras_has_the_names_and_types_and_answers_like_the_model(kind, tmp_path):
    model, inputs = MODELS[kind](), batch(kind)
    model.export(str(tmp_path), verbose=False)
    signature = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    found = signature(**{name: tf.constant(value) for name, value in inputs.items()})
    expected = model(inputs)
    for index, layer in enumerate(expected.pop("all_encoder_layers", ())):
        expected[f"all_encoder_layers_{index}"] = layer
    assert_equal({name: found[name] for name in sorted(found)}, dict(sorted(expected.items())))
    taken = signature.structured_input_signature[1]
    assert {name: spec.dtype for name, spec in taken.items()} == dict.fromkeys(inputs, tf.int32)
    assert all(size is None for spec in taken.values() for size in spec.shape)
