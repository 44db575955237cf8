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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.data.files import write_text
from bert_tf.report.charts import Part, line_chart, paragraph
from bert_tf.report.command_line import as_flags, changed_options
from bert_tf.training.checkpoints import latest_checkpoint
from bert_tf.training.unfinished import FLAGS, INITIAL, read_note

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
        results: metrics of `eval_results.txt`, and numbers to compare them with. A `loss` that repeats
            `eval_loss` is left out. After a training they are also the last point of the curve.
        sections: in the order of the page.
        command: shown at the end with the checkpoint; None to leave it out.
    """
    newest = results if command is not None and command.options.do_train else {}
    curve = learning_curve(os.path.join(os.path.dirname(path), "metrics.jsonl"), newest)
    metrics = {
        name.removeprefix("eval_"): value
        for name, value in sorted(results.items())
        if not _repeats(name, results)
    }
    last = [] if command is None else [_origin(command, os.path.dirname(path))]
    write_text(path, page(title, metrics, [*sections, *curve, *last]))
    logger.info("Wrote %s", path)


def _repeats(name: str, results: Mapping[str, float]) -> bool:
    """Return True for a `loss` that is also there as `eval_loss`."""
    return name.startswith("loss") and f"eval_{name}" in results


def _origin(command: Command, folder: str) -> Section:
    """Return the checkpoint, its initial checkpoint, and the commands that trained and evaluated it."""
    now, evaluated = changed_options(command.options), latest_checkpoint(folder)
    trained = read_note(folder).get(FLAGS, now) if evaluated else now
    start = trained.get("init_checkpoint")
    rows = [("Checkpoint", evaluated or start), ("Started from", start if evaluated else None)]
    parts = [paragraph(f"{name}: ", value) for name, value in rows if value]
    parts.append(_command(command.program, trained))
    evaluation, training = (
        {name: value for name, value in values.items() if name not in INITIAL}
        for values in (now, trained)
    )
    if evaluation != training:
        parts += [paragraph("Evaluated by: "), _command(command.program, evaluation)]
    return Section(
        "Checkpoint and command", parts, "Flags at their defaults are omitted.", wide=True
    )


def _command(program: str, values: Mapping[str, Any]) -> Part:
    lines = [f"python -m bert_tf {program}", *as_flags(values)]
    return {"kind": "command", "text": " \\\n    ".join(lines)}


def page(title: str, values: Mapping[str, Any], sections: Sequence[Section]) -> str:
    """Return a whole page as HTML."""
    data = {
        "title": title,
        "figures": list(values.items()),
        "sections": [asdict(section) for section in sections],
    }
    text = json.dumps(plain(data), ensure_ascii=False, allow_nan=False)
    shown = "\n".join(f"{name}: {value}" for name, value in values.items())
    made = string.Template(_asset("page.html")).substitute(
        title=html.escape(title),
        figures=html.escape(shown),
        style=_asset("page.css"),
        data=text.replace("<", "\\u003c"),  # "</script>" in a text would end the data
        script="".join(map(_asset, _SCRIPTS)),
    )
    # UTF-8 has no halves of surrogate pairs, which JSON files and names of files may contain.
    return made.encode("utf-8", "backslashreplace").decode("utf-8")


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


@dataclass(frozen=True)
class _Curves:
    """A chart of values by step.

    Args:
        names: series -> name in the chart. A series is the kind of a line in `metrics.jsonl`, and a
            name in it.
        style: other arguments of `line_chart`.
    """

    title: str
    unit: str
    names: Mapping[str, str]
    note: str = ""
    style: Mapping[str, Any] = field(default_factory=dict)


_LOSS = _Curves(
    "Learning curve",
    "loss",
    {"train loss": "train loss", "eval loss": "dev loss", "eval eval_loss": "dev loss"},
    "The training loss is a mean over the steps since the previous point.",
    # The loss of one step is noisy. Means of neighbours show the trend.
    {"most_points": 60},
)
_OTHERS = (
    _Curves(
        "Masked words and next sentences",
        "accuracy",
        {
            "train masked_lm_accuracy": "train masked words",
            "eval masked_lm_accuracy": "dev masked words",
            "train next_sentence_accuracy": "train next sentence",
            "eval next_sentence_accuracy": "dev next sentence",
        },
        style={"most_points": 60},
    ),
    _Curves(
        "Learning rate",
        "learning rate",
        {"train learning_rate": "learning rate"},
        style={"means": False},
    ),
    _Curves(
        "Speed",
        "tokens per second",
        {"train tokens_per_second": "tokens per second"},
        style={"most_points": 60},
    ),
)


def _points_of(record: dict[str, Any]) -> list[tuple[str, int, float]]:
    """Return (name, step, value) of each value of a record of the metrics file."""
    kind, step = record.pop("kind"), int(record.pop("step"))
    rates = record.pop("learning_rates", {}).items()
    found = [(f"{kind} learning_rate", int(between), float(rate)) for between, rate in rates]
    return found + [(f"{kind} {name}", step, float(value)) for name, value in record.items()]


def learning_curve(metrics_file: str, results: Mapping[str, float] | None = None) -> list[Section]:
    """Return charts of losses, evaluations, learning rate and speed by step; [] without a file.

    A resumed run may train a step twice. The last values of the step count.

    Args:
        results: metrics at `global_step`, the last points of the evaluations.
    """
    if not tf.io.gfile.exists(metrics_file):
        return []
    points: dict[str, dict[int, float]] = {}  # "train loss" -> step -> value
    with tf.io.gfile.GFile(metrics_file, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                found = _points_of(json.loads(line))
            except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
                # A killed process may leave half a line.
                logger.warning("%s:%d: damaged, omitted from the curve", metrics_file, number)
                continue
            for name, step, value in found:
                points.setdefault(name, {})[step] = value
    known = {*points, *_LOSS.names, *(name for curves in _OTHERS for name in curves.names)}
    for name, value in (results or {}).items():
        if f"eval {name}" in known and "global_step" in results:
            points.setdefault(f"eval {name}", {})[int(results["global_step"])] = value
    series = {name: sorted(steps.items()) for name, steps in points.items()}
    metrics = {
        name: name.removeprefix("eval eval_")
        for name in series
        if name.startswith("eval eval_") and name != "eval eval_loss"
    }
    sections = []
    for curves in (_LOSS, _Curves("Dev set during training", "", metrics), *_OTHERS):
        named = {shown: series[name] for name, shown in curves.names.items() if name in series}
        if named:
            chart = line_chart(named, "step", curves.unit, **curves.style)
            sections.append(Section(curves.title, [chart], curves.note))
    return sections
