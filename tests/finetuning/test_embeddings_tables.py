"""The examples of run_embeddings from one file: a table of pairs, scores or classes, or a SQuAD file."""

import json

import pytest
from tiny_embeddings import options, write
from tiny_words_and_choices import write_json_lines

from bert_tf.finetuning.embeddings_data import read_examples


def read(path, **flags):
    types, splits = read_examples(
        options(path.parent, do_train=True, train_file=str(path), **flags)
    )
    return types["train"], splits["train"]


def texts(path, **flags):
    return [example.texts for example in read(path, **flags)[1]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\nx\ty\n", r"t.tsv:2: .* a, b\. .*anchor_column"),
        ("anchor\nx\n", "t.tsv:2: .*positive_column or label_column"),
        ("anchor\tpositive\nx\t\n", "t.tsv:2: positive is ''"),
        ("anchor\tpositive\nx\t\u200b\n", "t.tsv:2: positive is "),
        ("text_a\ttext_b\tscore\nx\ty\t3\n", "t.tsv:2: score is '3', .* from 0 to 1"),
        ("text_a\ttext_b\tscore\nx\ty\t-.1\n", "score is '-.1'"),
        ("text_a\ttext_b\tscore\nx\ty\tnan\n", "score is 'nan'"),
        ("text_a\ttext_b\tlabel\nx\ty\tsame\n", "label is 'same'"),
        ("text\tlabel\nx\tA\ny\tA\n", "'A'.*label_column"),
        ("text\tlabel\nx\tA\ny\t \n", "t.tsv:3: label is ' '"),
        ("anchor\tnegative\tlabel\nx\ty\tA\n", "positive"),
        ("anchor\tpositive\n", "t.tsv has no examples"),
        ("ANCHOR\tpositive\nx\ty\n", "anchor_column"),
    ],
)
def test_read_file_rejects_tables(tmp_path, text, message):
    write(tmp_path / "t.tsv", text)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "t.tsv")


def test_classes_are_names_and_rows_without_one_are_left_out(tmp_path, caplog):
    write(tmp_path / "t.tsv", "sentence\tlabel\na dog\tpet\nthe cat\tpet \nit\t-\na barn\tplace\n")
    kind, examples = read(tmp_path / "t.tsv")
    assert kind == "classes"
    assert [example.texts for example in examples] == [("a dog",), ("the cat",), ("a barn",)]
    assert examples[0].label == examples[1].label != examples[2].label
    assert "1 of 4 rows have no class" in caplog.text


def test_columns_may_be_named_and_have_several_negatives(tmp_path):
    write(tmp_path / "t.csv", "q,good,bad1,bad2\nwho,me,you,\nwhat,this,that,it\n")
    columns = {"anchor_column": "q", "positive_column": "good", "negative_columns": "bad1,bad2"}
    assert texts(tmp_path / "t.csv", **columns) == [
        ("who", "me", "you"),
        ("what", "this", "that", "it"),
    ]


def test_an_empty_name_of_a_column_is_no_label_and_no_negative(tmp_path):
    file = write(tmp_path / "t.csv", "query,positive,negative,label\nwho,me,you,7\n")
    files = {"do_train": True, "train_file": file, "do_predict": True, "predict_file": file}
    given = options(tmp_path / "out", **files, label_column="", negative_columns="")
    kinds, splits = read_examples(given)
    assert kinds == {"train": "pairs", "test": "pairs"}
    assert splits["train"][0].texts == splits["test"][0].texts == ("who", "me")


@pytest.mark.parametrize("name", ["negative", "negatives"])
def test_json_lines_may_have_lists_of_negatives(tmp_path, name):
    rows = [
        {"anchor": "who", "positive": "me", name: ["you", "", "she"], "negative_2": "it"},
        {"anchor": "what", "positive": "this"},
    ]
    write_json_lines(tmp_path / "t.jsonl", rows)
    assert texts(tmp_path / "t.jsonl") == [("who", "me", "you", "she", "it"), ("what", "this")]
    for wrong in ({name: ["you", 3]}, {"positive": ["y", "z"]}):
        write_json_lines(tmp_path / "t.jsonl", [rows[0] | wrong])
        with pytest.raises(ValueError, match=rf"t.jsonl:1: {next(iter(wrong))} is "):
            read(tmp_path / "t.jsonl")
    write_json_lines(tmp_path / "t.jsonl", [*rows, {"anchor": "a", "positive": "b", "score": 1}])
    with pytest.raises(ValueError, match=r"t.jsonl:3: "):
        read(tmp_path / "t.jsonl")


def test_questions_of_squad_have_their_passages_as_positives(tmp_path):
    answers = [{"text": "me", "answer_start": 0}]
    paragraphs = [
        {"context": "me .", "qas": [{"id": "1", "question": "who ?", "answers": answers}]}
    ]
    write(tmp_path / "s.json", json.dumps({"data": [{"paragraphs": paragraphs}]}))
    assert read(tmp_path / "s.json")[0] == "pairs"
    assert texts(tmp_path / "s.json") == [("who ?", "me .")]
