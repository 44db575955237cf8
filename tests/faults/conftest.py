"""`pytest tests/faults` injects every fault once; `--faults=20` each of them twenty times, at other
random moments and places. At the end a table says how many of which, and what came of them."""

import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest


def pytest_addoption(parser):
    parser.addoption("--faults", type=int, default=1, help="how often each fault is injected")


def pytest_generate_tests(metafunc):
    if "fault_seed" in metafunc.fixturenames:
        # Under `make test` this file is not read early enough to add the option.
        count = metafunc.config.getoption("--faults", default=1)
        metafunc.parametrize("fault_seed", range(count))


@pytest.fixture
def outcome(record_property):
    """To be called with the fault and with what came of it."""
    return lambda fault, came_of_it: record_property("fault", (fault, came_of_it))


class SmallDisk(NamedTuple):
    """A disk of a few pages of memory."""

    folder: Path

    def has(self, size: str) -> None:
        """From now on it has that many bytes, such as "100m"."""
        command = ["mount", "-o", f"remount,size={size}", str(self.folder)]
        subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a tmpfs cannot be mounted here, which takes root ({error})")
    yield SmallDisk(folder)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def pytest_terminal_summary(terminalreporter):
    counts = Counter()
    for result in ("passed", "failed"):
        for report in terminalreporter.stats.get(result, []):
            for name, value in report.user_properties:
                if name == "fault":
                    counts[
                        tuple(value) if result == "passed" else (value[0], "NOT AS IT MUST BE")
                    ] += 1
    if counts:
        terminalreporter.section("faults")
        for (fault, came_of_it), count in sorted(counts.items()):
            terminalreporter.write_line(f"{count:5}  {fault:55}  {came_of_it}")
        terminalreporter.write_line(f"{sum(counts.values()):5}  in all")
