"""BertConfig: what it accepts, what it refuses, and that writing and reading is the identity."""

import json

import pytest
from helpers import cause_of

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


def test_from_dict_of_the_published_base_model_is_base():
    assert BertConfig.from_dict(PUBLISHED) == BertConfig.from_name("base", vocab_size=30522)


def test_from_name_has_the_sizes_of_the_paper_and_the_reference():
    for name, *sizes in (
        ("tiny", 2, 128, 2, 512),
        ("mini", 4, 256, 4, 1024),
        ("small", 4, 512, 8, 2048),
        ("medium", 8, 512, 8, 2048),
        ("base", 12, 768, 12, 3072),
        ("large", 24, 1024, 16, 4096),
    ):
        config = BertConfig.from_name(name, vocab_size=11)
        found = (config.num_hidden_layers, config.hidden_size, config.num_attention_heads)
        assert [*found, config.intermediate_size] == sizes
        assert config.size_per_head == 64


def test_from_json_file_gives_what_was_written(tmp_path):
    path = tmp_path / "bert_config.json"
    config = BertConfig.from_dict(PUBLISHED | POOLER)
    config.to_json_file(path)
    assert json.loads(path.read_text()) == PUBLISHED | POOLER
    assert BertConfig.from_json_file(path) == config
    assert [each.name for each in tmp_path.iterdir()] == ["bert_config.json"]
    path.write_text(json.dumps(PUBLISHED), encoding="utf-8-sig")
    assert BertConfig.from_json_file(path) == BertConfig.from_dict(PUBLISHED)


def test_to_dict_has_only_unusual_settings_of_ours():
    plain = BertConfig(vocab_size=11)
    assert plain.type_vocab_size == 16  # the reference's default
    for name, value in (("layer_norm_eps", 1e-5), ("attention_direction", "left_to_right")):
        config = BertConfig(vocab_size=11, **{name: value})
        assert config.to_dict()[name] == value
        assert BertConfig.from_dict(config.to_dict()) == config
        assert name not in plain.to_dict()


def test_hidden_act_of_hugging_face_is_the_exact_form():
    for changes, expected in (
        ({}, "gelu"),
        ({"model_type": "bert"}, "gelu_erf"),
        ({"model_type": "bert", "hidden_act": "gelu_new"}, "gelu"),
        # what old versions of transformers wrote everywhere
        ({"num_beams": 1, "top_k": 50, "torchscript": False, "xla_device": None}, "gelu_erf"),
    ):
        assert BertConfig.from_dict(PUBLISHED | changes).hidden_act == expected


def test_from_dict_of_hugging_face_keeps_unknown_keys():
    theirs = PUBLISHED | {"model_type": "bert", "unsloth_fixed": True}
    config = BertConfig.from_dict(theirs)
    assert config.extra["unsloth_fixed"] is True
    assert "unsloth_fixed" not in config.to_dict()
    config = BertConfig.from_dict(PUBLISHED | {"architectures": ["BertModel"]})
    assert BertConfig.from_dict(config.to_dict()) == config


def test_from_dict_refuses_values_by_name():
    for changes in (
        {"num_attention_heads": 7},
        {"vocab_size": 0},
        {"num_hidden_layers": True},
        {"hidden_size": "8"},
        {"hidden_dropout_prob": 1.0},
        {"hidden_dropout_prob": float("nan")},
        {"layer_norm_eps": float("inf")},
        {"initializer_range": 0},
        {"hidden_act": "swish"},
        {"hiden_size": 8},
        {"attention_direction": "ltr"},
        {"model_type": "roberta"},
        {"position_embedding_type": "relative_key"},
        {"is_decoder": True},
        {"model_type": "bert", "hidden_act": "silu"},
        {"model_type": "bert", "quantization_config": {"bits": 4}},
    ):
        with pytest.raises(ValueError, match=list(changes)[-1]):
            BertConfig.from_dict(PUBLISHED | changes)


def test_from_json_file_names_the_file(tmp_path):
    path = tmp_path / "bert_config.json"
    for text in ("{", "[1]", '{"hidden_size": 8}', "[" * 100_000):
        path.write_text(text)
        assert cause_of(BertConfig.from_json_file, path) == str(path)
