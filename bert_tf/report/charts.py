"""Pieces of a report as HTML and inline SVG, from plain numbers: no script, no library, no network.

Every text is escaped here, so callers give texts as they are.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

_WIDTH, _HEIGHT = 560, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 14, 12, 42  # margins of the axes
_COLORS = tuple(f"var(--color-{number})" for number in range(5))  # page.py has their values
_LONG = 30  # characters of a text that may break inside a word

Points = Sequence[tuple[float, float]]


def escape(text: object) -> str:
    """Text as HTML."""
    return html.escape(str(text), quote=True)


def figure(value: float | int | str) -> str:
    """A number for a person: four digits, whole numbers as they are.

    >>> [figure(value) for value in (343, 0.84558, 1e-7, 12345.6)]
    ['343', '0.8456', '1e-07', '12346']
    """
    if not isinstance(value, float):
        return str(value)
    if not math.isfinite(value):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def table(header: Sequence[str], rows: Sequence[Sequence[object]], texts: bool = False) -> str:
    """Rows below a header; floats are rounded.

    Args:
        texts: on a phone, show each cell on a line of its own, with the name of its column.
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    names = [f' data-name="{escape(name)}"' if texts else "" for name in header]
    body = "".join(f"<tr>{''.join(map(_cell, row, names))}</tr>" for row in rows)
    kind = ' class="texts"' if texts else ""
    return f"<table{kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object, attributes: str) -> str:
    if isinstance(value, int | float):
        return f'<td class="number"{attributes}>{escape(figure(value))}</td>'
    kind = ' class="text"' if len(str(value)) > _LONG else ""
    return f"<td{kind}{attributes}>{escape(value)}</td>"


def matrix(rows: Sequence[str], columns: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """A table of counts, darker where a cell has much of its row; rows are known, columns predicted."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = ""
    for name, row in zip(rows, counts, strict=True):
        total = max(1, sum(row))
        cells = "".join(
            f'<td class="cell" style="--share:{count / total:.3f}">{count}'
            f"<small>{count / total:.0%}</small></td>"
            for count in row
        )
        body += f"<tr><th>{escape(name)}</th>{cells}</tr>"
    return (
        '<table class="matrix"><thead><tr><th>label \\ predicted</th>'
        f"{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def bars(groups: Mapping[str, tuple[float, int]], unit: str) -> str:
    """A bar for the score of each group, such as F1 by label, by question word, by entity type.

    Args:
        groups: name -> (score from 0 to 1, number of examples).
        unit: what the score is.
    """
    step, left = 22, 190
    height = step * len(groups) + 24
    parts = []
    for index, (name, (score, count)) in enumerate(groups.items()):
        y = step * index + 4
        shown = name if len(name) <= 26 else name[:25] + "…"
        width = max(0.0, min(1.0, score)) * (_WIDTH - left - 110)
        parts.append(
            f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{escape(shown)}'
            f"<title>{escape(name)}</title></text>"
            f'<rect x="{left}" y="{y}" width="{width:.1f}" height="16" fill="{_COLORS[0]}"/>'
            f'<text x="{left + width + 6:.1f}" y="{y + 13}">{figure(float(score))} '
            f'<tspan class="faint">of {count}</tspan></text>'
        )
    caption = f'<text x="{left}" y="{height - 6}" class="faint">{escape(unit)}</text>'
    return _svg(_WIDTH, height, "".join(parts) + caption)


def line_chart(
    series: Mapping[str, Points],
    x_name: str,
    y_name: str,
    *,
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = None,
    dots: bool = False,
    diagonal: bool = False,
    most_points: int = 300,
    means: bool = True,
) -> str:
    """Lines (or dots) over common axes.

    Args:
        series: name -> points in the order of x; what is not finite is left out.
        x_range, y_range: of the axes; default: what the points take up.
        dots: draw points instead of lines.
        diagonal: draw y = x, the place of perfect agreement.
        most_points: of a line; of more than that, neighbours are drawn as one point.
        means: draw neighbours as their mean; else as the highest of them.
    """
    series = {
        name: _thinned([p for p in points if all(map(math.isfinite, p))], most_points, means)
        for name, points in series.items()
    }
    everything = [point for points in series.values() for point in points]
    if not everything:
        return '<p class="faint">There is nothing to draw.</p>'
    x_low, x_high = x_range or _extent([x for x, _ in everything])
    y_low, y_high = y_range or _extent([y for _, y in everything])

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - x_low) / (x_high - x_low) * (_WIDTH - _LEFT - _RIGHT)
        up = (y - y_low) / (y_high - y_low) * (_HEIGHT - _TOP - _BOTTOM)
        return _LEFT + across, _HEIGHT - _BOTTOM - up

    parts = [_axes((x_low, x_high), (y_low, y_high), place, x_name, y_name)]
    if diagonal:
        low, high = max(x_low, y_low), min(x_high, y_high)
        (x1, y1), (x2, y2) = place(low, low), place(high, high)
        parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="diagonal"/>'
        )
    for index, (name, points) in enumerate(series.items()):
        color = _COLORS[index % len(_COLORS)]
        placed = [place(x, y) for x, y in points]
        if dots or len(placed) == 1:
            parts += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{color}" fill-opacity="0.55"/>'
                for x, y in placed
            ]
        else:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
            parts.append(
                f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.8"/>'
            )
        if len(series) > 1:
            y = _TOP + 12 + 16 * index
            parts.append(
                f'<rect x="{_WIDTH - 150}" y="{y - 9}" width="10" height="10" fill="{color}"/>'
                f'<text x="{_WIDTH - 135}" y="{y}">{escape(name)}</text>'
            )
    return _svg(_WIDTH, _HEIGHT, "".join(parts))


def _axes(x_range, y_range, place, x_name: str, y_name: str) -> str:
    parts = []
    bottom = _HEIGHT - _BOTTOM
    for value in _ticks(*y_range):
        _, y = place(x_range[0], value)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{figure(value)}</text>'
        )
    for value in _ticks(*x_range):
        x, _ = place(value, y_range[0])
        parts.append(
            f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{figure(value)}</text>'
        )
    parts.append(
        f'<text x="{(_LEFT + _WIDTH) / 2}" y="{_HEIGHT - 6}" text-anchor="middle" class="faint">'
        f"{escape(x_name)}</text>"
        f'<text transform="translate(14 {bottom / 2 + _TOP}) rotate(-90)" text-anchor="middle" '
        f'class="faint">{escape(y_name)}</text>'
    )
    return "".join(parts)


def _ticks(low: float, high: float) -> list[float]:
    """Four to eight round numbers between two others."""
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = min((m * power for m in (1, 2, 5, 10)), key=lambda size: abs(size - raw))
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [float(f"{(first + index) * step:.10g}") for index in range(count)]


def _extent(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if low == high:
        margin = abs(low) * 0.1 or 1.0
        return low - margin, high + margin
    return low, high


def _thinned(points: Points, most_points: int, means: bool) -> Points:
    """At most so many, each the mean or the highest of as many neighbours."""
    size = -(-len(points) // most_points)
    if size <= 1:
        return points
    parts = [points[i : i + size] for i in range(0, len(points), size)]
    if not means:
        return [max(part, key=lambda point: point[1]) for part in parts]
    return [tuple(sum(axis) / len(part) for axis in zip(*part, strict=True)) for part in parts]


def _svg(width: int, height: int, content: str) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" xmlns="http://www.w3.org/2000/svg">{content}</svg>'
    )
