"""run_classifier: tables and labels, what is its own beside tests/contracts, and bad input."""

import logging

import numpy as np
import pytest
from helpers import lines_of, read_results, refused, write, write_json_lines
from models import DATA, copy_of, golden, options, train, with_values

from bert_tf import cli
from bert_tf.options import make_options
from bert_tf.tasks.run_classifier import ClassifierOptions, read_data, run_classifier

COLUMNS = {"text_a_column": "sentence", "label_column": "mood"}
SCENES = {"text_a_column": "text", "label_column": "label"}


def numbers_in(path):
    return np.array([[float(cell) for cell in row.split("\t")] for row in lines_of(path)])


def moods(path, *rows):
    return write(path, "sentence\tmood\n" + "".join(f"{text}\t{mood}\n" for text, mood in rows))


def table_options(tmp_path, rows, **changes):
    path = tmp_path / "train.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    values = {"train_file": str(path), "text_a_column": "text", "do_train": True}
    return make_options(
        ClassifierOptions, output_dir=str(tmp_path / "output"), **{**values, **changes}
    )


# ------------------------------------------------------------------------------- tables and labels


def test_read_data_rejects_tables_and_flags(tmp_path):
    for rows, changes, name in (
        ("a a", {}, "labels"),
        (" ", {"problem_type": "multi_label"}, "labels"),
        ("", {}, "train.tsv"),
        ("neg pos", {"labels": "pos,mixed"}, "train.tsv:2"),
        ("-1 0 1 0", {}, "labels"),
    ):
        labels = rows.split(" ") if rows else []
        given = table_options(tmp_path, [("x", label) for label in labels], **changes)
        with refused(name):
            read_data(given)


@pytest.mark.parametrize(
    "train, dev, labels",
    [
        (["neutral", "-", "entailment", "neutral"], ["-", "neutral"], ("entailment", "neutral")),
        ([1, -1, 0, 2, *([1] * 7)], [-1, 2], ("0", "1", "2")),
    ],
)
def test_rows_without_a_label_are_left_out(tmp_path, caplog, train, dev, labels):
    caplog.set_level(logging.INFO)
    files = {}
    for name, split, found in (("train", "train_file", train), ("dev", "eval_file", dev)):
        rows = (
            {"sentence1": f"a{n}", "sentence2": "b", "gold_label": y} for n, y in enumerate(found)
        )
        files[split] = write_json_lines(tmp_path / f"{name}.jsonl", rows)
    columns = {"text_a_column": "sentence1", "text_b_column": "sentence2"}
    columns["label_column"] = "gold_label"
    given = table_options(tmp_path, [], do_eval=True, **files, **columns)
    task, splits = read_data(given)
    assert task.labels == labels
    assert [example.text_a for example in splits["train"]][:3] == ["a0", "a2", "a3"]
    assert [example.text_a for example in splits["dev"]] == ["a1"]
    assert f"1 of {len(train)} rows" in caplog.text and "1 of 2 rows" in caplog.text
    evaluation = with_values(given, do_train=False)
    assert len(read_data(evaluation, task)[1]["dev"]) == 1  # by the trained model


def test_labels_that_no_file_states_are_needed(tmp_path):
    file = write(tmp_path / "new.tsv", "text\nx\n")
    given = {"do_train": False, "do_predict": True, "predict_file": file, "train_file": None}
    with refused("labels"):
        read_data(table_options(tmp_path, [], **given))


def test_labels_are_of_the_table_the_flag_or_the_model(tmp_path):
    rows = [("x", "neg"), ("y", "pos")]
    file = write(tmp_path / "dev.tsv", "text\tlabel\nx\tpos\n")
    evaluation = {"do_train": False, "do_eval": True, "eval_file": file}
    assert read_data(table_options(tmp_path, rows, **evaluation))[0].labels == ("neg", "pos")
    given = table_options(tmp_path, rows, labels="pos, neg")
    task, _ = read_data(given)
    assert task.labels == ("pos", "neg")
    without = with_values(given, labels=None)
    assert read_data(without, known_labels=("POS", "NEG"))[0].labels == ("neg", "pos")
    for names, labels in (  # two, or those of the flag, are classes whatever their names
        (("-1", "1"), None),
        (("+", "-"), None),
        (("-1", "0", "1"), "-1,0,1"),
    ):
        task, splits = read_data(table_options(tmp_path, [("x", y) for y in names], labels=labels))
        assert task.labels == names and len(splits["train"]) == len(names)


# ---------------------------------------------------------------------------------------- a folder


def test_a_trained_classifier_predicts_elsewhere_in_the_order_of_a_flag(tmp_path):
    given = {"do_train": False, "do_eval": False, "init_checkpoint": str(golden("classifier"))}
    train("classifier", tmp_path, **given, labels="good,bad", predict_batch_size=3)
    expected = numbers_in(golden("classifier") / "test_results.tsv")[:, ::-1]
    np.testing.assert_allclose(numbers_in(tmp_path / "test_results.tsv"), expected, atol=1e-6)


def test_the_labels_are_those_of_the_training_even_where_the_data_have_fewer(tmp_path):
    rows = [row.split("\t") for row in lines_of(DATA / "moods/dev.tsv")]
    file = moods(tmp_path / "good.tsv", *(row for row in rows if row[1] == "good"))
    folder = copy_of("classifier", tmp_path / "run")
    given = {"do_eval": True, "eval_file": file, **COLUMNS}
    assert (
        run_classifier(make_options(ClassifierOptions, output_dir=str(folder), **given))[
            "eval_accuracy"
        ]
        > 0.9
    )


def test_a_folder_is_evaluated_on_its_labels_and_its_type_of_problem(tmp_path):
    rows = [("the calm cat", "good"), ("a sad cat", "bad"), ("the odd cat", "odd")]
    odd = {"eval_file": moods(tmp_path / "odd.tsv", *rows), **COLUMNS}
    single = moods(tmp_path / "single.tsv", ("the cat", "0"), ("the dog", "1"))
    labels = {"eval_file": f"{DATA}/multi_label/dev.jsonl", **SCENES}
    for kind, changes, name in (
        ("classifier", odd, "odd.tsv:4"),
        ("pair", {"eval_file": single, **COLUMNS}, "is_pair"),
        ("regression", {"problem_type": "multi_label", **labels}, "problem_type"),
    ):
        given = {"output_dir": str(golden(kind)), "do_eval": True, **changes}
        with refused("output_dir" if name == "is_pair" else name) as error:
            run_classifier(make_options(ClassifierOptions, **given))
        assert name in str(error.value)
    other = moods(tmp_path / "other.tsv", *[("a cat", "GOOD"), ("a dog", "BAD")] * 10)
    given = {"train_file": other, "do_eval": False, "do_predict": False}
    with refused("output_dir"):
        train("classifier", golden("classifier"), **given)


def test_what_cannot_be_trained_is_refused_before_anything_is_written(tmp_path):
    unlike = write(tmp_path / "dev.tsv", "sentence\tmood\nx\tgood\ny\tc\n")
    for changes, name in (
        ({"train_batch_size": 91, "num_train_epochs": 1.0}, "train_batch_size"),
        ({"max_seq_length": 0}, "max_seq_length"),
        ({"max_seq_length": 32}, "max_seq_length"),
        ({"max_seq_length": 2, "text_b_column": "mood"}, "max_seq_length"),
        ({"label_column": "mod"}, "train.tsv:2"),
        ({"train_file": "/nowhere/train.tsv"}, "/nowhere/train.tsv"),
        ({"init_checkpoint": "/nowhere/bert_model.ckpt"}, "/nowhere"),
        ({"init_checkpoint": None}, "init_checkpoint"),
        ({"do_eval": True, "eval_file": unlike}, "dev.tsv:3"),
    ):
        given = {"do_eval": False, "do_predict": False, **changes}
        with refused(name):
            train("classifier", tmp_path / "output", **given)
    assert not (tmp_path / "output").exists()


def test_a_pre_trained_model_is_not_evaluated_as_a_classifier(tmp_path):
    folder = copy_of("pretrained", tmp_path / "pretrained")
    (folder / "task.json").unlink()  # as others give it away
    given = {"do_train": False, "do_predict": False, "init_checkpoint": str(folder)}
    with refused("init_checkpoint") as error:
        train("pair", tmp_path / "new", **given)
    assert "a model for pretraining" in str(error.value)


def test_given_flags_that_a_training_does_not_read_are_known(tmp_path, eagerly):
    given = {"do_eval": False, "do_predict": False, "num_train_epochs": 0.2, "init_layers": "0"}
    unread = {"language", "tpu_zone", "learning_rate", "label_column"}
    changes = {**given, "language": "en", "tpu_zone": "z"}
    run_classifier(cli.recorded(options("classifier", tmp_path, **changes), unread))
    assert unread == {"language", "tpu_zone"}


# -------------------------------------------------------------------------------------------- GLUE


@pytest.mark.night
def test_mnli_is_evaluated_and_predicted_on_both_sets(tmp_path, eagerly):
    labels = ("contradiction", "entailment", "neutral")
    header = "\t".join(["index", *(f"c{n}" for n in range(1, 10))])
    sizes = {"train": 24, "dev_matched": 6, "test_matched": 5, "dev_mismatched": 7}
    for name, size in {**sizes, "test_mismatched": 4}.items():
        is_test = name.startswith("test")
        lines = [header + ("" if is_test else "\tgold_label")]
        for n in range(size):
            row = [str(n), *"bcdefgh", "the cat", "a dog"]
            lines.append("\t".join(row if is_test else [*row, labels[n % 3]]))
        write(tmp_path / f"{name}.tsv", "\n".join(lines) + "\n")
    out = tmp_path / "out"
    data = {"task_name": "MNLI", "data_dir": str(tmp_path), "num_train_epochs": 1.0}
    results = train("pair", out, **data)
    assert set(results) - {"global_step"} == {
        *("loss", "eval_accuracy", "eval_loss", "eval_accuracy_mismatched", "loss_mismatched"),
        "eval_loss_mismatched",
    }
    assert len(numbers_in(out / "test_results.tsv")) == 5
    assert len(numbers_in(out / "test_results_mismatched.tsv")) == 4
    for name, size in (("MNLI-m.tsv", 5), ("MNLI-mm.tsv", 4)):
        rows = [line.split("\t") for line in lines_of(out / name)]
        assert rows[0] == ["index", "prediction"]
        assert [row[0] for row in rows[1:]] == [str(n) for n in range(size)]
        assert {row[1] for row in rows[1:]} <= set(labels)
    assert "Confusion matrix (mismatched)" in (out / "report.html").read_text()


# ----------------------------------------------------------------------------------------- records


@pytest.mark.night
def test_records_are_made_once(tmp_path, caplog, eagerly):
    folder = copy_of("pair", tmp_path / "out")
    caplog.set_level(logging.INFO)
    given = {"do_train": False, "do_predict": False}
    results = [train("pair", folder, **given) for _ in range(2)]
    assert caplog.text.count("Wrote 21 records") == caplog.text.count("Using the 21 records") == 1
    assert results[0] == results[1] == pytest.approx(read_results(golden("pair")), rel=1e-4)
    lines = lines_of(DATA / "MRPC/dev.tsv")
    (tmp_path / "MRPC").mkdir()
    write(tmp_path / "MRPC/dev.tsv", "\n".join(lines[:10]) + "\n")
    train("pair", folder, **given, data_dir=str(tmp_path / "MRPC"))
    assert "Wrote 9 records" in caplog.text
