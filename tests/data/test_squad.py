"""SQuAD's JSON: what is read, what is refused, and which questions can be learned from."""

import json

import pytest

from bert_tf.data.question_answering import (
    Findings,
    Passage,
    SquadAnswer,
    examples_to_train,
    read_squad,
)

CONTEXT = "Denver beat\u202fCarolina, 24\u00a0to 10.\n\n It took vitamin C."


def question(qas_id="q1", text="Who won?", answers=(("Denver", 0),), **more):
    made = {"id": qas_id, "question": text}
    if answers is not None:
        made["answers"] = [{"text": text, "answer_start": start} for text, start in answers]
    return made | more


@pytest.fixture
def squad_file(tmp_path):
    """Writes questions on one passage; the path of the file."""

    def write(*questions, context=CONTEXT):
        path = tmp_path / "squad.json"
        paragraph = {"context": context, "qas": list(questions)}
        path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]}))
        return str(path)

    return write


@pytest.fixture
def train(squad_file):
    """The questions that are learned from, and what was found."""

    def run(*questions, context=CONTEXT, version_2_with_negative=False):
        findings = Findings()
        examples = read_squad(squad_file(*questions, context=context))
        return examples_to_train(examples, version_2_with_negative, findings), findings.questions

    return run


def test_a_question_without_answers_key_is_one_whose_answer_nobody_says(squad_file):
    examples = read_squad(
        squad_file(question("a", answers=None), question("b", answers=(), is_impossible=True))
    )
    assert [(e.answers, e.is_impossible) for e in examples] == [(None, False), ((), True)]


def test_words_are_what_stands_between_five_kinds_of_whitespace():
    passage = Passage(CONTEXT)
    assert passage.words == [
        *("Denver", "beat", "Carolina,", "24\u00a0to", "10."),
        *("It", "took", "vitamin", "C."),
    ]
    for word, start in zip(passage.words, passage.word_starts, strict=True):
        assert CONTEXT.startswith(word, start)


def test_the_word_at_a_space_is_the_one_before():
    passage = Passage("  ab cd")
    assert [passage.word_at(index) for index in range(7)] == [0, 0, 0, 0, 0, 1, 1]


FLAT = {
    "id": 7,
    "title": "t",
    "context": CONTEXT,
    "question": "Who won?",
    "answers": {"text": ["Denver", "10"], "answer_start": [0, 30]},
}
NONE = {**FLAT, "id": "q2", "answers": {"text": [], "answer_start": []}}
UNKNOWN = {name: value for name, value in FLAT.items() if name != "answers"} | {"id": "q3"}


@pytest.mark.parametrize(
    "write",
    [
        lambda rows: "".join(json.dumps(row) + "\n" for row in rows),
        lambda rows: json.dumps(rows, indent=1),
        lambda rows: json.dumps({"data": rows}),
    ],
    ids=["lines", "list", "data"],
)
@pytest.mark.parametrize("ending", ["json", "jsonl"])
def test_read_squad_reads_flat_rows(tmp_path, write, ending):
    path = tmp_path / f"flat.{ending}"
    path.write_text(write([FLAT, NONE, UNKNOWN]))
    first, none, unknown = read_squad(path)
    assert (first.qas_id, first.question_text) == ("7", "Who won?")
    assert first.answers == (SquadAnswer("Denver", 0), SquadAnswer("10", 30))
    assert (none.answers, none.is_impossible) == ((), True)
    assert (unknown.answers, unknown.is_impossible) == (None, False)
    assert first.passage is none.passage  # tokenized once
    chosen = examples_to_train([first, none], True, Findings())
    assert [each.answer for each in chosen] == [SquadAnswer("Denver", 0), None]
    path.write_text(write([FLAT]))
    assert len(read_squad(path)) == 1


def test_an_empty_answer_at_minus_1_is_no_answer(squad_file, train):
    no_answer = question("none", answers=(("", -1),))
    (example,) = read_squad(squad_file(no_answer))
    assert (example.answers, example.is_impossible) == ((), True)
    with pytest.raises(ValueError, match="version_2_with_negative"):
        train(question(), no_answer)
    unknown = question("place", answers=(("Carolina", -1),))
    chosen, found = train(question(), no_answer, unknown, version_2_with_negative=True)
    assert [each.answer for each in chosen] == [SquadAnswer("Denver", 0), None]
    assert list(found.values()) == [["place"]]


def nested(qa):
    return json.dumps({"data": [{"paragraphs": [{"context": "c", "qas": [qa]}]}]})


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", ": .*JSON"),
        ('{"a": 1}\n{"a": 2}\n', ":1: .*paragraphs"),
        (json.dumps(FLAT) + '\n{"id": \n', ":2: .*JSON"),
        (json.dumps(FLAT | {"answers": {"text": ["a"], "answer_start": []}}), r"answers\[0\]: "),
        ('{"data": []}', "no question"),
        ("{}", '"data" is None'),
        ('{"data": {}}', '"data" is'),
        ('{"data": [[]]}', r"data\[0\]: "),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', r"data\[0\].paragraphs\[0\]: \"con"),
        (nested({"id": None}), r"paragraphs\[0\].qas\[0\]: \"id\" is None"),
        (nested({"id": True}), '"id" is True'),
        (
            nested({"id": "x", "question": "q", "answers": [{"text": "c", "answer_start": "0"}]}),
            r"\(id x\).answers\[0\]: \"answer_start\" is '0'",
        ),
        (nested({"id": "x", "question": "q", "is_impossible": 1}), '"is_impossible" is 1'),
        (json.dumps([FLAT, FLAT]), r"\[1\] \(id 7\): .*\[0\] \(id 7\)"),
    ],
)
def test_read_squad_rejects_files_with_the_place(tmp_path, text, message):
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(ValueError, match=f"bad.json.*{message}"):
        read_squad(tmp_path / "bad.json")


def test_an_answer_with_a_no_break_space_is_learned_though_the_reference_loses_it(train):
    chosen, found = train(question(answers=(("24\u00a0to 10", 22),)))
    assert len(chosen) == 1 and not found


@pytest.mark.parametrize(
    "answer, expected",
    [
        (("Denver", 1), ("Denver", 1)),  # the words hold it, as in the reference
        (("beat", 8), ("beat", 8)),
        (("vitamin C", 41), ("vitamin C", 42)),  # they do not, for its end is at "vitamin"
        (("10", 29), ("10", 29)),
    ],
)
def test_answer_start_off_by_one_is_mended_and_counted(train, answer, expected):
    assert CONTEXT[42:51] == "vitamin C"
    chosen, found = train(question("near", answers=(answer,)))
    assert chosen[0].answer == SquadAnswer(*expected)
    assert found == {"have an answer that does not begin at answer_start": ["near"]}


@pytest.mark.parametrize(
    "answer, expected",
    [
        (("Denver", 1), ("Denver", 0)),
        (("vitamin C", 42), ("vitamin C", 42)),
        (("beat Carolina", 8), ("beat\u202fCarolina", 7)),
        (("Paris", 0), ("Paris", 0)),  # not in its words
    ],
)
def test_an_answer_is_located_in_its_words(answer, expected):
    assert Passage(CONTEXT).located(SquadAnswer(*answer)) == SquadAnswer(*expected)


def test_of_several_places_of_an_answer_the_nearest_is_meant():
    assert Passage("anana").located(SquadAnswer("na", 2)) == SquadAnswer("na", 1)
    assert Passage("naxxna").located(SquadAnswer("na", 3)) == SquadAnswer("na", 4)


@pytest.mark.parametrize(
    "answer", [("Carolina", 0), ("Paris", 0), ("Denver", -9), ("Denver", 10_000), ("C.", 60)]
)
def test_an_answer_that_is_not_in_the_passage_there_is_left_out_counted_and_named(train, answer):
    chosen, found = train(question("far", answers=(answer,)), question("near"))
    assert [c.example.qas_id for c in chosen] == ["near"]
    assert found == {"are left out, because their answer is not at answer_start": ["far"]}


def test_empty_answers_and_passages_are_left_out_and_empty_questions_counted(train):
    chosen, found = train(question("a", answers=((" ", 6),)), question("b", text=" \u200b"))
    assert [c.example.qas_id for c in chosen] == ["b"]
    assert found == {
        "are left out, because their answer is empty": ["a"],
        "have an empty text": ["b"],
    }
    chosen, found = train(
        question("c", answers=(), is_impossible=True), context=" \n", version_2_with_negative=True
    )
    assert not chosen
    assert found == {"are left out, because their passage is empty": ["c"]}


def test_unanswerable_questions_need_version_2(train):
    impossible = question("no", answers=(), is_impossible=True)
    with pytest.raises(ValueError, match=r"\(id no\): .*version_2_with_negative"):
        train(question(), impossible)
    chosen, found = train(question(), impossible, version_2_with_negative=True)
    assert [c.answer for c in chosen] == [SquadAnswer("Denver", 0), None]
    assert not found


@pytest.mark.parametrize("answers", [None, ()])
@pytest.mark.parametrize("version_2", [False, True])
def test_a_question_to_train_on_needs_an_answer_or_the_word_that_it_has_none(
    train, answers, version_2
):
    with pytest.raises(ValueError, match=r'\(id q1\): .*"is_impossible": true'):
        train(question(answers=answers), version_2_with_negative=version_2)


def test_of_several_answers_the_first_is_learned_and_that_is_counted(train):
    chosen, found = train(question(answers=(("beat", 7), ("Denver", 0))))
    assert chosen[0].answer == SquadAnswer("beat", 7)
    assert found == {"have several answers, of which the first is learned": ["q1"]}
