"""convert_checkpoint: every head in every direction, and what is refused."""

import dataclasses
import json
import logging

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
    write_json,
    write_tf1,
)
from tiny_tf2 import Encoder, save_hub_encoder

from bert_tf.interop import verification
from bert_tf.interop.heads import HEADS
from bert_tf.interop.initial import initialize, read_checkpoint
from bert_tf.model_folder import load_model_folder, read_task
from bert_tf.modeling.models import BertForSequenceClassification
from bert_tf.workflows import conversion
from bert_tf.workflows.conversion import ConvertOptions, convert_checkpoint

safetensors_numpy = pytest.importorskip("safetensors.numpy", reason="needs bert-tf[hf]")

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
LABELS = "a,b,c,d,e"
# --head -> heads of numpy_bert, and the outputs of the classifier
CASES = {
    "encoder": ((), 5),
    "pretraining": (("masked_lm", "next_sentence"), 5),
    "masked_lm": (("masked_lm",), 5),
    "next_sentence": (("next_sentence",), 5),
    "classification": (("classifier",), 5),
    "token_classification": (("classifier",), 5),
    "question_answering": (("span",), 5),
    "multiple_choice": (("classifier",), 1),
}


def arrays_for(head):
    heads, num_labels = CASES[head]
    return arrays_of(*heads, num_labels=num_labels)


def tf1_folder(folder, arrays, tokens=TOKENS, config=CONFIG):
    write_tf1(folder, arrays, config=config)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    return folder


def convert(source, target, output_format, **flags):
    options = {"init_checkpoint": str(source), "output_dir": str(target), **flags}
    convert_checkpoint(ConvertOptions(output_format=output_format, **options))
    return target


def head_flags(head):
    """What a checkpoint of the original does not say of itself."""
    flags = {"head": head} if HEADS[head].starts[:1] == ("output_weights",) else {}
    return {**flags, "labels": LABELS} if HEADS[head].has_labels else flags


def same_files(first, second):
    assert sorted(p.name for p in first.iterdir()) == sorted(p.name for p in second.iterdir())
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes(), path.name


# ---- Directions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("head", CASES)
def test_round_trips_are_bit_equal(tmp_path, head):
    arrays = arrays_for(head)
    source = tf1_folder(tmp_path / "tf1", with_adam(arrays))
    there = convert(source, tmp_path / "there", "huggingface", **head_flags(head))
    back = convert(there, tmp_path / "back", "tf1")
    assert_same(read_checkpoint(back).arrays, arrays)
    assert (back / "bert_config.json").read_text() == CONFIG.to_json_string()
    assert (back / "vocab.txt").read_bytes() == (source / "vocab.txt").read_bytes()
    same_files(there, convert(back, tmp_path / "there_again", "huggingface"))
    assert {name for name, _ in tf.train.list_variables(f"{back}/bert_model.ckpt")} == set(
        arrays
    )  # no moments


@pytest.mark.parametrize("head", CASES)
def test_head_and_labels_are_carried_along(tmp_path, head):
    source = tf1_folder(tmp_path / "tf1", arrays_for(head))
    there = convert(source, tmp_path / "there", "huggingface", **head_flags(head))
    values = json.loads((there / "config.json").read_text())
    assert values["architectures"] == [HEADS[head].architecture]
    assert (values["model_type"], values["hidden_act"]) == ("bert", "gelu_new")
    checkpoint = read_checkpoint(there)
    assert checkpoint.config == CONFIG
    assert checkpoint.do_lower_case is True
    if HEADS[head].has_labels:
        assert checkpoint.labels == tuple(LABELS.split(","))
        assert values["label2id"] == {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4}
    problem_type = "single_label_classification" if head == "classification" else None
    assert values.get("problem_type") == problem_type


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
    expected, found = load_model_folder(str(sentence_model)), load_model_folder(str(back))
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
    trained = load_model_folder(str(ours))
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
    with pytest.raises(ValueError, match=r"has several heads \(cls/predictions/, cls/squad/\)"):
        convert(source, tmp_path / "there", "huggingface")
    there = convert(source, tmp_path / "there", "huggingface", head="question_answering")
    assert sorted(read_checkpoint(there).arrays) == sorted(arrays_of("span"))
    assert "left out, as --head=question_answering says: cls/predictions/output_bias" in caplog.text


def test_savers_of_tensorflow_1_restore_what_is_written(tmp_path):
    arrays = arrays_for("pretraining")
    tensors = huggingface_tensors(arrays)
    architectures = ["BertForPreTraining"]
    source = write_huggingface(tmp_path / "hf", tensors, architectures=architectures)
    prefix = str(convert(source, tmp_path / "out", "tf1") / "bert_model.ckpt")
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        variables = [v1.get_variable(name, array.shape) for name, array in arrays.items()]
        v1.train.Saver(variables).restore(session, prefix)
        assert_same(dict(zip(arrays, session.run(variables), strict=True)), arrays)


def test_what_the_original_cannot_do_is_said(tmp_path, caplog):
    source = write_huggingface(
        tmp_path / "hf", huggingface_tensors(arrays_of()), layer_norm_eps=1e-5
    )
    convert(source, tmp_path / "out", "tf1")
    assert "knows only the tanh form and stops at this name" in caplog.text
    assert "`layer_norm_eps` is 1e-05. We use it" in caplog.text


# ---- --verify ------------------------------------------------------------------------------------


def test_verify_runs_the_saved_model(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    source = save_hub_encoder(tmp_path / "hub", CONFIG, arrays_of(), TOKENS)
    convert(source, tmp_path / "out", "tf1", verify=True)
    assert f"all {len(arrays_of())} variables read back bit-equal" in caplog.text
    assert f"largest difference to the SavedModel ({source}): " in caplog.text


def test_verify_says_that_nothing_else_can_be_run(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    convert(tf1_folder(tmp_path / "tf1", arrays_of()), tmp_path / "out", "tf1", verify=True)
    assert "neither side is for another program" in caplog.text


def test_verify_without_transformers_says_what_is_missing(tmp_path, caplog, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    source = tf1_folder(tmp_path / "tf1", arrays_of())
    convert(source, tmp_path / "out", "huggingface", verify=True)
    assert "pip install transformers torch" in caplog.text


def test_verify_refuses_sides_that_differ(tmp_path, monkeypatch):
    source = save_hub_encoder(tmp_path / "hub", CONFIG, arrays_of(), TOKENS)
    right = verification.saved_model_outputs
    monkeypatch.setattr(
        verification,
        "saved_model_outputs",
        lambda *args: {name: value + 1e-3 for name, value in right(*args).items()},
    )
    with pytest.raises(ValueError, match=r"says something else in the SavedModel .* is 0\.001"):
        convert(source, tmp_path / "out", "tf1", verify=True)


# ---- Bad input -----------------------------------------------------------------------------------


def test_existing_folder_is_not_overwritten(tmp_path):
    source = tf1_folder(tmp_path / "tf1", arrays_of())
    for target in (source, source / "vocab.txt"):
        with pytest.raises(ValueError, match=r"exists already and is no empty folder"):
            convert(source, target, "huggingface")


def test_failure_leaves_no_folder(tmp_path, monkeypatch):
    source = tf1_folder(tmp_path / "tf1", arrays_of())
    monkeypatch.setitem(__import__("sys").modules, "safetensors.numpy", None)
    with pytest.raises(ImportError, match=r"Writing .* pip install 'bert-tf\[hf\]'"):
        convert(source, tmp_path / "out", "huggingface")
    assert not (tmp_path / "out").exists()


def test_directory_that_is_no_checkpoint_is_an_error(tmp_path):
    (tmp_path / "notes.md").write_text("")
    with pytest.raises(ValueError, match=r"holds notes.md, and no checkpoint"):
        convert(tmp_path, tmp_path / "out", "tf1")


def test_truncated_safetensors_are_an_error(tmp_path):
    source = write_huggingface(tmp_path / "hf", huggingface_tensors(arrays_of()))
    file = tmp_path / "hf" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(ValueError, match=r"damaged or not fully downloaded"):
        convert(source, tmp_path / "out", "tf1")
    assert not (tmp_path / "out").exists()


def test_vocabulary_larger_than_the_embeddings_is_an_error(tmp_path):
    source = tf1_folder(tmp_path / "tf1", arrays_of(), [*TOKENS, "i", "j"])
    with pytest.raises(ValueError, match=r"vocab.txt has 15 tokens, but .* embeddings for 13"):
        convert(source, tmp_path / "out", "huggingface")


def test_vocabulary_far_smaller_than_the_embeddings_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(conversion, "_MOST_PADDING", 4)
    source = tf1_folder(tmp_path / "tf1", arrays_of(), TOKENS[:8])
    with pytest.raises(ValueError, match=r"has 8 tokens, but .* for 13 .* padded by at most 4"):
        convert(source, tmp_path / "out", "huggingface")


def test_padded_embeddings_are_a_warning(tmp_path, caplog):
    source = tf1_folder(tmp_path / "tf1", arrays_of(), TOKENS[:-2])
    convert(source, tmp_path / "out", "huggingface")
    assert "has 11 tokens and there are 13 word embeddings" in caplog.text


def test_configuration_of_another_size_is_an_error(tmp_path):
    other = dataclasses.replace(CONFIG, vocab_size=14)
    source = tf1_folder(tmp_path / "tf1", arrays_of(), config=other)
    with pytest.raises(
        ValueError, match=r"word_embeddings in .* is \[13, 8\], but .* says \[14, 8"
    ):
        convert(source, tmp_path / "out", "huggingface")


def test_configuration_with_more_layers_is_an_error(tmp_path):
    other = dataclasses.replace(CONFIG, num_hidden_layers=3)
    source = tf1_folder(tmp_path / "tf1", arrays_of(), config=other)
    with pytest.raises(ValueError, match=r"encoder is incomplete: 16 variables .*encoder/layer_2"):
        convert(source, tmp_path / "out", "huggingface")


def test_configuration_with_fewer_layers_is_an_error(tmp_path):
    other = dataclasses.replace(CONFIG, num_hidden_layers=1)
    source = tf1_folder(tmp_path / "tf1", arrays_of(), config=other)
    with pytest.raises(ValueError, match=r"16 variables belong neither .*bert/encoder/layer_1"):
        convert(source, tmp_path / "out", "huggingface")


def test_missing_configuration_is_an_error(tmp_path):
    source = tf1_folder(tmp_path / "tf1", arrays_of(), config=None)
    with pytest.raises(ValueError, match=r"no bert_config.json beside .*--bert_config_file"):
        convert(source, tmp_path / "out", "huggingface")


def test_classifier_that_says_nothing_of_itself_is_an_error(tmp_path):
    source = tf1_folder(tmp_path / "tf1", arrays_for("classification"))
    with pytest.raises(ValueError, match=r"nothing beside it says what it classifies. Give --head"):
        convert(source, tmp_path / "out", "huggingface")


def test_missing_labels_are_an_error(tmp_path):
    source = tf1_folder(tmp_path / "tf1", arrays_for("classification"))
    with pytest.raises(
        ValueError, match=r"5 outputs, but nothing beside it names them. Give --lab"
    ):
        convert(source, tmp_path / "out", "huggingface", head="classification")


@pytest.mark.parametrize("labels", ["a,b", "a,b,c,d,d"])
def test_labels_that_do_not_fit_are_an_error(tmp_path, labels):
    source = tf1_folder(tmp_path / "tf1", arrays_for("classification"))
    with pytest.raises(ValueError, match=r"has 5 outputs. Give as many labels, each once"):
        convert(source, tmp_path / "out", "tf1", head="classification", labels=labels)


def test_labels_that_contradict_each_other_are_an_error(tmp_path):
    source = tf1_folder(tmp_path / "tf1", arrays_for("classification"))
    flags = head_flags("classification")
    there = convert(source, tmp_path / "there", "huggingface", **flags)
    values = json.loads((there / "config.json").read_text())
    write_json(there / "config.json", {**values, "id2label": dict(enumerate("vwxyz"))})
    with pytest.raises(ValueError, match=r"labels are a, b, c, d, e, and config.json .* v, w, x"):
        convert(there, tmp_path / "back", "tf1")
    back = convert(there, tmp_path / "back", "tf1", labels="v,w,x,y,z")
    assert read_task(str(back)).labels == tuple("vwxyz")


def test_two_outputs_without_names_are_huggingfaces_two(tmp_path):
    tensors = huggingface_tensors(arrays_of("classifier", num_labels=2))
    architecture = ["BertForTokenClassification"]
    source = write_huggingface(tmp_path / "hf", tensors, architectures=architecture)
    ours = convert(source, tmp_path / "ours", "tf1")
    assert read_task(str(ours)).labels == ("LABEL_0", "LABEL_1")


def test_head_that_is_not_there_is_an_error(tmp_path):
    source = tf1_folder(tmp_path / "tf1", arrays_for("masked_lm"))
    with pytest.raises(ValueError, match=r"variables cls/squad/..., but .* has none"):
        convert(source, tmp_path / "out", "tf1", head="question_answering")


def test_variables_of_no_bert_are_an_error_unless_the_head_is_named(tmp_path, caplog):
    arrays = {**arrays_of(), "crf/transitions": np.ones((3, 3), np.float32)}
    source = tf1_folder(tmp_path / "tf1", arrays)
    with pytest.raises(ValueError, match=r"1 variables belong neither .* crf/transitions"):
        convert(source, tmp_path / "out", "huggingface")
    convert(source, tmp_path / "out", "huggingface", head="encoder")
    assert "left out, as --head=encoder says: crf/transitions" in caplog.text


def test_left_to_right_model_has_no_counterpart(tmp_path):
    config = dataclasses.replace(CONFIG, attention_direction="left_to_right")
    source = tf1_folder(tmp_path / "tf1", arrays_of(), config=config)
    with pytest.raises(ValueError, match=r"`attention_direction` is 'left_to_right'"):
        convert(source, tmp_path / "out", "huggingface")
    assert not (tmp_path / "out").exists()


def test_left_over_of_a_killed_run_is_replaced(tmp_path):
    write_json(tmp_path / "out.tmp" / "rest.json", {})
    there = convert(tf1_folder(tmp_path / "tf1", arrays_of()), tmp_path / "out", "huggingface")
    assert not (there / "rest.json").exists()
    assert not (tmp_path / "out.tmp").exists()
