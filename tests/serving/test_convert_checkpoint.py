"""convert_checkpoint: every head in every direction, and what it refuses."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from helpers import read_task, write_vocab
from tiny_checkpoints import (
    CONFIG,
    arrays_of,
    assert_same,
    huggingface_tensors,
    with_adam,
    write_huggingface,
    write_json,
)
from tiny_conversions import CASES, LABELS, TOKENS, arrays_for, convert, head_flags, tf1_folder

from bert_tf.checkpoints.heads import HEADS
from bert_tf.checkpoints.initial import initialize
from bert_tf.checkpoints.read import read_checkpoint
from bert_tf.modeling.models import BertForSequenceClassification
from bert_tf.prediction.loading import load_model

safetensors_numpy = pytest.importorskip("safetensors.numpy", reason="needs the extra [hf]")

CLASSIFIER = ["BertForSequenceClassification"]


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
    assert values["architectures"] == [HEADS[head].architecture]
    assert (values["model_type"], values["hidden_act"]) == ("bert", "gelu_new")
    back = convert(there, tmp_path / "back", "tf1")
    if HEADS[head].has_labels:
        assert read_checkpoint(there).labels == tuple(LABELS.split(","))
    assert_same(read_checkpoint(back).arrays, arrays)
    assert (back / "bert_config.json").read_text() == CONFIG.to_json_string()
    assert (back / "vocab.txt").read_bytes() == (source / "vocab.txt").read_bytes()
    same_files(there, convert(back, tmp_path / "there_again", "huggingface"))
    names = {name for name, _ in tf.train.list_variables(f"{back}/bert_model.ckpt")}
    assert names == set(arrays)  # no moments
    if head == "question_answering":  # whose class has no place for a pooler
        weights = safetensors_numpy.load_file(there / "model.safetensors")
        assert not any("pooler" in name for name in weights)
        beside = safetensors_numpy.load_file(there / "pooler.safetensors")
        assert sorted(beside) == ["bert.pooler.dense.bias", "bert.pooler.dense.weight"]


def test_what_huggingface_wrote_comes_back_bit_equal(tmp_path):
    arrays = arrays_of("masked_lm", "next_sentence")
    tensors = huggingface_tensors(arrays)
    source = write_huggingface(
        tmp_path / "hf", tensors, architectures=["BertForPreTraining"], layer_norm_eps=1e-7
    )
    write_vocab(tmp_path / "hf" / "vocab.txt", TOKENS)
    ours = convert(source, tmp_path / "ours", "tf1", do_lower_case=False)
    back = convert(ours, tmp_path / "back", "huggingface")
    found = safetensors_numpy.load_file(back / "model.safetensors")
    assert sorted(found) == sorted(tensors)
    assert all(np.array_equal(found[name], tensors[name]) for name in tensors)
    values = json.loads((back / "config.json").read_text())
    assert (values["hidden_act"], values["layer_norm_eps"]) == ("gelu", 1e-7)
    tokenizer = json.loads((back / "tokenizer_config.json").read_text())
    assert tokenizer["do_lower_case"] is False
    assert tokenizer["model_max_length"] == CONFIG.max_position_embeddings


def test_a_classifier_of_huggingface_becomes_a_model_with_a_task(tmp_path):
    names = dict(enumerate(LABELS.split(",")))
    tensors = huggingface_tensors(arrays_for("classification"))
    source = write_huggingface(tmp_path / "hf", tensors, architectures=CLASSIFIER, id2label=names)
    write_vocab(tmp_path / "hf" / "vocab.txt", TOKENS)
    ours = convert(source, tmp_path / "ours", "tf1", is_pair=True, max_seq_length=7)
    trained = load_model(str(ours))
    assert trained.task.labels == tuple(LABELS.split(","))
    assert (trained.task.is_pair, trained.max_seq_length) == (True, 7)
    config = read_checkpoint(ours).config
    assert config == dataclasses.replace(CONFIG, hidden_act="gelu_erf")
    report = initialize(BertForSequenceClassification(config, 5), str(ours))
    assert (report.missing, report.unexpected) == ((), ())
    again = convert(ours, tmp_path / "again", "tf1", max_seq_length=8, is_pair=False)
    task = read_task(str(again))
    assert (task.max_seq_length, task.is_pair, len(task.labels)) == (8, False, 5)


def test_problem_type_is_carried_along(tmp_path):
    for number, (stated, labels, kind) in enumerate(
        [
            (None, "a", "regression"),
            ("regression", "a", "regression"),
            (None, "a,b,c", "single_label"),
            ("single_label_classification", "a,b,c", "single_label"),
            ("multi_label_classification", "a,b,c", "multi_label"),
            ("regression", "a,b", None),  # several numbers are no task
        ]
    ):
        folder, names = tmp_path / str(number), labels.split(",")
        tensors = huggingface_tensors(arrays_of("classifier", num_labels=len(names)))
        changes = {"id2label": dict(enumerate(names)), "problem_type": stated}
        source = write_huggingface(folder / "hf", tensors, architectures=CLASSIFIER, **changes)
        ours = convert(source, folder / "ours", "tf1")
        if kind is None:
            assert not (ours / "task.json").exists()
            continue
        task = read_task(str(ours))
        assert task.kind.name == kind, stated
        assert task.labels == (() if kind == "regression" else tuple(names))
        there = convert(ours, folder / "back", "huggingface")
        back = json.loads((there / "config.json").read_text())
        assert back["problem_type"].split("_")[0] == kind.split("_")[0]
        found = list(back["id2label"].values())
        assert found == (["LABEL_0"] if kind == "regression" else names)


# ---- What is refused, lost or told ---------------------------------------------------------------


def test_checkpoints_whose_parts_do_not_fit_are_refused(tmp_path):
    other = write_vocab(tmp_path / "other.txt", reversed(TOKENS))
    crf = {**arrays_of(), "crf/transitions": np.ones((3, 3), np.float32)}
    changed = {
        "encoder/layer_2": dataclasses.replace(CONFIG, num_hidden_layers=3),
        "attention_direction": dataclasses.replace(CONFIG, attention_direction="left_to_right"),
    }
    head = {"head": "classification"}
    rows = [  # what is named, the arrays, flags of the program, the rest of the folder
        ("vocab.txt", arrays_of(), {}, {"tokens": [*TOKENS, "i", "j"]}),
        ("12 of the 13 tokens", arrays_of(), {"vocab_file": other}, {}),
        ("bert_config_file", arrays_of(), {}, {"config": None}),
        ("head=classification", arrays_for("classification"), {}, {}),
        ("labels", arrays_for("classification"), {**head, "labels": "a,b"}, {}),
        ("labels", arrays_for("classification"), {**head, "labels": "a,b,c,d,d"}, {}),
        ("crf/transitions", crf, {}, {}),
        ("masked_lm.*question_answering", arrays_of("masked_lm", "span"), {}, {}),
        *((named, arrays_of(), {}, {"config": config}) for named, config in changed.items()),
    ]
    for number, (named, arrays, flags, rest) in enumerate(rows):
        source = tf1_folder(tmp_path / f"tf1-{number}", arrays, **rest)
        with pytest.raises(ValueError, match=named):
            convert(source, tmp_path / "out", "huggingface", **flags)
        assert not (tmp_path / "out").exists(), named


def test_existing_folders_and_files_are_not_overwritten(tmp_path):
    source = tf1_folder(tmp_path / "tf1", arrays_of())
    for target in (source, source / "vocab.txt"):
        with pytest.raises(ValueError, match="output_dir"):
            convert(source, target, "huggingface")


def test_variables_of_other_heads_are_dropped_and_told(tmp_path, caplog):
    crf = {**arrays_of(), "crf/transitions": np.ones((3, 3), np.float32)}
    for head, arrays, expected, dropped in (
        ("encoder", crf, arrays_of(), "crf/transitions"),
        ("question_answering", arrays_of("masked_lm", "span"), arrays_of("span"), "output_bias"),
    ):
        source = tf1_folder(tmp_path / f"{head}-tf1", arrays)
        there = convert(source, tmp_path / head, "huggingface", head=head)
        assert sorted(read_checkpoint(there).arrays) == sorted(expected)
        assert dropped in caplog.text


def test_the_case_next_to_another_vocabulary_counts(tmp_path):
    source = tf1_folder(tmp_path / "tf1", arrays_of())
    write_json(tmp_path / "vocabulary" / "tokenizer_config.json", {"do_lower_case": False})
    file = write_vocab(tmp_path / "vocabulary" / "vocab.txt", TOKENS)
    target = convert(source, tmp_path / "out", "tf1", vocab_file=file)
    assert json.loads((target / "tokenizer_config.json").read_text()) == {"do_lower_case": False}


def test_labels_of_two_files_that_differ_need_the_flag(tmp_path):
    source = tf1_folder(tmp_path / "tf1", arrays_for("classification"))
    there = convert(source, tmp_path / "there", "huggingface", **head_flags("classification"))
    values = json.loads((there / "config.json").read_text())
    write_json(there / "config.json", {**values, "id2label": dict(enumerate("vwxyz"))})
    with pytest.raises(ValueError, match="v, w, x"):
        convert(there, tmp_path / "back", "tf1")
    back = convert(there, tmp_path / "back", "tf1", labels="v,w,x,y,z")
    assert read_task(str(back)).labels == tuple("vwxyz")


def test_what_huggingface_leaves_out_or_we_cannot_keep(tmp_path, caplog):
    tensors = huggingface_tensors(arrays_of("classifier", num_labels=2))
    architecture = ["BertForTokenClassification"]
    source = write_huggingface(tmp_path / "hf", tensors, architectures=architecture)
    write_vocab(tmp_path / "hf" / "vocab.txt", TOKENS)
    values = {"do_lower_case": True, "tokenizer_class": "BertJapaneseTokenizer"}
    write_json(tmp_path / "hf" / "tokenizer_config.json", values)
    ours = convert(source, tmp_path / "ours", "tf1")
    assert read_task(str(ours)).labels == ("LABEL_0", "LABEL_1")
    assert "BertJapaneseTokenizer" in caplog.text
