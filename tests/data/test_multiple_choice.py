"""Multiple-choice sets: SWAG, ARC, RACE and JSON lines, and invalid rows."""

import json
from pathlib import Path

import pytest

from bert_tf.data.multiple_choice import read_questions

ARC = Path(__file__).parents[3] / "shared/data/multiple_choice/ARC"

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
            {
                "question": "What?",
                "choices": {"text": ["up", "down"], "label": ["A", "B"]},
                "answerKey": "A",
            },
            ("What?", ("up", "down"), 0),
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


def test_json_lines_keep_their_id(written):
    assert read_questions(written([ARC_JSON], "a.jsonl"))[0].guid == "Mercury_7"


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


def test_empty_rows_of_a_spreadsheet_are_skipped_and_counted(written, caplog):
    path = written("text_a,choice0,choice1,label\nq,a,b,1\n,,,\nr,c,d,0\n", "a.csv")
    assert [q.origin for q in read_questions(path)] == [f"{path}:2", f"{path}:4"]
    assert f"1 rows without any text were skipped, the last in {path}:3" in caplog.text


# ----------------------------------------------------------------------------------------- bad input

BAD_ROWS = [
    ("What?,up,down,,,A\nWhy?,,,,,3\n", r"1 of 2 rows .*a.csv:2: found 0 choices"),
    (
        "What?,up,down,,,A\nWhy?,so,no,,,E\n",
        r"a.csv:2: the answer is 'E', but must be one of A, B",
    ),
    (
        "What?,up,down,,,A\nWhy?,so,no,,,3\n",
        r"a.csv:2: the answer is '3', but must be one of A, B",
    ),
    ("What?,up,down,,,A\n ,so,no,,,A\n", r"a.csv:2: the question is empty"),
    ("What?,up,down,,,A\n\u200b,so,no,,,A\n", r"a.csv:2: the question is empty"),
    ("What?,up,down,,,A\nWhy?,so,,,,A\n", r"a.csv:2: found 1 choices, but 2"),
    ("What?,up,down,,,A\nWhy?,so,\u200b,,,A\n", r"a.csv:2: found 1 choices, but 2"),
    ("What?,up,down,,,A\nWhy?,so,,no,,C\n", r"a.csv:2: choice 1, counted from 0, is empty"),
]


@pytest.mark.parametrize("text, message", BAD_ROWS)
def test_a_row_that_is_no_question_is_an_error_that_says_how_to_go_on(written, text, message):
    with pytest.raises(ValueError, match=message + ".*skip_bad_rows"):
        read_questions(written(text, "a.csv"))


@pytest.mark.parametrize("text, _", BAD_ROWS)
def test_or_it_is_left_out_and_noted(written, text, _):
    bad = []
    (question,) = read_questions(written(text, "a.csv"), bad)
    assert question.text_a == "What?"
    assert len(bad) == 1 and "a.csv:2: " in bad[0]


def test_a_question_of_another_name_is_a_bad_row(written):
    line = {"question_stem": "What?", "choices": ["up", "down"], "answerKey": 0}  # OpenBookQA
    with pytest.raises(
        ValueError, match=r"a.jsonl:1: the first text is missing. Name it text_a or"
    ):
        read_questions(written([line], "a.jsonl"))


def test_a_choice_that_is_no_text_is_a_bad_row(written):
    line = {"text_a": "What?", "choices": ["up", 3], "label": 0}
    with pytest.raises(ValueError, match=r"a.jsonl:1: 3 is not a string"):
        read_questions(written([line], "a.jsonl"))


@pytest.mark.parametrize(
    "text, name, message",
    [
        ("", "a.csv", r"a.csv is empty"),
        ("\n", "a.jsonl", r"a.jsonl contains no question"),
        ("x", "a.txt", r"a.txt: .*\.csv .*\.jsonl"),
        ("What?,up,A\n", "a.csv", r"a.csv:1: found 3 columns"),
        ("What?,up,down,A\nWhy?,so,A\n", "a.csv", r"a.csv:2: found 3 columns, but the first .* 4"),
        ("q,ending0,label\nWhat?,up,0\n", "a.csv", r"a.csv:1: the header is .*sent1"),
        (
            "text_a;choice0;choice1;label\nWhat?;up;down;0\n",
            "a.csv",
            r"a.csv:1: found 1 columns.* commas",
        ),
        (  # as `datasets` writes COPA
            "premise,choice1,choice2,question,label\nHe fell.,up,down,effect,1\n",
            "a.csv",
            r"a.csv:1: the first text is in 'question', and 'premise' is not read.* text_a",
        ),
        (
            '{"context": "He fell.", "question": "Where?", "choices": ["up", "down"]}\n',
            "a.jsonl",
            r"a.jsonl:1: the first text is in 'question', and 'context' is not read.* text_a",
        ),
        (
            "text_a,choice1,choice2,label\nWhat?,up,down,2\n",
            "a.csv",
            r"a.csv:2: the answer is '2', but must be one of 0, 1, counted from 0",
        ),
        ('{"text_a": "What?", "label": 0}\n', "a.jsonl", r'a.jsonl:1: "choices" is None'),
        ('{"text_a": "What?"\n', "a.jsonl", r"a.jsonl:1: .*JSON"),
        (
            json.dumps({**RACE, "answers": ["A"]}) + "\n",
            "a.jsonl",
            r"a.jsonl:1: found 2 questions, 2 lists of options, 1 answers",
        ),
    ],
)
def test_a_file_of_another_kind_is_an_error_that_says_where(written, text, name, message):
    with pytest.raises(ValueError, match=message):
        read_questions(written(text, name))


@pytest.mark.parametrize(
    "text, message", [("{\n", r"1.txt:\d: .*JSON"), ("[]", r"1.txt: .*JSON object")]
)
def test_an_article_of_race_that_is_none_is_named(written, tmp_path, text, message):
    written(text, "dev/1.txt")
    with pytest.raises(ValueError, match=message):
        read_questions(str(tmp_path / "dev"))


def test_a_folder_without_articles_is_refused(written, tmp_path):
    written("{}", "dev/a.json")
    with pytest.raises(ValueError, match=r"has no .txt file"):
        read_questions(str(tmp_path / "dev"))


@pytest.mark.skipif(not ARC.is_dir(), reason="needs ../shared/data/multiple_choice/ARC")
@pytest.mark.parametrize(
    "name, num_rows, num_bad",
    [  # counted with csv.reader: rows, and those without two choices or with the key of an empty one
        ("arc_challenge_dev.csv", 1119, 23),
        ("arc_challenge_test.csv", 299, 5),
        ("arc_easy_dev.csv", 2251, 104),
        ("arc_easy_test.csv", 570, 21),
    ],
)
def test_arc_is_read_and_its_broken_rows_are_counted(name, num_rows, num_bad):
    bad = []
    questions = read_questions(str(ARC / name), bad)
    assert (len(questions) + len(bad), len(bad)) == (num_rows, num_bad)
    assert {len(q.choices) for q in questions} <= {2, 3, 4, 5}


def test_a_row_with_more_choices_than_letters_is_a_bad_row(written):
    path = written(",".join(["What?", *["a"] * 27, "A"]) + "\n", "arc.csv")
    with pytest.raises(ValueError, match=r"found 27 choices, but at most 26 have a letter"):
        read_questions(str(path))
