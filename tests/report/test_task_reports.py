"""Numbers in the reports of question answering, named entities, multiple choice and embeddings."""

import numpy as np
import pytest
from pages import cells, part_of

from bert_tf.data.label_schemes import conlleval, label_as_entity
from bert_tf.data.multiple_choice import Question
from bert_tf.data.question_answering import SquadExample
from bert_tf.data.token_classification import Sentence
from bert_tf.data.windows import Passage, SquadAnswer
from bert_tf.report.multiple_choice import choice_sections
from bert_tf.report.question_answering import answer_sections
from bert_tf.report.token_classification import entity_sections, word_sections
from bert_tf.tasks.answer_decoding import Candidate, Prediction


def by_title(sections):
    return {section.title: section for section in sections}


def bars(section):
    """Group -> score and number."""
    return {group: tuple(values) for group, *values in part_of(section, "bars")["rows"]}


PASSAGE = Passage("The tower was built by Ann Lee in 1889.")


def question(name, text, *answers):
    found = tuple(SquadAnswer(a, PASSAGE.text.index(a)) for a in answers)
    return SquadExample(name, text, PASSAGE, found, is_impossible=not answers, location=f"f:{name}")


def predicted(text, probability, best=None, odds=None):
    nbest = (Candidate(text, 1.0, 1.0, probability), Candidate("x", 0.0, 0.0, 1 - probability))
    return Prediction(text, nbest, text if best is None else best, odds)


def test_answers_are_grouped_by_question_word_and_length():
    examples = [
        question("a", "When was it built?", "1889", "in 1889"),
        question("b", "Who built it?", "Ann Lee"),
        question("c", "In whose time, and who was he?", "built by Ann Lee"),
        question("d", "Name the material."),
    ]
    predictions = {
        "a": predicted("1889", 0.9, odds=-5.0),
        "b": predicted("The <tower>", 0.8, odds=-1.0),
        "c": predicted("Ann Lee", 0.7, odds=0.5),
        "d": predicted("", 0.6, best="tower", odds=2.0),
    }
    found = by_title(answer_sections(examples, predictions, version_2_with_negative=True))
    words, lengths = bars(found["By question word"]), bars(found["By length of the answer"])
    assert (words["when"], words["who"], words["other"]) == ((1, 1), (0, 1), (1, 1))
    # Two of three words are common: precision 1, recall 1/2 (of "built by Ann Lee" 2 of 4).
    assert words["whose"] == (pytest.approx(2 / 3, abs=1e-4), 1)
    assert (lengths["2 words"], lengths["(no answer)"]) == ((0, 1), (1, 1))
    error = ["Who built it?", "Ann Lee", "The <tower> (0.80)", PASSAGE.text, "b"]
    assert cells(found["Hardest errors"]) == [error]


def test_entities_are_counted_by_type_and_by_what_they_were_taken_for():
    words = ("Ann", "Lee", "of", "Rome", "and", "Bob")
    actual = ["B-PER", "I-PER", "O", "B-LOC", "O", "B-PER"]
    guessed = ["B-PER", "O", "O", "B-PER", "O", "O"]
    sentence = Sentence(words, tuple(actual), 0, "dev.txt", range(3, 9))
    scores = conlleval([actual], [guessed])
    found = by_title(entity_sections([sentence], [actual], [guessed], scores))
    assert bars(found["F1 by entity type"])["PER"] == (0, 2)
    assert [row[0] for row in cells(found["Counts by entity type"])] == ["LOC", "PER"]
    assert part_of(found["Confusion of types"], "matrix")["counts"] == [
        # LOC, PER, other words, (none)
        [0, 1, 0, 0],  # Rome
        [0, 0, 1, 1],  # Ann Lee, Bob
        [0, 0, 0, 0],
    ]
    [row] = cells(found["Errors"])
    assert row[1:] == [
        *("Ann Lee [PER]; Rome [LOC]; Bob [PER]", "Ann [PER]; Rome [PER]", 3, "dev.txt:3")
    ]


def test_labels_of_words_have_a_confusion_matrix_and_their_errors():
    actual, guessed = ["DT", "NN", "NN"], ["DT", "NN", "VB"]
    sentence = Sentence(("the", "cat", "run"), tuple(actual), 0, "dev.txt", (3, 4, 5))
    scores = conlleval(*([[*map(label_as_entity, labels)]] for labels in (actual, guessed)))
    found = by_title(word_sections([sentence], [actual], [guessed], scores))
    assert bars(found["F1 by label"])["NN"] == (pytest.approx(2 / 3, abs=1e-4), 2)
    counts = [[1, 0, 0], [0, 1, 1], [0, 0, 0]]
    assert part_of(found["Confusion matrix"], "matrix")["counts"] == counts
    assert cells(found["Errors"]) == [["the cat run", "run [NN]", "run [VB]", 1, "dev.txt:3"]]


def test_choices_are_scored_by_their_number():
    questions = [
        Question("1", "Why?", ("so", "no"), 0, "q.csv:2"),
        Question("2", "Who?", ("Ann", "Bob", "<Eve>"), 0, "q.csv:3"),
        Question("3", "When?", ("now", "then", "never"), 1, "q.csv:4"),
    ]
    logits = np.float32([[2, 1, -1e9], [0, 0, 3], [0, 1, 0]])
    found = by_title(choice_sections(questions, logits))
    numbers = bars(found["By number of choices"])
    assert numbers == {"2 choices": (1, 1), "3 choices": (0.5, 2)}
    known, guessed = 1 / (np.exp(3) + 2), np.exp(3) / (np.exp(3) + 2)
    error = ["Who?", f"Ann ({known:.3g})", f"<Eve> ({guessed:.3g})", "q.csv:3"]
    assert cells(found["Hardest errors"]) == [error]
