"""Memory of a step: the estimate by hand, the memory of devices, and what does not fit."""

import subprocess
from types import SimpleNamespace

import pytest

from bert_tf.config import BertConfig
from bert_tf.training import memory
from bert_tf.training.memory import parts_that_fit, replica_bytes, step_bytes

CONFIG = BertConfig(
    vocab_size=1000,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=64,
    type_vocab_size=2,
)
# arXiv 2205.05198: a layer keeps S * H * (34 + 5 * A * S / H) bytes in 16 bits; 16 tokens, I = 4 H.
LAYER = 16 * 8 * (34 + 5 * 2 * 16 // 8)
PARAMETERS = 8 * (1000 + 64 + 2 + 2 * (4 * 8 + 2 * 32))
LOGITS = 3 * 4 * 5 * 1000


def devices(*names):
    return SimpleNamespace(extended=SimpleNamespace(worker_devices=names))


@pytest.mark.parametrize("precision, factor", [("float32", 2), ("mixed_bfloat16", 1)])
def test_the_estimate_is_that_of_the_paper(precision, factor):
    expected = 20 * PARAMETERS + 3 * (2 * factor * LAYER + LOGITS)
    assert step_bytes(CONFIG, 3, 16, 5, precision) == expected


def test_the_fewest_equal_parts_are_chosen():
    each = step_bytes(CONFIG, 2, 16, 5, "float32") - step_bytes(CONFIG, 1, 16, 5, "float32")
    fixed = step_bytes(CONFIG, 0, 16, 5, "float32")
    for fitting, parts in ((12, 1), (11, 2), (6, 2), (5, 3), (1, 12)):
        room = int((fixed + each * fitting) / memory.USED) + 1
        assert parts_that_fit(CONFIG, 12, 16, 5, "float32", room) == parts
    with pytest.raises(
        ValueError, match=r"needs about 0.00029 GB, but 80% of .* max_seq_length, or precision="
    ):
        parts_that_fit(CONFIG, 12, 16, 5, "float32", int(fixed / memory.USED))


def test_cpus_share_the_memory_of_their_container(tmp_path, monkeypatch):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_CGROUP_LIMITS", (str(limit), str(tmp_path / "missing")))
    whole = memory.host_bytes()
    limit.write_text("max\n")
    assert memory.host_bytes() == whole > 1 << 28
    limit.write_text(f"{1 << 28}\n")
    assert replica_bytes(devices("/device:CPU:0")) == 1 << 28
    assert replica_bytes(devices("/device:CPU:0", "/device:CPU:1")) == 1 << 27


def test_the_smallest_gpu_counts(monkeypatch):
    done = SimpleNamespace(stdout="81559\n24576\n")
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: done)
    assert replica_bytes(devices("/device:GPU:0", "/device:GPU:1")) == 24576 << 20


@pytest.mark.parametrize("kind", ["GPU", "TPU"])
def test_unknown_memory_is_an_error(monkeypatch, kind):
    monkeypatch.setattr(memory, "_ASK_GPU", ("a-program-that-does-not-exist",))
    with pytest.raises(
        ValueError, match=f"that of /device:{kind}:0 is not known. Use gradient_acc"
    ):
        replica_bytes(devices(f"/device:{kind}:0"))
