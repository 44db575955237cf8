"""Folders of sentence-transformers: which settings are read, and which folders are refused."""

import dataclasses
import json

import numpy as np
import pytest
from helpers import cause_of
from tiny_checkpoints import (
    CONFIG,
    arrays_of,
    huggingface_tensors,
    write_huggingface,
    write_json,
)

import bert_tf
from bert_tf import BertForSentenceEmbedding
from bert_tf.checkpoints.read import read_checkpoint
from bert_tf.checkpoints.sentence_transformers import cross_encoder_settings, embedding_settings
from bert_tf.checkpoints.tokenizer_files import read_tokenizer_files
from bert_tf.options import make_options
from bert_tf.prediction.encoder import EmbeddingPredictor
from bert_tf.prediction.loading import load_model
from bert_tf.serving.export_saved_model import ExportOptions, load_served

SMALL = dataclasses.replace(CONFIG, num_hidden_layers=1)
TOKENIZER = bert_tf.FullTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghi"])
TYPES = "sentence_transformers.models."
CLS = {"word_embedding_dimension": 8, "pooling_mode_cls_token": True}
LINEAR = {"out_features": 4, "activation_function": "torch.nn.modules.linear.Identity"}
TANH = {**LINEAR, "activation_function": "x.Tanh"}
POOLED = ["Transformer", "Pooling"]
PROMPTS_FILE = "config_sentence_transformers.json"


def folder_with(path, kinds, pooling=None, dense=None, config=None, max_seq_length=64):
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": TYPES + kind}
        for i, kind in enumerate(kinds)
    ]
    write_json(path / "modules.json", modules)
    for name, values in (
        ("1_Pooling/config.json", pooling),
        ("2_Dense/config.json", dense),
        (PROMPTS_FILE, config),
        ("sentence_bert_config.json", {"max_seq_length": max_seq_length}),
    ):
        if values is not None:
            write_json(path / name, values)
    return str(path)


@pytest.fixture
def encoder(tmp_path):
    """The folder of an encoder, with weights."""
    bert_tf.BertModel(SMALL).save_pretrained(tmp_path / "whole", TOKENIZER)
    return tmp_path / "whole"


def test_the_settings_of_old_and_new_folders_are_read(tmp_path):
    folder = folder_with(tmp_path, POOLED, CLS)
    assert embedding_settings(folder) == {"normalize": False, "pooling": "cls"}
    assert read_tokenizer_files(folder).max_seq_length == 64
    config = {"prompts": {"query": "q: ", "passage": "p: "}}
    kinds = [*POOLED, "Dense", "Normalize"]
    folder = folder_with(tmp_path, kinds, {"pooling_mode": "max"}, LINEAR, config)
    assert embedding_settings(folder) == {
        "normalize": True,
        "pooling": "max",
        "projection_size": 4,
        "query_prefix": "q: ",
        "document_prefix": "p: ",
    }
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"  # the list of the folder above is that of this one
    write_json(tmp_path / "modules.json", modules)
    assert embedding_settings(str(tmp_path / "0_Transformer"))["pooling"] == "max"
    assert embedding_settings(str(tmp_path / "another")) is None


def test_the_default_prompt_is_a_prefix_where_there_is_no_other(tmp_path):
    for prompts, prefixes in (
        ({"query": "q: "}, ("q: ", "s: ")),
        ({"document": "", "passage": "p: "}, ("s: ", "")),
    ):
        config = {"prompts": {**prompts, "s": "s: "}, "default_prompt_name": "s"}
        found = embedding_settings(folder_with(tmp_path, POOLED, CLS, None, config))
        assert (found["query_prefix"], found["document_prefix"]) == prefixes


def test_the_longest_input_is_stated_by_one_of_two_files(tmp_path):
    for theirs, of_tokenizer, length in (
        (64, 512, 64),
        (None, 256, 256),
        (None, 10**30, None),
        (None, None, None),
    ):
        write_json(tmp_path / "sentence_bert_config.json", {"max_seq_length": theirs})
        write_json(tmp_path / "tokenizer_config.json", {"model_max_length": of_tokenizer})
        assert read_tokenizer_files(str(tmp_path)).max_seq_length == length


def test_a_cross_encoder_is_known_by_its_files(tmp_path):
    folder = str(tmp_path)
    oldest = {"sbert_ce_default_activation_function": "Sigmoid"}
    older = {"sentence_transformers": {"version": "4.1.0"}}
    assert cross_encoder_settings(folder, {}) is None
    assert cross_encoder_settings(folder, oldest) == {"activation_fn": "Sigmoid"}
    assert cross_encoder_settings(folder, older) == {"activation_fn": None}
    folder_with(tmp_path, ["Transformer"], config={"model_type": "SentenceTransformer"})
    assert cross_encoder_settings(folder, {}) is None
    config = {"model_type": "CrossEncoder", "activation_fn": "Identity"}
    folder_with(tmp_path, ["Transformer"], config=config)
    assert cross_encoder_settings(folder, oldest) == {"activation_fn": "Identity"}
    config |= {"prompts": {"q": "Q: "}, "default_prompt_name": "q"}
    folder_with(tmp_path, ["Transformer"], config=config)
    assert cause_of(cross_encoder_settings, folder, {}) == str(tmp_path / PROMPTS_FILE)


def test_a_cross_encoder_of_labels_with_a_sigmoid_is_multi_label(tmp_path):
    tensors = huggingface_tensors(arrays_of("classifier", num_labels=3))
    several, single = "multi_label_classification", "single_label_classification"
    for activation, stated, expected in (
        ("LogSigmoid", None, None),
        ("Sigmoid", single, single),
        ("Sigmoid", None, several),
    ):
        name = f"torch.nn.modules.activation.{activation}"
        values = {"problem_type": stated, "sentence_transformers": {"activation_fn": name}}
        architectures = ["BertForSequenceClassification"]
        folder = write_huggingface(tmp_path / "a", tensors, architectures=architectures, **values)
        assert read_checkpoint(folder).config.extra.get("problem_type") == expected
    (tmp_path / "a" / "vocab.txt").write_text("\n".join(TOKENIZER.vocab))
    bert_tf.convert(folder, tmp_path / "b", labels="x,y,z")
    for path in (folder, tmp_path / "b"):
        assert "labels" in bert_tf.load(path).predict([("a", "b")])[0]


@pytest.mark.parametrize(
    "projection_size, format", [(None, "huggingface"), (3, "huggingface"), (3, "tf1")]
)
def test_an_embedder_keeps_its_pooling_and_projection(tmp_path, format, projection_size):
    model = BertForSentenceEmbedding(SMALL, "cls", projection_size)
    model.save_pretrained(tmp_path / "saved", TOKENIZER, format=format)
    expected = model(TOKENIZER("a b"))["embedding"].numpy()
    found = BertForSentenceEmbedding.from_pretrained(tmp_path / "saved")
    assert (found.pooling, found.projection_size) == ("cls", projection_size)
    np.testing.assert_allclose(found(TOKENIZER("a b"))["embedding"], expected, rtol=1e-6, atol=1e-7)
    vector = bert_tf.load(tmp_path / "saved").embed("a b")
    np.testing.assert_allclose(vector, expected / np.linalg.norm(expected), rtol=1e-5, atol=1e-6)
    other = BertForSentenceEmbedding.from_pretrained(tmp_path / "saved", pooling="mean")
    assert (other.pooling, other.projection_size) == ("mean", projection_size)


def test_an_encoder_with_usual_pooling_keeps_its_length(encoder):
    assert load_model(str(encoder)).max_seq_length == CONFIG.max_position_embeddings
    mean = {"pooling_mode": "mean"}
    folder_with(encoder, [*POOLED, "Normalize"], mean, max_seq_length=6)
    trained = load_model(str(encoder))
    assert (trained.task, trained.max_seq_length) == (None, 6)
    vectors = EmbeddingPredictor(trained).encode(["a b a b a b", "a b a b"])
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
    options = make_options(ExportOptions, model_dir=str(encoder), export_dir="unused")
    assert load_served(options).trained.max_seq_length == 6


def test_a_converted_embedder_keeps_its_modules(encoder, tmp_path):
    folder, there = encoder, tmp_path / "there"
    config = {"prompts": {"query": "a ", "document": "b "}}
    folder_with(folder, POOLED, CLS, config=config, max_seq_length=6)
    bert_tf.convert(folder, there)
    assert embedding_settings(str(there)) == embedding_settings(str(folder))
    assert read_checkpoint(there).tokenizer.max_seq_length == 6
    assert load_model(str(there)).task.max_seq_length == 6
    card = (there / "README.md").read_text()
    assert "library_name: sentence-transformers" in card and "as_query=True" in card
    with pytest.raises(ValueError, match="max_seq_length"):
        bert_tf.convert(folder, tmp_path / "long", max_seq_length=4000)
    assert not (tmp_path / "long").exists()
    folder_with(folder, [*POOLED, "LSTM"], CLS)
    with pytest.raises(ValueError, match="LSTM"):
        bert_tf.convert(folder, tmp_path / "other")
    bert_tf.convert(folder, tmp_path / "encoder", head="encoder")
    assert not (tmp_path / "encoder" / "modules.json").exists()


def test_a_folder_without_its_list_of_modules_is_refused(encoder, tmp_path):
    for parts in ({"config": {"prompts": {"query": "a "}}}, {"pooling": CLS}):
        folder_with(encoder, POOLED, **parts)
        (encoder / "modules.json").unlink()
        for use in (
            lambda: bert_tf.load(encoder).embed(["a"]),
            lambda: bert_tf.convert(encoder, tmp_path / "there"),
        ):
            with pytest.raises(ValueError, match=r"no modules\.json"):
                use()
        vectors = bert_tf.load(encoder).embed(["a"], pooling="mean")
        assert vectors.shape == (1, CONFIG.hidden_size)


def test_what_is_not_supported_is_named_by_file(tmp_path):
    for number, (kinds, pooling, dense, config, file) in enumerate(
        [
            (["Normalize", "Dense"], CLS, LINEAR, None, ""),
            (["Dense", "Dense"], CLS, LINEAR, None, ""),
            (["LSTM"], CLS, None, None, ""),
            ([], CLS, None, {"truncate_dim": 64}, PROMPTS_FILE),
            ([], {**CLS, "pooling_mode_max_tokens": True}, None, None, "1_Pooling/config.json"),
            ([], {**CLS, "include_prompt": False}, None, None, "1_Pooling/config.json"),
            (["Dense"], CLS, TANH, None, "2_Dense/config.json"),
        ]
    ):
        folder = tmp_path / str(number)
        folder_with(folder, [*POOLED, *kinds], pooling, dense, config)
        assert cause_of(embedding_settings, str(folder)) == str(folder / file)
    with pytest.raises(FileNotFoundError):
        embedding_settings(folder_with(tmp_path / "no_pooling", POOLED))
