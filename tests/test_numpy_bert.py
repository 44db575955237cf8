"""The NumPy reference itself, against numbers worked out by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from reference import numpy_bert, optimizer


def tiny_config(**changes):
    fields = dict(vocab_size=11, hidden_size=6, num_hidden_layers=2, num_attention_heads=3)
    fields |= dict(intermediate_size=10, hidden_act="gelu", layer_norm_eps=1e-12)
    fields |= dict(max_position_embeddings=9, type_vocab_size=2)
    return SimpleNamespace(**{**fields, **changes})


def zeros_like_model(config, heads=(), num_labels=3):
    """All variables 0, gamma 1: every block then only normalizes."""
    shapes = numpy_bert.variable_shapes(config, heads, num_labels)
    return {n: np.full(s, float(n.endswith("gamma"))) for n, s in shapes.items()}


def test_embeddings_are_word_plus_segment_plus_position_normalized():
    config = tiny_config(hidden_size=2, num_attention_heads=1, num_hidden_layers=1)
    variables = zeros_like_model(config)
    variables["bert/embeddings/word_embeddings"][7] = [1.0, 0.0]
    variables["bert/embeddings/token_type_embeddings"][1] = [0.0, 5.0]
    variables["bert/embeddings/position_embeddings"][2] = [9.0, 0.0]
    output = numpy_bert.encode(config, variables, [[7, 7, 7]], None, [[0, 1, 1]])
    # Rows before LayerNorm: [1, 0], [1, 5], [10, 5]; of two values it leaves the signs.
    np.testing.assert_allclose(output.embedding_output[0], [[1, -1], [-1, 1], [1, -1]])


def test_with_zero_kernels_attention_is_uniform_over_real_tokens():
    config = tiny_config()
    ids, mask = np.array([[1, 2, 3, 4, 0]]), np.array([[1, 1, 1, 1, 0]])
    probs = numpy_bert.encode(config, zeros_like_model(config), ids, mask).attention_probs
    assert len(probs) == 2 and probs[0].shape == (1, 3, 5, 5)
    np.testing.assert_allclose(probs[1], np.broadcast_to([0.25] * 4 + [0.0], (1, 3, 5, 5)))


def test_attention_scores_are_divided_by_the_root_of_the_size_per_head():
    config = tiny_config(hidden_size=8, num_attention_heads=2, num_hidden_layers=1)
    variables = zeros_like_model(config)
    variables["bert/embeddings/word_embeddings"][3] = [1, -1, 1, -1, 1, -1, 1, -1]
    variables["bert/embeddings/word_embeddings"][4] = [-1, 1, -1, 1, -1, 1, -1, 1]
    variables["bert/encoder/layer_0/attention/self/query/kernel"] = np.eye(8)
    variables["bert/encoder/layer_0/attention/self/key/kernel"] = np.eye(8)
    probs = numpy_bert.encode(config, variables, [[3, 4]]).attention_probs[0]
    # D = 4: the scores are 4 / 2 and -4 / 2, so the odds are e^4.
    np.testing.assert_allclose(probs[0, 0, 0], [1 / (1 + math.exp(-4)), 1 / (1 + math.exp(4))])


def test_pooler_is_the_tanh_of_a_dense_layer_on_the_first_token():
    config = tiny_config()
    variables = zeros_like_model(config)
    variables["bert/pooler/dense/bias"] = np.full(6, 0.5)
    variables["bert/pooler/dense/kernel"][0, 1] = 2.0
    output = numpy_bert.encode(config, variables, [[1, 2, 3], [4, 5, 6]])
    expected = np.full((2, 6), math.tanh(0.5))
    expected[:, 1] = np.tanh(0.5 + 2.0 * output.sequence_output[:, 0, 0])
    np.testing.assert_allclose(output.pooled_output, expected)


def test_masked_lm_scores_are_tied_to_the_embeddings_plus_a_bias():
    config = tiny_config(hidden_size=2, num_attention_heads=1, hidden_act="linear")
    variables = zeros_like_model(config, ["masked_lm"])
    variables["cls/predictions/transform/dense/kernel"] = np.eye(2)
    variables["cls/predictions/output_bias"][8] = 0.25
    variables["bert/embeddings/word_embeddings"][9] = [3.0, 1.0]
    sequence_output = np.array([[[0.0, 0.0], [5.0, 1.0], [1.0, 5.0]]])
    logits = numpy_bert.masked_lm_logits(config, variables, sequence_output, np.array([[2, 1]]))
    # LayerNorm makes [-1, 1] of position 2 and [1, -1] of position 1.
    expected = np.zeros((1, 2, 11))
    expected[0, :, 8], expected[0, :, 9] = 0.25, [-2.0, 2.0]
    np.testing.assert_allclose(logits, expected)


def test_head_weights_are_stored_output_by_input():
    pooled, sequence = np.array([[1.0, 1.0, 2.0]]), np.array([[[1.0, 1.0, 2.0], [0.0, 3.0, 0.0]]])
    weights = {}
    for scope in ("", "cls/seq_relationship/", "cls/squad/"):
        weights[f"{scope}output_weights"] = [[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]]
        weights[f"{scope}output_bias"] = [0.5, -0.5]
    expected = [[[9.5, 0.5], [6.5, 2.5]]]
    np.testing.assert_allclose(
        numpy_bert.span_logits(weights, sequence), np.moveaxis(expected, 2, 0)
    )
    np.testing.assert_allclose(numpy_bert.token_classifier_logits(weights, sequence), expected)
    for logits in (numpy_bert.classifier_logits, numpy_bert.next_sentence_logits):
        np.testing.assert_allclose(logits(weights, pooled), [[9.5, 0.5]])


def test_learning_rate_decays_from_step_zero_under_the_warm_up():
    rates = [optimizer.learning_rate(s, 8.0, 10, num_warmup_steps=4) for s in (0, 1, 3, 4, 5, 10)]
    np.testing.assert_allclose(rates, [0.0, 2.0, 6.0, 4.8, 4.0, 0.0])
    assert optimizer.learning_rate(99, 8.0, 10) == 0.0


def test_clipping_scales_all_gradients_by_one_factor_and_leaves_short_ones_alone():
    clipped, norm = optimizer.clip_by_global_norm({"a": np.array([3.0]), "b": np.array([4.0])})
    assert (norm, clipped["a"], clipped["b"]) == pytest.approx((5.0, 0.6, 0.8))
    kept, norm = optimizer.clip_by_global_norm({"a": np.array([0.5])}, clip_norm=2.0)
    assert (norm, kept["a"].item()) == (0.5, 0.5)


def test_two_adam_updates_by_hand():
    adam = optimizer.AdamWeightDecayOptimizer(0.1, beta_1=0.5, beta_2=0.75, epsilon=1.0)
    first = adam.update({"w": np.array(4.0)}, {"w": np.array(2.0)}, learning_rate=0.5)
    # m = 1, v = 1: 1 / (1 + 1) + 0.1 * 4 = 0.9
    assert first["w"] == pytest.approx(4.0 - 0.5 * 0.9)
    second = adam.update(first, {"w": np.array(0.0)}, learning_rate=1.0)
    # m = 0.5, v = 0.75, w = 3.55
    step = 0.5 / (math.sqrt(0.75) + 1.0) + 0.355
    assert second["w"] == pytest.approx(3.55 - step)
