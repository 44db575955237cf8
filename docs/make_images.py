"""Make docs/images/*.svg, from the numbers in docs/images/numbers.json. Run after a change of these.

    python docs/make_images.py

Browsers choose the dark form of a chart, and larger letters in narrow windows, by themselves.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent / "images"
WIDTH, LABELS, ROW, TOP = 720, 310, 30, 58
PLOT = (50, 70, 640, 280)  # of lines: left, top, width, height
STYLE = """
  text { font: 14px system-ui, sans-serif; fill: #1f2328; }
  .title { font-size: 16px; font-weight: 600; }
  .faint { font-size: 12px; fill: #59636e; }
  .ours { fill: #b4460f; }
  .other { fill: #8c959f; }
  .box { fill: #f6f8fa; stroke: #8c959f; }
  .arrow { stroke: #59636e; stroke-width: 1.5; fill: none; }
  .grid { stroke: #d1d9e0; stroke-width: 1; }
  .line { stroke-width: 3; fill: none; }
  .line.ours { stroke: #b4460f; fill: none; }
  .line.other { stroke: #8c959f; fill: none; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .faint { fill: #9198a1; } .ours { fill: #f0883e; } .other { fill: #656c76; }
    .box { fill: #161b22; stroke: #656c76; } .arrow { stroke: #9198a1; } .grid { stroke: #3d444d; }
    .line.ours { stroke: #f0883e; } .line.other { stroke: #656c76; }
  }
  @media (max-width: 560px) {
    text { font-size: 18px; } .title { font-size: 20px; } .faint { font-size: 16px; }
    .station { font-size: 16px; } .program { font-size: 15px; }
  }
"""
# The way from text to a served model: a station and what makes it.
STATIONS = (
    ("text", "lines, tables"),
    ("records", "create_pretraining_data"),
    ("encoder", "run_pretraining"),
    ("classifier", "run_classifier, ..."),
    ("SavedModel", "export_saved_model"),
    ("answers", "TF Serving"),
)


def drawing(width: int, height: int, title: str, parts: list[str]) -> str:
    """Return an SVG file."""
    begin = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img"><title>{escape(title)}</title><style>{STYLE}</style>'
    )
    return "\n".join([begin, *parts, "</svg>", ""])


def text(x: float, y: float, content: object, kind: str = "", anchor: str = "start") -> str:
    place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}>{escape(str(content))}</text>'


def bar_chart(title: str, unit: str, note: str, bars: list[tuple[str, float, bool]]) -> str:
    """Return horizontal bars from 0. Ours have another colour."""
    longest = max(value for _, value, _ in bars)
    decimals = max(len(f"{value:g}".partition(".")[2]) for _, value, _ in bars)
    parts = [text(0, 20, title, "title"), text(0, 40, unit, "faint")]
    for row, (name, value, is_ours) in enumerate(bars):
        y = TOP + ROW * row
        length = (WIDTH - LABELS - 70) * value / longest
        kind = "ours" if is_ours else "other"
        parts += [
            text(LABELS - 10, y + 15, name, anchor="end"),
            f'<rect class="{kind}" x="{LABELS}" y="{y}" width="{length:.1f}" height="20" rx="2"/>',
            text(LABELS + length + 8, y + 15, f"{value:.{decimals}f}"),
        ]
    bottom = TOP + ROW * len(bars) + 14
    return drawing(WIDTH, bottom + 10, title, [*parts, text(0, bottom, note, "faint")])


def line_chart(
    title: str,
    unit: str,
    note: str,
    x_ticks: list[float],
    y_ticks: list[float],
    lines: list[tuple[str, list[tuple[float, float]], bool]],
) -> str:
    """Return lines of (x, y) between the outer ticks. Names are at the ends, ours below."""
    left, top, width, height = PLOT

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - x_ticks[0]) / (x_ticks[-1] - x_ticks[0])
        up = (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])
        return left + width * across, top + height * (1 - up)

    parts = [text(0, 20, title, "title"), text(0, 40, unit, "faint")]
    for tick in y_ticks:
        y = place(x_ticks[0], tick)[1]
        parts.append(f'<path class="grid" d="M{left} {y:.1f}h{width}"/>')
        parts.append(text(left - 8, y + 5, f"{tick:g}", "faint", "end"))
    for tick in x_ticks:
        parts.append(
            text(place(tick, y_ticks[0])[0], top + height + 24, f"{tick:,}", "faint", "middle")
        )
    lowest = top  # name of a line of ours
    for name, points, is_ours in lines:
        path = "L".join("{:.1f} {:.1f}".format(*place(*point)) for point in points)
        parts.append(f'<path class="line {"ours" if is_ours else "other"}" d="M{path}"/>')
        x, y = place(*points[-1])
        y = max(y + 24, lowest + 22) if is_ours else y - 34
        lowest = y if is_ours else lowest
        parts.append(text(x, y, f"{name}: {points[-1][1]:.2f}", anchor="end"))
    bottom = top + height + 58
    return drawing(WIDTH, bottom + 10, title, [*parts, text(0, bottom, note, "faint")])


def way() -> str:
    """Return the stations as boxes with arrows."""
    width, gap, height = 104, 19, 46
    parts = []
    for index, (name, program) in enumerate(STATIONS):
        x, bold = index * (width + gap), " title" if index in (0, 5) else ""
        parts += [
            f'<rect class="box" x="{x + 1}" y="10" width="{width - 2}" height="{height}" rx="6"/>',
            text(x + width / 2, 38, name, f"station{bold}", "middle"),
            text(x + width / 2, 76 + 16 * (index % 2), program, "faint program", "middle"),
        ]
        if index:
            start = x - gap + 2
            parts.append(f'<path class="arrow" d="M{start} 33h{gap - 5}m-5 -4l5 4l-5 4"/>')
    title = "From text to a served model"
    return drawing(len(STATIONS) * (width + gap) - gap, 100, title, parts)


def images() -> dict[str, str]:
    """Return name -> content of each image."""
    numbers = json.loads((FOLDER / "numbers.json").read_text(encoding="utf-8"))
    charts = {
        f"{name}.svg": (bar_chart if "bars" in chart else line_chart)(**chart)
        for name, chart in numbers.items()
    }
    return {"way.svg": way(), **charts}


if __name__ == "__main__":
    for name, content in images().items():
        (FOLDER / name).write_text(content, encoding="utf-8")
