"""benchmarks/gpu.py, whole on the CPU at a tiny size."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed"),
]
SCRIPT = Path(__file__).parents[2] / "benchmarks/gpu.py"
HAS_TORCH = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
RESULT = {"seconds": 0.5, "first_steps": 3.0, "first": 9.0, "last": 8.0}


def test_the_tiny_command_of_its_docstring_compares_trains_and_prints_a_table():
    (flags,) = re.findall(r"^ +python benchmarks/gpu\.py (--.*)$", SCRIPT.read_text(), re.M)
    sides = ["tensorflow-fp32", "jax-bf16", "torch-fp32"]  # each starts a process
    process = subprocess.run(
        [sys.executable, SCRIPT, *shlex.split(flags), f"--sides={','.join(sides)}"],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stdout + process.stderr[-3000:]
    found = dict(re.findall(r"^(\w+, \w+): (\S+) from .*: ok$", process.stdout, re.M))
    for framework in ("tensorflow", "jax"):
        assert float(found[f"{framework}, float32"]) < 1e-5
        assert float(found[f"{framework}, mixed_bfloat16"]) > 1e-5
    table = [line for line in process.stdout.splitlines() if line.startswith("| tiny | 2 x 24 |")]
    numbers = r"\d+\.\d \| \d+\.\d % \| " + (r"\d+\.\d\d" if HAS_TORCH else "-")
    for line, side in zip(table, sides if HAS_TORCH else sides[:2], strict=True):
        assert re.fullmatch(rf"\| tiny \| 2 x 24 \| {side} \| {numbers} \|", line)


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    for name in ("XLA_PYTHON_CLIENT_PREALLOCATE", "TF_FORCE_GPU_ALLOW_GROWTH"):
        monkeypatch.setenv(name, "")  # the script sets them
    monkeypatch.setattr(sys, "path", [str(SCRIPT.parent), *sys.path])
    import gpu

    return gpu


@pytest.mark.parametrize(
    "difference, failing, status, rows",
    [
        (1e-6, "", None, 2),
        (1e-3, "", 1, 0),
        (float("nan"), "", 1, 0),
        (1e-6, "jax-numbers", 1, 0),
        (1e-6, "jax-fp32", 1, 1),
        (1e-6, "jax-bf16", 1, 1),
    ],
)
def test_a_difference_that_is_too_large_or_a_failure_of_ours_gives_status_1(
    gpu, monkeypatch, capsys, difference, failing, status, rows
):
    numbers = {"device": "", "differences": {"float32": difference, "mixed_bfloat16": 0.0}}

    def run(side, *flags):
        return None if side == failing else numbers if side == "jax-numbers" else RESULT

    monkeypatch.setattr(gpu, "run", run)
    monkeypatch.setattr(
        sys, "argv", ["", "--sides=jax-bf16,jax-fp32", "--sizes=tiny", "--lengths=24"]
    )
    found = None
    try:
        gpu.main()
    except SystemExit as end:
        found = end.code
    output = capsys.readouterr().out
    assert (found, output.count("| tiny |")) == (status, rows)
    assert ("jax, float32: 1.0e-06 from the NumPy BERT, limit 0.0001: ok" in output) is (rows > 0)
