"""The result of a comparison in plain values, with the faults beyond the limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bert_tf.prediction.exports import Export, is_within
from bert_tf.programs.certificate import Comparison, Expected, Tally
from bert_tf.programs.certificate_answers import margin_of

_MOST_SHOWN = 60  # characters of a text


@dataclass(frozen=True)
class Limits:
    """Differences that a precision explains.

    Args:
        difference: of an output, absolute, or relative to its largest value if that exceeds 1.
        flipped: fraction of the decisions.
    """

    difference: float
    flipped: float


LIMITS = {
    "float32": Limits(1e-5, 0.0),
    "float16": Limits(1e-2, 0.01),
    "bfloat16": Limits(0.05, 0.01),
    "int8": Limits(0.5, 0.01),
}


def describe(
    export: Export, expected: Expected, found: Comparison, limits: Limits
) -> dict[str, Any]:
    """Return a comparison in plain values, with the faults beyond the limits."""
    largest = 0.0
    for tally in found.tallies.values():
        for difference, magnitude in tally.outputs.values():
            largest = max(largest, difference / max(1.0, magnitude))
    return {
        "export_dir": export.folder,
        "format": export.format,
        "head": export.head.name,
        "precision": export.precision,
        "faults": list(_faults(export, expected, found, limits)),
        "max_difference": limits.difference,
        "max_flipped": limits.flipped,
        "largest_difference": largest,
        "ids": {
            source: {
                "texts": len(expected.texts),
                "equal": len(expected.texts) - len(differing),
                "first_differing": expected.texts[differing[0]] if differing else None,
            }
            for source, differing in found.ids.items()
        },
        "signatures": {
            name: {
                "outputs": {
                    output: {"difference": difference, "magnitude": magnitude}
                    for output, (difference, magnitude) in tally.outputs.items()
                },
                "decisions": len(tally.flipped),
                "flipped": sum(tally.flipped.values()),
                "milliseconds": tally.milliseconds,
            }
            for name, tally in found.tallies.items()
        },
        "files": export.files(),
    }


def _faults(export: Export, expected: Expected, found: Comparison, limits: Limits) -> Iterator[str]:
    labels = expected.labels if export.head.has_labels else ()
    for source, theirs in (("", export.labels), (" of labels.txt", export.listed_labels)):
        if labels and theirs is not None and theirs != labels:
            yield f"the labels{source} are {', '.join(theirs)}, but must be {', '.join(labels)}"
    if export.max_seq_length not in (None, expected.max_seq_length):
        yield f"max_seq_length is {export.max_seq_length}, but must be {expected.max_seq_length}"
    for source, differing in found.ids.items():
        if differing:
            yield (
                f"the ids of {len(differing)} of {len(expected.texts)} texts by {source} differ, first "
                f"of {_shown(expected.texts[differing[0]])}"
            )
    for name, tally in found.tallies.items():
        yield from _faults_of_signature(name, tally, expected, limits)


def _faults_of_signature(
    name: str, tally: Tally, expected: Expected, limits: Limits
) -> Iterator[str]:
    for output, (difference, magnitude) in tally.outputs.items():
        if not is_within(difference, magnitude, limits.difference):
            yield (
                f"{name}: {output} differs by {difference:.3g}, but at most {limits.difference:g} of "
                f"{max(1.0, magnitude):.3g} is allowed"
            )
    flipped, first = sum(tally.flipped.values()), tally.first_flipped()
    if first is not None and flipped > limits.flipped * len(tally.flipped):
        yield (
            f"{name}: {flipped} of {len(tally.flipped)} decisions differ, but at most "
            f"{limits.flipped:.2%} may; the first is for {_shown(expected.items[first])}"
            f"{_closeness(tally, expected)}"
        )


def _closeness(tally: Tally, expected: Expected) -> str:
    """Return how close the decisions that differ are in the model, or "" if unknown."""
    margins = [
        margin_of(expected.model, expected.answers[number], place)
        for (number, place), flipped in tally.flipped.items()
        if flipped
    ]
    known = [margin for margin in margins if margin is not None]
    if not margins or len(known) < len(margins):
        return ""
    return f"; the model decides these by a probability of at most {max(known):.2g} more"


def _shown(item: Any) -> str:
    text = repr(item)
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"
