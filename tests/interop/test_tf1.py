import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tiny_checkpoints import (
    CONFIG,
    arrays_of,
    assert_same,
    with_adam,
    write_json,
    write_tf1,
)

from bert_tf.interop.tf1 import read_tf1

ARRAYS = arrays_of("masked_lm", "next_sentence")


@pytest.mark.parametrize("ending", ["", ".index", ".data-00000-of-00001"])
def test_prefix_and_index_file_name_the_same_checkpoint(tmp_path, ending):
    prefix = write_tf1(tmp_path, ARRAYS)
    checkpoint = read_tf1(prefix + ending)
    assert checkpoint.source == prefix
    assert_same(checkpoint.arrays, ARRAYS)


def test_adam_slots_and_global_step_are_no_weights(tmp_path):
    checkpoint = read_tf1(write_tf1(tmp_path, with_adam(ARRAYS, step=17)))
    assert_same(checkpoint.arrays, ARRAYS)
    assert checkpoint.step == 17


def test_slots_of_any_other_optimizer_are_no_weights(tmp_path):
    weights = {"output_bias": np.ones(3, np.float32)}
    slots = {"output_bias/Momentum": np.ones(3, np.float32), "beta1_power": np.float32(0.9)}
    assert_same(read_tf1(write_tf1(tmp_path, {**weights, **slots})).arrays, weights)


def test_configuration_vocabulary_and_case_come_from_the_same_folder(tmp_path):
    prefix = write_tf1(tmp_path, ARRAYS)
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    write_json(tmp_path / "tokenizer_config.json", {"do_lower_case": False})
    checkpoint = read_tf1(prefix)
    assert checkpoint.config == CONFIG
    assert checkpoint.vocab_file == str(tmp_path / "vocab.txt")
    assert checkpoint.do_lower_case is False


def test_bfloat16_and_float64_weights_become_float32(tmp_path):
    stored = {"output_bias": tf.constant([0.5, -3.0], tf.bfloat16), "output_weights": np.eye(2)}
    expected = {"output_bias": np.float32([0.5, -3.0]), "output_weights": np.eye(2, dtype="f4")}
    assert_same(read_tf1(write_tf1(tmp_path, stored)).arrays, expected)


def test_folder_of_a_training_run_names_its_newest_checkpoint(tmp_path):
    for step in (5, 20, 100):
        write_tf1(tmp_path, with_adam(ARRAYS, step), name=f"model.ckpt-{step}")
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-20"\n')
    assert read_tf1(tmp_path).step == 20


def test_folder_that_was_moved_here_still_names_its_newest_checkpoint(tmp_path):
    prefix = write_tf1(tmp_path, ARRAYS, name="model.ckpt-7")
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/gone/run/model.ckpt-7"\n')
    assert read_tf1(tmp_path).source == prefix


def test_newest_checkpoint_that_is_gone_is_an_error_with_those_that_remain(tmp_path):
    write_tf1(tmp_path, ARRAYS, name="model.ckpt-20")
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-30"\n')
    with pytest.raises(FileNotFoundError, match=r"model.ckpt-30.* model.ckpt-20"):
        read_tf1(tmp_path)


def test_folder_with_several_checkpoints_and_no_newest_is_an_error(tmp_path):
    for step in (9, 10):
        write_tf1(tmp_path, ARRAYS, name=f"model.ckpt-{step}")
    with pytest.raises(ValueError, match=r"model\.ckpt-10"):
        read_tf1(tmp_path)


def test_missing_index_is_an_error(tmp_path):
    prefix = write_tf1(tmp_path, ARRAYS)
    Path(f"{prefix}.index").unlink()
    with pytest.raises(FileNotFoundError, match=r"bert_model.ckpt.index"):
        read_tf1(prefix)


def test_damaged_index_is_an_error(tmp_path):
    prefix = write_tf1(tmp_path, ARRAYS)
    Path(f"{prefix}.index").write_bytes(b"not an index")
    with pytest.raises(ValueError, match=r"ckpt\.index"):
        read_tf1(prefix)


@pytest.mark.parametrize("damage", [lambda data: data[:40], lambda data: b"?" * len(data), None])
def test_damaged_values_are_an_error_that_names_the_variable(tmp_path, damage):
    prefix = write_tf1(tmp_path, ARRAYS)
    data = Path(f"{prefix}.data-00000-of-00001")
    data.write_bytes(damage(data.read_bytes())) if damage else data.unlink()
    with pytest.raises(ValueError, match="bert/pooler/dense/kernel"):
        read_tf1(prefix).arrays["bert/pooler/dense/kernel"]


def test_arrays_are_read_only_when_asked_for(tmp_path):
    prefix = write_tf1(tmp_path, ARRAYS)
    arrays = read_tf1(prefix).arrays
    shutil.rmtree(tmp_path)
    assert "output_weights" not in arrays
    assert arrays.shape("bert/pooler/dense/kernel") == (8, 8)
    with pytest.raises(KeyError, match="output_weights"):
        arrays["output_weights"]
