"""Progress of a long run: one live line, and `metrics.jsonl` for everything else."""

from __future__ import annotations

import functools
import json
import shutil
import sys
import time
from collections.abc import Mapping
from typing import IO, Any

import tensorflow as tf

_SECONDS_BETWEEN_REDRAWS = 0.1  # on a terminal
_SECONDS_BETWEEN_LINES = 20.0  # elsewhere


class Progress:
    """Progress of a loop of known length: percentage, rate, time left, values.

    On a terminal one line is rewritten. Elsewhere a line is printed every 20 seconds and at the end.
    """

    def __init__(
        self,
        label: str,
        total: float,
        unit: str = "steps",
        stream: IO[str] | None = None,
        clock=time.monotonic,
    ):
        self.label = label
        self.total = total
        self.unit = unit
        self._stream = stream or sys.stderr
        self._clock = clock
        self._start = self._last_shown = clock()
        self._first: tuple[float, float] | None = None  # (done, time) of the first update
        self._live = self._stream.isatty()

    def update(self, done: float, values: Mapping[str, float] | None = None) -> None:
        """Show that `done` of `total` units are finished."""
        now = self._clock()
        # The first update includes compilation, so it does not predict the rest.
        self._first = self._first or (done, now)
        finished = done >= self.total
        pause = _SECONDS_BETWEEN_REDRAWS if self._live else _SECONDS_BETWEEN_LINES
        if not finished and now - self._last_shown < pause:
            return
        self._last_shown = now
        done_before, time_before = self._first
        rate = (done - done_before) / (now - time_before) if now > time_before else 0.0
        speed = f"  {rate:,.2f} {self.unit}/s" if rate > 0 else ""
        ending = f"took {duration(now - self._start)}"
        if not finished:
            ending = f"ETA {duration((self.total - done) / rate) if rate > 0 else '?'}"
        fraction = done / self.total if self.total else 1.0
        line = f"{self.label} {done:,.0f}/{self.total:,.0f} {fraction:4.0%}{speed}  {ending}"
        line += "".join(f"  {name} {_format(value)}" for name, value in (values or {}).items())
        if self._live:
            # A line that wraps cannot be rewritten. metrics.jsonl contains the values cut off here.
            line = line[: shutil.get_terminal_size().columns - 1]
            line = f"\r\x1b[K{line}"
        self._stream.write(line + ("\n" if finished or not self._live else ""))
        self._stream.flush()


class ByteProgress(Progress):
    """Progress in bytes, shown as kB or MB, with the mean rate from the beginning."""

    def __init__(self, label: str, num_bytes: int, **arguments: Any):
        self._scale, unit = (1e6, "MB") if num_bytes >= 1e7 else (1e3, "kB")
        super().__init__(label, num_bytes / self._scale, unit, **arguments)
        self._first = (0.0, self._start)  # nothing is compiled

    def update(self, done: float, values: Mapping[str, float] | None = None) -> None:
        super().update(done / self._scale, values)


_SHORT_NAMES = {
    "sequences_per_second": "seq/s",
    "tokens_per_second": "tokens/s",
    "gflops_per_second": "GFLOP/s",
}


def values_to_show(values: Mapping[str, float]) -> dict[str, float]:
    """Return the values of a training for the live line; metrics.jsonl has all."""
    names = [name for name in values if name == "loss" or name.endswith("accuracy")]
    names += ["learning_rate", *_SHORT_NAMES]
    return {_SHORT_NAMES.get(name, name): values[name] for name in names if name in values}


def _format(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Format seconds for people: "7s", "3m20s", "2h05m", "3d12h"."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds}s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m{seconds:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h{minutes:02d}m"
    return f"{hours // 24}d{hours % 24:02d}h"


class MetricsLog:
    """`metrics.jsonl`: {"kind": "train", "step": 10, "loss": 2.5} and so on, appended as it happens.

    With `tensorboard` also event files in the same folder.
    """

    def __init__(self, directory: str, tensorboard: bool = False):
        self._path = tf.io.gfile.join(directory, "metrics.jsonl")
        self._directory = directory
        self._tensorboard = tensorboard

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        record = {"kind": kind, "step": step, **{name: float(v) for name, v in values.items()}}
        with tf.io.gfile.GFile(self._path, "a") as file:
            file.write(json.dumps(record) + "\n")
        if self._tensorboard:
            with self._events.as_default():
                for name, value in values.items():
                    tf.summary.scalar(f"{kind}/{name}", value, step=step)
                self._events.flush()

    @functools.cached_property
    def _events(self) -> tf.summary.SummaryWriter:
        return tf.summary.create_file_writer(self._directory)
