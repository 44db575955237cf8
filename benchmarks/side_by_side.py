"""Sides of a benchmark in separate processes that take turns, so that other load affects all of them.

A script starts itself again for each side, with its own flags and --worker=SIDE. The worker calls
`answer_turns`.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median


@dataclass
class Turns:
    """Times of a side, and of the first side in the same minutes.

    Args:
        side: name.
        first: result of its first step, such as a loss.
        seconds: of its steps.
        seconds_of_first_side: of the first side's steps in between.
        peak_gb: peak memory of its process.
    """

    side: str
    first: float
    seconds: list[float] = field(default_factory=list)
    seconds_of_first_side: list[float] = field(default_factory=list)
    peak_gb: float = 0.0

    @property
    def median(self) -> float:
        return median(self.seconds)

    @property
    def ratio(self) -> float:
        """Median time relative to the first side's."""
        return self.median / median(self.seconds_of_first_side)


def take_turns(sides: Sequence[str], rounds: int, steps: int, *flags: str) -> list[Turns]:
    """Run `rounds` times `steps` steps of each side, in turns with the first.

    The first side stays in memory. The others run one after the other, because memory does not hold
    all. A side that fails is reported and omitted.

    Args:
        flags: of the workers, in addition to those of this process.
    """
    first_process, value = _start(sides[0], flags)
    if first_process is None:
        raise SystemExit(f"{sides[0]}, the base of the comparison, does not run.")
    first = Turns(sides[0], value)
    found = [first]
    for side in sides[1:]:
        process, value = _start(side, flags)
        if process is None:
            continue
        turns = Turns(side, value)
        for _ in range(rounds):
            for each, its_process in ((first, first_process), (turns, process)):
                answer = _ask(its_process, steps)
                each.seconds += answer["seconds"]
                each.peak_gb = answer["gb"]
                if each is first:
                    turns.seconds_of_first_side += answer["seconds"]
        found.append(turns)
        process.kill()
        process.wait()
    if len(found) == 1:
        first.seconds = _ask(first_process, rounds * steps)["seconds"]
    first.seconds_of_first_side = first.seconds
    first_process.kill()
    return found


def answer_turns(step: Callable[[], float], first: float) -> None:
    """Answer each line "N" with the seconds of N steps and the peak memory; for workers."""
    print(json.dumps({"first": first}), flush=True)
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(json.dumps({"seconds": seconds, "gb": peak}), flush=True)


def _start(side: str, flags: Sequence[str]) -> tuple[subprocess.Popen | None, float]:
    """Start the process of a side and return the result of its first step."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, *sys.argv, *flags, f"--worker={side}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        for line in process.stdout:
            if line.startswith('{"first"'):  # libraries print other lines
                return process, json.loads(line)["first"]
        errors.seek(0)
        print(f"{side} failed: {errors.read().strip().splitlines()[-1:]}", flush=True)
        return None, 0.0


def _ask(process: subprocess.Popen, steps: int) -> dict:
    process.stdin.write(f"{steps}\n")
    process.stdin.flush()
    return json.loads(next(line for line in process.stdout if line.startswith('{"seconds"')))
