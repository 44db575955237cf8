"""A person's own table as examples: columns by name, and what is wrong with a row by file and line."""

import json

import pytest

from bert_tf.tasks.classification import InputExample
from bert_tf.tasks.tables import TableLayout, are_measurements, infer_labels
from bert_tf.tasks.tables import read_examples as read_with_layout


def read_examples(path, **columns):
    """With a layout of these names; labels are read where a column is named."""
    return read_with_layout(
        path, TableLayout(**{"text_a": "text", **columns}), labelled="label" in columns
    )


def write(path, text):
    path.write_text(text, encoding="utf-8", newline="")
    return str(path)


def jsonl(path, *rows):
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def labels_of(*labels):
    return infer_labels(InputExample(str(n), "a", label=label) for n, label in enumerate(labels))


def test_rows_of_a_tsv_become_examples(tmp_path):
    path = write(tmp_path / "t.tsv", "label\tquestion\tanswer\nyes\tWho?\tI.\nno\tWhy?\tSo.\n")
    columns = dict(text_a="question", text_b="answer", label="label")
    assert list(read_examples(path, **columns)) == [
        InputExample("row-1", "Who?", "I.", "yes", f"{path}:2"),
        InputExample("row-2", "Why?", "So.", "no", f"{path}:3"),
    ]


def test_without_a_label_there_are_no_labels(tmp_path):
    path = write(tmp_path / "t.csv", 'text,label\r\n"One, two",x\r\n')
    (example,) = read_examples(path, text_a="text")
    assert (example.text_a, example.text_b, example.label) == ("One, two", None, None)


def test_a_table_is_read_lazily(tmp_path):
    path = write(tmp_path / "t.tsv", "text\nfirst\n \n")
    assert next(read_examples(path, text_a="text")).text_a == "first"


@pytest.mark.parametrize("column", ["text_a", "text_b", "label"])
def test_a_missing_column_is_an_error_that_names_those_there_are(tmp_path, column):
    path = write(tmp_path / "t.tsv", "text\tlabel\nHello.\tx\n")
    columns = {"text_a": "text", column: "lable"}
    with pytest.raises(ValueError, match=r"t.tsv:1: .*column 'lable'.*did you mean") as e:
        list(read_examples(path, **columns))
    assert "text, label" in str(e.value)


@pytest.mark.parametrize("column", ["text_a", "text_b"])
@pytest.mark.parametrize("value", ["", "  ", "\u200b", None, 7, ["a"]])
def test_a_text_that_is_none_is_refused_by_line(tmp_path, column, value):
    path = jsonl(tmp_path / "t.jsonl", {"t": "a", "u": "b"}, {"t": "a", "u": value})
    columns = {"text_a": "t", column: "u"}
    with pytest.raises(ValueError, match=r"t.jsonl:2: column 'u' .*, but must contain a text"):
        list(read_examples(path, **columns))


@pytest.mark.parametrize(
    "value, label",
    [
        *((1, "1"), (-2, "-2"), (0.5, "0.5"), (True, "true"), (False, "false"), ("1 ", "1")),
        pytest.param(10**309, str(10**309), id="above the largest float"),
    ],
)
def test_a_label_in_json_is_its_text_as_json_writes_it(tmp_path, value, label):
    path = jsonl(tmp_path / "t.jsonl", {"t": "a", "l": value})
    (example,) = read_examples(path, text_a="t", label="l")
    assert example.label == label


@pytest.mark.parametrize("value", ["", "  ", None, ["a"], {"a": 1}, float("nan")])
def test_a_label_that_is_none_is_refused_by_line(tmp_path, value):
    path = jsonl(tmp_path / "t.jsonl", {"t": "a", "l": "x"}, {"t": "a", "l": value})
    with pytest.raises(ValueError, match=r"t.jsonl:2: column 'l' .*, but must contain a label"):
        list(read_examples(path, text_a="t", label="l"))


@pytest.mark.parametrize("value", ["very\ngood", "very\rgood"])
def test_a_label_of_two_lines_is_refused_by_line(tmp_path, value):
    path = jsonl(tmp_path / "t.jsonl", {"t": "a", "l": "x\n"}, {"t": "a", "l": value})
    message = r"t.jsonl:2: column 'l' .*, but must contain a label without line ends"
    with pytest.raises(ValueError, match=message):
        list(read_examples(path, text_a="t", label="l"))


def test_labels_are_sorted_as_words():
    assert labels_of("b", "a", "C", "b", "a") == ["C", "a", "b"]
    assert labels_of("10", "9", "none") == ["10", "9", "none"]


@pytest.mark.parametrize(
    "labels", [["2", "9", "10"], ["-10", "-1", "0", "3"], ["0.5", "1", "1.5", "10"], ["1", "2e3"]]
)
def test_labels_that_are_numbers_are_sorted_by_value(labels):
    assert labels_of(*reversed(labels)) == labels


@pytest.mark.parametrize(
    "labels, num_examples, expected",
    [
        ([f"{n / 10}" for n in range(1, 117)], 120, True),
        ([f"{n / 5}" for n in range(26)], 5749, True),  # STS-B
        ([f"{n / 2}" for n in range(1, 11)], 120, False),  # half stars
        ([str(n) for n in range(150)], 160, False),  # numbered classes
        ([f"{n}.0" for n in range(150)], 160, False),
        (["1.5", "many"], 2, False),
        (["0.25", "0.5"], 4, False),
    ],
)
def test_many_decimal_numbers_are_measurements_and_no_classes(labels, num_examples, expected):
    assert are_measurements(labels, num_examples) == expected


def test_examples_without_a_label_have_none_to_infer():
    assert labels_of(None, "x", None) == ["x"]
    assert labels_of() == []


def test_labels_of_equal_value_have_an_order_that_is_not_the_sets():
    equal = ["0" * zeros + "1" for zeros in range(20, -1, -1)]
    assert labels_of(*equal, "0") == ["0", *equal]


def test_words_that_python_takes_for_numbers_are_words():
    assert labels_of("nan", "1", "inf", "10", "9") == ["1", "10", "9", "inf", "nan"]


# -------------------------------------------------------------------------------- without a header


def test_without_a_header_columns_are_called_by_their_numbers(tmp_path):
    path = write(tmp_path / "t.tsv", "\ufeffgj04\t1\t\tThey left.\r\ngj04\t0\t*\tThey leaved.\r\n")
    examples = list(read_examples(path, header=False, text_a="3", label="1"))
    assert [(e.text_a, e.label, e.origin) for e in examples] == [
        ("They left.", "1", f"{path}:1"),
        ("They leaved.", "0", f"{path}:2"),
    ]


def test_without_a_header_a_name_is_refused_with_the_numbers(tmp_path):
    path = write(tmp_path / "t.csv", "a,b\n")
    with pytest.raises(ValueError, match=r"t.csv:1: .*column 'text'\. The columns are 0, 1"):
        list(read_examples(path, header=False))


def test_without_a_header_a_row_of_another_length_is_refused_by_line(tmp_path):
    path = write(tmp_path / "t.tsv", "a\tb\n\na\tb\tc\n")
    with pytest.raises(ValueError, match=r"t.tsv:3: found 3 columns, but 2 are expected"):
        list(read_examples(path, header=False, text_a="0"))
    assert list(read_examples(write(tmp_path / "e.tsv", ""), header=False, text_a="0")) == []


def test_a_file_of_any_name_is_read_as_what_it_is_said_to_be(tmp_path):
    path = write(tmp_path / "data.txt", 'text\tlabel\n"a\tb"\tx\n')
    (example,) = read_examples(path, label="label", format="tsv", quoted=True)
    assert (example.text_a, example.label) == ("a\tb", "x")


# ---------------------------------------------------------------------------------- several labels


def several(path, **layout):
    examples = read_examples(path, problem_type="multi_label", **{"label": "labels", **layout})
    return [example.label for example in examples]


def test_several_labels_stand_in_one_column_with_a_separator(tmp_path):
    path = write(tmp_path / "t.tsv", "text\tlabels\na\trude, threat\nb\t\nc\tthreat\n")
    assert several(path) == [("rude", "threat"), (), ("threat",)]
    path = write(tmp_path / "t.csv", "text,labels\na,rude|threat\n")
    assert several(path, label_separator="|") == [("rude", "threat")]


LISTS = [
    "['rude', 'threat']",
    "['rude' 'threat']",
    '[""rude""]',
    "[]",
    "[ ]",
    "[0, 3]",
    "[0 3]",
    "[27]",
]


@pytest.mark.parametrize("cell", LISTS)
def test_several_labels_are_no_list_in_csv(tmp_path, cell):
    path = write(tmp_path / "t.csv", f'text,labels\na,"{cell}"\n')
    with pytest.raises(ValueError, match=r"t.csv:2: column 'labels' .* a list, .*',' between them"):
        several(path)


def test_one_label_is_no_list_in_csv(tmp_path):
    path = write(tmp_path / "t.csv", "text,label\na,['rude']\n")
    with pytest.raises(ValueError, match=r"t.csv:2: column 'label' .* a list, but must contain a"):
        list(read_examples(path, label="label"))


@pytest.mark.parametrize("problem_type", ["single_label", "multi_label"])
def test_labels_are_no_object_in_csv(tmp_path, problem_type):
    cell = '{""choices"":[""rude"",""threat""]}'  # of Label Studio
    path = write(tmp_path / "t.csv", f'text,label\na,rude\nb,"{cell}"\n')
    with pytest.raises(ValueError, match=r"t.csv:3: column 'label' .* not a JSON object.* alone"):
        list(read_examples(path, label="label", problem_type=problem_type))


def test_several_labels_that_a_spreadsheet_encloses_in_a_tsv_are_an_error(tmp_path):
    path = write(tmp_path / "t.tsv", 'text\tlabels\na\t"rude,threat"\nb\t"rude"\n')
    with pytest.raises(ValueError, match=r"t.tsv:2: column 'labels' .*rude.* use quoted=True\."):
        several(path)
    assert several(path, quoted=True) == [("rude", "threat"), ("rude",)]


def test_several_labels_may_be_a_list_in_json(tmp_path):
    rows = [
        {"text": "a", "labels": ["x", 2]},
        {"text": "b", "labels": []},
        {"text": "c", "labels": "x"},
    ]
    assert several(jsonl(tmp_path / "t.jsonl", *rows)) == [("x", "2"), (), ("x",)]


@pytest.mark.parametrize("value", [[1, 0, 1], [0.0, 0.0, 1.0], [True, True], "1,0,0"])
def test_a_list_of_0_and_1_for_each_label_is_no_list_of_names(tmp_path, value):
    path = jsonl(tmp_path / "t.jsonl", {"text": "a", "labels": value})
    message = r"t.jsonl:1: column 'labels' .* names of its labels, each once.* a column for each"
    with pytest.raises(ValueError, match=message):
        several(path)
    assert several(jsonl(tmp_path / "u.jsonl", {"text": "a", "labels": [0, 1]})) == [("0", "1")]


def test_several_labels_may_have_a_column_each(tmp_path):
    path = write(tmp_path / "t.csv", "text,rude,threat\na,0,1\nb,1,true\nc,False,0\n")
    assert several(path, label="rude,threat") == [("threat",), ("rude", "threat"), ()]
    layout = TableLayout("text", label="rude, threat", problem_type="multi_label")
    assert layout.label_columns == ("rude", "threat")
    assert TableLayout("text", label="a,b").label_columns == ()


@pytest.mark.parametrize(
    "row, label, message",
    [
        (
            {"text": "a", "rude": "yes", "x": 1},
            "rude,x",
            "column 'rude' contains 'yes', but must contain 0 or",
        ),
        (
            {"text": "a", "rude": 2, "x": 1},
            "rude,x",
            "column 'rude' contains 2, but must contain 0 or 1",
        ),
        ({"text": "a", "l": None}, "l", "column 'l' contains None, but must contain labels"),
        (
            {"text": "a", "l": ["x", None]},
            "l",
            "column 'l' contains None, but must contain a label",
        ),
    ],
)
def test_wrong_labels_are_refused_by_line(tmp_path, row, label, message):
    with pytest.raises(ValueError, match=f"t.jsonl:1: {message}"):
        several(jsonl(tmp_path / "t.jsonl", row), label=label)


def test_the_labels_of_lists_are_inferred_too():
    assert labels_of(("b", "a"), (), ("c", "a")) == ["a", "b", "c"]


# ----------------------------------------------------------------------------------------- numbers


def test_numbers_of_a_regression(tmp_path):
    path = jsonl(tmp_path / "t.jsonl", {"text": "a", "y": 2}, {"text": "b", "y": "-1.5e2"})
    examples = read_examples(path, problem_type="regression", label="y")
    assert [example.label for example in examples] == [2.0, -150.0]


@pytest.mark.parametrize(
    "value", ["", "high", None, True, [1], "nan", float("inf"), pytest.param(10**309, id="huge")]
)
def test_what_is_no_number_is_refused_by_line(tmp_path, value):
    path = jsonl(tmp_path / "t.jsonl", {"text": "a", "y": value})
    with pytest.raises(ValueError, match=r"t.jsonl:1: column 'y' .*, but must contain a number"):
        list(read_examples(path, problem_type="regression", label="y"))


def test_a_long_value_is_shortened_in_the_error(tmp_path):
    path = jsonl(tmp_path / "t.jsonl", {"text": "a", "y": 99 * "word "})
    with pytest.raises(ValueError, match=r"t.jsonl:1: column 'y' contains '.{50,60}, but must"):
        list(read_examples(path, problem_type="regression", label="y"))


def test_a_decimal_comma_is_an_error_that_proposes_a_point(tmp_path):
    path = write(tmp_path / "t.csv", 'text,y\na,"1,5"\n')
    with pytest.raises(ValueError, match=r"t.csv:2: column 'y' contains '1,5'.* Write a point"):
        list(read_examples(path, problem_type="regression", label="y"))


def test_a_name_of_a_column_may_be_in_other_case(tmp_path):
    path = write(tmp_path / "t.csv", "Text,LABEL\na dog,good\n")
    (example,) = read_examples(path, text_a="text", label="label")
    assert (example.text_a, example.label) == ("a dog", "good")
    path = write(tmp_path / "t.csv", "Text,text,label\na dog,a cat,good\n")
    (example,) = read_examples(path, text_a="text", label="label")
    assert example.text_a == "a cat"
    path = write(tmp_path / "t.csv", "text, Rude, threat\na,0,1\n")
    assert several(path, label="rude,threat") == [("threat",)]
