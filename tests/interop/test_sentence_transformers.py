"""Folders of sentence-transformers: which settings are read, and which folders are refused."""

import json

import numpy as np
import pytest
from test_pretrained import CONFIG, TOKENS

import bert_tf
from bert_tf import BertForSentenceEmbedding, BertForSequenceClassification
from bert_tf.interop.sentence_transformers import (
    cross_encoder_settings,
    embedding_settings,
)
from bert_tf.interop.tokenizer_files import stated_length
from bert_tf.model_folder import load_model
from bert_tf.modeling.bert import BertModel
from bert_tf.prediction.encoder import SentenceEncoder
from bert_tf.programs.convert_checkpoint import convert
from bert_tf.programs.export_saved_model import ExportOptions, load_served
from bert_tf.tokenization import FullTokenizer

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
    assert embedding_settings(folder) == {"normalize": False, "pooling": "cls"}
    assert stated_length(folder) == 64
    config = {"prompts": {"query": "q: ", "passage": "p: "}}
    kinds = ["Transformer", "Pooling", "Dense", "Normalize"]
    folder = folder_with(tmp_path, kinds, {"pooling_mode": "max"}, LINEAR, config)
    assert embedding_settings(folder) == {
        "normalize": True,
        "pooling": "max",
        "projection_size": 4,
        "query_prefix": "q: ",
        "document_prefix": "p: ",
    }


def test_the_default_prompt_is_a_prefix_where_there_is_no_other(tmp_path):
    config = {"prompts": {"query": "q: ", "s": "s: "}, "default_prompt_name": "s"}
    found = embedding_settings(folder_with(tmp_path, ["Transformer", "Pooling"], CLS, None, config))
    assert (found["query_prefix"], found["document_prefix"]) == ("q: ", "s: ")


def test_an_empty_prompt_is_a_prefix_too(tmp_path):
    config = {"prompts": {"document": "", "passage": "p: ", "s": "s: "}, "default_prompt_name": "s"}
    found = embedding_settings(folder_with(tmp_path, ["Transformer", "Pooling"], CLS, None, config))
    assert (found["query_prefix"], found["document_prefix"]) == ("s: ", "")


@pytest.mark.parametrize(
    ("of_theirs", "of_tokenizer", "length"),
    [(64, 512, 64), (None, 256, 256), (None, 10**30, None), (None, None, None)],
)
def test_the_longest_input_is_stated_by_one_of_two_files(tmp_path, of_theirs, of_tokenizer, length):
    values = {"max_seq_length": of_theirs}
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps(values))
    values = {"model_max_length": of_tokenizer}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(values))
    assert stated_length(str(tmp_path)) == length


def test_a_cross_encoder_is_known_by_its_files(tmp_path):
    folder = str(tmp_path)
    assert cross_encoder_settings(folder, {}) is None
    oldest = {"sbert_ce_default_activation_function": "Sigmoid"}
    assert cross_encoder_settings(folder, oldest) == {"activation_fn": "Sigmoid"}
    older = {"sentence_transformers": {"version": "4.1.0"}}
    assert cross_encoder_settings(folder, older) == {"activation_fn": None}
    folder_with(tmp_path, ["Transformer"], config={"model_type": "SentenceTransformer"})
    assert cross_encoder_settings(folder, {}) is None
    config = {"model_type": "CrossEncoder", "activation_fn": "Identity"}
    folder_with(tmp_path, ["Transformer"], config=config)
    assert cross_encoder_settings(folder, oldest) == {"activation_fn": "Identity"}


@pytest.mark.parametrize(
    "activation, stated, key",
    [
        ("torch.nn.modules.activation.Sigmoid", None, "labels"),
        ("torch.nn.modules.activation.Sigmoid", "single_label_classification", "label"),
        ("torch.nn.modules.activation.LogSigmoid", None, "label"),
        ("torch.nn.modules.linear.Identity", None, "label"),
    ],
)
def test_a_cross_encoder_of_labels_with_a_sigmoid_is_multi_label(tmp_path, activation, stated, key):
    folder, there = tmp_path / "whole", tmp_path / "there"
    model = BertForSequenceClassification(CONFIG, num_labels=3)
    model.save_pretrained(folder, FullTokenizer(TOKENS))
    (folder / "task.json").unlink(missing_ok=True)
    values = json.loads((folder / "config.json").read_text())
    values |= {"problem_type": stated, "sentence_transformers": {"activation_fn": activation}}
    (folder / "config.json").write_text(json.dumps(values))
    convert(folder, there)
    for path in (folder, there):
        answer = bert_tf.load(path).predict([("a", "b")])[0]
        exp = np.exp(model(FullTokenizer(TOKENS)(["a"], ["b"]))["logits"][0])
        expected = exp / (1 + exp) if key == "labels" else exp / exp.sum()
        np.testing.assert_allclose(list(answer["probabilities"].values()), expected, atol=1e-6)
        assert key in answer


@pytest.mark.weekly_cases("None-tf1", "3-huggingface")
@pytest.mark.parametrize("format", ["huggingface", "tf1"])
@pytest.mark.parametrize("projection_size", [None, 3])
def test_an_embedder_keeps_its_pooling_and_projection(tmp_path, format, projection_size):
    model = BertForSentenceEmbedding(CONFIG, "cls", projection_size)
    tokenizer = FullTokenizer(TOKENS)
    model.save_pretrained(tmp_path / "saved", tokenizer, format=format)
    expected = model(tokenizer("a b"))["embedding"].numpy()
    found = BertForSentenceEmbedding.from_pretrained(tmp_path / "saved")
    assert (found.pooling, found.projection_size) == ("cls", projection_size)
    np.testing.assert_allclose(found(tokenizer("a b"))["embedding"], expected, rtol=1e-6, atol=1e-7)
    vector = bert_tf.load(tmp_path / "saved").embed("a b")
    np.testing.assert_allclose(vector, expected / np.linalg.norm(expected), rtol=1e-5, atol=1e-6)
    other = BertForSentenceEmbedding.from_pretrained(tmp_path / "saved", pooling="mean")
    assert (other.pooling, other.projection_size) == ("mean", projection_size)


def test_an_encoder_with_usual_pooling_keeps_its_length(tmp_path):
    tokenizer = FullTokenizer(TOKENS)
    BertModel(CONFIG).save_pretrained(tmp_path / "whole", tokenizer)
    assert load_model(str(tmp_path / "whole")).max_seq_length == CONFIG.max_position_embeddings
    folder = tmp_path / "whole"
    folder_with(folder, ["Transformer", "Pooling", "Normalize"], {"pooling_mode": "mean"})
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 6}))
    trained = load_model(str(folder))
    assert (trained.task, trained.max_seq_length) == (None, 6)
    vectors = SentenceEncoder(trained).encode(["a b a b a b", "a b a b"])
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
    served = load_served(ExportOptions(model_dir=str(folder), export_dir="unused"), "float32", True)
    assert served.max_seq_length == 6


def test_a_converted_embedder_keeps_its_modules(tmp_path, caplog):
    folder, there = tmp_path / "whole", tmp_path / "there"
    BertModel(CONFIG).save_pretrained(folder, FullTokenizer(TOKENS))
    config = {"prompts": {"query": "a ", "document": "b ", "topics": "c "}}
    folder_with(folder, ["Transformer", "Pooling"], CLS, config=config)
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 6}))
    convert(folder, there)
    assert embedding_settings(str(there)) == embedding_settings(str(folder))
    assert stated_length(str(there)) == load_model(str(there)).task.max_seq_length == 6
    card = (there / "README.md").read_text()
    assert "library_name: sentence-transformers" in card and "as_query=True" in card
    assert "'topics'" in caplog.text
    with pytest.raises(ValueError, match="max_seq_length"):
        convert(folder, tmp_path / "long", max_seq_length=4000)
    assert not (tmp_path / "long").exists()
    folder_with(folder, ["Transformer", "Pooling", "LSTM"], CLS)
    with pytest.raises(ValueError, match=r"LSTM"):
        convert(folder, tmp_path / "other")
    convert(folder, tmp_path / "encoder", head="encoder")
    assert not (tmp_path / "encoder" / "modules.json").exists()


@pytest.mark.parametrize("file", ["1_Pooling/config.json", "config_sentence_transformers.json"])
def test_a_folder_without_its_list_of_modules_is_refused(tmp_path, file):
    folder = tmp_path / "whole"
    BertModel(CONFIG).save_pretrained(folder, FullTokenizer(TOKENS))
    parts = {"pooling": CLS} if "Pooling" in file else {"config": {"prompts": {"query": "a "}}}
    folder_with(folder, ["Transformer", "Pooling"], **parts)
    (folder / "modules.json").unlink()
    message = rf"{file}, but no modules.json"
    with pytest.raises(ValueError, match=message):
        bert_tf.load(str(folder)).embed(["a"])
    with pytest.raises(ValueError, match=rf"{message}"):
        convert(folder, tmp_path / "there")
    assert bert_tf.load(str(folder)).embed(["a"], pooling="mean").shape == (1, CONFIG.hidden_size)


def test_a_prompt_of_a_cross_encoder_is_refused(tmp_path):
    config = {"model_type": "CrossEncoder", "prompts": {"q": "Q: "}, "default_prompt_name": "q"}
    folder = folder_with(tmp_path, ["Transformer"], config=config)
    with pytest.raises(ValueError, match="default_prompt_name"):
        cross_encoder_settings(folder, {})


def test_modules_of_the_folder_above_belong_to_the_transformer_that_they_name(tmp_path):
    folder_with(tmp_path, ["Transformer", "Pooling"], CLS)
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    assert embedding_settings(str(tmp_path / "0_Transformer"))["pooling"] == "cls"
    assert embedding_settings(str(tmp_path / "another")) is None


@pytest.mark.parametrize(
    ("kinds", "pooling", "dense", "config", "message"),
    [
        (["Normalize", "Dense"], CLS, LINEAR, None, "Normalize, Dense"),
        (["Dense", "Dense"], CLS, LINEAR, None, "Dense, Dense"),
        (["LSTM"], CLS, None, None, "LSTM"),
        ([], None, None, None, r"1_Pooling/config\.json"),
        ([], CLS, None, {"truncate_dim": 64}, "truncate_dim"),
        ([], {**CLS, "pooling_mode_max_tokens": True}, None, None, r"cls\+max"),
        ([], {**CLS, "include_prompt": False}, None, None, "include_prompt"),
        (["Dense"], CLS, {**LINEAR, "activation_function": "x.Tanh"}, None, "Tanh"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path, kinds, pooling, dense, config, message):
    folder = folder_with(tmp_path, ["Transformer", "Pooling", *kinds], pooling, dense, config)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        embedding_settings(folder)
