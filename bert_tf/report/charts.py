"""Tables and charts of a page as plain data. The files in assets/ draw each by its `kind`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Points = Sequence[tuple[float, float]]
Part = dict[str, Any]


def paragraph(text: str, code: str = "") -> Part:
    """Return a paragraph that ends with `code`."""
    return {"kind": "paragraph", "text": text, "code": code}


def table(header: Sequence[str], rows: Sequence[Sequence[object]], texts: bool = False) -> Part:
    """Return rows below a header. The page rounds numbers.

    Args:
        texts: on a phone, show each cell in its own line, with the name of its column.
    """
    cells = [[v if isinstance(v, int | float) else str(v) for v in row] for row in rows]
    return {"kind": "table", "header": list(header), "rows": cells, "texts": texts}


def matrix(rows: Sequence[str], columns: Sequence[str], counts: Sequence[Sequence[int]]) -> Part:
    """Return a table of counts, darker for a larger fraction of the row.

    Args:
        rows: known labels.
        columns: predicted labels.
        counts: [rows, columns].
    """
    return {"kind": "matrix", "rows": list(rows), "columns": list(columns), "counts": counts}


def bars(groups: Mapping[str, tuple[float, int]], unit: str) -> Part:
    """Return one bar per group for its score, such as F1 by label or entity type.

    Args:
        groups: name -> (score from 0 to 1, number of examples).
        unit: name of the score.
    """
    return {
        "kind": "bars",
        "rows": [[name, *group] for name, group in groups.items()],
        "unit": unit,
    }


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
) -> Part:
    """Lines (or dots) on common axes.

    Args:
        series: name -> points in the order of x. Points that are not finite are left out.
        x_range, y_range: of the axes; default: the range of the points.
        dots: draw points instead of lines.
        diagonal: draw y = x, the place of perfect agreement.
        most_points: of a line. Neighbours become one point if it has more.
        means: draw neighbours as their mean; else as the highest of them.
    """
    finite = {
        name: [p for p in points if all(map(math.isfinite, p))] for name, points in series.items()
    }
    thinned = [[name, _thinned(points, most_points, means)] for name, points in finite.items()]
    axes = {"x": x_name, "y": y_name, "x_range": x_range, "y_range": y_range}
    return {"kind": "lines", "series": thinned, **axes, "dots": dots, "diagonal": diagonal}


def _thinned(points: Points, most_points: int, means: bool) -> Points:
    size = -(-len(points) // most_points)
    if size <= 1:
        return points
    parts = [points[i : i + size] for i in range(0, len(points), size)]
    if not means:
        return [max(part, key=lambda point: point[1]) for part in parts]
    return [tuple(sum(axis) / len(part) for axis in zip(*part, strict=True)) for part in parts]
