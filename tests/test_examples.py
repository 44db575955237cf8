"""The examples run as they stand, without anything to download, and do what they say."""

import ast
import dataclasses
import gzip
import json
import logging
import random
import re
import runpy
from pathlib import Path

import house_measures
import numpy as np
import pytest
from helpers import output_of, read_results, refused
from models import DATA, golden

import bert_tf
from bert_tf.options import make_options
from bert_tf.registry import TYPES

pytestmark = pytest.mark.night

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name, *flags):
    return output_of(EXAMPLES / name, *flags)


def test_every_example_is_run_here():
    text = Path(__file__).read_text(encoding="utf-8")
    names = [path.name for path in EXAMPLES.glob("*.py")]
    assert all(f'"{name}"' in text for name in names)


def write_library(folder, word):
    """Ten source files whose docstrings have words of their own."""
    generator = random.Random(word)
    for number in range(10):
        words = [f"{word}{ending}" for ending in ("at", "en", "ip", "ox", "um")]
        lines = [" ".join(generator.choices(words, k=9)) for _ in range(6)]
        text = " ".join(f"The {line} is of {number} and {n}." for n, line in enumerate(lines))
        (folder / f"file_{number}.py").write_text(f'"""{text}"""\n')


def test_quickstart_goes_the_whole_way(tmp_path, capfd):
    quickstart = runpy.run_path(str(EXAMPLES.joinpath("quickstart.py")))
    small = {"VOCAB_SIZE": 160, "TRAIN_STEPS": 8, "TRAIN_BATCH_SIZE": 4}
    run_all = quickstart["quickstart"]
    run_all.__globals__.update(small, TRAIN_SENTENCES=9, DEV_SENTENCES=9)
    folders = {}
    for library, word in zip(("python", "numpy", "keras", "tensorflow"), "bcdf", strict=True):
        folders[library] = tmp_path / library
        folders[library].mkdir()
        write_library(folders[library], word)
    run_all(tmp_path / "out", folders)
    logging.getLogger("bert_tf.pretraining.create_pretraining_data").setLevel(logging.NOTSET)
    assert (tmp_path / "out/exported/1/saved_model.pb").exists()
    printed = capfd.readouterr().out
    assert "from the pre-trained encoder" in printed and "from scratch" in printed
    for text in (*quickstart["SENTENCES"], *quickstart["MASKED"]):  # served, filled
        assert text in printed


def test_prepare_corpus_writes_a_sentence_per_line(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/wiki_00").write_text(
        '<doc id="9" url="https://x.org" title="Tides">\nTides\n\nDr. Li saw it. It was &lt; 3.14 m!\n'
        'History.\n</doc>\n<doc id="10" title="Moon">\nMoon\n\n</doc>\n',
        encoding="utf-8",
    )
    article = {"title": "Sun", "text": "Sun\nSee also\nIt shines. Why does it shine?"}
    (tmp_path / "in/wiki_01.json").write_text(json.dumps(article) + "\n")
    with gzip.open(tmp_path / "in/book.txt.gz", "wt", encoding="utf-8") as file:
        file.write("Call me Jo. Some\tyears  ago I went.\n— \n\nHe came back after a long time.\n")
    output = tmp_path / "corpus.txt"
    run("prepare_corpus.py", f"--input_file={tmp_path / 'in'}", f"--output_file={output}")
    assert output.read_text().split("\n\n") == [
        "Call me Jo.\nSome years ago I went.",
        "He came back after a long time.",
        "Dr. Li saw it.\nIt was < 3.14 m!",
        "It shines.\nWhy does it shine?",
        "",
    ]


@pytest.mark.parametrize("kind, flags", [("squad", ()), ("squad2", ("--version_2_with_negative",))])
def test_an_ensemble_of_one_run_answers_as_the_run(tmp_path, kind, flags):
    names = {"squad": "dev.json", "squad2": "dev2.json"}
    given = [f"--predict_file={DATA}/squad/{names[kind]}", f"--output_dir={tmp_path}/out", *flags]
    printed = run("squad_ensemble.py", *given, golden(kind))
    metrics = dict(line.split(" = ") for line in printed.splitlines() if " = " in line)
    expected = read_results(golden(kind))
    for name in ("best_exact", "best_f1", "f1") if flags else ("exact_match", "f1"):
        assert float(metrics[name]) == pytest.approx(expected[name])
    answers = [
        json.loads((folder / "predictions.json").read_text())
        for folder in (golden(kind), tmp_path / "out")
    ]
    assert answers[0] == answers[1]


def test_runs_of_an_ensemble_vote():
    example = runpy.run_path(str(EXAMPLES / "squad_ensemble.py"))
    lists = [{"cat": 0.6, "dog": 0.4}, {"": 0.5, "dog": 0.5}, {"dog": 0.1}]
    entries = [[{"text": t, "probability": p} for t, p in each.items()] for each in lists]
    votes = example["vote"](entries)
    assert votes == [("dog", pytest.approx(1 / 3)), ("cat", pytest.approx(0.2)), ("", 0.5 / 3)]
    best, odds = example["odds_of_no_answer"](votes)
    assert best == "dog" and odds == pytest.approx(np.log(0.5))
    assert example["odds_of_no_answer"]([("", 1.0)])[0] == ""


@pytest.mark.weekly
def test_keras_fit_learns_and_the_saved_model_says_so():
    printed = run("keras_fit.py")
    accuracies = re.findall(r"val_accuracy: ([\d.]+)", printed)
    assert float(accuracies[-1]) > 0.9
    answers = dict(re.findall(r"^(bad|good) +\d+%  (.*)$", printed, re.M))
    assert answers["bad"].startswith("The pool was dirty")
    assert answers["good"].startswith("A quiet room")


def test_a_new_type_of_task_needs_150_lines_and_no_change_of_the_package(tmp_path, capsys):
    source = (EXAMPLES / "custom_head.py").read_text(encoding="utf-8")
    assert house_measures.count_code_lines(source, ast.parse(source)) <= 150
    custom = runpy.run_path(str(EXAMPLES / "custom_head.py"))
    entry = TYPES["counting"]
    try:
        custom["demo"](str(tmp_path), num_train_epochs=0.1)
        assert "exported/1, 'i saw a dog" in capsys.readouterr().out
        (answer,) = bert_tf.load(tmp_path / "output").predict(["a dog"])
        contributions = [value for _, value in answer["of_tokens"]]
        assert len(contributions) == 4
        assert answer["count"] == pytest.approx(sum(contributions), abs=1e-4)
        (exported,) = bert_tf.load(tmp_path / "exported/1").predict(["a dog"])
        assert exported["count"] == pytest.approx(answer["count"], abs=1e-4)
        values = {"output_dir": str(tmp_path / "output"), "do_predict": True}
        values["predict_file"] = str(tmp_path / "dev.tsv")
        custom["run_counting"](make_options(custom["CountingOptions"], **values))
        assert len((tmp_path / "output/test_results.tsv").read_text().splitlines()) == 100
        bert_tf.register_task(dataclasses.replace(entry, served=None))
        with refused("head"):
            bert_tf.export(tmp_path / "output", tmp_path / "served")
    finally:
        del TYPES["counting"]
    assert bert_tf.load(tmp_path / "output").task is None


def test_search_finds_the_text_of_the_query(tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("a cat in the barn\n\nthe owl is in the wood .\na dog\n")
    flags = (f"--model={golden('classifier')}", f"--documents={texts}", "--top_k=2")
    query, *found = run("search.py", *flags, "--query=the owl is in the wood .").splitlines()
    assert query == "the owl is in the wood ." and len(found) == 2
    assert found[0].split(maxsplit=1) == ["1.000", query]


@pytest.mark.weekly
def test_beam_predict_answers_every_line(tmp_path):
    pytest.importorskip("apache_beam")
    (tmp_path / "texts.txt").write_text("a cat\nthe owls\n")
    model = golden("classifier")
    flags = (f"--model={model}", f"--input={tmp_path}/*.txt", f"--output={tmp_path}/answers")
    run("beam_predict.py", *flags)
    lines = [line for path in tmp_path.glob("answers-*") for line in path.read_text().splitlines()]
    answers = {line["text"]: line["probabilities"] for line in map(json.loads, lines)}
    texts = ["a cat", "the owls"]
    assert sorted(answers) == texts
    for text, expected in zip(texts, bert_tf.load(model).predict(texts), strict=True):
        assert answers[text] == pytest.approx(expected["probabilities"], abs=1e-5)
