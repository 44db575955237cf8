from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from helpers import cause_of
from tiny_checkpoints import CONFIG, arrays_of, assert_same, with_adam, write_json, write_tf1

from bert_tf.checkpoints.read import read_checkpoint
from bert_tf.checkpoints.tf1 import read_tf1

ARRAYS = arrays_of("masked_lm", "next_sentence")


def test_a_checkpoint_is_read_without_slots_and_with_the_files_beside_it(tmp_path):
    prefix = write_tf1(tmp_path, with_adam(ARRAYS))
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    write_json(tmp_path / "tokenizer_config.json", {"do_lower_case": False})
    for ending in ("", ".index", ".data-00000-of-00001"):
        checkpoint = read_checkpoint(prefix + ending)
        assert_same(checkpoint.arrays, ARRAYS)
        assert checkpoint.source == prefix
        assert (checkpoint.config, checkpoint.tokenizer.do_lower_case) == (CONFIG, False)
        assert checkpoint.tokenizer.vocab_file == str(tmp_path / "vocab.txt")


def test_slots_of_any_other_optimizer_are_no_weights(tmp_path):
    weights = {"output_bias": np.ones(3, np.float32)}
    slots = {"output_bias/Momentum": np.ones(3, np.float32), "beta1_power": np.float32(0.9)}
    assert_same(read_tf1(write_tf1(tmp_path, {**weights, **slots})).arrays, weights)


def test_bfloat16_and_float64_weights_become_float32(tmp_path):
    stored = {"output_bias": tf.constant([0.5, -3.0], tf.bfloat16), "output_weights": np.eye(2)}
    expected = {"output_bias": np.float32([0.5, -3.0]), "output_weights": np.eye(2, dtype="f4")}
    assert_same(read_tf1(write_tf1(tmp_path, stored)).arrays, expected)


def test_folder_of_a_training_run_names_its_newest_checkpoint(tmp_path):
    for step in (5, 20, 100):
        write_tf1(tmp_path, with_adam(ARRAYS, step), name=f"model.ckpt-{step}")
    assert cause_of(read_tf1, tmp_path) == str(tmp_path)
    state = tmp_path / "checkpoint"
    for name in ("model.ckpt-20", "/gone/run/model.ckpt-20"):  # also after it was moved
        state.write_text(f'model_checkpoint_path: "{name}"\n')
        assert read_tf1(tmp_path).source == str(tmp_path / "model.ckpt-20")
    state.write_text('model_checkpoint_path: "model.ckpt-30"\n')
    assert cause_of(read_tf1, tmp_path) == str(tmp_path)


@pytest.mark.parametrize(
    ("part", "damage"),
    [
        ("index", lambda data: b"not an index"),
        ("data-00000-of-00001", lambda data: data[:40]),
        ("data-00000-of-00001", lambda data: b"?" * len(data)),
        ("data-00000-of-00001", None),
        ("index", None),
    ],
)
def test_a_damaged_or_missing_file_is_named(tmp_path, part, damage):
    prefix, name = write_tf1(tmp_path, ARRAYS), "bert/pooler/dense/kernel"
    path = Path(f"{prefix}.{part}")
    path.write_bytes(damage(path.read_bytes())) if damage else path.unlink()
    if part == "index" and damage is None:
        with pytest.raises(FileNotFoundError):
            read_tf1(prefix)
        return
    assert cause_of(lambda: read_tf1(prefix).arrays[name]) == prefix
