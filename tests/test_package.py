"""The package as a whole: importing it, and who imports whom."""

import doctest
import importlib
import pkgutil
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import house_measures
import pytest
from helpers import output_of

import bert_tf

ROOT = Path(bert_tf.__file__).parent

# A part may import itself and what stands before it.
ORDER = [
    *("removed_flags", "limits", "options", "cli", "files", "config", "characters"),
    *("vocabulary", "packing", "registry", "checkpoints", "tokenization", "report"),
    *("modeling", "data", "training", "tasks", "pretraining"),
    *("prediction", "serving", "embeddings", "__main__"),
]


def test_imports_go_downward_only():
    parts = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in ROOT.rglob("*.py")}
    assert parts - {"__init__"} == set(ORDER)
    assert house_measures.upward_imports(ORDER) == []


def test_light_modules_load_no_library_and_print_nothing():
    names = ["bert_tf", "bert_tf.config", "bert_tf.tokenization"]
    libraries = {"tensorflow", "keras", "numpy"}
    code = f"import {', '.join(names)}, sys; assert not {libraries} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.night
def test_examples_in_docstrings_say_what_happens(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # some write a file
    attempted = 0
    for info in pkgutil.walk_packages([str(ROOT)], "bert_tf."):
        if info.name in ("bert_tf.cli", "bert_tf.__main__"):  # TensorFlow, standard error closed
            continue
        found = doctest.testmod(importlib.import_module(info.name))
        assert not found.failed, info.name
        attempted += found.attempted
    assert attempted > 10


@pytest.mark.night
def test_versions_are_those_of_the_installed_packages():
    printed = output_of("-m", "bert_tf", "--version")
    first, packages, *_ = printed.splitlines()
    assert first.startswith(f"bert_tf {bert_tf.__version__}, Python {platform.python_version()}")
    assert f"tensorflow {metadata.version('tensorflow')}, " in packages
    assert "--precision=auto: " in printed and "processors: " in printed
    citation = (ROOT.parent / "CITATION.cff").read_text()
    assert f"\nversion: {bert_tf.__version__}\n" in citation
