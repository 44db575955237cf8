"""Sections of report.html for labels, numbers and choices: confusions, F1, calibration, errors.

Shapes: N examples, L labels, K choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bert_tf.report.page import (
    MAX_ERRORS,
    Section,
    bars,
    calibration,
    hardest_errors,
    line_chart,
    matrix,
    shorten,
    table,
)

_MAX_LABELS = 15  # of a matrix; beyond that the commonest confusions are listed
_MAX_DOTS = 300
_F1 = "F1, and examples of the label"


class Example(NamedTuple):
    """The texts of an example, and its "file:line"."""

    texts: Sequence[str]
    location: str


def evaluation_sections(
    problem_type: str,
    labels: Sequence[str],
    examples: Sequence[Example],
    scores: np.ndarray,
    label_ids: np.ndarray,
    suffix: str = "",
) -> list[Section]:
    """Return the sections of one evaluation set.

    Args:
        scores: [N, L], probabilities of the labels; of a regression [N, 1], numbers.
        label_ids: of each example; [N, L] of 0 and 1 for multi_label.
    """
    if problem_type == "regression":
        sections = _number_sections(examples, scores[:, 0], label_ids)
    elif problem_type == "multi_label":
        sections = _multi_label_sections(labels, examples, scores, label_ids)
    else:
        sections = _label_sections(labels, examples, scores, label_ids)
    name = suffix.strip("_")
    return [replace(s, title=f"{s.title} ({name})") for s in sections] if name else sections


def _label_sections(labels, examples, probabilities, label_ids) -> list[Section]:
    predictions, confidence = probabilities.argmax(axis=-1), probabilities.max(axis=-1)
    groups = {
        label: _f1_and_count(predictions == index, label_ids == index)
        for index, label in enumerate(labels)
    }
    of_label = probabilities[np.arange(len(label_ids)), label_ids]
    return [
        _confusions(labels, predictions, label_ids),
        Section("F1 by label", [bars(groups, _F1)]),
        calibration(confidence, predictions == label_ids),
        _hardest(
            examples,
            -of_label,
            predictions != label_ids,
            _with_probability([labels[index] for index in label_ids], of_label),
            _with_probability([labels[index] for index in predictions], confidence),
            "the lowest probability of the right label first",
        ),
    ]


def _multi_label_sections(labels, examples, probabilities, label_ids) -> list[Section]:
    predicted, actual = probabilities > 0.5, label_ids == 1
    groups = {
        label: _f1_and_count(predicted[:, index], actual[:, index])
        for index, label in enumerate(labels)
    }
    right = np.where(actual, probabilities, 1 - probabilities)
    losses = -np.log(np.maximum(right, 1e-300)).sum(axis=1)
    return [
        Section("F1 by label", [bars(groups, _F1)]),
        calibration(probabilities.ravel(), actual.ravel()),
        _hardest(
            examples,
            losses,
            (predicted != actual).any(axis=1),
            _with_probability([_join(labels, row) for row in actual], np.exp(-losses)),
            [_join(labels, row) for row in predicted],
            "the lowest probability of exactly the right labels first",
        ),
    ]


def _number_sections(examples, numbers, actual) -> list[Section]:
    errors = np.abs(numbers - actual)
    points = list(zip(actual.tolist(), numbers.tolist(), strict=True))
    dots = {"examples": points[:: -(-len(points) // _MAX_DOTS) or 1]}
    return [
        Section(
            "Predicted and known",
            [line_chart(dots, "label", "predicted", dots=True, diagonal=True)],
            "Each dot is an example. Predictions on the dashed line are right.",
        ),
        _hardest(
            examples,
            errors,
            np.ones(len(actual), bool),
            [f"{number:.4g}" for number in actual],
            [f"{n:.4g} (off by {e:.4g})" for n, e in zip(numbers, errors, strict=True)],
            "the largest distance between prediction and label first",
        ),
    ]


class Choices(NamedTuple):
    """A question, its choices, the index of its answer, and its "file:line"."""

    question: str
    choices: Sequence[str]
    answer: int
    location: str


def choice_sections(rows: Sequence[Choices], probabilities: np.ndarray) -> list[Section]:
    """Return the sections of one set of questions; `probabilities` is [N, K]."""
    predictions, confidence = probabilities.argmax(axis=-1), probabilities.max(axis=-1)
    answers = np.array([row.answer for row in rows])
    is_right = predictions == answers
    of_answer = probabilities[np.arange(len(rows)), answers]
    known = [shorten(row.choices[row.answer]) for row in rows]
    predicted = [shorten(row.choices[index]) for row, index in zip(rows, predictions, strict=True)]
    return [
        calibration(confidence, is_right),
        _hardest(
            [Example([row.question], row.location) for row in rows],
            -of_answer,
            ~is_right,
            _with_probability(known, of_answer),
            _with_probability(predicted, confidence),
            "the lowest probability of the right answer first",
            header=["question", "answer", "predicted", "where"],
        ),
    ]


def _f1_and_count(predicted: np.ndarray, actual: np.ndarray) -> tuple[float, int]:
    """Return F1 of a label (0 if undefined) and its examples, of bool [N]."""
    count = int(actual.sum())
    total = int(predicted.sum()) + count
    return 2.0 * int((predicted & actual).sum()) / total if total else 0.0, count


def _with_probability(names: Sequence[str], probabilities: np.ndarray) -> list[str]:
    return [f"{name} ({p:.3g})" for name, p in zip(names, probabilities, strict=True)]


def _confusions(names: Sequence[str], predictions: np.ndarray, label_ids: np.ndarray) -> Section:
    counts = np.zeros((len(names), len(names)), int)
    np.add.at(counts, (label_ids, predictions), 1)
    if len(names) <= _MAX_LABELS:
        note = "Rows are the labels, columns the predictions. Fractions are of the row."
        return Section("Confusion matrix", [matrix(names, names, counts.tolist())], note)
    np.fill_diagonal(counts, 0)
    order = np.argsort(-counts, axis=None, kind="stable")[:_MAX_LABELS]
    pairs = [np.unravel_index(index, counts.shape) for index in order if counts.flat[index]]
    rows = [[names[label], names[other], int(counts[label, other])] for label, other in pairs]
    return Section("Commonest confusions", [table(["label", "predicted", "examples"], rows)])


def _hardest(
    examples: Sequence[Example],
    losses: np.ndarray,
    is_wrong: np.ndarray,
    known: Sequence[str],
    predicted: Sequence[str],
    order: str,
    header: Sequence[str] = ("text", "label", "predicted", "where"),
) -> Section:
    """Return the errors with the largest `losses`. `order` is a text on this order."""
    wrong = [index for index in np.argsort(-losses, kind="stable") if is_wrong[index]]
    rows = []
    for index in wrong[:MAX_ERRORS]:
        text = " ‖ ".join(map(shorten, examples[index].texts))
        rows.append([text, known[index], predicted[index], examples[index].location])
    return hardest_errors(header, rows, len(wrong), order)


def _join(labels: Sequence[str], row: np.ndarray) -> str:
    return ", ".join(label for label, value in zip(labels, row, strict=True) if value) or "(none)"
