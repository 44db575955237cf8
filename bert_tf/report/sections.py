"""Sections in the reports of several tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bert_tf.report.page import Section, line_chart, paragraph, table

MOST_ERRORS = 25
_MOST_GROUPS = 30  # of a chart with a bar for each
_MOST_CHARACTERS = 400  # of a text
_BINS = 10  # of a calibration


def calibration(
    probabilities: np.ndarray, happened: np.ndarray, low: float | None = None
) -> Section:
    """Return the fraction of true predictions by their probability.

    Args:
        probabilities: of each prediction, from 0 to 1.
        happened: bool, True if the prediction is right.
        low: start of the axes; default: the least probability, rounded down.
    """
    bins = np.minimum((probabilities * _BINS).astype(int), _BINS - 1)
    points, gaps = [], 0.0
    for index in range(_BINS):
        inside = bins == index
        if inside.any():
            expected, found = float(probabilities[inside].mean()), float(happened[inside].mean())
            points.append((expected, found))
            gaps += abs(expected - found) * float(inside.mean())
    low = np.floor(probabilities.min() * _BINS) / _BINS if low is None else low
    low = min(low, 0.9)
    return Section(
        "Calibration",
        [
            line_chart(
                {"model": points},
                "probability given",
                "fraction of right predictions",
                x_range=(low, 1.0),
                y_range=(0.0, 1.0),
                diagonal=True,
            )
        ],
        "A calibrated model is on the dashed line. An overconfident one is below it. "
        f"Mean distance (expected calibration error): {gaps:.3f}.",
    )


def hardest_errors(
    header: Sequence[str], rows: Sequence[Sequence[object]], num_errors: int, order: str
) -> Section:
    """Return the worst errors.

    Args:
        rows: at most `MOST_ERRORS`, the worst first.
        num_errors: number of all errors.
        order: text on the order of the rows.
    """
    if not rows:
        return Section("Hardest errors", [paragraph("No errors.")], wide=True)
    return Section(
        "Hardest errors",
        [table(header, rows, texts=True)],
        f"{len(rows)} of {num_errors}, {order}. Wrong labels in the data also appear here.",
        wide=True,
    )


def most_common(scores: Mapping[str, tuple[float, int]]) -> dict[str, tuple[float, int]]:
    """Return the groups with the most examples, in the order of the groups.

    Args:
        scores: group -> (score, number of examples).
    """
    kept = sorted(scores, key=lambda name: -scores[name][1])[:_MOST_GROUPS]
    return {name: score for name, score in scores.items() if name in kept}


def shortened(text: str) -> str:
    """Return the beginning of a text, short enough for a table."""
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "…"
