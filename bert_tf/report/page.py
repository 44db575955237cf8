"""report.html: one page on the results of a run. It needs nothing but a browser.

A report is a title, the metrics of `eval_results.txt`, sections, and the learning curve from
`metrics.jsonl`. A task adds its own sections:

    Section("By question word", [bars({"who": (0.91, 1203), "why": (0.62, 151)}, unit="F1")])

Python makes numbers and texts only: tables and charts as plain data. A page is assets/page.html with
its style, its scripts, and one JSON, whose parts the scripts draw by their `kind`.
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

from bert_tf.files import write_text

logger = logging.getLogger(__name__)

Points = Sequence[tuple[float, float]]
Part = dict[str, Any]

MAX_ERRORS = 25  # rows of a table of errors
_MAX_GROUPS = 30  # of a chart with a bar for each
_MAX_CHARACTERS = 400  # of a text
_NUM_BINS = 10  # of a calibration
_MAX_POINTS = 60  # of a line


def paragraph(text: str) -> Part:
    return {"kind": "paragraph", "text": text}


def table(header: Sequence[str], rows: Sequence[Sequence[object]], texts: bool = False) -> Part:
    """Return rows below a header; on a phone, each cell of `texts` is in its own line."""
    cells = [[v if isinstance(v, int | float) else str(v) for v in row] for row in rows]
    return {"kind": "table", "header": list(header), "rows": cells, "texts": texts}


def matrix(rows: Sequence[str], columns: Sequence[str], counts: Sequence[Sequence[int]]) -> Part:
    """Return a table of counts [rows, columns], darker for a larger fraction of the row."""
    return {"kind": "matrix", "rows": list(rows), "columns": list(columns), "counts": counts}


def bars(groups: Mapping[str, tuple[float, int]], unit: str) -> Part:
    """Return one bar per group: name -> (score from 0 to 1, number of examples); `unit` is its name."""
    largest = sorted(groups, key=lambda name: -groups[name][1])[:_MAX_GROUPS]
    rows = [[name, *group] for name, group in groups.items() if name in largest]
    return {"kind": "bars", "rows": rows, "unit": unit}


def line_chart(
    series: Mapping[str, Points],
    x_name: str,
    y_name: str,
    *,
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = None,
    dots: bool = False,
    diagonal: bool = False,
) -> Part:
    """Return lines (or dots) on common axes.

    Args:
        series: name -> points in the order of x. Points that are not finite are left out, and
            neighbours on a long line become their mean.
    """
    finite = {
        name: [p for p in points if all(map(math.isfinite, p))] for name, points in series.items()
    }
    shown = [[name, points if dots else _thin(points)] for name, points in finite.items()]
    axes = {"x": x_name, "y": y_name, "x_range": x_range, "y_range": y_range}
    return {"kind": "lines", "series": shown, **axes, "dots": dots, "diagonal": diagonal}


def _thin(points: Points) -> Points:
    size = -(-len(points) // _MAX_POINTS) or 1
    parts = [points[i : i + size] for i in range(0, len(points), size)]
    return [tuple(sum(axis) / len(part) for axis in zip(*part, strict=True)) for part in parts]


_ASSETS = Path(__file__).parent / "assets"
_SCRIPTS = ("charts.js", "attention.js", "page.js")


@dataclass(frozen=True)
class Section:
    """One part of a report: tables and charts below a note; `wide` is for tables of texts."""

    title: str
    parts: Sequence[Part]
    note: str = ""
    wide: bool = False


def calibration(probabilities: np.ndarray, is_right: np.ndarray) -> Section:
    """Return the fraction of right predictions by their probability."""
    bins = np.minimum((probabilities * _NUM_BINS).astype(int), _NUM_BINS - 1)
    points, error = [], 0.0
    for index in np.unique(bins):
        inside = bins == index
        expected, actual = float(probabilities[inside].mean()), float(is_right[inside].mean())
        points.append((expected, actual))
        error += abs(expected - actual) * float(inside.mean())
    low = np.floor(probabilities.min() * _NUM_BINS) / _NUM_BINS
    chart = line_chart(
        {"model": points},
        "probability given",
        "fraction of right predictions",
        x_range=(min(low, 0.9), 1.0),
        y_range=(0.0, 1.0),
        diagonal=True,
    )
    return Section(
        "Calibration",
        [chart],
        "A calibrated model is on the dashed line. An overconfident one is below it. "
        f"Mean distance (expected calibration error): {error:.3f}.",
    )


def hardest_errors(
    header: Sequence[str], rows: Sequence[Sequence[object]], num_errors: int, order: str
) -> Section:
    """Return the worst errors, at most `MAX_ERRORS`; `order` is a text on their order."""
    if not rows:
        return Section("Hardest errors", [paragraph("No errors.")], wide=True)
    note = f"{len(rows)} of {num_errors}, {order}. Wrong labels in the data also appear here."
    return Section("Hardest errors", [table(header, rows, texts=True)], note, wide=True)


def shorten(text: str) -> str:
    """Return the beginning of a text, short enough for a table."""
    return text if len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS] + "…"


def write_report(
    path: str, title: str, results: Mapping[str, float], sections: Sequence[Section]
) -> None:
    """Write report.html, with the learning curve of `metrics.jsonl` in the same folder, if any.

    `results` are the metrics of `eval_results.txt`, and numbers to compare them with; also the last
    points of the curve. A `loss` that repeats `eval_loss` is left out.
    """
    curve = learning_curve(os.path.join(os.path.dirname(path), "metrics.jsonl"), results)
    metrics = {
        name.removeprefix("eval_"): value
        for name, value in sorted(results.items())
        if not (name.startswith("loss") and f"eval_{name}" in results)
    }
    write_text(path, page(title, metrics, [*sections, *curve]))
    logger.info("Wrote %s", path)


def page(title: str, values: Mapping[str, Any], sections: Sequence[Section]) -> str:
    data = {
        "title": title,
        "figures": list(values.items()),
        "sections": [asdict(section) for section in sections],
    }
    text = json.dumps(plain(data), ensure_ascii=False, allow_nan=False)
    return string.Template(_asset("page.html")).substitute(
        title=html.escape(title),
        figures=html.escape("\n".join(f"{name}: {value}" for name, value in values.items())),
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


# Kind of a line in `metrics.jsonl` and a name in it -> name in the chart.
_Names = Mapping[str, str]
_LOSS: _Names = {"train loss": "train loss", "eval loss": "dev loss", "eval eval_loss": "dev loss"}
_WORDS: _Names = {
    "train masked_lm_accuracy": "train masked words",
    "eval masked_lm_accuracy": "dev masked words",
    "train next_sentence_accuracy": "train next sentence",
    "eval next_sentence_accuracy": "dev next sentence",
}
_RATE: _Names = {"train learning_rate": "learning rate"}
_SPEED: _Names = {"train tokens_per_second": "tokens per second"}


def _points(record: dict[str, Any]) -> list[tuple[str, int, float]]:
    """Return (name, step, value) of each value of a record of the metrics file."""
    kind, step = record.pop("kind"), int(record.pop("step"))
    record.pop("learning_rates", None)  # of older logs
    return [(f"{kind} {name}", step, float(value)) for name, value in record.items()]


def learning_curve(metrics_file: str, results: Mapping[str, float]) -> list[Section]:
    """Return charts of the metrics file, [] without it; the last values of a repeated step count."""
    if not tf.io.gfile.exists(metrics_file):
        return []
    points: dict[str, dict[int, float]] = {}  # "train loss" -> step -> value
    with tf.io.gfile.GFile(metrics_file, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                record = json.loads(line)
            except ValueError:  # a killed process may leave half a line
                logger.warning("%s:%d: corrupt, omitted from the curve", metrics_file, number)
                continue
            for name, step, value in _points(record):
                points.setdefault(name, {})[step] = value
    for name, value in results.items():
        if f"eval {name}" in {*points, *_LOSS, *_WORDS} and "global_step" in results:
            points.setdefault(f"eval {name}", {}).setdefault(int(results["global_step"]), value)
    series = {name: sorted(steps.items()) for name, steps in points.items()}
    metrics = {
        name: name.removeprefix("eval eval_")
        for name in series
        if name.startswith("eval eval_") and name not in _LOSS
    }
    charts = {
        "Learning curve": ("loss", _LOSS),
        "Dev set during training": ("", metrics),
        "Masked words and next sentences": ("accuracy", _WORDS),
        "Learning rate": ("learning rate", _RATE),
        "Speed": ("tokens per second", _SPEED),
    }
    sections = []
    for title, (unit, names) in charts.items():
        if named := {label: series[name] for name, label in names.items() if name in series}:
            sections.append(Section(title, [line_chart(named, "step", unit)]))
    return sections
