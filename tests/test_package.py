"""The package as a whole: importing it, and who imports whom."""

import ast
import doctest
import importlib
import os
import pkgutil
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import house_measures
import pytest
from helpers import output_of, python

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


@pytest.mark.night
def test_the_package_works_without_the_room_of_embeddings(tmp_path):
    without = shutil.ignore_patterns("embeddings", "__pycache__")
    shutil.copytree(ROOT, tmp_path / "bert_tf", ignore=without)
    code = (
        "import bert_tf, pytest, sys; print(bert_tf.__file__); sys.exit(pytest.main(sys.argv[1:]))"
    )
    names = (
        "tasks/test_classification",
        "tasks/test_run_classifier",
        "prediction/test_loading",
    )
    files = [Path(__file__).parent / f"{name}.py" for name in names]
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    command = python("-c", code, "-q", "-m", "not night", *files, PYTHONPATH=paths)
    done = subprocess.run(**command, cwd=tmp_path, capture_output=True)
    assert done.stdout.startswith(str(tmp_path)), done.stdout
    assert done.returncode == 0, done.stdout[-3000:]


def test_scripts_are_short_and_import_the_package_alone():
    for script in (ROOT.parent / "run_scripts").glob("*.py"):
        text = script.read_text()
        modules = {n.module for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom)}
        if script.name != "sweep.py":  # it runs other scripts
            assert not [name for name in modules if name.split(".")[0] != "bert_tf"], script
            assert len(text.splitlines()) <= 80, script
    users = [path.name for path in ROOT.rglob("*.py") if "absl import app" in path.read_text()]
    assert users == ["cli.py"]


def test_light_modules_load_no_library_and_print_nothing():
    names = ["bert_tf", "bert_tf.config", "bert_tf.tokenization"]
    libraries = {"tensorflow", "keras", "numpy"}
    code = f"import {', '.join(names)}, sys; assert not {libraries} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_names_of_the_package_root_are_found_when_used():
    from bert_tf.config import BertConfig

    assert bert_tf.BertConfig is BertConfig
    assert set(bert_tf.__all__) <= set(dir(bert_tf))
    for name, help in {
        "xyz": "'xyz'",
        "BertForSequenceClasification": '"BertForSequenceClassification"',
    }.items():
        with pytest.raises(AttributeError) as error:
            getattr(bert_tf, name)
        assert help in str(error.value)


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
