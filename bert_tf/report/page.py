"""report.html: one page that says how a run went. It needs nothing but a browser.

A report is a title, the figures of `eval_results.txt`, sections, and the learning curve from
`metrics.jsonl`. A task brings its own sections:

    Section("By question word", bars({"who": (0.91, 1203), "why": (0.62, 151)}, unit="F1"))
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from bert_tf.data.files import write_text
from bert_tf.report.charts import escape, figure, line_chart
from bert_tf.report.command_line import changed_flags
from bert_tf.training.checkpoints import latest_checkpoint

logger = logging.getLogger(__name__)

# `--fill` is of cells that text stands on; the other colors have a contrast of 4.5 with `--paper`.
_STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --faint: #666; --line: #ddd; --paper: #fff;
  --fill: 37, 99, 168; --color-0: #2563a8; --color-1: #b54e14; --color-2: #2f7d42;
  --color-3: #8a4bab; --color-4: #a83232; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --faint: #aaa; --line: #444; --paper: #181818; --fill: 90, 150, 220;
    --color-0: #6aa9f0; --color-1: #f0955a; --color-2: #6cc583; --color-3: #c792e8;
    --color-4: #f08080; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1240px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 0 0 .5rem; }
main { display: flex; flex-wrap: wrap; gap: 1.5rem 2.5rem; align-items: flex-start; }
section { max-width: 100%; min-width: 0; overflow-x: auto; } section.wide { flex-basis: 100%; }
p { margin: .2rem 0 .6rem; max-width: 65ch; } .faint { color: var(--faint); fill: var(--faint); }
dl { display: flex; flex-wrap: wrap; gap: .5rem 2rem; margin: 0 0 2rem; }
dt { color: var(--faint); font-size: .85rem; } dd { margin: 0; font-size: 1.4rem; }
code, pre { font-size: .85rem; white-space: pre-wrap; overflow-wrap: anywhere; }
h1, dd, td { unicode-bidi: plaintext; }  /* the direction of a text is that of its letters */
table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: start;
  vertical-align: top; }
table.texts td { white-space: nowrap; }
td.text, table.texts td.text { overflow-wrap: anywhere; min-width: 10rem; white-space: normal; }
td.number, td.cell { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.cell { background: rgba(var(--fill), calc(var(--share) * .5)); }
td.cell small { display: block; }
svg { max-width: 100%; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: var(--ink); } svg text.faint, svg tspan.faint { fill: var(--faint); }
svg .grid { stroke: var(--line); } svg .diagonal { stroke: var(--faint); stroke-dasharray: 4 4; }
@media (max-width: 640px) {
  svg { font-size: 15px; }
  table.texts thead { display: none; }
  table.texts tr { display: block; border-bottom: 1px solid var(--line); padding: .5rem 0; }
  table.texts td { display: block; border: 0; padding: .1rem 0; }
  table.texts td::before { content: attr(data-name) ": "; color: var(--faint); } }
"""


@dataclass(frozen=True)
class Section:
    """One part of a report.

    Args:
        title: plain text.
        body: HTML, of charts.py.
        note: plain text above it that says how to read it.
        wide: whether it takes the whole width, as tables of texts do.
    """

    title: str
    body: str
    note: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Command:
    """The command that a report is of.

    Args:
        program: its name.
        options: its flags.
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
    """Writes the page; the learning curve is that of `metrics.jsonl` in the same folder, if any.

    Args:
        path: of the file.
        title: what the model was made for.
        results: of `eval_results.txt`, and what helps to read them; `loss`, which repeats
            `eval_loss`, is left out.
        sections: in the order of the page.
        command: shown at the end with the checkpoint, unless it is None.
    """
    curve = learning_curve(os.path.join(os.path.dirname(path), "metrics.jsonl"))
    figures = {
        name.removeprefix("eval_"): figure(value)
        for name, value in sorted(results.items())
        if name != "loss" and not name.startswith("loss_")
    }
    made = [] if command is None else [_origin(command, os.path.dirname(path))]
    write_text(path, page(title, figures, [*sections, *curve, *made]))
    logger.info("Wrote %s", path)


def _origin(command: Command, folder: str) -> Section:
    """The checkpoint that was evaluated, the one it started from, and the command."""
    start = getattr(command.options, "init_checkpoint", None)
    evaluated = latest_checkpoint(folder)
    rows = [("Checkpoint", evaluated or start), ("Started from", start if evaluated else None)]
    texts = [f"<p>{name}: <code>{escape(text)}</code></p>" for name, text in rows if text]
    lines = [f"python -m bert_tf {command.program}", *changed_flags(command.options)]
    text = escape(" \\\n    ".join(lines))
    note = "Flags at their defaults are left out."
    return Section("Checkpoint and command", f"{''.join(texts)}<pre>{text}</pre>", note, wide=True)


def page(
    title: str,
    figures: Mapping[str, str],
    sections: Sequence[Section],
    style: str = "",
    script: str = "",
) -> str:
    """A whole page as HTML; `style` is CSS besides that of every page, `script` comes at the end."""
    shown = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in figures.items()
    )
    body = "".join(_as_html(section) for section in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}{style}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n<dl>{shown}</dl>\n<main>{body}</main>"
        + (f"<script>{script}</script>" if script else "")
        + "</body>\n</html>\n"
    )


def learning_curve(metrics_file: str) -> list[Section]:
    """The loss by step, and what was evaluated on the way; nothing where there is no file.

    A step that was trained twice, because a run was resumed, counts as it was the last time.
    """
    if not tf.io.gfile.exists(metrics_file):
        return []
    points: dict[str, dict[int, float]] = {}  # "train loss" -> step -> value
    with tf.io.gfile.GFile(metrics_file) as file:
        for number, line in enumerate(file, start=1):
            try:
                values = json.loads(line)
            except json.JSONDecodeError:  # a kill may cut a line, and must not cost the report
                logger.warning("%s:%d: no JSON, left out of the curve", metrics_file, number)
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
        # The loss of a step is that of a few examples: means of neighbours show where it goes.
        chart = line_chart(named, "step", "loss", most_points=60)
        note = "The loss of the training set is a mean over the steps since the point before."
        sections.append(Section("Learning curve", chart, note))
    metrics = {
        name.removeprefix("eval eval_"): values
        for name, values in series.items()
        if name.startswith("eval eval_") and name != "eval eval_loss"
    }
    if metrics:
        sections.append(Section("On the dev set while training", line_chart(metrics, "step", "")))
    if "train learning_rate" in series:
        rate = {"learning rate": series["train learning_rate"]}
        chart = line_chart(rate, "step", "learning rate", means=False)
        sections.append(Section("Learning rate", chart))
    return sections


def _as_html(section: Section) -> str:
    note = f'<p class="faint">{escape(section.note)}</p>' if section.note else ""
    kind = ' class="wide"' if section.wide else ""
    return f"<section{kind}><h2>{escape(section.title)}</h2>{note}{section.body}</section>\n"
