"""The examples of run_embeddings: tables of pairs, scores or classes, SQuAD files, data sets by name."""

import json

import numpy as np
import pytest
from helpers import refused, write, write_json_lines

from bert_tf.embeddings.data import read_examples
from bert_tf.embeddings.retrieval import find_own_documents, relevance
from bert_tf.embeddings.run_embeddings import EmbeddingOptions
from bert_tf.options import make_options


def options(folder, **changes):
    return make_options(EmbeddingOptions, output_dir=str(folder), init_checkpoint="BERT", **changes)


def read(path, **flags):
    types, splits = read_examples(
        options(path.parent, do_train=True, train_file=str(path), **flags)
    )
    return types["train"], splits["train"]


def texts(path, **flags):
    return [example.texts for example in read(path, **flags)[1]]


# -------------------------------------------------------------------------------------------- a file


def test_read_file_rejects_tables(tmp_path):
    for text, place in (
        ("a\tb\nx\ty\n", "t.tsv:2"),
        ("anchor\nx\n", "t.tsv:2"),
        ("anchor\tpositive\nx\t\n", "t.tsv:2"),
        ("anchor\tpositive\nx\t\u200b\n", "t.tsv:2"),
        ("anchor\tpositive\tscore\nx\ty\t3\n", "t.tsv:2"),
        ("anchor\tpositive\tscore\nx\ty\t-.1\n", "t.tsv:2"),
        ("anchor\tpositive\tscore\nx\ty\tnan\n", "t.tsv:2"),
        ("anchor\tpositive\tscore\nx\ty\tsame\n", "t.tsv:2"),
        ("anchor\tnegative\nx\ty\n", "t.tsv:2"),
        ("anchor\tpositive\n", "t.tsv"),
        ("ANCHOR\tpositive\nx\ty\n", "t.tsv:2"),
    ):
        write(tmp_path / "t.tsv", text)
        with refused(place):
            read(tmp_path / "t.tsv")


def test_columns_may_be_named_and_have_several_negatives(tmp_path):
    write(tmp_path / "t.csv", "q,good,bad1,bad2\nwho,me,you,\nwhat,this,that,it\n")
    columns = {"anchor_column": "q", "positive_column": "good", "negative_columns": "bad1,bad2"}
    found = texts(tmp_path / "t.csv", **columns)
    assert found == [("who", "me", "you"), ("what", "this", "that", "it")]


def test_an_empty_name_of_a_column_is_no_label_and_no_negative(tmp_path):
    file = write(tmp_path / "t.csv", "anchor,positive,negative,score\nwho,me,you,7\n")
    files = {"do_train": True, "train_file": file, "do_predict": True, "predict_file": file}
    given = options(tmp_path / "out", **files, label_column="", negative_columns="")
    kinds, splits = read_examples(given)
    assert kinds == {"train": "pairs", "test": "pairs"}
    assert splits["train"][0].texts == splits["test"][0].texts == ("who", "me")


def test_json_lines_may_have_lists_of_negatives(tmp_path):
    first = {"anchor": "who", "positive": "me", "negative": ["you", "", "she"]}
    second, file = {"anchor": "what", "positive": "this"}, tmp_path / "t.jsonl"
    write_json_lines(file, [first, second])
    assert texts(file) == [("who", "me", "you", "she"), ("what", "this")]
    for rows, place in (
        ([first | {"negative": ["you", 3]}], "t.jsonl:1"),
        ([first | {"positive": ["y", "z"]}], "t.jsonl:1"),
        ([first, second, {"anchor": "a", "positive": "b", "score": 1}], "t.jsonl:3"),
    ):
        write_json_lines(file, rows)
        with refused(place):
            read(file)


def test_questions_of_squad_have_their_passages_as_positives(tmp_path):
    answers = [{"text": "me", "answer_start": 0}]
    questions = [{"id": "1", "question": "who ?", "answers": answers}]
    paragraphs = [{"context": "me .", "qas": questions}]
    write(tmp_path / "s.json", json.dumps({"data": [{"paragraphs": paragraphs}]}))
    assert read(tmp_path / "s.json")[0] == "pairs"
    assert texts(tmp_path / "s.json") == [("who ?", "me .")]


def test_texts_that_differ_in_case_or_whitespace_are_one_document(tmp_path):
    rows = "anchor\tpositive\nWho?\tA  man\nwho? \ta man\nWhat?\tÉté\nWhen?\tEte\n"
    write(tmp_path / "t.tsv", rows)
    first, second, *others = texts(tmp_path / "t.tsv")
    assert first == second == ("Who?", "A  man")
    assert others == [("What?", "Été"), ("When?", "Ete")]  # other words for a cased vocabulary
    _, documents, relevant = relevance([first, second, *others])
    assert list(documents) == ["A  man", "Été", "Ete"] and relevant[0] == [0, 0]


def test_scores_may_be_missing_in_the_test_set_alone(tmp_path):
    file = write(tmp_path / "t.tsv", "anchor\tpositive\tscore\nx\ty\t\nz\ty\t0.5\n")
    kinds, splits = read_examples(options(tmp_path / "out", do_predict=True, predict_file=file))
    assert kinds == {"test": "scores"}
    assert np.isnan(splits["test"][0].label) and splits["test"][1].label == 0.5
    with refused("t.tsv:2"):
        read_examples(options(tmp_path / "out", do_eval=True, eval_file=file))


def test_a_query_is_no_document_of_its_own_unless_it_is_relevant():
    pairs = [("a", "b"), ("b", "a"), ("c", "c"), ("d", "b")]
    assert find_own_documents(*relevance(pairs)).tolist() == [1, 0, -1, -1]


# ------------------------------------------------------------------------------------- sets by name

MRPC = ["a b c d e", "1 2 3 x y"]
STSB = ["c0 c1 c2 c3 c4 c5 c6 c7 c8 c9", "0 1 2 3 4 5 6 x y 2.5"]
QQP = ["id qid1 qid2 question1 question2 is_duplicate", "0 1 2 x y 1"]
PAIR = (("x", "y"), 1.0)


@pytest.mark.parametrize(
    ("name", "rows", "expected"),
    [("mrpc", MRPC, PAIR), ("sts-b", STSB, (("x", "y"), 0.5)), ("qqp", QQP, PAIR)],
)
def test_a_data_set_of_glue_gives_scores(tmp_path, name, rows, expected):
    write(tmp_path / "dev.tsv", "".join(row.replace(" ", "\t") + "\n" for row in rows))
    given = {"do_eval": True, "data_dir": str(tmp_path), "task_name": name}
    kinds, splits = read_examples(options(tmp_path / "out", **given))
    assert kinds == {"dev": "scores"}
    assert {(each.texts, each.label) for each in splits["dev"]} == {expected}
    with refused("task_name"):
        options(tmp_path, **given | {"task_name": "cola"})
