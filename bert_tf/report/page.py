"""report.html: one page on the results of a run. It needs nothing but a browser.

A report is a title, the metrics of `eval_results.txt`, sections, and the learning curve from
`metrics.jsonl`. A task adds its own sections:

    Section("By question word", [bars({"who": (0.91, 1203), "why": (0.62, 151)}, unit="F1")])

Python makes numbers and texts only. A page is assets/page.html with its style, its scripts, and one
JSON that the scripts draw.
"""

from __future__ import annotations

import html
import json
import logging
import math
import os
import string
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.data.files import write_text
from bert_tf.report.charts import Part, line_chart, paragraph
from bert_tf.report.command_line import changed_flags
from bert_tf.training.checkpoints import latest_checkpoint

logger = logging.getLogger(__name__)

_ASSETS = Path(__file__).parent / "assets"
_SCRIPTS = ("charts.js", "attention.js", "page.js")


@dataclass(frozen=True)
class Section:
    """One part of a report.

    Args:
        title: plain text.
        parts: tables and charts, of charts.py.
        note: plain text above them that explains them.
        wide: take the whole width, for tables of texts.
    """

    title: str
    parts: Sequence[Part]
    note: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Command:
    """The command of the run.

    Args:
        program: name, such as "run_squad".
        options: dataclass of its flags.
    """

    program: str
    options: Any


def write_report(
    path: str,
    title: str,
    results: Mapping[str, float],
    sections: Sequence[Section],
    command: Command | None = None,
) -> None:
    """Write report.html, with the learning curve of `metrics.jsonl` in the same folder, if any.

    Args:
        path: of the new file.
        title: the task and its data.
        results: metrics of `eval_results.txt`, and numbers to compare them with. `loss` repeats
            `eval_loss` and is left out.
        sections: in the order of the page.
        command: shown at the end with the checkpoint; None to leave it out.
    """
    curve = learning_curve(os.path.join(os.path.dirname(path), "metrics.jsonl"))
    metrics = {
        name.removeprefix("eval_"): value
        for name, value in sorted(results.items())
        if name != "loss" and not name.startswith("loss_")
    }
    made = [] if command is None else [_origin(command, os.path.dirname(path))]
    write_text(path, page(title, metrics, [*sections, *curve, *made]))
    logger.info("Wrote %s", path)


def _origin(command: Command, folder: str) -> Section:
    """Return the evaluated checkpoint, its initial checkpoint, and the command."""
    start = getattr(command.options, "init_checkpoint", None)
    evaluated = latest_checkpoint(folder)
    rows = [("Checkpoint", evaluated or start), ("Started from", start if evaluated else None)]
    lines = [f"python -m bert_tf {command.program}", *changed_flags(command.options)]
    parts = [paragraph(f"{name}: ", value) for name, value in rows if value]
    parts.append({"kind": "command", "text": " \\\n    ".join(lines)})
    return Section(
        "Checkpoint and command", parts, "Flags at their defaults are omitted.", wide=True
    )


def page(title: str, values: Mapping[str, Any], sections: Sequence[Section]) -> str:
    """Return a whole page as HTML."""
    data = {
        "title": title,
        "figures": list(values.items()),
        "sections": [asdict(section) for section in sections],
    }
    text = json.dumps(plain(data), ensure_ascii=False, allow_nan=False)
    shown = "\n".join(f"{name}: {value}" for name, value in values.items())
    return string.Template(_asset("page.html")).substitute(
        title=html.escape(title),
        figures=html.escape(shown),
        style=_asset("page.css"),
        data=text.replace("<", "\\u003c"),  # "</script>" in a text would end the data
        script="".join(map(_asset, _SCRIPTS)),
    )


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def plain(value: Any) -> Any:
    """Return the same values for JSON, with "nan" and "inf" as texts."""
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    value = value.item() if isinstance(value, np.generic) else value
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def learning_curve(metrics_file: str) -> list[Section]:
    """Return charts of loss, evaluations and learning rate by step; [] without a file.

    A resumed run may train a step twice. The last values of the step count.
    """
    if not tf.io.gfile.exists(metrics_file):
        return []
    points: dict[str, dict[int, float]] = {}  # "train loss" -> step -> value
    with tf.io.gfile.GFile(metrics_file) as file:
        for number, line in enumerate(file, start=1):
            try:
                values = json.loads(line)
            except json.JSONDecodeError:  # a killed process may leave half a line
                logger.warning("%s:%d: invalid JSON, omitted from the curve", metrics_file, number)
                continue
            kind, step = values.pop("kind"), values.pop("step")
            for between, rate in values.pop("learning_rates", {}).items():
                points.setdefault(f"{kind} learning_rate", {})[int(between)] = rate
            for name, value in values.items():
                points.setdefault(f"{kind} {name}", {})[step] = value
    series = {name: sorted(steps.items()) for name, steps in points.items()}
    losses = {name: series[name] for name in ("train loss", "eval eval_loss") if name in series}
    sections = []
    if losses:
        named = {name.replace("eval eval_", "dev "): value for name, value in losses.items()}
        # The loss of one step is noisy. Means of neighbours show the trend.
        chart = line_chart(named, "step", "loss", most_points=60)
        note = "The training loss is a mean over the steps since the previous point."
        sections.append(Section("Learning curve", [chart], note))
    metrics = {
        name.removeprefix("eval eval_"): values
        for name, values in series.items()
        if name.startswith("eval eval_") and name != "eval eval_loss"
    }
    if metrics:
        chart = line_chart(metrics, "step", "")
        sections.append(Section("Dev set during training", [chart]))
    if "train learning_rate" in series:
        rate = {"learning rate": series["train learning_rate"]}
        chart = line_chart(rate, "step", "learning rate", means=False)
        sections.append(Section("Learning rate", [chart]))
    return sections
