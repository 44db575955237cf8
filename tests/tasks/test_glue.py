"""GLUE's layouts: which column is what in which split, and errors with file and line."""

from pathlib import Path

import pytest

from bert_tf.limits import DataError
from bert_tf.tasks.classification import InputExample
from bert_tf.tasks.glue import GLUE_TASKS, find_glue_task, read_glue, splits_of, submission_lines

REAL_DATA = Path(__file__).parents[3] / "shared/data/glue"

# A row of each file, from GLUE's own layouts; A and B are the sentences, L the label.
MNLI_BEGIN = "0\t31193\t31193n\tgovernment\t( a )\t( b )\t(ROOT a)\t(ROOT b)\tA\tB"
MNLI_DEV = f"{MNLI_BEGIN}\tl1\tl2\tl3\tl4\tl5\tL"
STSB = "0\tmain-captions\tMSRvid\t2012test\t0001\tnone\tnone\tA\tB"
MRPC_HEADER = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
QQP_HEADER = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
XNLI_HEADER = "language\tgold_label\t..."
XNLI_ROW = "de\tL\t( a )\t( b )\t(ROOT a)\t(ROOT b)\tA\tB\tpromptID\tpairID"
LAYOUTS = {
    ("cola", "train"): ("train.tsv", None, "gj04\tL\t\tA"),
    ("cola", "dev"): ("dev.tsv", None, "gj04\tL\t*\tA"),
    ("cola", "test"): ("test.tsv", "index\tsentence", "0\tA"),
    ("sst-2", "train"): ("train.tsv", "sentence\tlabel", "A\tL"),
    ("sst-2", "dev"): ("dev.tsv", "sentence\tlabel", "A\tL"),
    ("sst-2", "test"): ("test.tsv", "index\tsentence", "0\tA"),
    ("mrpc", "train"): ("train.tsv", MRPC_HEADER, "L\t7\t8\tA\tB"),
    ("mrpc", "dev"): ("dev.tsv", MRPC_HEADER, "L\t7\t8\tA\tB"),
    ("mrpc", "test"): ("test.tsv", "index\t#1 ID\t#2 ID\t#1 String\t#2 String", "0\t7\t8\tA\tB"),
    ("qqp", "train"): ("train.tsv", QQP_HEADER, "133273\t213221\t213222\tA\tB\tL"),
    ("qqp", "dev"): ("dev.tsv", QQP_HEADER, "201359\t303345\t303346\tA\tB\tL"),
    ("qqp", "test"): ("test.tsv", "id\tquestion1\tquestion2", "0\tA\tB"),
    ("sts-b", "train"): ("train.tsv", "index\t...", f"{STSB}\tL"),
    ("sts-b", "dev"): ("dev.tsv", "index\t...", f"{STSB}\tL"),
    ("sts-b", "test"): ("test.tsv", "index\t...", STSB),
    ("mnli", "train"): ("train.tsv", "index\t...", f"{MNLI_BEGIN}\tl1\tL"),
    ("mnli", "dev"): ("dev_matched.tsv", "index\t...", MNLI_DEV),
    ("mnli", "dev_mismatched"): ("dev_mismatched.tsv", "index\t...", MNLI_DEV),
    ("mnli", "test"): ("test_matched.tsv", "index\t...", MNLI_BEGIN),
    ("mnli", "test_mismatched"): ("test_mismatched.tsv", "index\t...", MNLI_BEGIN),
    ("qnli", "train"): ("train.tsv", "index\tquestion\tsentence\tlabel", "0\tA\tB\tL"),
    ("qnli", "dev"): ("dev.tsv", "index\tquestion\tsentence\tlabel", "0\tA\tB\tL"),
    ("qnli", "test"): ("test.tsv", "index\tquestion\tsentence", "0\tA\tB"),
    ("rte", "train"): ("train.tsv", "index\tsentence1\tsentence2\tlabel", "0\tA\tB\tL"),
    ("rte", "dev"): ("dev.tsv", "index\tsentence1\tsentence2\tlabel", "0\tA\tB\tL"),
    ("rte", "test"): ("test.tsv", "index\tsentence1\tsentence2", "0\tA\tB"),
    ("wnli", "train"): ("train.tsv", "index\tsentence1\tsentence2\tlabel", "0\tA\tB\tL"),
    ("wnli", "dev"): ("dev.tsv", "index\tsentence1\tsentence2\tlabel", "0\tA\tB\tL"),
    ("wnli", "test"): ("test.tsv", "index\tsentence1\tsentence2", "0\tA\tB"),
    ("ax", "test"): ("diagnostic.tsv", "index\tsentence1\tsentence2", "0\tA\tB"),
    ("xnli", "train"): ("multinli/multinli.train.de.tsv", "premise\thypo\tlabel", "A\tB\tL"),
    ("xnli", "dev"): ("xnli.dev.tsv", XNLI_HEADER, XNLI_ROW),
    ("xnli", "test"): ("xnli.test.tsv", XNLI_HEADER, XNLI_ROW),
}


def row_of(name, split, text_a, text_b, label):
    columns = LAYOUTS[name, split][2].split("\t")
    return "\t".join({"A": text_a, "B": text_b, "L": label}.get(c, c) for c in columns)


def read(name, split, folder):
    return list(read_glue(GLUE_TASKS[name], str(folder), split, language="de"))


def write_split(folder, name, split, rows, header=True):
    file, first_line, _ = LAYOUTS[name, split]
    lines = ([first_line] if first_line else []) + rows
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text("\n".join(lines), encoding="utf-8")
    return f"{folder / file}:{len(lines)}"


def test_sentences_and_labels_stand_where_glue_puts_them(tmp_path):
    for (name, split), (file, header, columns) in LAYOUTS.items():
        task, path = GLUE_TASKS[name], tmp_path / file
        labels = task.labels[:2] or ("2.5", "4.000")
        rows = [
            row_of(name, split, 'One "quoted.', "Zwölf", labels[1]),
            row_of(name, split, "Two", 'A "b', labels[0]),
        ]
        lines = ([header] if header else []) + rows
        text = "\ufeff" + "".join(f"{line}\r\n" for line in lines)  # with a byte order mark
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
        first, second = read(name, split, tmp_path)
        line = len(lines) - 1
        is_pair, is_labelled = "B" in columns.split("\t"), not split.startswith("test")
        expected = (labels if task.labels else (2.5, 4.0)) if is_labelled else (None, None)
        assert first == InputExample(
            guid=f"{split}-{line - 1}",
            text_a='One "quoted.',
            text_b="Zwölf" if is_pair else None,
            label=expected[1],
            origin=f"{path}:{line}",
        )
        assert (second.label, second.text_b) == (expected[0], 'A "b' if is_pair else None)


def test_a_bad_row_is_an_error_with_its_line(tmp_path):
    whole = row_of("rte", "dev", "One", "Two", "entailment")
    scored = row_of("sts-b", "test", "One", "Two", "")
    for name, split, rows in (
        ("rte", "dev", [whole, "", whole.rpartition("\t")[0]]),  # too few columns
        ("sts-b", "test", [scored, "", scored.rpartition("\t")[0]]),
        ("sts-b", "dev", [row_of("sts-b", "dev", "a", "b", "high")]),  # no number
    ):
        location = write_split(tmp_path, name, split, rows)
        with pytest.raises(DataError) as error:
            read(name, split, tmp_path)
        assert error.value.location == location


def test_broken_rows_of_qqp_and_empty_texts_are_counted(tmp_path, caplog):
    rows = [row_of("qqp", "train", "One", "Two", "1"), "1\t2\thalf", "a row", "3\t4\t5\tx\ty\t0"]
    write_split(tmp_path, "qqp", "train", rows)
    assert [example.label for example in read("qqp", "train", tmp_path)] == ["1", "0"]
    assert "train.tsv:3" in caplog.text
    caplog.clear()
    rows = [row_of("rte", "dev", "a", text_b, "entailment") for text_b in (" \u200b", "b")]
    write_split(tmp_path, "rte", "dev", rows)
    assert len(read("rte", "dev", tmp_path)) == 2
    assert "dev.tsv:2" in caplog.text


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
    assert splits_of(mnli, str(tmp_path), "dev") == ["dev"]
    (tmp_path / "dev_mismatched.tsv").touch()
    assert splits_of(mnli, str(tmp_path), "dev") == ["dev", "dev_mismatched"]
    assert splits_of(mnli, str(tmp_path), "train") == ["train"]
    assert splits_of(GLUE_TASKS["ax"], str(tmp_path), "test") == ["test"]  # has nothing else
    with pytest.raises(ValueError, match="task_name"):
        splits_of(GLUE_TASKS["ax"], str(tmp_path), "train")


def test_the_file_for_the_leaderboard_has_a_header_and_names_of_labels():
    assert submission_lines(GLUE_TASKS["rte"], [1, 0]) == [
        "index\tprediction",
        "0\tnot_entailment",
        "1\tentailment",
    ]
    scores = submission_lines(GLUE_TASKS["sts-b"], [5.2, -0.1, 2.34567])
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
    mnli = ("contradiction", "entailment", "neutral")
    for name in ("mnli", "xnli", "ax"):  # the reference's order
        assert GLUE_TASKS[name].labels == mnli
    for name in ("cola", "mrpc", "sst-2", "qqp", "wnli"):
        assert GLUE_TASKS[name].labels == ("0", "1")
    assert GLUE_TASKS["cola"].metrics[0] == "matthews_correlation"
    assert GLUE_TASKS["mrpc"].metrics == GLUE_TASKS["qqp"].metrics == ("f1", "accuracy")
    assert GLUE_TASKS["sts-b"].metrics == ("pearson", "spearman")
    for name in ("sst-2", "mnli", "qnli", "rte", "wnli", "xnli"):
        assert GLUE_TASKS[name].metrics == ("accuracy",)


def test_the_real_files_have_their_published_sizes():
    if not REAL_DATA.is_dir():
        pytest.skip("../shared/data/glue is not on this machine")
    for folder, name, sizes, positive in (
        ("MRPC", "mrpc", {"train": 3668, "dev": 408, "test": 1725}, 2474),
        ("CoLA", "cola", {"train": 8551, "dev": 1043, "test": 1063}, 6023),
        ("SST-2", "sst-2", {"train": 67349, "dev": 872, "test": 1821}, 37569),
    ):
        splits = {split: read(name, split, REAL_DATA / folder) for split in sizes}
        assert {split: len(examples) for split, examples in splits.items()} == sizes
        assert sum(example.label == "1" for example in splits["train"]) == positive
        for split in ("train", "dev"):
            assert {example.label for example in splits[split]} == {"0", "1"}
