"""A user's table as classification examples: columns by name, errors by file and line."""

from helpers import cause_of, write, write_json_lines

from bert_tf.data.tables import TableOptions
from bert_tf.tasks.classification import InputExample
from bert_tf.tasks.tables import infer_labels, split_label_columns
from bert_tf.tasks.tables import read_examples as read_table_examples


def read_examples(path, text_a="text", text_b=None, label=None, problem_type="single_label"):
    table = TableOptions(text_a_column=text_a, text_b_column=text_b)
    return list(read_table_examples(path, table, label, problem_type))


def labels_of(*labels):
    return infer_labels([InputExample(str(n), "a", label=label) for n, label in enumerate(labels)])


def test_read_examples_of_pairs(tmp_path):
    path = write(tmp_path / "t.tsv", "label\tquestion\tanswer\nyes\tWho?\tI.\nno\tWhy?\tSo.\n")
    columns = dict(text_a="question", text_b="answer", label="label")
    assert read_examples(path, **columns) == [
        InputExample("row-1", "Who?", "I.", "yes", f"{path}:2"),
        InputExample("row-2", "Why?", "So.", "no", f"{path}:3"),
    ]


def test_a_label_in_json_is_its_text(tmp_path):
    rows = {1: "1", -2: "-2", 0.5: "0.5", "1 ": "1", 10**309: str(10**309)}
    values, texts = [*rows, True, False], [*rows.values(), "true", "false"]
    path = write_json_lines(tmp_path / "t.jsonl", [{"text": "a", "l": value} for value in values])
    assert [example.label for example in read_examples(path, label="l")] == texts


def test_read_examples_rejects_values_by_line(tmp_path):
    several, number = {"problem_type": "multi_label"}, {"problem_type": "regression"}
    number_values = ("", "high", None, [1], "nan", "1,5", float("inf"), 10**309)
    label_values = (" ", None, ["a"], {"a": 1}, float("nan"), "very\ngood", "very\rgood")
    for column, values, layout in (
        ("text", ("", "\u200b", None, 7, ["a"]), {}),
        ("text_b", (" ", None), {"text_b": "text_b"}),
        ("l", label_values, {"label": "l"}),
        ("l", (None, ["x", None], 3), {"label": "l", **several}),
        ("l", ("yes", 2, None), {"label": "l,m", **several}),
        ("l", number_values, {"label": "l", **number}),
    ):
        for value in values:
            row = {"text": "a", "text_b": "b", "l": "1", "m": 1}
            path = write_json_lines(tmp_path / "t.jsonl", [row | {column: value}])
            assert cause_of(read_examples, path, **layout) == f"{path}:1", (column, value)


def test_infer_labels_sorts_words_and_numbers():
    assert labels_of("b", "a", "C", "b", "a", None) == ["C", "a", "b"]
    assert labels_of("10", "9", "none") == ["10", "9", "none"]
    assert labels_of("nan", "1", "inf", "10", "9") == ["1", "10", "9", "inf", "nan"]
    assert labels_of(("b", "a"), (), ("c", "a")) == ["a", "b", "c"]
    for labels in ("2 9 10", "-10 -2 0 3", "0.5 1 1.5 10", "1 2e3"):  # by value
        assert labels_of(*reversed(labels.split())) == labels.split()


def test_infer_labels_does_not_depend_on_the_order_of_a_set():
    equal = ["0" * zeros + "1" for zeros in range(20, -1, -1)]
    assert labels_of(*equal, "0") == ["0", *equal]


def several(path, label="labels"):
    examples = read_examples(path, problem_type="multi_label", label=label)
    return [example.label for example in examples]


def test_several_labels_in_one_column(tmp_path):
    path = write(tmp_path / "t.tsv", "text\tlabels\na\trude, threat\nb\t\nc\tthreat\n")
    assert several(path) == [("rude", "threat"), (), ("threat",)]
    values = (["x", 2], [], "x")
    rows = [{"text": "a", "labels": value} for value in values]
    path = write_json_lines(tmp_path / "t.jsonl", rows)
    assert several(path) == [("x", "2"), (), ("x",)]


def test_several_labels_in_columns_of_their_own(tmp_path):
    path = write(tmp_path / "t.csv", "text,rude,threat\na,0,1\nb,1,true\nc,False,0\n")
    assert several(path, label="rude, threat") == [("threat",), ("rude", "threat"), ()]
    assert split_label_columns("a,b", "single_label") == ()


def test_numbers_of_a_regression(tmp_path):
    rows = [{"text": "a", "y": 2}, {"text": "b", "y": "-1.5e2"}]
    path = write_json_lines(tmp_path / "t.jsonl", rows)
    examples = read_examples(path, problem_type="regression", label="y")
    assert [example.label for example in examples] == [2.0, -150.0]
