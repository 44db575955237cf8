"""run_scripts/sweep.py with a command that only writes a metric."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "run_scripts" / "sweep.py"
COMMAND = """
import pathlib, sys
flags = dict(argument.removeprefix("--").split("=", 1) for argument in sys.argv[1:])
folder = pathlib.Path(flags["output_dir"])
accuracy = float(flags["seed"]) * float(flags["learning_rate"])
with open(folder / "eval_results.txt", "x") as file:  # fails if it is run twice
    file.write(f"eval_accuracy = {accuracy}\\nglobal_step = 7\\n")
"""


def sweep(folder, seeds):
    flags = [f"--output_dir={folder}", f"--seed={seeds}", "--learning_rate=1,10"]
    command = [sys.executable, SCRIPT, *flags, "--", sys.executable, "-c", COMMAND]
    return subprocess.run(command, capture_output=True, text=True)


def test_sweep_runs_what_has_no_results_and_averages_over_seeds(tmp_path):
    printed = sweep(tmp_path, "1,3").stdout
    assert "learning_rate=10 (2 runs)\n  eval_accuracy = 20.0000 ± 14.1421" in printed
    printed = sweep(tmp_path, "1,3,2").stdout
    assert "learning_rate=1 (3 runs)\n  eval_accuracy = 2.0000 ± 1.0000" in printed
    assert len(list(tmp_path.iterdir())) == 6


def test_sweep_stops_at_a_failure_and_at_another_command(tmp_path):
    ended = sweep(tmp_path, "none")
    assert ended.returncode == 1 and "seed=none,learning_rate=1 failed" in ended.stderr
    (tmp_path / "seed=none,learning_rate=1" / "command.txt").write_text("another")
    assert "command.txt has another command" in sweep(tmp_path, "none").stderr
