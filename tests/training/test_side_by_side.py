"""benchmarks/side_by_side.py: sides in processes of their own that take turns."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from side_by_side import answer_turns, take_turns

side = sys.argv[-1].removeprefix("--worker=")
if side == sys.argv[-1]:
    sides = sys.argv[1].split(",")
    for turns in take_turns(sides, 2, 3):
        print(turns.side, turns.first, len(turns.seconds), len(turns.seconds_of_first_side))
elif side == "absent":
    raise ImportError("no such package")
else:
    answer_turns(lambda: sys.exit("no memory") if side == "ends" else 0.0, 1.5)
"""


def run(tmp_path, sides):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT.format(folder=str(BENCHMARKS))))
    command = [sys.executable, str(script), sides]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_side_that_fails_is_reported_and_left_out(tmp_path):
    done = run(tmp_path, "ours,absent,ends,theirs")
    assert done.stdout.splitlines() == [
        "absent failed (exit status 1): ImportError: no such package",
        "ends failed (exit status 1): no memory",
        # Its turns with the side that ended are its own as well.
        "ours 1.5 9 9",
        "theirs 1.5 6 6",
    ], done.stderr


@pytest.mark.parametrize("first", ["absent", "ends"])
def test_without_the_first_side_there_is_no_comparison(tmp_path, first):
    done = run(tmp_path, f"{first},theirs")
    assert done.returncode == 1
    assert f"{first} failed" in done.stderr and "the base of the comparison" in done.stderr
