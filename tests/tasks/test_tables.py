"""A person's own table as examples: columns by name, and what is wrong with a row by file and line."""

import json

import pytest

from bert_tf.tasks.classification import InputExample
from bert_tf.tasks.tables import infer_labels, read_examples


def write(path, text):
    path.write_text(text, encoding="utf-8", newline="")
    return str(path)


def jsonl(path, *rows):
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def labels_of(*labels):
    return infer_labels(InputExample(str(n), "a", label=label) for n, label in enumerate(labels))


def test_rows_of_a_tsv_become_examples(tmp_path):
    path = write(tmp_path / "t.tsv", "label\tquestion\tanswer\nyes\tWho?\tI.\nno\tWhy?\tSo.\n")
    columns = dict(text_a_column="question", text_b_column="answer", label_column="label")
    assert list(read_examples(path, **columns)) == [
        InputExample("row-1", "Who?", "I.", "yes", f"{path}:2"),
        InputExample("row-2", "Why?", "So.", "no", f"{path}:3"),
    ]


def test_without_a_label_column_there_are_no_labels(tmp_path):
    path = write(tmp_path / "t.csv", 'text,label\r\n"One, two",x\r\n')
    (example,) = read_examples(path, text_a_column="text")
    assert (example.text_a, example.text_b, example.label) == ("One, two", None, None)


def test_a_table_is_read_lazily(tmp_path):
    path = write(tmp_path / "t.tsv", "text\nfirst\n \n")
    assert next(read_examples(path, text_a_column="text")).text_a == "first"


@pytest.mark.parametrize("column", ["text_a_column", "text_b_column", "label_column"])
def test_a_missing_column_is_an_error_that_names_those_there_are(tmp_path, column):
    path = write(tmp_path / "t.tsv", "text\tlabel\nHello.\tx\n")
    columns = {"text_a_column": "text", column: "lable"}
    with pytest.raises(ValueError, match=r"t.tsv:2: there is no column 'lable'.*did you mean") as e:
        list(read_examples(path, **columns))
    assert "text, label" in str(e.value)


@pytest.mark.parametrize("column", ["text_a_column", "text_b_column"])
@pytest.mark.parametrize("value", ["", "  ", None, 7, ["a"]])
def test_a_text_that_is_none_is_refused_by_line(tmp_path, column, value):
    path = jsonl(tmp_path / "t.jsonl", {"t": "a", "u": "b"}, {"t": "a", "u": value})
    columns = {"text_a_column": "t", column: "u"}
    with pytest.raises(ValueError, match=r"t.jsonl:2: column 'u' holds .*, but must hold a text"):
        list(read_examples(path, **columns))


@pytest.mark.parametrize(
    "value, label",
    [(1, "1"), (-2, "-2"), (0.5, "0.5"), (True, "true"), (False, "false"), ("1 ", "1")],
)
def test_a_label_in_json_is_its_text_as_json_writes_it(tmp_path, value, label):
    path = jsonl(tmp_path / "t.jsonl", {"t": "a", "l": value})
    (example,) = read_examples(path, text_a_column="t", label_column="l")
    assert example.label == label


@pytest.mark.parametrize("value", ["", "  ", None, ["a"], {"a": 1}, float("nan")])
def test_a_label_that_is_none_is_refused_by_line(tmp_path, value):
    path = jsonl(tmp_path / "t.jsonl", {"t": "a", "l": "x"}, {"t": "a", "l": value})
    with pytest.raises(ValueError, match=r"t.jsonl:2: column 'l' holds .*, but must hold a label"):
        list(read_examples(path, text_a_column="t", label_column="l"))


def test_labels_are_sorted_as_words():
    assert labels_of("b", "a", "C", "b", "a") == ["C", "a", "b"]
    assert labels_of("10", "9", "none") == ["10", "9", "none"]


@pytest.mark.parametrize(
    "labels", [["2", "9", "10"], ["-10", "-1", "0", "3"], ["0.5", "1", "1.5", "10"], ["1", "2e3"]]
)
def test_labels_that_are_numbers_are_sorted_by_value(labels):
    assert labels_of(*reversed(labels)) == labels


def test_examples_without_a_label_have_none_to_infer():
    assert labels_of(None, "x", None) == ["x"]
    assert labels_of() == []


def test_labels_of_equal_value_have_an_order_that_is_not_the_sets():
    equal = ["0" * zeros + "1" for zeros in range(20, -1, -1)]
    assert labels_of(*equal, "0") == ["0", *equal]


def test_words_that_python_takes_for_numbers_are_words():
    assert labels_of("nan", "1", "inf", "10", "9") == ["1", "10", "9", "inf", "nan"]
