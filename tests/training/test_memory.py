"""Memory of a step: the estimate by hand, that of devices, what does not fit, what is given back."""

import os
import platform
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from bert_tf import limits
from bert_tf.config import BertConfig
from bert_tf.pretraining.settings import most_predictions
from bert_tf.training import memory
from bert_tf.training.memory import parts_that_fit, replica_bytes, return_freed_memory, step_bytes

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
FIXED = 400 << 20


def devices(*names):
    return SimpleNamespace(extended=SimpleNamespace(worker_devices=names))


@pytest.mark.parametrize("precision, factor", [("float32", 2), ("mixed_bfloat16", 1)])
def test_the_estimate_is_that_of_the_paper(precision, factor):
    expected = FIXED + 20 * PARAMETERS + 3 * (2 * factor * LAYER + LOGITS)
    assert step_bytes(CONFIG, 3, 16, 5, precision) == expected


# Peaks in MiB of `python benchmarks/memory.py` (docs/pretraining.md): model, examples, tokens, float32
# and mixed_bfloat16.
PEAKS = (
    ("base", 1, 128, 2474, 2501),
    ("base", 8, 128, 3050, 2777),
    ("base", 1, 512, 2784, 2730),
    ("base", 4, 512, 4645, 3637),
    ("mini", 16, 128, 753, 722),
    ("mini", 64, 128, 1561, 1331),
)


@pytest.mark.parametrize(
    ("name", "examples", "length", "peaks"), [(*row[:3], row[3:]) for row in PEAKS]
)
def test_what_is_measured_fits_a_device_that_the_estimate_fits(name, examples, length, peaks):
    config = BertConfig.from_name(name, vocab_size=30522)
    for precision, peak in zip(("float32", "mixed_bfloat16"), peaks, strict=True):
        predictions = most_predictions(length, 0.15)
        needed = step_bytes(config, examples, length, predictions, precision)
        assert peak << 20 < needed / memory.USED < 2 * peak << 20


def test_parts_of_one_size_divide_the_batch():
    each = step_bytes(CONFIG, 2, 16, 5, "float32") - step_bytes(CONFIG, 1, 16, 5, "float32")
    room = int((FIXED + 20 * PARAMETERS + each * 3) / memory.USED) + 1
    assert parts_that_fit(CONFIG, 14, 16, 5, "float32", room) == 5
    assert parts_that_fit(CONFIG, 14, 16, 5, "float32", room, even=True) == 7


def test_the_fewest_equal_parts_are_chosen():
    each = step_bytes(CONFIG, 2, 16, 5, "float32") - step_bytes(CONFIG, 1, 16, 5, "float32")
    fixed = step_bytes(CONFIG, 0, 16, 5, "float32")
    for fitting, parts in ((12, 1), (11, 2), (6, 2), (5, 3), (1, 12)):
        room = int((fixed + each * fitting) / memory.USED) + 1
        assert parts_that_fit(CONFIG, 12, 16, 5, "float32", room) == parts
    with pytest.raises(
        ValueError, match=r"needs about 0.42 GB, but 80% of .* max_seq_length, or precision="
    ):
        parts_that_fit(CONFIG, 12, 16, 5, "float32", int(fixed / memory.USED))


def test_cpus_share_the_memory_of_their_container(tmp_path, monkeypatch):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(limits, "_CGROUP_LIMITS", (str(limit), str(tmp_path / "missing")))
    whole = limits.host_bytes()
    limit.write_text("max\n")
    assert limits.host_bytes() == whole > 1 << 28
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
    with pytest.raises(ValueError, match=f"that of /device:{kind}:0 is unknown. Use gradient_acc"):
        replica_bytes(devices(f"/device:{kind}:0"))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone keeps freed memory")
def test_freed_memory_is_given_back_to_the_system():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    pieces = [bytes([1]) * 100_000 for _ in range(3000)]  # below the size that glibc maps by itself
    last = pieces.pop()  # behind the others, so that freeing them alone gives nothing back
    pieces.clear()
    before = resident()
    return_freed_memory()
    assert before - resident() > 250_000_000
    assert last
