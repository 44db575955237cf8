"""Names and types of the inputs of every model."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from tiny_config import tiny_config

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
CONFIG = tiny_config(initializer_range=0.2)
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
        CONFIG, "VWXYZ", "last_hidden", units=4, **kwargs
    ),
}
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


def test_attention_mask_and_token_type_ids_are_other_names():
    for kind, make in MODELS.items():
        model, inputs = make(), batch(kind)
        expected = model(inputs)
        assert_equal(model(renamed(inputs)), expected)
        assert_equal(model.call(renamed(inputs)), expected)
        bare = {n: v for n, v in inputs.items() if n not in OTHER_NAMES}
        first, other = (tf.nest.flatten(each)[0] for each in (model(bare), expected))
        assert np.abs(first - other).max() > 1e-3, kind


def test_symbolic_inputs_may_have_the_other_names(tmp_path, kind="choices"):
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


def test_inputs_that_do_not_fit_are_refused():
    """Names, then shapes, then values in arrays and lists; the message names the input."""
    ids = batch("encoder")["input_ids"]
    three = batch("choices")["input_ids"]
    rows = [
        ("pretraining", "token_types", ids),
        ("pretraining", "masked_lm_positions", None),
        ("encoder", "input_mask", np.ones((B, S, 1), "int32")),
        ("classifier", "segment_ids", np.ones((B, 1))),
        ("choices", "input_mask", np.ones((B, K, S, S))),
        ("bilstm", "input_mask", np.ones((1, 1))),
        ("embedding", "input_mask", np.ones((B, S, S))),
        ("choices", "input_ids", ids),
        ("encoder", "input_ids", three),
        ("embedding", "input_ids", three[None]),
        ("classifier", "input_mask", np.full((B, S), -1e4)),
    ]
    for kind, name, value in (
        ("classifier", "input_ids", -18),
        ("masked_lm", "input_ids", 23),
        ("embedding", "anchor_ids", -1),
        ("encoder", "position_ids", 9),
        ("encoder", "segment_ids", 7),
        ("encoder", "input_mask", -1),
        ("classifier", "input_mask", 255),
        ("pretraining", "masked_lm_positions", -1),
        ("masked_lm", "masked_lm_positions", 9),
    ):
        wrong = np.ones((B, S), "int32")
        wrong[-1, -1] = value
        rows += [(kind, name, wrong), (kind, name, wrong.tolist())]
    models = {kind: MODELS[kind]() for kind, *_ in rows}
    for kind, name, value in rows:
        for given in {name, OTHER_NAMES.get(name, name)}:
            inputs = {n: v for n, v in batch(kind).items() if n != name}
            with pytest.raises(ValueError, match=given):
                models[kind]({**inputs, given: value})


def test_float_ids_are_exact_in_low_precision():
    """Exporters and `fit` on several devices take every input for floats."""
    config = dataclasses.replace(CONFIG, vocab_size=600)
    model = BertForSequenceClassification(config, LABELS, dtype="mixed_bfloat16")
    ids = np.array([[511, 513, 299]])
    found = model({"input_ids": tf.constant(ids, tf.float32)})["logits"]
    np.testing.assert_array_equal(found, model({"input_ids": ids})["logits"])


def test_integers_of_any_size_and_masks_of_truth_values_are_taken():
    model, inputs = MODELS["pretraining"](), batch("pretraining")
    expected = model(inputs)
    for dtype in ("int64", "uint8"):
        assert_equal(model({n: v.astype(dtype) for n, v in inputs.items()}), expected)
    assert_equal(model({**inputs, "input_mask": inputs["input_mask"] > 0}), expected)
