"""GLUE's layouts: which column is what in which split, and errors with file and line."""

import csv
from pathlib import Path

import pytest

from bert_tf.tasks.classification import InputExample
from bert_tf.tasks.glue import GLUE_TASKS, find_glue_task, read_glue

REAL_DATA = Path(__file__).parents[3] / "shared/data/glue"

# A row of each file, from GLUE's own layouts; A and B are the sentences, L the label.
MNLI_BEGIN = "0\t31193\t31193n\tgovernment\t( a )\t( b )\t(ROOT a)\t(ROOT b)\tA\tB"
LAYOUTS = {
    ("cola", "train"): ("train.tsv", None, "gj04\tL\t\tA"),
    ("cola", "dev"): ("dev.tsv", None, "gj04\tL\t*\tA"),
    ("cola", "test"): ("test.tsv", "index\tsentence", "0\tA"),
    ("sst-2", "train"): ("train.tsv", "sentence\tlabel", "A\tL"),
    ("sst-2", "dev"): ("dev.tsv", "sentence\tlabel", "A\tL"),
    ("sst-2", "test"): ("test.tsv", "index\tsentence", "0\tA"),
    ("mrpc", "train"): (
        "train.tsv",
        "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
        "L\t7\t8\tA\tB",
    ),
    ("mrpc", "dev"): ("dev.tsv", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "L\t7\t8\tA\tB"),
    ("mrpc", "test"): ("test.tsv", "index\t#1 ID\t#2 ID\t#1 String\t#2 String", "0\t7\t8\tA\tB"),
    ("mnli", "train"): ("train.tsv", "index\t...", f"{MNLI_BEGIN}\tl1\tL"),
    ("mnli", "dev"): ("dev_matched.tsv", "index\t...", f"{MNLI_BEGIN}\tl1\tl2\tl3\tl4\tl5\tL"),
    ("mnli", "test"): ("test_matched.tsv", "index\t...", MNLI_BEGIN),
}


def row_of(name, split, text_a, text_b, label):
    columns = LAYOUTS[name, split][2].split("\t")
    return "\t".join({"A": text_a, "B": text_b, "L": label}.get(c, c) for c in columns)


def read(name, split, folder):
    return list(read_glue(GLUE_TASKS[name], str(folder), split))


def test_the_layouts_below_are_of_every_task_and_split():
    assert set(LAYOUTS) == {
        (name, split) for name in GLUE_TASKS for split in ("train", "dev", "test")
    }


@pytest.mark.parametrize("name, split", LAYOUTS)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_sentences_and_labels_stand_where_glue_puts_them(tmp_path, name, split, line_end):
    task, (file, header, _) = GLUE_TASKS[name], LAYOUTS[name, split]
    labels = task.labels[:2]
    rows = [
        row_of(name, split, 'One "quoted.', "Zwölf", labels[1]),
        row_of(name, split, "Two", 'A "b', labels[0]),
    ]
    lines = ([header] if header else []) + rows
    text = "\ufeff" + "".join(line + line_end for line in lines)  # with a byte order mark
    (tmp_path / file).write_text(text, encoding="utf-8", newline="")
    first, second = read(name, split, tmp_path)
    line = 2 if header else 1
    pair, labelled = task.text_b is not None, split != "test"
    assert first == InputExample(
        guid=f"{split}-{line - 1}",
        text_a='One "quoted.',
        text_b="Zwölf" if pair else None,
        label=labels[1] if labelled else None,
        origin=f"{tmp_path / file}:{line}",
    )
    assert second.label == (labels[0] if labelled else None)
    assert second.text_b == ('A "b' if pair else None)


@pytest.mark.parametrize("name, split", LAYOUTS)
def test_a_row_with_too_few_columns_is_an_error_with_file_and_line(tmp_path, name, split):
    file, header, _ = LAYOUTS[name, split]
    whole = row_of(name, split, "One", "Two", GLUE_TASKS[name].labels[0])
    needed = {"cola": 2 if split == "test" else 4, "sst-2": 2, "mrpc": 5, "mnli": 10}[name]
    cut = "\t".join(whole.split("\t")[: needed - 1])
    lines = ([header] if header else []) + [whole, "", cut]
    (tmp_path / file).write_text("\n".join(lines), encoding="utf-8")
    place = f"{file}:{len(lines)}: {name} needs {needed} columns .* this row has {needed - 1}: "
    with pytest.raises(ValueError, match=place):
        read(name, split, tmp_path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"dev_matched\.tsv"):
        read("mnli", "dev", tmp_path)


@pytest.mark.parametrize(
    "given, name",
    [("MRPC", "mrpc"), ("mrpc", "mrpc"), ("SST-2", "sst-2"), ("sst2", "sst-2"), ("CoLA", "cola")],
)
def test_a_task_is_found_in_any_spelling(given, name):
    assert find_glue_task(given) is GLUE_TASKS[name]


def test_an_unknown_task_is_refused_with_the_known_ones_and_the_way_to_own_data():
    with pytest.raises(ValueError, match=r"'imdb', but must be one of cola, .*mnli.*--train_file"):
        find_glue_task("imdb")


def test_the_table_agrees_with_the_reference():
    mnli = ("contradiction", "entailment", "neutral")
    assert {name: task.labels for name, task in GLUE_TASKS.items() if name != "sst-2"} == {
        "cola": ("0", "1"),
        "mrpc": ("0", "1"),
        "mnli": mnli,
    }
    assert GLUE_TASKS["cola"].metrics[0] == "matthews_correlation"
    assert GLUE_TASKS["mrpc"].metrics == ("f1", "accuracy")


@pytest.mark.parametrize(
    "folder, name, sizes, positive",
    [
        ("MRPC", "mrpc", {"train": 3668, "dev": 408, "test": 1725}, 2474),
        ("CoLA", "cola", {"train": 8551, "dev": 1043, "test": 1063}, 6023),
        ("SST-2", "sst-2", {"train": 67349, "dev": 872, "test": 1821}, 37569),
    ],
)
def test_the_real_files_have_their_published_sizes(folder, name, sizes, positive):
    if not (REAL_DATA / folder).is_dir():
        pytest.skip("../shared/data/glue is not on this machine")
    splits = {split: read(name, split, REAL_DATA / folder) for split in sizes}
    assert {split: len(examples) for split, examples in splits.items()} == sizes
    assert sum(example.label == "1" for example in splits["train"]) == positive
    for split in ("train", "dev"):
        assert {example.label for example in splits[split]} == {"0", "1"}
    with open(REAL_DATA / folder / "dev.tsv", encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    column = GLUE_TASKS[name].text_a
    texts = [row[column] for row in rows[GLUE_TASKS[name].has_header :]]
    assert [example.text_a for example in splits["dev"]] == texts
