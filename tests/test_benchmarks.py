"""The script for the day when a GPU is there: it must not fail then for what a CPU can show."""

from pathlib import Path

import pytest
from helpers import output_of, read_json_lines


@pytest.mark.night
def test_the_benchmark_of_a_gpu_runs_on_a_cpu_and_goes_on_where_it_ended(tmp_path):
    script = Path(__file__).parents[1] / "benchmarks/gpu.py"
    output = tmp_path / "gpu.jsonl"
    flags = ["--sizes=tiny", "--lengths=24", "--batch_size=2", "--reads=1", "--processes=2"]
    for _ in range(2):
        printed = output_of(str(script), *flags, "--minutes=30", f"--output={output}")
    lines = read_json_lines(output)
    assert [line for line in lines if "error" in line] == []
    work = {line["job"]["work"] for line in lines}
    assert work == {"probe", "step", "losses", "lengths"}
    assert f"{len(lines)} of {len(lines)} jobs ended" in printed
    assert "losses, bf16, cudnn: 0.0e+00 from those of the CPU" in printed
