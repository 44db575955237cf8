"""Sections of report.html for choices: accuracy, calibration, errors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bert_tf.data.multiple_choice import Question
from bert_tf.report.page import Section, bars
from bert_tf.report.sections import MOST_ERRORS, calibration, hardest_errors, shortened
from bert_tf.tasks.metrics import softmax


def choice_sections(questions: Sequence[Question], logits: np.ndarray) -> list[Section]:
    """Return the sections of one set of questions.

    Args:
        questions: each with its answer.
        logits: float32 [questions, K]. A question with fewer choices uses the first ones only.
    """
    probabilities = softmax(logits)
    predictions = probabilities.argmax(axis=-1)
    confidence = probabilities.max(axis=-1)
    labels = np.array([question.label for question in questions])
    right = predictions == labels
    counts = np.array([len(question.choices) for question in questions])
    groups = {
        f"{count} choices": (float(right[counts == count].mean()), int((counts == count).sum()))
        for count in sorted(set(counts.tolist()))
    }
    of_answer = probabilities[np.arange(len(questions)), labels]
    wrong = [index for index in np.argsort(of_answer, kind="stable") if not right[index]]
    rows = []
    for index in wrong[:MOST_ERRORS]:
        question = questions[index]
        said = question.choices[predictions[index]]
        rows.append(
            [
                shortened(question.text_a),
                f"{shortened(question.choices[question.label])} ({of_answer[index]:.3g})",
                f"{shortened(said)} ({confidence[index]:.3g})",
                question.location or question.guid,
            ]
        )
    return [
        Section("By number of choices", [bars(groups, "accuracy, and questions")]),
        calibration(confidence, right, low=0.0),
        hardest_errors(
            ["question", "answer", "predicted", "where"],
            rows,
            len(wrong),
            "the lowest probability of the right answer first",
        ),
    ]
