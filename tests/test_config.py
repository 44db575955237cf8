"""BertConfig: what it accepts, what it refuses, and that writing and reading is the identity."""

import dataclasses
import json

import numpy as np
import pytest

from bert_tf.config import BertConfig

# The file beside the published uncased base model.
PUBLISHED = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "type_vocab_size": 2,
    "vocab_size": 30522,
}
# Keys that the published Chinese and multilingual models have besides.
POOLER = {"directionality": "bidi", "pooler_fc_size": 768, "pooler_type": "first_token_transform"}


def test_the_published_base_model_is_the_named_size_base():
    assert BertConfig.from_dict(PUBLISHED) == BertConfig.from_name("base", vocab_size=30522)


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "heads", "intermediate"),
    [
        ("tiny", 2, 128, 2, 512),
        ("mini", 4, 256, 4, 1024),
        ("small", 4, 512, 8, 2048),
        ("medium", 8, 512, 8, 2048),
        ("base", 12, 768, 12, 3072),
        ("large", 24, 1024, 16, 4096),
    ],
)
def test_named_sizes_are_those_of_the_paper_and_the_reference(
    name, layers, hidden, heads, intermediate
):
    config = BertConfig.from_name(name, vocab_size=11)
    found = (config.num_hidden_layers, config.hidden_size, config.num_attention_heads)
    assert found == (layers, hidden, heads)
    assert (config.intermediate_size, config.size_per_head) == (intermediate, 64)


def test_the_default_of_type_vocab_size_is_the_references_16():
    assert BertConfig(vocab_size=11).type_vocab_size == 16


def test_write_then_read_is_the_identity_and_keeps_public_extra_keys(tmp_path):
    config = BertConfig.from_dict(PUBLISHED | POOLER)
    config.to_json_file(tmp_path / "bert_config.json")
    assert json.loads((tmp_path / "bert_config.json").read_text()) == PUBLISHED | POOLER
    assert BertConfig.from_json_file(tmp_path / "bert_config.json") == config
    assert [path.name for path in tmp_path.iterdir()] == ["bert_config.json"]


def test_an_unusual_epsilon_is_written_down():
    config = BertConfig(vocab_size=11, layer_norm_eps=1e-5)
    assert config.to_dict()["layer_norm_eps"] == 1e-5
    assert "layer_norm_eps" not in BertConfig(vocab_size=11).to_dict()


def test_a_left_to_right_model_is_written_down():
    config = BertConfig(vocab_size=11, attention_direction="left_to_right")
    assert config.to_dict()["attention_direction"] == "left_to_right"
    assert BertConfig.from_dict(config.to_dict()) == config
    assert "attention_direction" not in BertConfig(vocab_size=11).to_dict()


def test_gelu_of_hugging_face_is_the_exact_form_and_gelu_new_the_tanh_form():
    assert BertConfig.from_dict(PUBLISHED).hidden_act == "gelu"
    assert BertConfig.from_dict(PUBLISHED | {"model_type": "bert"}).hidden_act == "gelu_erf"
    new = PUBLISHED | {"model_type": "bert", "hidden_act": "gelu_new"}
    assert BertConfig.from_dict(new).hidden_act == "gelu"


def test_settings_that_old_transformers_wrote_everywhere_are_no_typos():
    old = PUBLISHED | {"num_beams": 1, "top_k": 50, "torchscript": False, "xla_device": None}
    assert BertConfig.from_dict(old).hidden_act == "gelu_erf"


def test_unknown_keys_of_a_hugging_face_file_are_not_used():
    theirs = PUBLISHED | {"model_type": "bert", "unsloth_fixed": True}
    config = BertConfig.from_dict(theirs)
    assert config.extra["unsloth_fixed"] is True
    assert "unsloth_fixed" not in config.to_dict()
    with pytest.raises(ValueError, match="quantization_config"):
        BertConfig.from_dict(theirs | {"quantization_config": {"bits": 4}})


def test_a_config_from_hugging_face_survives_our_own_file():
    config = BertConfig.from_dict(PUBLISHED | {"architectures": ["BertModel"]})
    assert BertConfig.from_dict(config.to_dict()) == config


def test_a_typo_is_an_error_with_a_suggestion():
    with pytest.raises(ValueError, match="hiden_size"):
        BertConfig.from_dict({"vocab_size": 11, "hiden_size": 8})


def test_whole_numbers_of_numpy_become_those_of_python():
    plain = BertConfig(vocab_size=11, hidden_size=8, num_attention_heads=2, num_bilstm_layers=1)
    sizes = {name: np.int64(getattr(plain, name)) for name in ("vocab_size", "num_bilstm_layers")}
    config = dataclasses.replace(plain, **sizes)
    assert config == plain
    assert config.to_json_string() == plain.to_json_string()


@pytest.mark.parametrize(
    "changes",
    [
        {"num_attention_heads": 7},
        {"vocab_size": 0},
        {"num_hidden_layers": True},
        {"hidden_size": "8"},
        {"hidden_dropout_prob": 1.0},
        {"hidden_dropout_prob": float("nan")},
        {"layer_norm_eps": float("inf")},
        {"initializer_range": 0},
        {"hidden_act": "swish"},
        {"attention_direction": "ltr"},
        {"model_type": "roberta"},
        {"position_embedding_type": "relative_key"},
        {"is_decoder": True},
        {"model_type": "bert", "hidden_act": "silu"},
    ],
)
def test_values_out_of_range_and_other_architectures_are_refused(changes):
    with pytest.raises(ValueError, match=list(changes)[-1]):
        BertConfig.from_dict(PUBLISHED | changes)


@pytest.mark.parametrize("text", ["{", "[1]", '{"hidden_size": 8}', "[" * 100_000])
def test_errors_name_the_file(tmp_path, text):
    path = tmp_path / "bert_config.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"bert_config\.json"):
        BertConfig.from_json_file(path)


def test_a_byte_order_mark_does_no_harm(tmp_path):
    path = tmp_path / "bert_config.json"
    path.write_text(json.dumps(PUBLISHED), encoding="utf-8-sig")
    assert BertConfig.from_json_file(path).vocab_size == 30522


def test_configs_are_frozen_and_can_be_keys():
    config = BertConfig(vocab_size=11)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.vocab_size = 12
    assert {config: 1}[BertConfig(vocab_size=11)] == 1
