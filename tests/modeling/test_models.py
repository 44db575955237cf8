"""Encoder and heads against the NumPy BERT, and the names of their variables."""

import keras
import numpy as np
import pytest
from tiny_config import tiny_config

from bert_tf.modeling.bert import BertModel
from bert_tf.modeling.models import (
    BertForMultipleChoice,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from reference import numpy_bert

B, S, K, P, LABELS = 3, 7, 4, 2, 5
CONFIG = tiny_config()


def batch(shape=(B, S), seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, shape[-1] + 1, size=(*shape[:-1], 1))
    return {
        "input_ids": rng.integers(0, CONFIG.vocab_size, shape).astype("int32"),
        "input_mask": (np.arange(shape[-1]) < lengths).astype("int32"),
        "segment_ids": rng.integers(0, 2, shape).astype("int32"),
    }


def filled(model, heads=(), config=CONFIG, num_labels=LABELS):
    """`model` with random weights, and the same weights by name."""
    variables = numpy_bert.random_variables(config, seed=1, heads=heads, num_labels=num_labels)
    for variable in model.weights:
        if variable.path in variables:
            variable.assign(variables[variable.path])
    return model, variables


def encode(variables, inputs, config=CONFIG):
    return numpy_bert.encode(config, variables, *inputs.values())


def assert_close(found, expected, atol=1e-5):
    np.testing.assert_allclose(np.asarray(found, np.float64), expected, rtol=0, atol=atol)


def test_every_output_of_the_encoder_equals_the_numpy_bert():
    for config in (
        tiny_config(num_hidden_layers=3),
        *(tiny_config(hidden_act=name) for name in ("gelu_erf", "relu", "tanh", "linear")),
        tiny_config(attention_direction="left_to_right"),
    ):
        model, variables = filled(BertModel(config, output_attentions=True), config=config)
        inputs = batch()
        found, expected = model(inputs), encode(variables, inputs, config)
        for name in ("embedding_output", "sequence_output", "pooled_output"):
            assert_close(found[name], getattr(expected, name))
        for name in ("all_encoder_layers", "attention_probs"):
            assert_close(np.stack(found[name]), np.stack(getattr(expected, name)))


def test_masked_lm_and_next_sentence_logits_equal_the_numpy_bert():
    heads = ("masked_lm", "next_sentence")
    model, variables = filled(BertForPreTraining(CONFIG), heads)
    inputs, positions = batch(), np.array([[1, 4], [0, 6], [3, 3]], "int32")
    found = model({**inputs, "masked_lm_positions": positions})
    encoded = encode(variables, inputs)
    masked_lm = numpy_bert.masked_lm_logits(CONFIG, variables, encoded.sequence_output, positions)
    assert_close(found["masked_lm_logits"], masked_lm)
    next_sentence = numpy_bert.next_sentence_logits(variables, encoded.pooled_output)
    assert_close(found["next_sentence_logits"], next_sentence)


def test_labels_of_sentences_and_tokens_equal_the_numpy_bert():
    inputs = batch()
    model, variables = filled(BertForSequenceClassification(CONFIG, LABELS), ["classifier"])
    expected = numpy_bert.classifier_logits(variables, encode(variables, inputs).pooled_output)
    assert_close(model(inputs)["logits"], expected)
    model, variables = filled(BertForTokenClassification(CONFIG, LABELS), ["token_classifier"])
    sequence_output = encode(variables, inputs).sequence_output
    expected = numpy_bert.token_classifier_logits(variables, sequence_output)
    assert_close(model(inputs)["logits"], expected)


def test_spans_and_choices_equal_the_numpy_bert():
    inputs = batch()
    model, variables = filled(BertForQuestionAnswering(CONFIG), ["span"])
    start, end = numpy_bert.span_logits(variables, encode(variables, inputs).sequence_output)
    found = model(inputs)
    assert_close(found["start_logits"], start)
    assert_close(found["end_logits"], end)
    model, variables = filled(BertForMultipleChoice(CONFIG), ["multiple_choice"])
    inputs = batch((B, K, S))
    expected = numpy_bert.multiple_choice_logits(CONFIG, variables, *inputs.values())
    assert_close(model(inputs)["logits"], expected)


MODELS = {
    BertModel: ((), ()),
    BertForPreTraining: ((), ("masked_lm", "next_sentence")),
    BertForSequenceClassification: ((LABELS,), ("classifier",)),
    BertForTokenClassification: ((LABELS,), ("token_classifier",)),
    BertForQuestionAnswering: ((), ("span",)),
    BertForMultipleChoice: ((), None),  # the oracle leaves out its bias
}


def test_variable_paths_and_shapes_are_those_of_the_tf1_checkpoints():
    for model_class, (arguments, heads) in MODELS.items():
        if heads is None:
            continue
        shapes = numpy_bert.variable_shapes(CONFIG, heads, num_labels=LABELS)
        model = model_class(CONFIG, *arguments)
        assert {variable.path: tuple(variable.shape) for variable in model.weights} == shapes


def test_a_mask_of_three_dimensions_says_who_may_attend_to_whom():
    model, _ = filled(BertModel(CONFIG, output_attentions=True))
    left_to_right = np.tril(np.ones((B, S, S), "int32"))
    inputs = batch() | {"input_mask": left_to_right}
    for probabilities in model(inputs)["attention_probs"]:
        above = np.triu_indices(S, k=1)
        assert np.asarray(probabilities)[..., above[0], above[1]].max() == 0.0


def test_any_batch_and_length_up_to_the_position_table_is_taken():
    model, variables = filled(BertModel(CONFIG))
    for shape in ((1, 1), (2, CONFIG.max_position_embeddings)):  # without a mask and segments
        input_ids = batch(shape)["input_ids"] % 22 + 1
        expected = numpy_bert.encode(CONFIG, variables, input_ids)
        assert_close(model({"input_ids": input_ids})["sequence_output"], expected.sequence_output)
    with pytest.raises(ValueError, match="max_position_embeddings"):
        model(batch((1, CONFIG.max_position_embeddings + 1)))


@pytest.mark.parametrize("precision, atol", [("mixed_bfloat16", 0.1), ("mixed_float16", 0.02)])
def test_half_precision_keeps_float32_weights_and_logits_and_stays_near(precision, atol):
    model, variables = filled(
        BertForSequenceClassification(CONFIG, LABELS, dtype=precision), ["classifier"]
    )
    assert {variable.dtype for variable in model.weights} == {"float32"}
    computed = keras.backend.standardize_dtype(model.bert(batch())["sequence_output"].dtype)
    assert computed == precision.removeprefix("mixed_")
    found = model(batch())["logits"]
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    expected = numpy_bert.classifier_logits(variables, encode(variables, batch()).pooled_output)
    assert_close(found, expected, atol)


def test_layer_norm_is_computed_in_float32_under_float16():
    # A variance of 4e-10 is 0 in float16, so a float16 LayerNorm would return zeros or infinities.
    model = BertModel(CONFIG, dtype="mixed_float16")
    table = model.embeddings.word_embeddings
    table.assign(np.random.default_rng(0).normal(size=table.shape) * 2e-5)
    for other in (model.embeddings.token_type_embeddings, model.embeddings.position_embeddings):
        other.assign(np.zeros(other.shape))
    outputs = np.asarray(model({"input_ids": np.array([[3, 4]])})["embedding_output"], np.float32)
    np.testing.assert_allclose(outputs.std(axis=-1), 1.0, atol=0.02)


def test_a_saved_keras_file_gives_the_same_model_back(tmp_path):
    for model_class, (arguments, _) in MODELS.items():
        model = model_class(CONFIG, *arguments, dtype="mixed_bfloat16")
        model.save(tmp_path / "model.keras")
        loaded = keras.saving.load_model(tmp_path / "model.keras")
        assert type(loaded) is model_class
        assert (loaded.config, loaded.dtype_policy) == (CONFIG, model.dtype_policy)
        for first, second in zip(model.weights, loaded.weights, strict=True):
            assert first.path == second.path
            np.testing.assert_array_equal(first.numpy(), second.numpy())


def test_initial_weights_are_a_truncated_normal_zeros_and_ones():
    model = BertForPreTraining(tiny_config(vocab_size=999, initializer_range=0.05))
    for variable in model.weights:
        values = variable.numpy()
        if variable.path.endswith(("bias", "beta")):
            assert not values.any(), variable.path
        elif variable.path.endswith("gamma"):
            assert (values == 1).all()
        else:
            assert np.abs(values).max() <= 0.1 + 1e-6, variable.path  # two standard deviations
    words = model.bert.embeddings.word_embeddings.numpy()
    assert words.std() == pytest.approx(0.05 * 0.8796, rel=0.02)  # of a normal cut at 2 sigma
