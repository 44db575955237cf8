"""Examples and labels of run_classifier, read from tables."""

import dataclasses
import json
import logging

import pytest
from tiny_runs import classifier_options

from bert_tf.finetuning.classification import read_data, run_classifier


def table_options(tmp_path, rows, **changes):
    path = tmp_path / "train.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    values = {"train_file": str(path), "text_a_column": "text", "do_train": True}
    return classifier_options(tmp_path / "output", **{**values, **changes})


def test_a_table_of_pairs_names_the_second_column(tmp_path):
    rows = [("who", "me", "yes"), ("why", "so", "no")]
    lines = [json.dumps(dict(zip("qal", row, strict=True))) + "\n" for row in rows]
    (tmp_path / "pairs.jsonl").write_text("".join(lines))
    columns = {"text_a_column": "q", "text_b_column": "a", "label_column": "l"}
    options = table_options(tmp_path, [], train_file=f"{tmp_path}/pairs.jsonl", **columns)
    task, splits = read_data(options)
    assert task.is_pair and task.labels == ("no", "yes")
    assert [(e.text_a, e.text_b, e.label) for e in splits["train"]] == rows


def test_class_weights_balance_or_name_labels(tmp_path):
    rows = [("x", "rare")] + [("y", "often")] * 3
    task, splits = read_data(table_options(tmp_path, rows, class_weights="balanced"))
    assert task.class_weights == pytest.approx((4 / 6, 2.0))  # often, rare
    weights = dict(zip(task.labels, task.class_weights, strict=True))
    assert sum(weights[e.label] for e in splits["train"]) == pytest.approx(4)
    task, _ = read_data(table_options(tmp_path, rows, class_weights="rare=5"))
    assert task.class_weights == (1.0, 5.0)


def test_class_weights_count_a_repeated_label_once(tmp_path):
    rows = [("x", "rude,rude"), ("y", "rude"), ("z", "threat")]
    changes = {"problem_type": "multi_label", "class_weights": "balanced"}
    task, _ = read_data(table_options(tmp_path, rows, **changes))
    assert task.labels == ("rude", "threat")
    assert task.class_weights == pytest.approx((1 / 2, 2.0))


@pytest.mark.parametrize(
    "rows, changes, message",
    [
        ("a a", {}, "train.tsv: .*label_column"),
        (" ", {"problem_type": "multi_label"}, "train.tsv: .*label_column"),
        ("", {}, "train.tsv: .*no examples"),
        ("neg pos", {"labels": "pos,mixed"}, "train.tsv:2: .*'neg'"),
        ("-1 0 1 0", {}, "labels: -1"),
        ("rare often", {"class_weights": "seldom=2"}, "class_weights.*seldom"),
        ("rare often", {"class_weights": "rare=much"}, "class_weights.*much"),
        ("rare often", {"class_weights": "rare=0"}, "class_weights.*rare=0"),
        ("rare often", {"class_weights": "rare"}, "class_weights.*rare"),
    ],
)
def test_read_data_rejects_tables_and_flags(tmp_path, rows, changes, message):
    labels = rows.split(" ") if rows else []
    options = table_options(tmp_path, [("x", label) for label in labels], **changes)
    with pytest.raises(ValueError, match=message):
        read_data(options)


def nli_file(path, labels):
    rows = [{"sentence1": f"a{n}", "sentence2": "b", "gold_label": y} for n, y in enumerate(labels)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


NLI_COLUMNS = {
    "text_a_column": "sentence1",
    "text_b_column": "sentence2",
    "label_column": "gold_label",
}


@pytest.mark.parametrize(
    "train, dev, labels",
    [
        (["neutral", "-", "entailment", "neutral"], ["-", "neutral"], ("entailment", "neutral")),
        ([1, -1, 0, 2, *([1] * 7)], [-1, 2], ("0", "1", "2")),
    ],
)
def test_rows_without_a_label_are_left_out(tmp_path, caplog, train, dev, labels):
    caplog.set_level(logging.INFO)
    files = {
        "train_file": nli_file(tmp_path / "train.jsonl", train),
        "eval_file": nli_file(tmp_path / "dev.jsonl", dev),
    }
    options = table_options(tmp_path, [], do_eval=True, **files, **NLI_COLUMNS)
    task, splits = read_data(options)
    assert task.labels == labels
    assert [example.text_a for example in splits["train"]][:3] == ["a0", "a2", "a3"]
    assert [example.text_a for example in splits["dev"]] == ["a1"]
    assert f"1 of {len(train)} rows of the train set have no label" in caplog.text
    assert "1 of 2 rows of the dev set have no label" in caplog.text
    evaluation = dataclasses.replace(options, do_train=False)
    assert len(read_data(evaluation, task)[1]["dev"]) == 1  # by the trained model


@pytest.mark.parametrize(
    "train, given, labels",
    [
        (["-1", "1"], None, ("-1", "1")),
        (["+", "-"], None, ("+", "-")),
        (["-1", "0", "1"], "-1,0,1", ("-1", "0", "1")),
    ],
)
def test_labels_of_two_or_of_the_flag_are_classes(tmp_path, train, given, labels):
    options = table_options(tmp_path, [("x", label) for label in train], labels=given)
    task, splits = read_data(options)
    assert task.labels == labels and len(splits["train"]) == len(train)


def test_the_log_shows_classes_with_counts(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    read_data(table_options(tmp_path, [("x", "b"), ("y", "a"), ("z", "b")]))
    assert "a (1), b (2)" in caplog.text
    (tmp_path / "t.csv").write_text("text,rude,threat\na,1,0\nb,0,0\n")
    changes = {"problem_type": "multi_label", "label_column": "rude,threat"}
    options = table_options(tmp_path, [], train_file=f"{tmp_path}/t.csv", **changes)
    assert read_data(options)[0].labels == ("rude", "threat")
    assert "rude (1), threat (0)" in caplog.text
    with pytest.raises(ValueError, match=r"class_weights: 0 of 2 .*'threat'"):
        read_data(dataclasses.replace(options, class_weights="balanced"))


def test_shared_examples_of_train_and_dev_are_counted(tmp_path, caplog):
    rows = [("x", "a"), ("y", "b"), ("z", "a")]
    dev = tmp_path / "dev.tsv"
    dev.write_text("text\tlabel\nw\ta\ny\tb\nz\ta\n")
    read_data(table_options(tmp_path, rows, do_eval=True, eval_file=str(dev)))
    assert "2 of 3 evaluation examples are also in" in caplog.text
    assert f"The first is {dev}:3" in caplog.text


def test_an_unknown_label_of_dev_stops_before_training(tmp_path, pretrained):
    (tmp_path / "dev.tsv").write_text("text\tlabel\nx\ta\ny\tc\n")
    options = table_options(
        tmp_path,
        [("x", "a"), ("y", "b")] * 20,
        eval_file=str(tmp_path / "dev.tsv"),
        do_eval=True,
        init_checkpoint=str(pretrained),
    )
    with pytest.raises(ValueError, match=r"dev.tsv:3: .*'c'"):
        run_classifier(options)
    assert not (tmp_path / "output").exists()


def test_labels_are_of_the_table_the_flag_or_the_model(tmp_path):
    rows = [("x", "neg"), ("y", "pos")]
    (tmp_path / "dev.tsv").write_text("text\tlabel\nx\tpos\n")
    evaluation = {"do_train": False, "do_eval": True, "eval_file": str(tmp_path / "dev.tsv")}
    assert read_data(table_options(tmp_path, rows, **evaluation))[0].labels == ("neg", "pos")
    options = table_options(tmp_path, rows, labels="pos, neg")
    task, _ = read_data(options)
    assert task.labels == ("pos", "neg")
    assert read_data(dataclasses.replace(options, labels=None), task)[0].labels == ("pos", "neg")
