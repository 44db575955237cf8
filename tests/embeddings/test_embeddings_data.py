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
        ("text_a\ttext_b\tscore\nx\ty\t3\n", "t.tsv:2"),
        ("text_a\ttext_b\tscore\nx\ty\t-.1\n", "t.tsv:2"),
        ("text_a\ttext_b\tscore\nx\ty\tnan\n", "t.tsv:2"),
        ("text_a\ttext_b\tlabel\nx\ty\tsame\n", "t.tsv:2"),
        ("text\tlabel\nx\tA\ny\tA\n", "t.tsv"),
        ("text\tlabel\nx\tA\ny\t \n", "t.tsv:3"),
        ("anchor\tnegative\tlabel\nx\ty\tA\n", "t.tsv:2"),
        ("anchor\tpositive\n", "t.tsv"),
        ("ANCHOR\tpositive\nx\ty\n", "t.tsv:2"),
    ):
        write(tmp_path / "t.tsv", text)
        with refused(place):
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
    found = texts(tmp_path / "t.csv", **columns)
    assert found == [("who", "me", "you"), ("what", "this", "that", "it")]


def test_an_empty_name_of_a_column_is_no_label_and_no_negative(tmp_path):
    file = write(tmp_path / "t.csv", "query,positive,negative,label\nwho,me,you,7\n")
    files = {"do_train": True, "train_file": file, "do_predict": True, "predict_file": file}
    given = options(tmp_path / "out", **files, label_column="", negative_columns="")
    kinds, splits = read_examples(given)
    assert kinds == {"train": "pairs", "test": "pairs"}
    assert splits["train"][0].texts == splits["test"][0].texts == ("who", "me")


@pytest.mark.parametrize("name", ["negative", "negatives"])
def test_json_lines_may_have_lists_of_negatives(tmp_path, name):
    first = {"anchor": "who", "positive": "me", name: ["you", "", "she"], "negative_2": "it"}
    second, file = {"anchor": "what", "positive": "this"}, tmp_path / "t.jsonl"
    write_json_lines(file, [first, second])
    assert texts(file) == [("who", "me", "you", "she", "it"), ("what", "this")]
    for rows, place in (
        ([first | {name: ["you", 3]}], "t.jsonl:1"),
        ([first | {"positive": ["y", "z"]}], "t.jsonl:1"),
        ([{"anchor": "a", "label": "x", name: ["b"]}], "t.jsonl:1"),
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
    file = write(tmp_path / "t.tsv", "text_a\ttext_b\tscore\nx\ty\t\nz\ty\t0.5\n")
    kinds, splits = read_examples(options(tmp_path / "out", do_predict=True, predict_file=file))
    assert kinds == {"test": "scores"}
    assert np.isnan(splits["test"][0].label) and splits["test"][1].label == 0.5
    with refused("t.tsv:2"):
        read_examples(options(tmp_path / "out", do_eval=True, eval_file=file))


def test_a_query_is_no_document_of_its_own_unless_it_is_relevant():
    pairs = [("a", "b"), ("b", "a"), ("c", "c"), ("d", "b")]
    assert find_own_documents(*relevance(pairs)).tolist() == [1, 0, -1, -1]


# ------------------------------------------------------------------------------------- sets by name

NLI_LABELS = ("neutral", "contradiction", "entailment")
MRPC = ["a b c d e", "1 2 3 x y"]
STSB = ["c0 c1 c2 c3 c4 c5 c6 c7 c8 c9", "0 1 2 3 4 5 6 x y 2.5"]
QQP = ["id qid1 qid2 question1 question2 is_duplicate", "0 1 2 x y 1"]
MNLI = ["c0 c1 c2 c3 c4 c5 c6 c7 sentence1 sentence2 gold_label"]
MNLI += [f"0 1 2 3 4 5 6 7 x y{n} {label}" for n, label in enumerate(NLI_LABELS)]
PAIR = (("x", "y"), 1.0)


@pytest.mark.parametrize(
    ("name", "files", "rows", "kind", "expected"),
    [
        ("MRPC", ["dev"], MRPC, "scores", PAIR),
        ("sts-b", ["dev"], STSB, "scores", (("x", "y"), 0.5)),
        ("qqp", ["dev"], QQP, "scores", PAIR),
        ("mnli", ["dev_matched", "dev_mismatched"], MNLI, "pairs", (("x", "y2", "y1"), 0.0)),
    ],
)
def test_a_data_set_of_glue_gives_pairs_or_scores(tmp_path, name, files, rows, kind, expected):
    for file in files:
        write(tmp_path / f"{file}.tsv", "".join(row.replace(" ", "\t") + "\n" for row in rows))
    given = {"do_eval": True, "data_dir": str(tmp_path), "task_name": name}
    kinds, splits = read_examples(options(tmp_path / "out", **given))
    assert kinds == {"dev": kind}
    assert {(each.texts, each.label) for each in splits["dev"]} == {expected}


def test_a_data_set_is_named_in_any_case(tmp_path):
    given = {"do_eval": True, "data_dir": str(tmp_path)}
    assert options(tmp_path, task_name="STSB", **given).texts.task_name == "STSB"
    with refused("task_name"):
        options(tmp_path, task_name="cola", **given)


def test_snli_gives_entailed_pairs_with_a_contradiction(tmp_path):
    labels = (*NLI_LABELS, "-", "entailment")
    rows = (
        {"sentence1": "a man runs", "sentence2": f"text {i}", "gold_label": label, "pairID": "1"}
        for i, label in enumerate(labels)
    )
    write_json_lines(tmp_path / "snli_1.0_dev.jsonl", rows)
    given = options(tmp_path / "out", do_eval=True, task_name="snli", data_dir=str(tmp_path))
    kind, splits = read_examples(given)
    assert kind == {"dev": "pairs"}
    found = [example.texts for example in splits["dev"]]
    assert found == [("a man runs", "text 2", "text 1"), ("a man runs", "text 4", "text 1")]
