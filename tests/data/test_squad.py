"""SQuAD's JSON: what is read, what is refused, and which questions can be learned from."""

import json

import pytest
from helpers import cause_of

from bert_tf.data.question_answering import Findings, examples_to_train, read_squad
from bert_tf.data.windows import Passage, SquadAnswer

CONTEXT = "Denver beat\u202fCarolina, 24\u00a0to 10.\n\n It took vitamin C."


def question(qas_id="q1", text="Who won?", answers=(("Denver", 0),), **more):
    made = {"id": qas_id, "question": text}
    if answers is not None:
        made["answers"] = [{"text": text, "answer_start": start} for text, start in answers]
    return made | more


NO_ANSWER = question("no", answers=(), is_impossible=True)


@pytest.fixture
def squad_file(written):
    """Writes questions on one passage; the path of the file."""

    def write(*questions, context=CONTEXT):
        paragraph = {"context": context, "qas": list(questions)}
        return written(json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]}))

    return write


@pytest.fixture
def train(squad_file):
    """The questions that are learned from, and what was found."""

    def run(*questions, context=CONTEXT, version_2_with_negative=False):
        findings = Findings()
        examples = read_squad(squad_file(*questions, context=context))
        return examples_to_train(examples, version_2_with_negative, findings), findings.questions

    return run


def test_read_squad_tells_no_answer_from_an_unknown_one(squad_file):
    examples = read_squad(squad_file(question("a", answers=None), NO_ANSWER))
    assert [(e.answers, e.is_impossible) for e in examples] == [(None, False), ((), True)]


def test_passage_splits_words_at_five_kinds_of_whitespace():
    passage = Passage(CONTEXT)
    words = "Denver|beat|Carolina,|24\u00a0to|10.|It|took|vitamin|C."
    assert passage.words == words.split("|")
    for word, start in zip(passage.words, passage.word_starts, strict=True):
        assert CONTEXT.startswith(word, start)
    passage = Passage("  ab cd")
    assert [passage.word_at(index) for index in range(7)] == [0, 0, 0, 0, 0, 1, 1]


FLAT = {
    "id": 7,
    "title": "t",
    "context": CONTEXT,
    "question": "Who won?",
    "answers": {"text": ["Denver", "10"], "answer_start": [0, 30]},
}


def test_read_squad_reads_flat_rows(written):
    none = {**FLAT, "id": "q2", "answers": {"text": [], "answer_start": []}}
    unknown = {name: FLAT[name] for name in ("title", "context", "question")} | {"id": "q3"}
    rows = [FLAT, none, unknown]
    for text in (
        "".join(json.dumps(row) + "\n" for row in rows),
        json.dumps(rows, indent=1),
        json.dumps({"data": rows}),
    ):
        found = read_squad(written(text))
        assert (found[0].qas_id, found[0].question_text) == ("7", "Who won?")
        first = (SquadAnswer("Denver", 0), SquadAnswer("10", 30))
        assert [each.answers for each in found] == [first, (), None]
        assert [each.is_impossible for each in found] == [False, True, False]
        assert found[0].passage is found[1].passage  # tokenized once
        chosen = examples_to_train(found[:2], True, Findings())
        assert [each.answer for each in chosen] == [SquadAnswer("Denver", 0), None]
    assert len(read_squad(written(json.dumps(FLAT)))) == 1


def test_an_empty_answer_at_minus_1_is_no_answer(squad_file, train):
    no_answer = question("none", answers=(("", -1),))
    (example,) = read_squad(squad_file(no_answer))
    assert (example.answers, example.is_impossible) == ((), True)
    unknown = question("place", answers=(("Carolina", -1),))
    chosen, found = train(question(), no_answer, unknown, version_2_with_negative=True)
    assert [each.answer for each in chosen] == [SquadAnswer("Denver", 0), None]
    assert list(found.values()) == [["place"]]


def nested(qa):
    return json.dumps({"data": [{"paragraphs": [{"context": "c", "qas": [qa]}]}]})


def test_read_squad_refuses_files_with_the_place(written):
    qa, x = ": data[0].paragraphs[0].qas[0]", {"id": "x", "question": "q"}
    twice = qa.replace("qas[0]", "qas[1]")
    for text, place in (
        ("{", ""),
        ('{"a": 1}\n{"a": 2}\n', ": data[0]"),
        ('{"data": [[]]}', ": data[0]"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', ": data[0].paragraphs[0]"),
        (nested({"id": None}), qa),
        (nested({"id": True}), qa),
        (nested(x | {"answers": [{"text": "c", "answer_start": "0"}]}), f"{qa} (id x).answers[0]"),
        (nested(x | {"is_impossible": 1}), f"{qa} (id x)"),
        (
            json.dumps({"data": [{"paragraphs": [{"context": "c", "qas": [x, x]}]}]}),
            f"{twice} (id x)",
        ),
    ):
        path = written(text)
        assert cause_of(read_squad, path) == f"{path}{place}", text


def test_answer_start_within_the_right_words_is_taken_and_counted(train):
    for answer in (("Denver", 1), ("beat", 8), ("10", 29)):  # as in the reference
        chosen, found = train(question("near", answers=(answer,)))
        assert chosen[0].answer == SquadAnswer(*answer)
        assert list(found.values()) == [["near"]]


def test_locate_finds_the_nearest_place_of_an_answer():
    for answer, expected in (
        (("Denver", 1), ("Denver", 0)),
        (("vitamin C", 42), ("vitamin C", 42)),
        (("beat Carolina", 8), ("beat\u202fCarolina", 7)),
        (("Paris", 0), ("Paris", 0)),  # not in its words
    ):
        assert Passage(CONTEXT).locate(SquadAnswer(*answer)) == SquadAnswer(*expected)
    assert Passage("anana").locate(SquadAnswer("na", 2)) == SquadAnswer("na", 1)
    assert Passage("naxxna").locate(SquadAnswer("na", 3)) == SquadAnswer("na", 4)


def test_questions_that_cannot_be_learned_are_left_out(train):
    for answer in (
        ("Carolina", 0),
        ("vitamin C", 41),
        ("Paris", 0),
        ("Denver", -9),
        ("Denver", 10_000),
        ("C.", 60),
    ):
        chosen, found = train(question("far", answers=(answer,)), question("near"))
        assert [c.example.qas_id for c in chosen] == ["near"], answer
        assert list(found.values()) == [["far"]]
    chosen, found = train(question("a", answers=((" ", 6),)), question("b", text=" \u200b"))
    assert [c.example.qas_id for c in chosen] == ["b"]
    assert list(found.values()) == [["a"], ["b"]]
    chosen, found = train(NO_ANSWER, context=" \n", version_2_with_negative=True)
    assert not chosen and list(found.values()) == [["no"]]


def test_unanswerable_questions_need_version_2(train):
    chosen, found = train(question(), NO_ANSWER, version_2_with_negative=True)
    assert [c.answer for c in chosen] == [SquadAnswer("Denver", 0), None]
    assert not found
    for bad, version_2 in (
        (NO_ANSWER, False),
        *((question("no", answers=answers), v2) for answers in (None, ()) for v2 in (False, True)),
    ):
        cause = cause_of(train, question(), bad, version_2_with_negative=version_2)
        assert cause.endswith("qas[1] (id no)"), bad


def test_of_several_answers_the_first_is_learned(train):
    chosen, found = train(question(answers=(("beat", 7), ("Denver", 0))))
    assert chosen[0].answer == SquadAnswer("beat", 7)
    assert list(found.values()) == [["q1"]]


def test_a_flat_row_may_say_that_it_is_impossible(written):
    row = {**FLAT, "is_impossible": True}
    minus_1 = {**FLAT, "id": 8, "answers": {"text": [""], "answer_start": [-1]}}
    empty = {**FLAT, "id": 9, "answers": []}
    examples = read_squad(written(json.dumps([row, minus_1, empty])))
    assert [example.is_impossible for example in examples] == [True, True, True]
