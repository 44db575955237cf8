"""The examples run as they stand, without anything to download, and do what they say."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

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
    assert len(names) == 3
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


def test_the_search_finds_the_text_with_the_words_of_the_query(tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("A bowl of soup.\n\nThe train to Vienna is late.\nSnow fell on hills.\n")
    flags = (f"--texts={texts}", "--query=the train to vienna", "--top_k=2")
    printed = run("embeddings_and_search.py", *flags)
    assert "vectors of 128 numbers" in printed
    found = printed.split("\nthe train to vienna\n")[1].splitlines()
    assert len(found) == 2
    assert found[0].endswith("The train to Vienna is late.")


def test_the_code_of_a_notebook_runs_with_the_arguments_of_its_kernel(tmp_path):
    cells = json.loads((EXAMPLES / "embeddings_and_search.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 4
    joined = tmp_path / "joined.py"
    joined.write_text("\n\n".join("".join(cell["source"]) for cell in code) + "\n")
    texts = tmp_path / "texts.txt"
    texts.write_text("A bowl of soup.\nThe train to Vienna is late.\n")
    printed = run_file(joined, "-f", "kernel.json", f"--texts={texts}", "--query=the train")
    assert "The train to Vienna is late." in printed
