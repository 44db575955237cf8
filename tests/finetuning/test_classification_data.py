"""Examples and labels of run_classifier, read from tables."""

import csv
import dataclasses
import json
from pathlib import Path

import pytest
from tiny_runs import classifier_options, write_table

from bert_tf.finetuning.classification import run_classifier
from bert_tf.finetuning.classification_data import read_data
from bert_tf.finetuning.classification_options import ClassifierOptions

COLUMNS = {"text_a_column": "sentence", "label_column": "mood"}


def table_options(tmp_path, rows, **changes):
    path = tmp_path / "train.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    values = {"train_file": str(path), "text_a_column": "text", "do_train": True}
    return classifier_options(tmp_path / "output", **{**values, **changes})


def test_tsv_csv_and_json_lines_give_the_same_examples(tmp_path):
    rows = [('a "quoted" text', "2"), ("one, two", "10"), ("Zürich 東京", "2")]
    table = [{"sentence": text, "mood": label} for text, label in rows]
    write_table(tmp_path / "t.tsv", rows)
    with open(tmp_path / "t.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["sentence", "mood"])
        writer.writeheader()
        writer.writerows(table)
    lines = [json.dumps({**row, "mood": int(row["mood"])}) + "\n" for row in table]
    (tmp_path / "t.jsonl").write_text("".join(lines))

    for name in ("t.tsv", "t.csv", "t.jsonl"):
        file = str(tmp_path / name)
        options = classifier_options(tmp_path, train_file=file, do_train=True, **COLUMNS)
        task, splits = read_data(options)
        assert task.labels == ("2", "10")
        assert [(e.text_a, e.text_b, e.label) for e in splits["train"]] == [
            (text, None, label) for text, label in rows
        ]


def test_a_table_of_pairs_names_the_second_column(tmp_path):
    (tmp_path / "pairs.jsonl").write_text('{"q": "who", "a": "me", "label": "yes"}\n' * 2)
    (tmp_path / "pairs.jsonl").open("a").write('{"q": "why", "a": "so", "label": "no"}\n')
    options = classifier_options(
        tmp_path,
        train_file=str(tmp_path / "pairs.jsonl"),
        text_a_column="q",
        text_b_column="a",
        do_train=True,
    )
    task, splits = read_data(options)
    assert task.is_pair
    assert task.labels == ("no", "yes")
    assert (splits["train"][2].text_a, splits["train"][2].text_b) == ("why", "so")


@pytest.mark.parametrize(
    "changes",
    [
        *({"metrics": "f1_macro"}, {"labels": "no,yes"}, {"label_column": "a"}, {"language": "de"}),
        *({"text_b_column": "b"}, {"header": False}),
    ],
)
def test_flags_of_tables_and_languages_are_not_for_data_sets_by_name(tmp_path, changes):
    ((name, value),) = changes.items()
    with pytest.raises(ValueError, match=rf"{name}={value} has no effect with task_name=MNLI, "):
        classifier_options(tmp_path, task_name="MNLI", data_dir="x", do_eval=True, **changes)


def test_flags_of_data_sets_by_name_are_not_for_tables(tmp_path):
    for changes in ({"data_dir": "x"}, {"train_language": "en"}):
        with pytest.raises(ValueError, match="has no effect without `task_name`"):
            table_options(tmp_path, [("x", "a"), ("y", "b")], **changes)
    classifier_options(
        tmp_path, task_name="XNLI", data_dir="x", do_eval=True, language="sw", train_language="en"
    )


def test_a_separator_of_labels_is_for_several_labels(tmp_path):
    options = table_options(tmp_path, [("x", "a"), ("y", "b")], label_separator=";")
    with pytest.raises(ValueError, match=r"label_separator=; has no effect with .*=single_label"):
        read_data(options)


def test_balanced_weights_make_each_label_weigh_alike(tmp_path):
    rows = [("x", "rare")] + [("y", "often")] * 3
    task, splits = read_data(table_options(tmp_path, rows, class_weights="balanced"))
    assert task.class_weights == pytest.approx((4 / 6, 2.0))  # often, rare
    weights = dict(zip(task.labels, task.class_weights, strict=True))
    assert sum(weights[e.label] for e in splits["train"]) == pytest.approx(4)
    task, _ = read_data(table_options(tmp_path, rows, class_weights="rare=5"))
    assert task.class_weights == (1.0, 5.0)


def test_a_label_that_a_row_repeats_counts_once(tmp_path):
    rows = [("x", "rude,rude"), ("y", "rude"), ("z", "threat")]
    changes = {"problem_type": "multi_label", "class_weights": "balanced"}
    task, _ = read_data(table_options(tmp_path, rows, **changes))
    assert task.labels == ("rude", "threat")
    assert task.class_weights == pytest.approx((1 / 2, 2.0))


def test_flags_without_effect_or_meaning_are_refused(tmp_path):
    for changes, message in (
        ({"window_pooling": "max"}, "window_pooling=max has no effect without `doc_stride`"),
        ({"label_separator": ""}, "label_separator is empty"),
        (
            {"evaluate_steps": 5, "do_eval": False},
            "evaluate_steps=5 has no effect without `do_eval`",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            table_options(tmp_path, [("x", "a"), ("y", "b")], **changes)
    with pytest.raises(ValueError, match="eval_file=b has no effect without `do_eval`"):
        ClassifierOptions(output_dir="o", do_train=True, train_file="a", eval_file="b")
    ClassifierOptions(output_dir="o", do_predict=True, eval_file="b", predict_file="c")


@pytest.mark.parametrize(
    "flag, message",
    [
        ("seldom=2", "'seldom=2' .*label=weight .*often, rare"),
        ("rare=much", "'much' in 'rare=much'"),
        ("rare=0", "a weight must be above 0"),
        ("rare", "'rare' is not label=weight"),
    ],
)
def test_weights_that_make_no_sense_are_refused(tmp_path, flag, message):
    options = table_options(tmp_path, [("x", "rare"), ("y", "often")], class_weights=flag)
    with pytest.raises(ValueError, match=message):
        read_data(options)


def test_numbers_have_no_weights(tmp_path):
    options = table_options(
        tmp_path, [("x", 0.5), ("y", 2)], problem_type="regression", class_weights="balanced"
    )
    message = "class_weights=balanced: a regression .*Omit the flag"
    with pytest.raises(ValueError, match=message):
        read_data(options)


def test_many_decimal_numbers_are_a_regression_unless_it_is_said(tmp_path):
    rows = [(f"text {n}", f"{n}.5") for n in range(30)]
    with pytest.raises(ValueError, match=r"train.tsv: the 30 labels of 30 .*=regression"):
        read_data(table_options(tmp_path, rows))
    task, _ = read_data(table_options(tmp_path, rows, problem_type="single_label"))
    assert len(task.labels) == 30


def test_the_columns_of_a_table_may_be_separated_by_what_a_flag_says(tmp_path):
    options = table_options(tmp_path, [("x", "a"), ("y", "b")], column_separator="tab")
    assert read_data(options)[0].labels == ("a", "b")
    Path(options.train_file).write_text("text;label\nx;a\ny;b\n")
    with pytest.raises(ValueError, match="column_separator=semicolon"):
        read_data(dataclasses.replace(options, column_separator=None))
    assert read_data(dataclasses.replace(options, column_separator=";"))[0].labels == ("a", "b")


def test_one_class_only_is_refused_with_the_file(tmp_path):
    with pytest.raises(
        ValueError, match=r"train.tsv: every example has the label 'a'.*label_column"
    ):
        read_data(table_options(tmp_path, [("x", "a"), ("y", "a")]))


def test_a_table_without_any_label_is_refused_with_the_file(tmp_path):
    options = table_options(tmp_path, [("x", ""), ("y", "")], problem_type="multi_label")
    with pytest.raises(ValueError, match=r"train.tsv: no example has a label.*label_column"):
        read_data(options)


def test_labels_that_stand_for_empty_cells_are_warned_of(tmp_path, caplog):
    read_data(table_options(tmp_path, [("x", "#N/A"), ("y", "a"), ("z", "none")]))
    assert "train.tsv: the label '#N/A' usually stands for an empty or broken cell" in caplog.text


def test_evaluation_texts_that_are_also_trained_on_are_counted(tmp_path, caplog):
    rows = [("x", "a"), ("y", "b"), ("z", "a")]
    dev = tmp_path / "dev.tsv"
    dev.write_text("text\tlabel\nw\ta\ny\tb\nz\ta\n")
    read_data(table_options(tmp_path, rows, do_eval=True, eval_file=str(dev)))
    assert f"2 of 3 evaluation examples are also in {tmp_path}/train.tsv" in caplog.text
    assert f"The first is {dev}:3" in caplog.text


def test_labels_in_two_unicode_forms_are_refused_with_both_and_their_lines(tmp_path):
    rows = [("x", "caf\xe9"), ("y", "bar"), ("z", "cafe\u0301")]
    with pytest.raises(
        ValueError, match=r"tsv:4: the label is 'cafe\\u0301', but 'caf\\xe9' in .*:2"
    ):
        read_data(table_options(tmp_path, rows))


@pytest.mark.parametrize(
    "labels, warned",
    [
        (("Yes", "no", "yes"), "'Yes' and 'yes'"),
        (("1", "0.0", "1.0", "0"), "'0' and '0.0'; '1' and '1.0'"),
        (("1", "nan", "NaN"), "'NaN' and 'nan'"),
        (("1", "1.5", "one"), None),
    ],
)
def test_labels_that_may_be_one_class_are_warned_of(tmp_path, caplog, labels, warned):
    read_data(table_options(tmp_path, [("x", label) for label in labels * 2]))
    found = [text for text in caplog.messages if "different classes" in text]
    assert [warned in text for text in found] == [True] * (warned is not None)


@pytest.mark.parametrize(
    "labels, warned",
    [
        (("a", "b", "a;b"), "'a;b' consists of others"),
        (("a", "a, b", "b"), "--label_separator=','"),
        (("a", "b", "a|c"), None),
    ],
)
@pytest.mark.parametrize("problem_type", ["single_label", "multi_label"])
def test_a_label_of_several_labels_is_warned_of(tmp_path, caplog, labels, warned, problem_type):
    rows = [("x", label) for label in labels]
    flags = {"label_separator": "/"} if problem_type == "multi_label" else {}
    read_data(table_options(tmp_path, rows, problem_type=problem_type, **flags))
    found = [text for text in caplog.messages if "consists of others" in text]
    assert [warned in text for text in found] == [True] * (warned is not None)


def test_a_label_of_the_dev_set_that_is_unknown_is_refused_before_training(tmp_path, pretrained):
    (tmp_path / "dev.tsv").write_text("text\tlabel\nx\ta\ny\tc\n")
    options = table_options(
        tmp_path,
        [("x", "a"), ("y", "b")] * 20,
        eval_file=str(tmp_path / "dev.tsv"),
        do_eval=True,
        init_checkpoint=str(pretrained),
    )
    with pytest.raises(
        ValueError, match=r"dev.tsv:3: the label is 'c', but the labels .* 'a', 'b'"
    ):
        run_classifier(options)
    assert not (tmp_path / "output").exists()


def test_a_label_without_training_examples_is_warned_of(tmp_path, caplog):
    path = tmp_path / "t.csv"
    path.write_text("text,rude,threat\na,1,0\nb,0,0\n")
    options = table_options(
        tmp_path,
        [],
        train_file=str(path),
        problem_type="multi_label",
        label_column="rude,threat",
    )
    task, _ = read_data(options)
    assert task.labels == ("rude", "threat")
    assert "1 of 2 labels have no training example and will not be learned: threat" in caplog.text
    with pytest.raises(ValueError, match="0 of 2 training examples have the label 'threat'"):
        read_data(dataclasses.replace(options, class_weights="balanced"))


def test_the_labels_of_a_model_that_does_not_know_them_are_those_of_its_table(tmp_path):
    rows = [("x", "b"), ("y", "a"), ("z", "b")]
    (tmp_path / "dev.tsv").write_text("text\tlabel\nx\tb\n")
    asked = {"do_train": False, "do_eval": True, "eval_file": str(tmp_path / "dev.tsv")}
    task, splits = read_data(table_options(tmp_path, rows, **asked))
    assert (task.labels, list(splits)) == (("a", "b"), ["dev"])


def test_a_flag_gives_the_order_of_the_labels_and_must_name_all(tmp_path):
    options = table_options(tmp_path, [("x", "neg"), ("y", "pos")], labels="pos, neg")
    assert read_data(options)[0].labels == ("pos", "neg")
    again = dataclasses.replace(options, labels=None)
    assert read_data(again, read_data(options)[0])[0].labels == ("pos", "neg")  # of the model
    with pytest.raises(ValueError, match=r"train.tsv:2: the label is 'neg', .* 'pos', 'mixed'"):
        read_data(dataclasses.replace(options, labels="pos,mixed"))
    with pytest.raises(ValueError, match="labels is pos, neg, but a regression has no labels"):
        read_data(dataclasses.replace(options, problem_type="regression"))


def test_metrics_of_a_table_are_those_that_are_asked_for(tmp_path):
    options = table_options(tmp_path, [("x", "a"), ("y", "b")], metrics="f1_macro, accuracy")
    assert read_data(options)[0].metric_names == ("f1_macro", "accuracy")
    with pytest.raises(ValueError, match=r"'bleu'.* accuracy, f1, f1_macro"):
        read_data(dataclasses.replace(options, metrics="bleu"))
