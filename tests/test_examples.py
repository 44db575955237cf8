"""The examples run as they stand, without anything to download, and do what they say."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_text_models as tiny

import bert_tf

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name, *flags):
    """What an example prints."""
    return run_file(EXAMPLES / name, *flags)


def run_file(path, *flags):
    done = subprocess.run(
        [sys.executable, str(path), *flags],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_every_example_is_run_here():
    text = Path(__file__).read_text(encoding="utf-8")
    names = [path.name for path in EXAMPLES.glob("*.py")]
    assert all(f'run("{name}"' in text for name in names)


def test_keras_fit_learns_and_the_saved_model_says_so():
    printed = run("keras_fit.py")
    accuracies = re.findall(r"val_accuracy: ([\d.]+)", printed)
    assert float(accuracies[-1]) > 0.9
    answers = dict(re.findall(r"^(bad|good) +\d+%  (.*)$", printed, re.M))
    assert answers["bad"].startswith("The pool was dirty")
    assert answers["good"].startswith("A quiet room")


def test_the_custom_head_counts_and_leaves_a_folder(tmp_path):
    printed = run("custom_head.py", f"--output_dir={tmp_path}")
    assert float(re.search(r"^eval_exact +([\d.]+)$", printed, re.M)[1]) > 0.9
    adds = {
        piece: float(value) for piece, value in re.findall(r"^  (\S+) +([+-][\d.]+)", printed, re.M)
    }
    assert min(adds["dog"], adds["bird"]) > max(adds["house"], adds["river"])
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "# BERT, counting" in card and "`eval_exact`" in card


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier")
    trained = tiny.classifier()
    trained.model.task = trained.task
    trained.model.save_pretrained(str(folder), trained.tokenizer)
    return str(folder)


def test_search_finds_the_text_of_the_query(classifier, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("a cat on a mat\n\nthe owl sat on a log .\na dog\n")
    flags = (f"--model={classifier}", f"--documents={texts}", "--query=the owl sat on a log .")
    query, *found = run("search.py", *flags, "--top_k=2").splitlines()
    assert query == "the owl sat on a log ." and len(found) == 2
    assert found[0].split(maxsplit=1) == ["1.000", query]


def test_search_sorts_by_the_reranker():
    class Model:
        def embed(self, texts, as_query=False):
            return np.array([[1.0, 0.0] if "a" in text else [0.0, 1.0] for text in texts])

        def predict(self, pairs):
            return [{"score": len(text)} for _, text in pairs]

    search = runpy.run_path(str(EXAMPLES / "search.py"))["Search"]
    documents = ["b", "a", "aa", "aaa"]
    assert search(Model(), documents).find("a", top_k=2) == [(1.0, "a"), (1.0, "aa")]
    assert search(Model(), documents, Model()).find("a", top_k=2) == [(3, "aaa"), (2, "aa")]


def test_beam_predict_answers_every_line(classifier, tmp_path):
    pytest.importorskip("apache_beam")
    (tmp_path / "texts.txt").write_text("a cat\nthe owls\n")
    flags = (f"--model={classifier}", f"--input={tmp_path}/*.txt", f"--output={tmp_path}/answers")
    run("beam_predict.py", *flags)
    lines = [line for path in tmp_path.glob("answers-*") for line in path.read_text().splitlines()]
    answers = {line["text"]: line["probabilities"] for line in map(json.loads, lines)}
    model = bert_tf.load(classifier)
    for text in ("a cat", "the owls"):
        (expected,) = model.predict([text])
        assert answers.pop(text) == pytest.approx(expected["probabilities"], abs=1e-5)
    assert not answers
