"""Multiple-choice sets: SWAG and JSON lines, and invalid rows."""

import json

from helpers import cause_of

from bert_tf.data.multiple_choice import read_questions

SWAG = """,video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label
0,anetv_1,3416,x,"Members of the, procession",A drum line,gold,passes by.,has heard.,arrives.,turns.,1
1,anetv_2,3417,x,He plays.,He,gold,"stops, and sits.",runs.,sings.,sleeps.,0
"""


def fields(questions):
    return [(q.text_a, q.choices, q.label) for q in questions]


def test_read_questions_of_swag(written):
    path = written(SWAG, "val.csv")
    questions = read_questions(path)
    line = "A drum line "
    first = (line + "passes by.", line + "has heard.", line + "arrives.", line + "turns.")
    assert fields(questions) == [
        ("Members of the, procession", first, 1),
        ("He plays.", ("He stops, and sits.", "He runs.", "He sings.", "He sleeps."), 0),
    ]
    assert [q.location for q in questions] == [f"{path}:2", f"{path}:3"]
    assert [q.guid for q in questions] == ["row-2", "row-3"]
    test_set = "\n".join(line.rpartition(",")[0] for line in SWAG.splitlines())
    assert [q.label for q in read_questions(written(test_set, "test.csv"))] == [None, None]


def test_read_questions_of_csv_finds_columns_by_name(written):
    for text, expected in (
        ("sent1,sent2,ending10,ending2,ending1,label\nq,s,c,b,a,2\n", (("s a", "s b", "s c"), 2)),
        ("label,text_a,choice1,choice2\n0,q,a,b\n", (("a", "b"), 0)),
        ("text_a,choice0,choice1,choice2,label\nq,a,b,,-1\n", (("a", "b"), None)),
    ):
        assert fields(read_questions(written(text, "a.csv"))) == [("q", *expected)]


def test_read_questions_of_json_lines(written):
    for line, label in (
        ({"text_a": "What?", "choices": ["up", "down", "left"], "label": 2}, 2),
        ({"text_a": "What?", "choices": ["up", " down"], "label": None, "id": 7}, None),
        ({"text_a": "What?", "choices": ["up", "down"]}, None),
    ):
        (question,) = read_questions(written(json.dumps(line), "a.jsonl"))
        choices = ("up", "down", "left")[: len(line["choices"])]
        assert fields([question]) == [("What?", choices, label)]
        assert question.guid == str(line.get("id", "row-1"))


def test_read_questions_refuses_rows_by_line(written):
    csv = "text_a,choice0,choice1,choice2,label\nWhat?,up,down,,0\n"
    for text, name, line in (
        (csv + "Why?,,,,0\n", "a.csv", 3),
        (csv + "Why?,so,no,,2\n", "a.csv", 3),
        (csv + "\u200b,so,no,,0\n", "a.csv", 3),
        (csv + "Why?,so,,no,0\n", "a.csv", 3),
        (csv + "Why?,so,0\n", "a.csv", 3),
        ("", "a.csv", None),
        ("What?,up,down,A\nWhy?,so,no,A\n", "a.csv", 2),
        ('{"question_stem": "What?", "choices": ["up", "down"]}', "a.jsonl", 1),
        ('{"text_a": "What?", "choices": ["up", "no", 3], "label": 0}', "a.jsonl", 1),
        ('{"text_a": "What?", "choices": "no", "label": 0}', "a.jsonl", 1),
        ('{"text_a": "What?", "label": 0}\n', "a.jsonl", 1),
    ):
        path = written(text, name)
        assert cause_of(read_questions, path) == (path if line is None else f"{path}:{line}"), text
