"""Numbers in the reports of question answering, named entities, multiple choice and embeddings."""

import numpy as np
import pytest
from pages import cells, part_of

from bert_tf.report.classification import Choices, choice_sections
from bert_tf.report.question_answering import ScoredAnswer, answer_sections
from bert_tf.report.token_classification import Spans, span_sections
from bert_tf.tasks.metrics import softmax


def by_title(sections):
    return {section.title: section for section in sections}


def bars(section):
    """Group -> score and number."""
    return {group: tuple(values) for group, *values in part_of(section, "bars")["rows"]}


PASSAGE = "The tower was built by Ann Lee in 1889."


def test_answers_are_grouped_by_question_word():
    def row(name, question, answers, predicted, probability, f1, odds):
        best_f1, is_exact = (f1 if answers else 0.0), f1 == 1.0
        return ScoredAnswer(
            *(name, question, PASSAGE, answers, predicted, probability, f1, is_exact, odds, best_f1)
        )

    rows = [
        row("a", "When was it built?", ["1889", "in 1889"], "1889", 0.9, 1.0, -5.0),
        row("b", "Who built it?", ["Ann Lee"], "The <tower>", 0.8, 0.0, -1.0),
        row("c", "In whose time, and who was he?", ["built by Ann Lee"], "Ann", 0.7, 2 / 3, 0.5),
        row("d", "Name the material.", [], "", 0.6, 1.0, 2.0),
    ]
    found = by_title(answer_sections(rows))
    words = bars(found["By question word"])
    assert (words["when"], words["who"], words["other"]) == ((1, 1), (0, 1), (1, 1))
    assert words["whose"] == (pytest.approx(2 / 3, abs=1e-4), 1)
    error = ["Who built it?", "Ann Lee", "The <tower> (0.80)", PASSAGE, "b"]
    assert cells(found["Hardest errors"]) == [error]
    (curve,) = part_of(found["By threshold"], "lines")["series"]
    # F1 if the questions up to "a", "b", "c" get an answer: of 4, one has none.
    assert [f1 for _, f1 in curve[1]] == pytest.approx([2 / 4, (2 + 2 / 3) / 4])


def test_entities_are_counted_by_type_and_by_what_they_were_taken_for():
    words = ("Ann", "Lee", "of", "Rome", "and", "Bob")
    actual = [("PER", 0, 2), ("LOC", 3, 4), ("PER", 5, 6)]
    sentence = Spans(words, actual, [("PER", 0, 1), ("PER", 3, 4)], "dev.txt:3")
    counts = [("LOC", 0, 0, 0, 1, 0, 0), ("PER", 0, 0, 0, 2, 2, 0)]
    found = by_title(span_sections([sentence], counts))
    assert bars(found["F1 by entity type"])["PER"] == (0, 2)
    assert [row[0] for row in cells(found["Counts by entity type"])] == ["LOC", "PER"]
    assert part_of(found["Confusion matrix"], "matrix")["counts"] == [
        # LOC, PER, other words, (none)
        [0, 1, 0, 0],  # Rome
        [0, 0, 1, 1],  # Ann Lee, Bob
        [0, 0, 0, 0],
    ]
    [row] = cells(found["Errors"])
    assert row[1:] == [
        *("Ann Lee [PER]; Rome [LOC]; Bob [PER]", "Ann [PER]; Rome [PER]", 3, "dev.txt:3")
    ]


def test_hardest_questions_have_the_probability_of_their_answer():
    questions = [
        Choices("Why?", ("so", "no"), 0, "q.csv:2"),
        Choices("Who?", ("Ann", "Bob", "<Eve>"), 0, "q.csv:3"),
        Choices("When?", ("now", "then", "never"), 1, "q.csv:4"),
    ]
    logits = np.float32([[2, 1, -1e9], [0, 0, 3], [0, 1, 0]])
    found = by_title(choice_sections(questions, softmax(logits)))
    known, guessed = 1 / (np.exp(3) + 2), np.exp(3) / (np.exp(3) + 2)
    error = ["Who?", f"Ann ({known:.3g})", f"<Eve> ({guessed:.3g})", "q.csv:3"]
    assert cells(found["Hardest errors"]) == [error]
