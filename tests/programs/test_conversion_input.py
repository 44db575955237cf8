"""convert_checkpoint: what it refuses, and that nothing is lost or overwritten then."""

import dataclasses
import json

import numpy as np
import pytest
from tiny_checkpoints import CONFIG, arrays_of, huggingface_tensors, write_huggingface, write_json
from tiny_conversions import (
    TOKENS,
    arrays_for,
    convert,
    head_flags,
    tf1_folder,
)

from bert_tf.model_files import read_task

pytest.importorskip("safetensors.numpy", reason="needs the extra [hf]")


def test_existing_folder_is_not_overwritten(tmp_path):
    source = tf1_folder(tmp_path / "tf1", arrays_of())
    for target in (source, source / "vocab.txt"):
        with pytest.raises(ValueError, match=r"is not empty|is a file"):
            convert(source, target, "huggingface")


def test_vocabulary_larger_than_the_embeddings_is_an_error(tmp_path):
    source = tf1_folder(tmp_path / "tf1", arrays_of(), [*TOKENS, "i", "j"])
    with pytest.raises(ValueError, match=r"vocab.txt"):
        convert(source, tmp_path / "out", "huggingface")


def test_vocabulary_of_another_model_is_an_error(tmp_path):
    source = tf1_folder(tmp_path / "tf1", arrays_of())
    (tmp_path / "other.txt").write_text("".join(f"{token}\n" for token in reversed(TOKENS)))
    with pytest.raises(ValueError, match="12 of the 13 tokens"):
        convert(source, tmp_path / "out", "huggingface", vocab_file=str(tmp_path / "other.txt"))


def test_the_case_next_to_another_vocabulary_counts(tmp_path):
    source = tf1_folder(tmp_path / "tf1", arrays_of())
    folder = tmp_path / "vocabulary"
    folder.mkdir()
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS))
    write_json(folder / "tokenizer_config.json", {"do_lower_case": False})
    target = convert(source, tmp_path / "out", "tf1", vocab_file=str(folder / "vocab.txt"))
    values = json.loads((target / "tokenizer_config.json").read_text())
    assert values == {"do_lower_case": False}


def test_configuration_of_another_size_is_an_error(tmp_path):
    other = dataclasses.replace(CONFIG, vocab_size=14)
    source = tf1_folder(tmp_path / "tf1", arrays_of(), config=other)
    with pytest.raises(ValueError, match=r"word_embeddings is \[13, 8\] .*\[14, 8"):
        convert(source, tmp_path / "out", "huggingface")


def test_configuration_with_more_layers_is_an_error(tmp_path):
    other = dataclasses.replace(CONFIG, num_hidden_layers=3)
    source = tf1_folder(tmp_path / "tf1", arrays_of(), config=other)
    with pytest.raises(ValueError, match=r"16 variables .*encoder/layer_2"):
        convert(source, tmp_path / "out", "huggingface")


def test_missing_configuration_is_an_error(tmp_path):
    source = tf1_folder(tmp_path / "tf1", arrays_of(), config=None)
    with pytest.raises(ValueError, match=r"no bert_config.json .*bert_config_file"):
        convert(source, tmp_path / "out", "huggingface")


def test_classifier_that_says_nothing_of_itself_is_an_error(tmp_path):
    source = tf1_folder(tmp_path / "tf1", arrays_for("classification"))
    with pytest.raises(ValueError, match="head=classification"):
        convert(source, tmp_path / "out", "huggingface")


@pytest.mark.parametrize("labels", ["a,b", "a,b,c,d,d"])
def test_labels_that_do_not_fit_are_an_error(tmp_path, labels):
    source = tf1_folder(tmp_path / "tf1", arrays_for("classification"))
    with pytest.raises(ValueError, match="5 outputs"):
        convert(source, tmp_path / "out", "tf1", head="classification", labels=labels)


def test_labels_that_contradict_each_other_are_an_error(tmp_path):
    source = tf1_folder(tmp_path / "tf1", arrays_for("classification"))
    flags = head_flags("classification")
    there = convert(source, tmp_path / "there", "huggingface", **flags)
    values = json.loads((there / "config.json").read_text())
    write_json(there / "config.json", {**values, "id2label": dict(enumerate("vwxyz"))})
    with pytest.raises(ValueError, match="v, w, x"):
        convert(there, tmp_path / "back", "tf1")
    back = convert(there, tmp_path / "back", "tf1", labels="v,w,x,y,z")
    assert read_task(str(back)).labels == tuple("vwxyz")


def test_two_outputs_without_names_are_huggingfaces_two(tmp_path):
    tensors = huggingface_tensors(arrays_of("classifier", num_labels=2))
    architecture = ["BertForTokenClassification"]
    source = write_huggingface(tmp_path / "hf", tensors, architectures=architecture)
    ours = convert(source, tmp_path / "ours", "tf1")
    assert read_task(str(ours)).labels == ("LABEL_0", "LABEL_1")


def test_variables_of_no_bert_are_an_error_unless_the_head_is_named(tmp_path, caplog):
    arrays = {**arrays_of(), "crf/transitions": np.ones((3, 3), np.float32)}
    source = tf1_folder(tmp_path / "tf1", arrays)
    with pytest.raises(ValueError, match="crf/transitions"):
        convert(source, tmp_path / "out", "huggingface")
    convert(source, tmp_path / "out", "huggingface", head="encoder")
    assert "--head=encoder: crf/transitions" in caplog.text


def test_left_to_right_model_has_no_counterpart(tmp_path):
    config = dataclasses.replace(CONFIG, attention_direction="left_to_right")
    source = tf1_folder(tmp_path / "tf1", arrays_of(), config=config)
    with pytest.raises(ValueError, match="attention_direction"):
        convert(source, tmp_path / "out", "huggingface")
    assert not (tmp_path / "out").exists()


def test_settings_of_the_tokenizer_that_are_lost_are_logged(tmp_path, caplog):
    source = write_huggingface(tmp_path / "hf", huggingface_tensors(arrays_of()))
    (tmp_path / "hf" / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS))
    values = {"do_lower_case": True, "tokenizer_class": "BertJapaneseTokenizer"}
    write_json(tmp_path / "hf" / "tokenizer_config.json", values)
    convert(source, tmp_path / "out", "tf1")
    assert "`tokenizer_class` is 'BertJapaneseTokenizer'" in caplog.text
    assert "The new folder loses this setting." in caplog.text


def test_flags_replace_what_the_task_states(tmp_path):
    source = tf1_folder(tmp_path / "tf1", arrays_for("classification"))
    flags = head_flags("classification")
    there = convert(source, tmp_path / "there", "tf1", max_seq_length=7, is_pair=False, **flags)
    back = convert(there, tmp_path / "back", "tf1", max_seq_length=8, is_pair=True)
    task = read_task(str(back))
    assert (task.max_seq_length, task.is_pair, len(task.labels)) == (8, True, 5)
