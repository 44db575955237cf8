"""Multiple-choice sets: SWAG, ARC, RACE and JSON lines, and invalid rows."""

import json

import pytest

from bert_tf.data.multiple_choice import read_questions

SWAG = """,video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label
0,anetv_1,3416,x,"Members of the, procession",A drum line,gold,passes by.,has heard.,arrives.,turns.,1
1,anetv_2,3417,x,He plays.,He,gold,"stops, and sits.",runs.,sings.,sleeps.,0
"""


@pytest.fixture
def written(tmp_path):
    def write(text, name):
        if not isinstance(text, str):
            text = "".join(json.dumps(line) + "\n" for line in text)
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return write


def fields(questions):
    return [(q.text_a, q.choices, q.label) for q in questions]


def test_swag_puts_the_second_sentence_before_each_ending(written):
    path = written(SWAG, "val.csv")
    questions = read_questions(path)
    assert fields(questions) == [
        (
            "Members of the, procession",
            (
                "A drum line passes by.",
                "A drum line has heard.",
                "A drum line arrives.",
                "A drum line turns.",
            ),
            1,
        ),
        ("He plays.", ("He stops, and sits.", "He runs.", "He sings.", "He sleeps."), 0),
    ]
    assert [q.origin for q in questions] == [f"{path}:2", f"{path}:3"]
    assert [q.guid for q in questions] == ["row-2", "row-3"]


def test_the_test_set_of_swag_has_no_labels(written):
    without = "\n".join(line.rpartition(",")[0] for line in SWAG.splitlines())
    assert [q.label for q in read_questions(written(without, "test.csv"))] == [None, None]


def test_the_numbers_in_the_names_of_columns_order_the_choices(written):
    path = written("sent1,sent2,ending10,ending2,ending1,label\nq,s,c,b,a,2\n", "a.csv")
    assert fields(read_questions(path)) == [("q", ("s a", "s b", "s c"), 2)]


@pytest.mark.parametrize(
    "text, label",
    [
        ("label,text_a,choice1,choice2\n0,q,a,b\n", 0),
        ("question,choice0,choice1\nq,a,b\n", None),
    ],
)
def test_a_header_may_have_its_label_anywhere_or_none(written, text, label):
    assert fields(read_questions(written(text, "a.csv"))) == [("q", ("a", "b"), label)]


def test_arc_as_csv_has_no_header_and_letters_or_digits_as_keys(written):
    path = written('"Which, then?",dry,wet,oily,soft,C\nWhat?,up,down,,,2\n', "arc.csv")
    assert fields(read_questions(path)) == [
        ("Which, then?", ("dry", "wet", "oily", "soft"), 2),
        ("What?", ("up", "down"), 1),
    ]


ARC_JSON = {
    "id": "Mercury_7",
    "question": {
        "stem": "What?",
        "choices": [{"text": "up", "label": "1"}, {"text": "down", "label": "2"}],
    },
    "answerKey": "2",
}


@pytest.mark.parametrize(
    "line, expected",
    [
        (ARC_JSON, ("What?", ("up", "down"), 1)),
        (
            {"question": "What?", "choices": {"text": ["up", "down"], "label": ["A", "B"]}},
            ("What?", ("up", "down"), None),
        ),
        (
            {"question": {"stem": "What?"}, "answerKey": "B"}
            | {"choices": [{"text": "up", "label": "A"}, {"text": "down", "label": "B"}]},
            ("What?", ("up", "down"), 1),
        ),
        (
            {
                "ind": 4,
                "ctx_a": "A man sits.",
                "ctx_b": "he",
                "endings": ["runs", "eats"],
                "label": 1,
            },
            ("A man sits.", ("he runs", "he eats"), 1),
        ),
        (
            {"text_a": "What?", "choices": ["up", "down", "left"], "label": 2},
            ("What?", ("up", "down", "left"), 2),
        ),
        ({"text_a": "What?", "choices": ["up", "down"]}, ("What?", ("up", "down"), None)),
    ],
)
def test_json_lines_in_the_forms_that_people_have(written, line, expected):
    assert fields(read_questions(written([line], "a.jsonl"))) == [expected]


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


def test_race_is_a_folder_of_articles_each_with_several_questions(written, tmp_path):
    written(json.dumps(RACE, indent=1), "dev/high/1.txt")
    written(json.dumps(RACE), "dev/middle/2.txt")
    questions = read_questions(str(tmp_path / "dev"))
    assert fields(questions) == RACE_QUESTIONS * 2
    assert [q.guid for q in questions[:2]] == ["high1.txt-0", "high1.txt-1"]
    assert questions[1].origin == f"{tmp_path}/dev/high/1.txt #1"


def test_race_as_json_lines_is_the_same(written):
    assert fields(read_questions(written([RACE], "race.jsonl"))) == RACE_QUESTIONS


@pytest.mark.parametrize(
    "text, name, message",
    [
        ("What?,up,down,,,A\nWhy?,,,,,3\n", "a.csv", ":2: "),
        ("What?,up,down,,,A\nWhy?,so,no,,,E\n", "a.csv", ":2: .*'E'.* A, B"),
        ("What?,up,down,,,A\nWhy?,so,no,,,3\n", "a.csv", ":2: .*'3'.* A, B"),
        ("What?,up,down,,,A\n\u200b,so,no,,,A\n", "a.csv", ":2: "),
        ("What?,up,down,,,A\nWhy?,so,\u200b,,,A\n", "a.csv", ":2: "),
        ("What?,up,down,,,A\nWhy?,so,,no,,C\n", "a.csv", ":2: "),
        ("", "a.csv", ": no question"),
        ("\n", "a.jsonl", ": no question"),
        ("x", "a.txt", ": no question"),
        ("What?,up,A\n", "a.csv", ":1: no sent1"),
        ("What?,up,down,A\nWhy?,so,A\n", "a.csv", ":2: found 3 columns"),
        ("text_a;choice0;choice1;label\nWhat?;up;down;0\n", "a.csv", ":1: no sent1"),
        ("text_a,choice1,choice2,label\nWhat?,up,down,2\n", "a.csv", ":2: .*'2'.* 0, 1"),
        ('{"question_stem": "What?", "choices": ["up", "down"]}', "a.jsonl", ":1: "),
        ('{"text_a": "What?", "choices": ["up", "no", 3], "label": 0}', "a.jsonl", ":1: .* 3"),
        ('{"text_a": "What?", "choices": "no", "label": 0}', "a.jsonl", ':1: "choices"'),
        ('{"text_a": "What?", "label": 0}\n', "a.jsonl", ":1: .*choices"),
        ('{"text_a": "What?"\n', "a.jsonl", ":1: .*JSON"),
        (json.dumps({**RACE, "answers": ["A"]}), "a.jsonl", ":1: .*answers"),
    ],
)
def test_read_questions_rejects_rows_by_line(written, text, name, message):
    path = written(text, name)
    with pytest.raises(ValueError, match=path + message):
        read_questions(path)


def test_read_questions_rejects_other_folders(written, tmp_path):
    written("{\n", "dev/1.txt")
    with pytest.raises(ValueError, match=r"1.txt:\d: .*JSON"):
        read_questions(str(tmp_path / "dev"))
    written("{}", "other/a.json")
    with pytest.raises(ValueError, match="no question"):
        read_questions(str(tmp_path / "other"))
