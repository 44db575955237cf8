"""convert_checkpoint: every head in every direction."""

import dataclasses
import inspect
import json

import numpy as np
import pytest
import tensorflow as tf
from tiny_checkpoints import (
    CONFIG,
    arrays_of,
    assert_same,
    huggingface_tensors,
    with_adam,
    write_huggingface,
)
from tiny_conversions import (
    CASES,
    LABELS,
    TOKENS,
    arrays_for,
    convert,
    head_flags,
    tf1_folder,
)
from tiny_tf2 import Encoder, save_hub_encoder

from bert_tf.interop.initial import initialize
from bert_tf.interop.read import read_checkpoint
from bert_tf.model_files import read_task
from bert_tf.model_folder import load_model
from bert_tf.modeling.models import BertForSequenceClassification
from bert_tf.programs import convert_checkpoint
from bert_tf.registry import TYPES

safetensors_numpy = pytest.importorskip("safetensors.numpy", reason="needs the extra [hf]")


def same_files(first, second):
    assert sorted(p.name for p in first.iterdir()) == sorted(p.name for p in second.iterdir())
    for path in first.iterdir():
        # Cards name the checkpoint that was converted.
        if path.name not in ("README.md", "model_card_facts.json"):
            assert path.read_bytes() == (second / path.name).read_bytes(), path.name


# ---- Directions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("head", CASES)
def test_round_trips_are_bit_equal(tmp_path, head):
    arrays = arrays_for(head)
    source = tf1_folder(tmp_path / "tf1", with_adam(arrays))
    there = convert(source, tmp_path / "there", "huggingface", **head_flags(head))
    values = json.loads((there / "config.json").read_text())
    assert values["architectures"] == [TYPES[head].architecture]
    assert (values["model_type"], values["hidden_act"]) == ("bert", "gelu_new")
    back = convert(there, tmp_path / "back", "tf1")
    if TYPES[head].has_labels:
        assert read_checkpoint(there).labels == tuple(LABELS.split(","))
    assert_same(read_checkpoint(back).arrays, arrays)
    assert (back / "bert_config.json").read_text() == CONFIG.to_json_string()
    assert (back / "vocab.txt").read_bytes() == (source / "vocab.txt").read_bytes()
    same_files(there, convert(back, tmp_path / "there_again", "huggingface"))
    assert {name for name, _ in tf.train.list_variables(f"{back}/bert_model.ckpt")} == set(
        arrays
    )  # no moments


def test_what_huggingface_wrote_comes_back_bit_equal(tmp_path):
    arrays = arrays_of("masked_lm", "next_sentence")
    tensors = huggingface_tensors(arrays)
    source = write_huggingface(
        tmp_path / "hf", tensors, architectures=["BertForPreTraining"], layer_norm_eps=1e-7
    )
    (tmp_path / "hf" / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS))
    ours = convert(source, tmp_path / "ours", "tf1", do_lower_case=False)
    back = convert(ours, tmp_path / "back", "huggingface")
    found = safetensors_numpy.load_file(back / "model.safetensors")
    assert sorted(found) == sorted(tensors)
    assert all(np.array_equal(found[name], tensors[name]) for name in tensors)
    values = json.loads((back / "config.json").read_text())
    assert (values["hidden_act"], values["layer_norm_eps"]) == ("gelu", 1e-7)
    tokenizer = json.loads((back / "tokenizer_config.json").read_text())
    assert (tokenizer["do_lower_case"], tokenizer["cls_token"]) == (False, "[CLS]")
    assert tokenizer["model_max_length"] == CONFIG.max_position_embeddings


def test_pooler_that_the_class_has_no_place_for_stands_in_a_file_of_its_own(tmp_path):
    source = tf1_folder(tmp_path / "tf1", arrays_for("question_answering"))
    there = convert(source, tmp_path / "there", "huggingface")
    assert not any("pooler" in n for n in safetensors_numpy.load_file(there / "model.safetensors"))
    beside = safetensors_numpy.load_file(there / "pooler.safetensors")
    assert sorted(beside) == ["bert.pooler.dense.bias", "bert.pooler.dense.weight"]


def test_our_run_goes_to_huggingface_and_back_with_its_task(tmp_path, sentence_model):
    there = convert(sentence_model, tmp_path / "there", "huggingface")
    back = convert(there, tmp_path / "back", "tf1")
    expected, found = load_model(str(sentence_model)), load_model(str(back))
    assert found.task.arguments() == expected.task.arguments()
    assert found.tokenizer.vocab == expected.tokenizer.vocab
    for ours, theirs in zip(found.model.weights, expected.model.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), err_msg=ours.path)


def test_classifier_of_huggingface_becomes_a_model_that_can_be_exported(tmp_path):
    tensors = huggingface_tensors(arrays_for("classification"))
    source = write_huggingface(
        tmp_path / "hf",
        tensors,
        architectures=["BertForSequenceClassification"],
        id2label=dict(enumerate(LABELS.split(","))),
    )
    (tmp_path / "hf" / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS))
    ours = convert(source, tmp_path / "ours", "tf1", is_pair=True, max_seq_length=7)
    trained = load_model(str(ours))
    assert trained.task.labels == tuple(LABELS.split(","))
    assert (trained.task.is_pair, trained.max_seq_length) == (True, 7)
    config = read_checkpoint(ours).config
    assert config == dataclasses.replace(CONFIG, hidden_act="gelu_erf")
    report = initialize(BertForSequenceClassification(config, 5), str(ours))
    assert (report.missing, report.unexpected) == ((), ())


@pytest.mark.parametrize(
    "stated, labels, kind",
    [
        (None, "a", "regression"),
        ("regression", "a", "regression"),
        (None, "a,b,c", "single_label"),
        ("single_label_classification", "a,b,c", "single_label"),
        ("multi_label_classification", "a,b,c", "multi_label"),
    ],
)
def test_problem_type_is_carried_along(tmp_path, stated, labels, kind):
    names = labels.split(",")
    tensors = huggingface_tensors(arrays_of("classifier", num_labels=len(names)))
    source = write_huggingface(
        tmp_path / "hf",
        tensors,
        architectures=["BertForSequenceClassification"],
        id2label=dict(enumerate(names)),
        problem_type=stated,
    )
    ours = convert(source, tmp_path / "ours", "tf1")
    task = read_task(str(ours))
    assert (task.kind.name, task.labels) == (kind, () if kind == "regression" else tuple(names))
    back = json.loads((convert(ours, tmp_path / "b", "huggingface") / "config.json").read_text())
    assert back["problem_type"].split("_")[0] == kind.split("_")[0]
    found = list(back["id2label"].values())
    assert found == (["LABEL_0"] if kind == "regression" else names)


def test_several_numbers_have_no_task(tmp_path, caplog):
    tensors = huggingface_tensors(arrays_of("classifier", num_labels=2))
    architectures = ["BertForSequenceClassification"]
    source = write_huggingface(
        tmp_path / "hf", tensors, architectures=architectures, problem_type="regression"
    )
    assert read_task(str(convert(source, tmp_path / "ours", "tf1"))) is None
    assert "no task that predicts several numbers" in caplog.text


@pytest.mark.parametrize("kind", ["checkpoint", "saved_model"])
@pytest.mark.parametrize("output_format", ["tf1", "huggingface"])
def test_tensorflow_2_encoders_go_everywhere(tmp_path, kind, output_format):
    arrays = arrays_of()
    if kind == "saved_model":
        source = save_hub_encoder(tmp_path / "hub", CONFIG, arrays, TOKENS, do_lower_case=False)
    else:
        source = tf.train.Checkpoint(encoder=Encoder(CONFIG, arrays)).write(str(tmp_path / "ckpt"))
    checkpoint = read_checkpoint(convert(source, tmp_path / "out", output_format))
    assert_same(checkpoint.arrays, arrays)
    assert checkpoint.config == CONFIG
    assert checkpoint.do_lower_case is (False if kind == "saved_model" else None)


def test_other_heads_are_left_out_when_one_is_named(tmp_path, caplog):
    source = tf1_folder(tmp_path / "tf1", arrays_of("masked_lm", "span"))
    with pytest.raises(ValueError, match=r"cls/predictions/, cls/squad/"):
        convert(source, tmp_path / "there", "huggingface")
    there = convert(source, tmp_path / "there", "huggingface", head="question_answering")
    assert sorted(read_checkpoint(there).arrays) == sorted(arrays_of("span"))
    assert "--head=question_answering: cls/predictions/output_bias" in caplog.text


def test_the_program_and_the_function_write_the_same_format_by_default():
    usual = convert_checkpoint.ConvertOptions(init_checkpoint="a", output_dir="b").output_format
    assert usual == inspect.signature(convert_checkpoint.convert).parameters["format"].default
