"""Folders of sentence-transformers: which settings are read, and which folders are refused."""

import json

import pytest

from bert_tf.interop.sentence_transformers import embedding_settings

TYPES = "sentence_transformers.models."


def folder_with(tmp_path, kinds, pooling=None, dense=None, config=None):
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": TYPES + kind}
        for i, kind in enumerate(kinds)
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    for name, values in (
        ("1_Pooling/config.json", pooling),
        ("2_Dense/config.json", dense),
        ("config_sentence_transformers.json", config),
        ("sentence_bert_config.json", {"max_seq_length": 64}),
    ):
        if values is not None:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(json.dumps(values))
    return str(tmp_path)


CLS = {"word_embedding_dimension": 8, "pooling_mode_cls_token": True}
LINEAR = {"out_features": 4, "activation_function": "torch.nn.modules.linear.Identity"}


def test_the_settings_of_old_and_new_folders_are_read(tmp_path):
    folder = folder_with(tmp_path, ["Transformer", "Pooling"], CLS)
    assert embedding_settings(folder) == {
        "normalize": False,
        "pooling": "cls",
        "max_seq_length": 64,
    }
    config = {"prompts": {"query": "q: ", "passage": "p: "}}
    kinds = ["Transformer", "Pooling", "Dense", "Normalize"]
    folder = folder_with(tmp_path, kinds, {"pooling_mode": "max"}, LINEAR, config)
    assert embedding_settings(folder) == {
        "normalize": True,
        "pooling": "max",
        "projection_size": 4,
        "query_prefix": "q: ",
        "document_prefix": "p: ",
        "max_seq_length": 64,
    }


def test_the_default_prompt_is_a_prefix_where_there_is_no_other(tmp_path):
    config = {"prompts": {"query": "q: ", "s": "s: "}, "default_prompt_name": "s"}
    found = embedding_settings(folder_with(tmp_path, ["Transformer", "Pooling"], CLS, None, config))
    assert (found["query_prefix"], found["document_prefix"]) == ("q: ", "s: ")


def test_vectors_that_are_cut_are_refused(tmp_path):
    folder = folder_with(tmp_path, ["Transformer", "Pooling"], CLS, None, {"truncate_dim": 64})
    with pytest.raises(ValueError, match="`truncate_dim` is 64, but vectors are not cut here"):
        embedding_settings(folder)


def test_another_folder_and_a_cross_encoder_have_no_settings(tmp_path):
    assert embedding_settings(str(tmp_path)) is None
    assert embedding_settings(folder_with(tmp_path, ["Transformer"])) is None


@pytest.mark.parametrize(
    ("kinds", "pooling", "dense", "message"),
    [
        (["Transformer", "Pooling", "Normalize", "Dense"], CLS, LINEAR, "modules Transformer, Poo"),
        (["Transformer", "Pooling", "Dense", "Dense"], CLS, LINEAR, "Dense, Dense are not support"),
        (["Transformer", "Pooling", "LSTM"], CLS, None, "LSTM are not supported"),
        (["Transformer", "Normalize"], None, None, "must be Transformer and Pooling"),
        (["Transformer", "Pooling"], None, None, "is missing, so the pooling is unknown"),
        (
            ["Transformer", "Pooling"],
            {**CLS, "pooling_mode_max_tokens": True},
            None,
            r"the pooling 'cls\+max' is not supported",
        ),
        (["Transformer", "Pooling"], {**CLS, "include_prompt": False}, None, "include_prompt"),
        (
            ["Transformer", "Pooling", "Dense"],
            CLS,
            {**LINEAR, "activation_function": "torch.nn.modules.activation.Tanh"},
            "Tanh, but only a linear layer",
        ),
    ],
)
def test_what_is_not_supported_is_named(tmp_path, kinds, pooling, dense, message):
    with pytest.raises(ValueError, match=message):
        embedding_settings(folder_with(tmp_path, kinds, pooling, dense))
