"""The feature-based model: which layers it reads, and that the encoder never changes."""

import keras
import numpy as np
import pytest

from bert_tf.config import BertConfig
from bert_tf.modeling.feature_based import (
    FEATURE_LAYERS,
    BertBiLstmForTokenClassification,
    LayerFeatures,
    check_feature_layers,
)

B, S, H, L, N = 3, 7, 8, 5, 6  # N layers


def config(num_hidden_layers=N) -> BertConfig:
    return BertConfig(
        vocab_size=29,
        hidden_size=H,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=11,
        type_vocab_size=2,
        hidden_dropout_prob=0.5,
        attention_probs_dropout_prob=0.5,
    )


def model(feature_layers="last_hidden", **kwargs):
    return BertBiLstmForTokenClassification(config(), L, feature_layers, units=4, **kwargs)


def inputs(seed=0):
    rng = np.random.default_rng(seed)
    lengths = np.array([S, 4, 2])
    return {
        "input_ids": rng.integers(29, size=(B, S)).astype("int32"),
        "input_mask": (np.arange(S) < lengths[:, None]).astype("int32"),
        "segment_ids": np.zeros((B, S), "int32"),
    }


def random_outputs():
    rng = np.random.default_rng(0)
    layers = [rng.normal(size=(B, S, H)).astype("float32") for _ in range(N)]
    return {"embedding_output": layers[0] + 1, "all_encoder_layers": layers}


def expected_features(name, outputs):
    layers = outputs["all_encoder_layers"]
    return {
        "embeddings": outputs["embedding_output"],
        "second_to_last_hidden": layers[4],
        "last_hidden": layers[5],
        "weighted_sum_last_four_hidden": (layers[2] + layers[3] + layers[4] + layers[5]) / 4,
        "concat_last_four_hidden": np.concatenate(layers[2:], axis=-1),
        "weighted_sum_all_layers": sum(layers) / 6,  # as long as nothing is learned
    }[name]


@pytest.mark.parametrize("name", FEATURE_LAYERS)
def test_each_choice_of_table_7_reads_its_layers_of_a_model_with_six(name):
    outputs = random_outputs()
    found = LayerFeatures(name, N)(outputs)
    np.testing.assert_allclose(found, expected_features(name, outputs), atol=1e-6)


def test_a_weighted_sum_is_gamma_times_the_softmax_of_its_weights():
    layer = LayerFeatures("weighted_sum_last_four_hidden", N)
    layer.build()
    layer.layer_weights.assign(np.log([1.0, 2.0, 3.0, 4.0]))
    layer.gamma.assign(5.0)
    outputs = random_outputs()
    parts = outputs["all_encoder_layers"][2:]
    expected = 0.5 * (parts[0] + 2 * parts[1] + 3 * parts[2] + 4 * parts[3])
    np.testing.assert_allclose(layer(outputs), expected, rtol=1e-4, atol=1e-5)


def test_layers_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match="feature_layers"):
        check_feature_layers("concat_last_four_hidden", 3)


@pytest.mark.weekly_cases(
    "embeddings", "second_to_last_hidden", "last_hidden", "weighted_sum_last_four_hidden"
)
@pytest.mark.parametrize("name", FEATURE_LAYERS)
def test_padding_cannot_be_seen(name):
    built, full = model(name), inputs()
    logits = built(full)["logits"]
    assert logits.shape == (B, S, L)
    short = {key: value[1:, :4] for key, value in full.items()}
    found = built(short)["logits"]
    np.testing.assert_allclose(found[0], logits[1, :4], atol=1e-5)
    np.testing.assert_allclose(found[1, :2], logits[2, :2], atol=1e-5)


def test_the_encoder_is_not_trained_and_its_dropout_is_never_on():
    built = model(dropout=0.0)
    trained = {v.path.split("/")[0] for v in built.trainable_variables}
    assert trained == {"bilstm_0", "bilstm_1", "classifier"}
    assert len(built.weights) == len({v.path for v in built.weights})
    first, second = (built(inputs(), training=True)["logits"] for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_a_saved_model_is_the_same_and_still_frozen(tmp_path):
    built = model("weighted_sum_all_layers")
    built.save(tmp_path / "a.keras")
    loaded = keras.models.load_model(tmp_path / "a.keras")
    np.testing.assert_allclose(loaded(inputs())["logits"], built(inputs())["logits"], atol=1e-6)
    assert [v.path for v in loaded.trainable_variables] == [
        v.path for v in built.trainable_variables
    ]
