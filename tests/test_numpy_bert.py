"""The NumPy reference itself, against numbers worked out by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from reference import numpy_bert, optimizer


def tiny_config(**changes):
    fields = dict(
        vocab_size=11,
        hidden_size=6,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=10,
        hidden_act="gelu",
        max_position_embeddings=9,
        type_vocab_size=2,
        layer_norm_eps=1e-12,
    )
    return SimpleNamespace(**{**fields, **changes})


def zeros_like_model(config, heads=(), num_labels=3):
    """All variables 0, gamma 1: every block then only normalizes."""
    shapes = numpy_bert.variable_shapes(config, heads, num_labels)
    return {n: np.full(s, float(n.endswith("gamma"))) for n, s in shapes.items()}


@pytest.mark.parametrize(
    ("activation", "expected"),
    [
        # gelu: Hendrycks & Gimpel's two formulas at -1, 0 and 2, worked out to six places.
        ("gelu", [-0.158808, 0.0, 1.954598]),
        ("gelu_erf", [-0.158655, 0.0, 1.954500]),
        ("relu", [0.0, 0.0, 2.0]),
        ("tanh", [-0.761594, 0.0, 0.964028]),
        ("linear", [-1.0, 0.0, 2.0]),
    ],
)
def test_activation_has_its_literal_values(activation, expected):
    values = numpy_bert.ACTIVATIONS[activation](np.array([-1.0, 0.0, 2.0]))
    np.testing.assert_allclose(values, expected, atol=5e-7)


def test_softmax_of_log_weights_is_the_weights_normalized():
    row = np.log([[1.0, 2.0, 5.0]])
    np.testing.assert_allclose(numpy_bert.softmax(row), [[0.125, 0.25, 0.625]])
    np.testing.assert_allclose(np.exp(numpy_bert.log_softmax(row)), [[0.125, 0.25, 0.625]])


def test_log_softmax_is_finite_where_softmax_is_zero():
    assert numpy_bert.log_softmax(np.array([0.0, -2000.0]))[1] == -2000.0


def test_layer_norm_of_a_row_by_hand():
    # mean 3, variance ((-2)^2 + 0 + 2^2 + 0) / 4 = 2
    row = numpy_bert.layer_norm(np.array([1.0, 3.0, 5.0, 3.0]), np.full(4, 2.0), np.ones(4), 0.0)
    np.testing.assert_allclose(row, [1 - 2 * math.sqrt(2), 1, 1 + 2 * math.sqrt(2), 1])


def test_layer_norm_epsilon_is_added_to_the_variance():
    row = numpy_bert.layer_norm(np.array([-1.0, 1.0]), np.ones(2), np.zeros(2), epsilon=3.0)
    np.testing.assert_allclose(row, [-0.5, 0.5])


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


def test_a_row_of_padding_only_attends_as_if_all_were_real():
    config = tiny_config()
    variables = numpy_bert.random_variables(config, seed=5)
    ids = np.array([[1, 2, 3, 4]])
    masked = numpy_bert.encode(config, variables, ids, np.zeros_like(ids))
    real = numpy_bert.encode(config, variables, ids, np.ones_like(ids))
    np.testing.assert_allclose(masked.pooled_output, real.pooled_output, atol=1e-9)


def test_padding_cannot_be_seen_by_real_tokens():
    config = tiny_config()
    variables = numpy_bert.random_variables(config, seed=1)
    ids, mask = np.array([[3, 4, 5, 0, 0]]), np.array([[1, 1, 1, 0, 0]])
    padded = numpy_bert.encode(config, variables, ids, mask)
    bare = numpy_bert.encode(config, variables, ids[:, :3])
    np.testing.assert_allclose(padded.sequence_output[:, :3], bare.sequence_output, atol=1e-12)
    np.testing.assert_allclose(padded.pooled_output, bare.pooled_output, atol=1e-12)


def test_with_zero_kernels_left_to_right_attention_is_uniform_over_the_tokens_so_far():
    config = tiny_config(attention_direction="left_to_right")
    ids, mask = np.array([[1, 2, 3, 0]]), np.array([[1, 1, 1, 0]])
    probs = numpy_bert.encode(config, zeros_like_model(config), ids, mask).attention_probs[0]
    third = 1 / 3
    rows = [[1, 0, 0, 0], [0.5, 0.5, 0, 0], [third, third, third, 0], [third, third, third, 0]]
    np.testing.assert_allclose(probs, np.broadcast_to(rows, (1, 3, 4, 4)))


def test_left_to_right_the_pooler_stands_on_the_last_real_token():
    config = tiny_config(attention_direction="left_to_right")
    variables = numpy_bert.random_variables(config, seed=2)
    ids, mask = np.array([[3, 4, 5, 0, 0]]), np.array([[1, 1, 1, 0, 0]])
    output = numpy_bert.encode(config, variables, ids, mask)
    kernel, bias = (variables[f"bert/pooler/dense/{name}"] for name in ("kernel", "bias"))
    expected = np.tanh(output.sequence_output[0, 2] @ kernel + bias)
    np.testing.assert_allclose(output.pooled_output[0], expected, rtol=1e-6)


def test_blocks_are_post_layer_norm():
    config = tiny_config()
    variables = numpy_bert.random_variables(config, seed=2)
    variables["bert/encoder/layer_1/output/LayerNorm/gamma"] = np.ones(6)
    variables["bert/encoder/layer_1/output/LayerNorm/beta"] = np.zeros(6)
    rows = numpy_bert.encode(config, variables, [[1, 2, 3]]).sequence_output
    np.testing.assert_allclose(rows.mean(-1), 0.0, atol=1e-12)
    np.testing.assert_allclose((rows**2).mean(-1), 1.0, atol=1e-9)


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


def test_masked_lm_loss_ignores_unused_slots_and_adds_1e_5_to_the_weights():
    log_probs = np.log([[[0.5, 0.5], [0.25, 0.75], [0.9, 0.1]]])
    loss = numpy_bert.masked_lm_loss(log_probs, [[1, 0, 1]], [[1.0, 1.0, 0.0]])
    assert loss == pytest.approx((math.log(2) + math.log(4)) / 2.00001, rel=1e-12)


def test_mean_cross_entropy_of_even_scores_is_the_log_of_their_number():
    loss = numpy_bert.mean_cross_entropy(np.zeros((3, 5)), [0, 4, 2])
    assert loss == pytest.approx(math.log(5))


@pytest.mark.parametrize("scope", ["", "cls/seq_relationship/", "cls/squad/"])
def test_head_weights_are_stored_output_by_input(scope):
    weights = {f"{scope}output_weights": [[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]]}
    weights[f"{scope}output_bias"] = [0.5, -0.5]
    pooled, sequence = np.array([[1.0, 1.0, 2.0]]), np.array([[[1.0, 1.0, 2.0], [0.0, 3.0, 0.0]]])
    if scope == "cls/squad/":
        start, end = numpy_bert.span_logits(weights, sequence)
        np.testing.assert_allclose((start, end), ([[9.5, 6.5]], [[0.5, 2.5]]))
    elif scope == "cls/seq_relationship/":
        logits = numpy_bert.next_sentence_logits(weights, pooled)
        np.testing.assert_allclose(logits, [[9.5, 0.5]])
    else:
        tokens = numpy_bert.token_classifier_logits(weights, sequence)
        np.testing.assert_allclose(tokens, [[[9.5, 0.5], [6.5, 2.5]]])
        np.testing.assert_allclose(numpy_bert.classifier_logits(weights, pooled), tokens[:, 0])


def test_multiple_choice_scores_each_choice_by_itself():
    config = tiny_config()
    variables = numpy_bert.random_variables(config, seed=3, heads=["multiple_choice"])
    rng = np.random.default_rng(4)
    ids = rng.integers(0, 11, (2, 3, 5))
    mask, segments = rng.integers(0, 2, (2, 3, 5)), rng.integers(0, 2, (2, 3, 5))
    logits = numpy_bert.multiple_choice_logits(config, variables, ids, mask, segments)
    alone = numpy_bert.encode(config, variables, ids[1, 2:], mask[1, 2:], segments[1, 2:])
    assert logits.shape == (2, 3)
    assert logits[1, 2] == pytest.approx(
        float(alone.pooled_output[0] @ np.float64(variables["output_weights"][0]))
    )


def test_random_variables_move_every_parameter_away_from_its_start():
    heads = ["masked_lm", "next_sentence", "classifier", "span"]
    variables = numpy_bert.random_variables(tiny_config(), seed=0, heads=heads, num_labels=4)
    assert len(variables) == 5 + 2 * 16 + 2 + 5 + 2 + 2 + 2
    assert variables["output_weights"].shape == (4, 6)
    for name, array in variables.items():
        start = 1.0 if name.endswith("gamma") else 0.0
        assert 0.04 < np.abs(array - start).mean() < 0.8, name
        assert array.dtype == np.float32, name


def test_heads_that_own_the_same_names_are_refused_together():
    with pytest.raises(AssertionError, match="output_weights"):
        numpy_bert.random_variables(tiny_config(), 0, heads=["classifier", "multiple_choice"])


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


@pytest.mark.parametrize(
    ("name", "decays"),
    [
        ("bert/embeddings/word_embeddings", True),
        ("bert/embeddings/LayerNorm/gamma", False),
        ("bert/encoder/layer_0/output/dense/bias", False),
        ("bert/encoder/layer_0/output/dense/kernel", True),
        ("cls/predictions/output_bias", False),
        ("output_weights", True),
    ],
)
def test_weight_decay_is_decided_by_the_name(name, decays):
    assert optimizer.uses_weight_decay(name) is decays
