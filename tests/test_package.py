"""The package as a whole: importing it, and who imports whom."""

import ast
import doctest
import importlib
import os
import pkgutil
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import bert_tf

ROOT = Path(bert_tf.__file__).parent

# A part may import itself and what stands before it.
ORDER = [
    "quiet",
    "removed_flags",
    "limits",
    "huggingface_config",
    "config",
    "characters",
    "vocabulary",
    "tokenization",
    "metrics",
    "registry",
    "text_ops",
    "data",
    "modeling",
    "interop",
    "options",
    "training",
    "pretraining",
    "tasks",
    "text_preprocessor",
    "model_files",
    "checkpoint_task",
    "model_folder",
    "pretrained",
    "prediction",
    "serving",
    "predictor",
    "report",
    "finetuning",
    "programs",
    "cli",
    "versions",
    "__main__",
]


def imported_parts(path: Path) -> set[str]:
    """First component below bert_tf of everything that a file imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "bert_tf":
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bert_tf."):
            names.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            parts = [alias.name.split(".") for alias in node.names]
            names.update(part[1] for part in parts if part[0] == "bert_tf" and len(part) > 1)
    return names & set(ORDER)


def test_imports_go_downward_only():
    wrong, parts = [], set()
    for path in ROOT.rglob("*.py"):
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if part == "__init__":  # it names what is imported later
            continue
        parts.add(part)
        above = ORDER[ORDER.index(part) + 1 :]
        wrong += [f"{path} -> {other}" for other in imported_parts(path) & set(above)]
    assert not wrong
    assert parts == set(ORDER)


def test_scripts_import_the_package_and_no_script():
    scripts = set((ROOT.parent / "run_scripts").glob("*.py"))
    scripts.remove(ROOT.parent / "run_scripts" / "sweep.py")  # runs other scripts
    for script in scripts:
        for node in ast.walk(ast.parse(script.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.module == "bert_tf" or node.module.startswith("bert_tf.")
        assert len(script.read_text().splitlines()) <= 80


def test_only_cli_knows_absl_flags():
    users = [p.name for p in ROOT.rglob("*.py") if "absl import app" in p.read_text()]
    assert users == ["cli.py"]


@pytest.mark.parametrize("module", ["bert_tf", "bert_tf.config", "bert_tf.tokenization"])
def test_importing_it_loads_neither_tensorflow_nor_keras_and_prints_nothing(module):
    code = f"import {module}, sys; assert not {{'tensorflow', 'keras', 'numpy'}} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_names_of_the_package_root_are_found_when_used():
    from bert_tf.config import BertConfig

    assert bert_tf.BertConfig is BertConfig
    assert set(bert_tf.__all__) <= set(dir(bert_tf))
    with pytest.raises(AttributeError, match=r"no attribute 'xyz'\.$"):
        bert_tf.xyz  # noqa: B018
    with pytest.raises(AttributeError, match=r"'TFBertModel'\. docs/migration\.md has"):
        bert_tf.TFBertModel  # noqa: B018
    with pytest.raises(AttributeError, match='"BertForSequenceClassification"'):
        bert_tf.BertForSequenceClasification  # noqa: B018


def test_the_examples_in_docstrings_say_what_happens(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # some write a file
    attempted = 0
    for info in pkgutil.walk_packages([str(ROOT)], "bert_tf."):
        if info.name in ("bert_tf.cli", "bert_tf.__main__"):  # TensorFlow, standard error closed
            continue
        found = doctest.testmod(importlib.import_module(info.name))
        assert not found.failed, info.name
        attempted += found.attempted
    assert attempted > 10


def test_versions_are_those_of_the_installed_packages():
    command = [sys.executable, "-m", "bert_tf", "--version"]
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT.parent), *sys.path])}
    done = subprocess.run(command, env=os.environ | paths, capture_output=True, text=True)
    assert done.returncode == 0
    first, packages, *_ = done.stdout.splitlines()
    assert first.startswith(f"bert_tf {bert_tf.__version__}, Python {platform.python_version()}")
    assert f"tensorflow {metadata.version('tensorflow')}, " in packages
    assert "--precision=auto: " in done.stdout and "processors: " in done.stdout


def test_the_version_is_the_same_everywhere():
    citation = (ROOT.parent / "CITATION.cff").read_text()
    assert f"\nversion: {bert_tf.__version__}\n" in citation
