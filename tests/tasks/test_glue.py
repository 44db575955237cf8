"""GLUE's layouts: which column is what in which split, and errors with file and line."""

import pytest
from helpers import cause_of

from bert_tf.tasks.classification import InputExample
from bert_tf.tasks.glue import GLUE_TASKS, find_glue_task, format_submission, list_splits, read_glue

# A row of each file, from GLUE's own layouts; A and B are the sentences, L the label.
MNLI_BEGIN = "0\t31193\t31193n\tgovernment\t( a )\t( b )\t(ROOT a)\t(ROOT b)\tA\tB"
STSB = "0\tmain-captions\tMSRvid\t2012test\t0001\tnone\tnone\tA\tB"
XNLI = "de\tL\t( a )\t( b )\t(ROOT a)\t(ROOT b)\tA\tB\tpromptID\tpairID"
ROWS = {
    "cola": {"train": "gj04\tL\t\tA", "dev": "gj04\tL\t*\tA", "test": "0\tA"},
    "sst-2": {"train dev": "A\tL", "test": "0\tA"},
    "mrpc": {"train dev": "L\t7\t8\tA\tB", "test": "0\t7\t8\tA\tB"},
    "qqp": {"train dev": "133273\t213221\t213222\tA\tB\tL", "test": "0\tA\tB"},
    "sts-b": {"train dev": f"{STSB}\tL", "test": STSB},
    "mnli": {
        "train": f"{MNLI_BEGIN}\tl1\tL",
        "dev dev_mismatched": f"{MNLI_BEGIN}\tl1\tl2\tl3\tl4\tl5\tL",
        "test test_mismatched": MNLI_BEGIN,
    },
    **{name: {"train dev": "0\tA\tB\tL", "test": "0\tA\tB"} for name in ("qnli", "rte", "wnli")},
    "ax": {"test": "0\tA\tB"},
    "xnli": {"train": "A\tB\tL", "dev test": XNLI},
}
ROW = {
    (name, split): row
    for name, rows in ROWS.items()
    for splits, row in rows.items()
    for split in splits.split()
}
FILES = {  # others are <split>.tsv
    ("mnli", "dev"): "dev_matched.tsv",
    ("mnli", "test"): "test_matched.tsv",
    ("ax", "test"): "diagnostic.tsv",
    ("xnli", "train"): "multinli/multinli.train.de.tsv",
    ("xnli", "dev"): "xnli.dev.tsv",
    ("xnli", "test"): "xnli.test.tsv",
}


def row_of(name, split, text_a, text_b, label):
    values = {"A": text_a, "B": text_b, "L": label}
    return "\t".join(values.get(column, column) for column in ROW[name, split].split("\t"))


def read(name, split, folder):
    return list(read_glue(GLUE_TASKS[name], str(folder), split, language="de"))


def write_split(folder, name, split, rows):
    """Write the file, and return its path and last line."""
    path = folder / FILES.get((name, split), f"{split}.tsv")
    has_header = (name, split) not in (("cola", "train"), ("cola", "dev"))
    lines = ["some\theader"] * has_header + rows
    path.parent.mkdir(exist_ok=True)
    path.write_text("\ufeff" + "".join(f"{line}\r\n" for line in lines), "utf-8", newline="")
    return f"{path}:{len(lines)}"


def test_sentences_and_labels_stand_where_glue_puts_them(tmp_path):
    for (name, split), columns in ROW.items():
        task = GLUE_TASKS[name]
        labels = task.labels[:2] or ("2.5", "4.000")
        rows = [
            row_of(name, split, "Two", 'A "b', labels[0]),
            row_of(name, split, 'One "quoted.', "Zwölf", labels[1]),
        ]
        location = write_split(tmp_path, name, split, rows)
        first, second = read(name, split, tmp_path)
        is_pair, is_labelled = "B" in columns.split("\t"), not split.startswith("test")
        expected = (labels if task.labels else (2.5, 4.0)) if is_labelled else (None, None)
        assert second == InputExample(
            guid=f"{split}-{int(location.rpartition(':')[2]) - 1}",
            text_a='One "quoted.',
            text_b="Zwölf" if is_pair else None,
            label=expected[1],
            origin=location,
        )
        assert (first.label, first.text_b) == (expected[0], 'A "b' if is_pair else None)


def test_a_bad_row_is_an_error_with_its_line(tmp_path):
    whole = row_of("rte", "dev", "One", "Two", "entailment")
    scored = row_of("sts-b", "test", "One", "Two", "")
    for name, split, rows in (
        ("rte", "dev", [whole, "", whole.rpartition("\t")[0]]),  # too few columns
        ("sts-b", "test", [scored, "", scored.rpartition("\t")[0]]),
        ("sts-b", "dev", [row_of("sts-b", "dev", "a", "b", "high")]),  # no number
    ):
        location = write_split(tmp_path, name, split, rows)
        assert cause_of(read, name, split, tmp_path) == location


def test_broken_rows_of_qqp_are_counted(tmp_path, caplog):
    rows = [row_of("qqp", "train", "One", "Two", "1"), "1\t2\thalf", "a row", "3\t4\t5\tx\ty\t0"]
    write_split(tmp_path, "qqp", "train", rows)
    assert [example.label for example in read("qqp", "train", tmp_path)] == ["1", "0"]
    assert "train.tsv:3" in caplog.text


def test_xnli_is_read_in_one_language_and_spells_its_labels_as_mnli_does(tmp_path):
    rows = [
        row_of("xnli", "dev", *row) for row in (("a", "b", "neutral"), ("c", "d", "entailment"))
    ]
    write_split(tmp_path, "xnli", "dev", [rows[0], rows[1].replace("de\t", "zh\t", 1)])
    assert [example.text_a for example in read("xnli", "dev", tmp_path)] == ["a"]
    write_split(tmp_path, "xnli", "train", [row_of("xnli", "train", "a", "b", "contradictory")])
    assert [example.label for example in read("xnli", "train", tmp_path)] == ["contradiction"]


def test_the_mismatched_sets_of_mnli_belong_to_a_run_where_they_are_there(tmp_path):
    mnli = GLUE_TASKS["mnli"]
    assert list_splits(mnli, str(tmp_path), "dev") == ["dev"]
    (tmp_path / "dev_mismatched.tsv").touch()
    assert list_splits(mnli, str(tmp_path), "dev") == ["dev", "dev_mismatched"]
    assert list_splits(mnli, str(tmp_path), "train") == ["train"]
    assert list_splits(GLUE_TASKS["ax"], str(tmp_path), "test") == ["test"]  # has nothing else
    with pytest.raises(ValueError, match="task_name"):
        list_splits(GLUE_TASKS["ax"], str(tmp_path), "train")


def test_the_file_for_the_leaderboard_has_a_header_and_names_of_labels():
    assert format_submission(GLUE_TASKS["rte"], [1, 0]) == [
        "index\tprediction",
        "0\tnot_entailment",
        "1\tentailment",
    ]
    scores = format_submission(GLUE_TASKS["sts-b"], [5.2, -0.1, 2.34567])
    assert scores[1:] == ["0\t5.000", "1\t0.000", "2\t2.346"]
    names = [s.submission for t in GLUE_TASKS.values() for s in t.splits.values() if s.submission]
    expected = ["AX", "CoLA", "MNLI-m", "MNLI-mm", "MRPC", "QNLI", "QQP", "RTE", "SST-2"]
    expected += ["STS-B", "WNLI"]
    assert sorted(names) == [f"{name}.tsv" for name in expected]


def test_a_task_is_found_in_any_spelling():
    for name in ("SST-2", "sst2"):
        assert find_glue_task(name) is GLUE_TASKS["sst-2"]
    with pytest.raises(ValueError, match="task_name"):
        find_glue_task("imdb")


def test_the_table_agrees_with_the_reference_and_with_glue():
    mnli, binary = ("contradiction", "entailment", "neutral"), ("0", "1")  # the reference's order
    labels = {name: mnli for name in ("mnli", "xnli", "ax")}
    labels |= {name: binary for name in ("cola", "mrpc", "sst-2", "qqp", "wnli")}
    assert {name: GLUE_TASKS[name].labels for name in labels} == labels
    assert GLUE_TASKS["cola"].metrics[0] == "matthews_correlation"
    assert GLUE_TASKS["mrpc"].metrics == GLUE_TASKS["qqp"].metrics == ("f1", "accuracy")
    assert GLUE_TASKS["sts-b"].metrics == ("pearson", "spearman")
    for name in ("sst-2", "mnli", "qnli", "rte", "wnli", "xnli"):
        assert GLUE_TASKS[name].metrics == ("accuracy",)
