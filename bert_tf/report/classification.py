"""Sections of report.html for classifiers: confusions, F1 by label, calibration, errors.

Shapes: N examples, L labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from bert_tf.report.page import Section, bars, line_chart, matrix, table
from bert_tf.report.sections import (
    MOST_ERRORS,
    calibration,
    hardest_errors,
    most_common,
    shortened,
)
from bert_tf.tasks import metrics as basic
from bert_tf.tasks.classification import ClassificationTask, InputExample

_MOST_LABELS = 15  # of a matrix; beyond that the commonest confusions are listed


def evaluation_sections(
    task: ClassificationTask,
    examples: Sequence[InputExample],
    kept: Mapping[str, np.ndarray],
    suffix: str = "",
) -> list[Section]:
    """Return the sections of one evaluation set.

    Args:
        examples: in the order of `kept`.
        kept: `logits` [N, L] and `label_ids` of each example.
        suffix: of the set's name, such as "_mismatched".
    """
    logits, labels = kept["logits"], kept["label_ids"]
    makers = {"single_label": _of_one_label, "multi_label": _of_labels, "regression": _of_numbers}
    sections = makers[task.kind.name](task, examples, logits, labels)
    if not suffix:
        return sections
    name = suffix.strip("_")
    return [replace(section, title=f"{section.title} ({name})") for section in sections]


def _of_one_label(task, examples, logits, labels) -> list[Section]:
    probabilities = basic.softmax(logits)
    predictions = logits.argmax(axis=-1)
    scores = {
        label: (basic.f1(predictions, labels, positive=index), int((labels == index).sum()))
        for index, label in enumerate(task.labels)
    }
    confidence = probabilities.max(axis=-1)
    of_label = probabilities[np.arange(len(labels)), labels]
    return [
        _confusions(task.labels, predictions, labels),
        Section("F1 by label", [bars(most_common(scores), "F1, and examples of the label")]),
        calibration(confidence, predictions == labels),
        _hardest(
            examples,
            -of_label,
            predictions != labels,
            _with_probability([task.labels[index] for index in labels], of_label),
            _with_probability([task.labels[index] for index in predictions], confidence),
            "the lowest probability of the right label first",
        ),
    ]


def _of_labels(task, examples, logits, labels) -> list[Section]:
    probabilities = basic.sigmoid(logits)
    predictions = task.kind.predictions(logits)
    rows, scores = [], {}
    for index, label in enumerate(task.labels):
        predicted, actual = predictions[:, index], labels[:, index]
        score = basic.f1(predicted, actual)
        right = int((predicted * actual).sum())
        scores[label] = (score, int(actual.sum()))
        rows.append([label, int(actual.sum()), int(predicted.sum()), right])
    losses = -np.log(np.maximum(np.where(labels == 1, probabilities, 1 - probabilities), 1e-300))
    losses = losses.sum(axis=1)
    return [
        Section("F1 by label", [bars(most_common(scores), "F1, and examples of the label")]),
        Section("Counts by label", [table(["label", "known", "predicted", "both"], rows)]),
        calibration(probabilities.ravel(), labels.ravel() == 1, low=0.0),
        _hardest(
            examples,
            losses,
            (predictions != labels).any(axis=1),
            _with_probability([_names(task.labels, row) for row in labels], np.exp(-losses)),
            [_names(task.labels, row) for row in predictions],
            "the lowest probability of exactly the right labels first",
        ),
    ]


def _of_numbers(task, examples, logits, labels) -> list[Section]:
    numbers = logits[:, 0]
    errors = np.abs(numbers - labels)
    points = {"examples": list(zip(labels.tolist(), numbers.tolist(), strict=True))}
    return [
        Section(
            "Predicted and known",
            [line_chart(_sample(points), "label", "predicted", dots=True, diagonal=True)],
            "Each dot is an example. Predictions on the dashed line are right.",
        ),
        Section(
            "Errors",
            [
                table(
                    ["", "absolute error"],
                    [
                        ["mean", float(errors.mean())],
                        ["median", float(np.median(errors))],
                        ["95th percentile", float(np.percentile(errors, 95))],
                        ["largest", float(errors.max())],
                    ],
                )
            ],
        ),
        _hardest(
            examples,
            errors,
            np.ones(len(labels), bool),
            [f"{label:.4g}" for label in labels],
            [f"{n:.4g} (off by {e:.4g})" for n, e in zip(numbers, errors, strict=True)],
            "the largest distance between prediction and label first",
        ),
    ]


def _with_probability(names: Sequence[str], probabilities: np.ndarray) -> list[str]:
    return [f"{name} ({p:.3g})" for name, p in zip(names, probabilities, strict=True)]


def _sample(series: Mapping[str, list]) -> dict[str, list]:
    """Return at most 300 points of each, evenly taken. A chart would draw means of neighbours."""
    return {name: points[:: -(-len(points) // 300) or 1] for name, points in series.items()}


def _confusions(names: Sequence[str], predictions: np.ndarray, labels: np.ndarray) -> Section:
    counts = np.zeros((len(names), len(names)), int)
    np.add.at(counts, (labels, predictions), 1)
    if len(names) <= _MOST_LABELS:
        note = "Rows are the labels, columns the predictions. Fractions are of the row."
        return Section("Confusion matrix", [matrix(names, names, counts.tolist())], note)
    np.fill_diagonal(counts, 0)
    order = np.argsort(-counts, axis=None, kind="stable")[:_MOST_LABELS]
    pairs = [np.unravel_index(place, counts.shape) for place in order if counts.flat[place]]
    rows = [[names[label], names[said], int(counts[label, said])] for label, said in pairs]
    return Section("Commonest confusions", [table(["label", "predicted", "examples"], rows)])


def _hardest(
    examples: Sequence[InputExample],
    losses: np.ndarray,
    is_wrong: np.ndarray,
    known: Sequence[str],
    predicted: Sequence[str],
    ordered: str,
) -> Section:
    """Return the errors with the largest `losses`. `ordered` is a text on this order."""
    order = [index for index in np.argsort(-losses, kind="stable") if is_wrong[index]]
    rows = []
    for index in order[:MOST_ERRORS]:
        example = examples[index]
        texts = (example.text_a, example.text_b)
        text = " ‖ ".join(shortened(part) for part in texts if part is not None)
        rows.append([text, known[index], predicted[index], example.location])
    return hardest_errors(["text", "label", "predicted", "where"], rows, len(order), ordered)


def _names(labels: Sequence[str], row: np.ndarray) -> str:
    return ", ".join(label for label, value in zip(labels, row, strict=True) if value) or "(none)"
