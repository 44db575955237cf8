"""The examples of run_embeddings: the sets of a run, data sets by name, texts that occur twice."""

import json

import numpy as np
import pytest
from tiny_embeddings import options, write

from bert_tf.finetuning.embeddings_data import read_examples
from bert_tf.metrics.retrieval import own_documents, relevance


def test_texts_that_differ_in_case_or_whitespace_are_one_document(tmp_path):
    rows = "anchor\tpositive\nWho?\tA  man\nwho? \ta man\nWhat?\tÉté\nWhen?\tEte\n"
    file = write(tmp_path / "t.tsv", rows)
    _, splits = read_examples(options(tmp_path / "out", do_train=True, train_file=file))
    first, second, *others = (each.texts for each in splits["train"])
    assert first == second == ("Who?", "A  man")
    assert others == [("What?", "Été"), ("When?", "Ete")]  # other words for a cased vocabulary
    _, documents, relevant = relevance(each.texts for each in splits["train"])
    assert list(documents) == ["A  man", "Été", "Ete"] and relevant[0] == [0, 0]


def test_a_data_set_of_glue_is_named_in_any_case(tmp_path):
    write(tmp_path / "dev.tsv", "a\tb\tc\td\te\n1\t2\t3\tx\ty\n")
    given = {"do_eval": True, "data_dir": str(tmp_path)}
    kinds, _ = read_examples(options(tmp_path / "out", task_name="MRPC", **given))
    assert kinds == {"dev": "scores"}
    assert options(tmp_path, task_name="STSB", **given).task_name == "STSB"
    with pytest.raises(ValueError, match="task_name: "):
        options(tmp_path, task_name="cola", **given)


def test_scores_may_be_missing_in_the_test_set_alone(tmp_path):
    file = write(tmp_path / "t.tsv", "text_a\ttext_b\tscore\nx\ty\t\nz\ty\t0.5\n")
    kinds, splits = read_examples(options(tmp_path / "out", do_predict=True, predict_file=file))
    assert kinds == {"test": "scores"}
    assert np.isnan(splits["test"][0].label) and splits["test"][1].label == 0.5
    with pytest.raises(ValueError, match="score is ''"):
        read_examples(options(tmp_path / "out", do_eval=True, eval_file=file))


def test_a_data_set_of_glue_has_scores_from_0_to_1(tmp_path):
    header = "\t".join(f"c{index}" for index in range(10))
    row = "\t".join([*map(str, range(7)), "a man", "a woman", "2.5"])
    write(tmp_path / "dev.tsv", f"{header}\n{row}\n")
    given = options(tmp_path / "out", do_eval=True, task_name="sts-b", data_dir=str(tmp_path))
    kind, splits = read_examples(given)
    assert kind == {"dev": "scores"}
    assert splits["dev"][0].texts == ("a man", "a woman") and splits["dev"][0].label == 0.5


def test_mnli_gives_entailed_pairs_and_qqp_gives_scores(tmp_path):
    rows = [("neutral", "t0"), ("contradiction", "t1"), ("entailment", "t2")]
    header = "\t".join([*(f"c{n}" for n in range(8)), "sentence1", "sentence2", "gold_label"])
    lines = ["\t".join([*map(str, range(8)), "a man runs", b, label]) for label, b in rows]
    for name in ("dev_matched", "dev_mismatched"):
        write(tmp_path / f"{name}.tsv", "\n".join([header, *lines]) + "\n")
    given = {"do_eval": True, "data_dir": str(tmp_path)}
    kinds, splits = read_examples(options(tmp_path / "out", task_name="mnli", **given))
    assert kinds == {"dev": "pairs"}
    assert {each.texts for each in splits["dev"]} == {("a man runs", "t2", "t1")}
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
    write(tmp_path / "dev.tsv", f"{header}\n0\t1\t2\twho ?\twhat ?\t1\n")
    kinds, splits = read_examples(options(tmp_path / "out", task_name="qqp", **given))
    assert kinds == {"dev": "scores"}
    assert [(each.texts, each.label) for each in splits["dev"]] == [(("who ?", "what ?"), 1.0)]


def test_snli_gives_entailed_pairs_with_a_contradiction(tmp_path):
    labels = ("neutral", "contradiction", "entailment", "-", "entailment")
    rows = [
        {"sentence1": "a man runs", "sentence2": f"text {i}", "gold_label": label, "pairID": "1"}
        for i, label in enumerate(labels)
    ]
    write(tmp_path / "snli_1.0_dev.jsonl", "\n".join(map(json.dumps, rows)))
    given = options(tmp_path / "out", do_eval=True, task_name="snli", data_dir=str(tmp_path))
    kind, splits = read_examples(given)
    assert kind == {"dev": "pairs"}
    texts = [example.texts for example in splits["dev"]]
    assert texts == [("a man runs", "text 2", "text 1"), ("a man runs", "text 4", "text 1")]


def test_a_query_is_no_document_of_its_own_unless_it_is_relevant():
    texts = [("a", "b"), ("b", "a"), ("c", "c"), ("d", "b")]
    assert own_documents(*relevance(texts)).tolist() == [1, 0, -1, -1]
