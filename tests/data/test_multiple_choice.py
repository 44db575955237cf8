"""Multiple-choice sets: SWAG, ARC, RACE and JSON lines, and invalid rows."""

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
        ("question,choice0,choice1\nq,a,b\n", (("a", "b"), None)),
    ):
        assert fields(read_questions(written(text, "a.csv"))) == [("q", *expected)]


def test_read_questions_of_arc_as_csv(written):
    path = written('"Which, then?",dry,wet,oily,soft,C\nWhat?,up,down,,,2\n', "arc.csv")
    assert fields(read_questions(path)) == [
        ("Which, then?", ("dry", "wet", "oily", "soft"), 2),
        ("What?", ("up", "down"), 1),
    ]


UP_DOWN = {"text": ["up", "down"], "label": ["A", "B"]}
LIST = [{"text": "up", "label": "1"}, {"text": "down", "label": "2"}]
HELLASWAG = {"ind": 4, "ctx_a": "What?", "ctx_b": "is", "endings": ["up", "down"], "label": 1}


def test_read_questions_of_json_lines(written):
    for line, label, choices in (
        ({"question": {"stem": "What?", "choices": LIST}, "answerKey": "2"}, 1, None),
        ({"question": "What?", "choices": UP_DOWN}, None, None),
        ({"question": {"stem": "What?"}, "choices": LIST, "answerKey": "1"}, 0, None),
        (HELLASWAG, 1, ("is up", "is down")),
        (
            {"text_a": "What?", "choices": ["up", "down", "left"], "label": 2},
            2,
            ("up", "down", "left"),
        ),
        ({"text_a": "What?", "choices": ["up", "down"]}, None, None),
    ):
        found = fields(read_questions(written(json.dumps(line), "a.jsonl")))
        assert found == [("What?", choices or ("up", "down"), label)]


RACE = {
    "id": "high1.txt",
    "article": "The dog\nbarked.",
    "questions": ["The dog is _ .", "Who barked?"],
    "options": [["loud", "old"], ["the dog", "the cat", "the owl"]],
    "answers": ["A", "C"],
}
RACE_QUESTIONS = [
    ("The dog\nbarked.", ("The dog is loud .", "The dog is old ."), 0),
    ("The dog\nbarked.", ("Who barked? the dog", "Who barked? the cat", "Who barked? the owl"), 2),
]


def test_read_questions_of_race_from_a_folder_or_json_lines(written, tmp_path):
    written(json.dumps(RACE, indent=1), "dev/high/1.txt")
    written(json.dumps(RACE), "dev/middle/2.txt")
    questions = read_questions(str(tmp_path / "dev"))
    assert fields(questions) == RACE_QUESTIONS * 2
    assert [q.guid for q in questions[:2]] == ["high1.txt-0", "high1.txt-1"]
    assert questions[1].location == f"{tmp_path}/dev/high/1.txt #1"
    assert fields(read_questions(written(json.dumps(RACE), "race.jsonl"))) == RACE_QUESTIONS


def test_read_questions_refuses_rows_by_line(written, tmp_path):
    for text, name, line in (
        ("What?,up,down,,,A\nWhy?,,,,,3\n", "a.csv", 2),
        ("What?,up,down,,,A\nWhy?,so,no,,,E\n", "a.csv", 2),
        ("What?,up,down,,,A\nWhy?,so,no,,,3\n", "a.csv", 2),
        ("What?,up,down,,,A\n\u200b,so,no,,,A\n", "a.csv", 2),
        ("What?,up,down,,,A\nWhy?,so,\u200b,,,A\n", "a.csv", 2),
        ("What?,up,down,,,A\nWhy?,so,,no,,C\n", "a.csv", 2),
        ("", "a.csv", None),
        ("\n", "a.jsonl", None),
        ("x", "a.txt", None),
        ("What?,up,A\n", "a.csv", 1),
        ("What?,up,down,A\nWhy?,so,A\n", "a.csv", 2),
        ("text_a;choice0;choice1;label\nWhat?;up;down;0\n", "a.csv", 1),
        ("text_a,choice1,choice2,label\nWhat?,up,down,2\n", "a.csv", 2),
        ('{"question_stem": "What?", "choices": ["up", "down"]}', "a.jsonl", 1),
        ('{"text_a": "What?", "choices": ["up", "no", 3], "label": 0}', "a.jsonl", 1),
        ('{"text_a": "What?", "choices": "no", "label": 0}', "a.jsonl", 1),
        ('{"text_a": "What?", "label": 0}\n', "a.jsonl", 1),
        ('{"text_a": "What?"\n', "a.jsonl", 1),
        (json.dumps({**RACE, "answers": ["A"]}), "a.jsonl", 1),
    ):
        path = written(text, name)
        assert cause_of(read_questions, path) == (path if line is None else f"{path}:{line}"), text
    path = written("{\n", "dev/1.txt")
    assert cause_of(read_questions, f"{tmp_path}/dev") == f"{path}:1"
    written("{}", "other/a.json")
    assert cause_of(read_questions, f"{tmp_path}/other") == f"{tmp_path}/other"
