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
from contextlib import suppress
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


class _Failed(Exception):
    """A side that has ended, with the last line of its errors."""


class _Worker:
    """Process of a side. `first` is the result of its first step."""

    def __init__(self, side: str, flags: Sequence[str]):
        self._side = side
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115, closed with the process
        self._process = subprocess.Popen(
            [sys.executable, *sys.argv, *flags, f"--worker={side}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.first: float = self._answer("first")["first"]

    def take(self, steps: int) -> dict:
        """Take steps. Return their seconds and the peak memory."""
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{steps}\n")
            self._process.stdin.flush()
        return self._answer("seconds")

    def _answer(self, name: str) -> dict:
        for line in self._process.stdout:
            if line.startswith(f'{{"{name}"'):  # libraries print other lines
                return json.loads(line)
        status = self._process.wait()
        self._errors.seek(0)
        last = self._errors.read().strip().rpartition("\n")[2]
        raise _Failed(f"{self._side} failed (exit status {status}): {last}")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def take_turns(sides: Sequence[str], rounds: int, steps: int, *flags: str) -> list[Turns]:
    """Run `rounds` times `steps` steps of each side, in turns with the first.

    The first side stays in memory. The others run one after the other, because memory does not hold
    all. A side that fails is reported and omitted.

    Args:
        flags: of the workers, in addition to those of this process.

    Raises:
        SystemExit: the first side failed.
    """
    try:
        base = _Worker(sides[0], flags)
        found = [Turns(sides[0], base.first)]
        for side in sides[1:]:
            try:
                worker = _Worker(side, flags)
            except _Failed as error:
                print(error, flush=True)
                continue
            turns = Turns(side, worker.first)
            for _ in range(rounds):
                seconds = _take(base, found[0], steps)
                try:
                    _take(worker, turns, steps)
                except _Failed as error:
                    print(error, flush=True)
                    break
                turns.seconds_of_first_side += seconds
            else:
                found.append(turns)
            worker.end()
        if len(found) == 1:
            _take(base, found[0], rounds * steps)
    except _Failed as error:
        raise SystemExit(f"{error}. It is the base of the comparison.") from error
    base.end()
    found[0].seconds_of_first_side = found[0].seconds
    return found


def _take(worker: _Worker, turns: Turns, steps: int) -> list[float]:
    """Take steps, and add them to the turns. Return their seconds."""
    answer = worker.take(steps)
    turns.seconds += answer["seconds"]
    turns.peak_gb = answer["gb"]
    return answer["seconds"]


def answer_turns(step: Callable[[], float], first: float) -> None:
    """Answer each line "N" with the seconds of N steps and the peak memory; for workers."""
    print(json.dumps({"first": first}), flush=True)
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9  # from KiB
        print(json.dumps({"seconds": seconds, "gb": peak}), flush=True)
