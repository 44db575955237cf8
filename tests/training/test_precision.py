"""--precision=auto: bfloat16 where the hardware multiplies it."""

import pytest

from bert_tf.training import strategy
from bert_tf.training.strategy import choose_precision, precision_for_cpu


@pytest.mark.parametrize(
    ("flags", "precision"),
    [
        ("fpu sse4_2 amx_bf16", "mixed_bfloat16"),
        ("fpu avx512_bf16", "mixed_bfloat16"),
        ("fpu avx512f avx512_bf16x", "float32"),
    ],
)
def test_a_processor_is_known_by_its_flags(tmp_path, monkeypatch, flags, precision):
    file = tmp_path / "cpuinfo"
    file.write_text(f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t: amx_bf16\n")
    monkeypatch.setattr(strategy, "CPU_INFO", file)
    assert precision_for_cpu() == precision


def test_a_system_that_does_not_name_its_instructions_gets_float32(tmp_path, monkeypatch):
    monkeypatch.setattr(strategy, "CPU_INFO", tmp_path / "none")
    assert precision_for_cpu() == "float32"


def test_the_oldest_of_several_gpus_decides(monkeypatch):
    """There may be no GPU here, so names stand in."""
    found = {"new": {"compute_capability": (9, 0)}, "old": {"compute_capability": (7, 5)}}
    config = strategy.tf.config
    monkeypatch.setattr(config, "list_physical_devices", lambda kind: list(found))
    monkeypatch.setattr(config.experimental, "get_device_details", found.__getitem__)
    choose = choose_precision.__wrapped__  # what it says is kept otherwise
    assert choose() == "float32"
    found["old"] = {"compute_capability": (8, 0)}
    assert choose() == "mixed_bfloat16"
    found.clear()
    monkeypatch.setattr(config, "list_logical_devices", lambda kind: [kind])
    assert choose() == "mixed_bfloat16"
