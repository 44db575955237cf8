"""A room that is not in the paper can be deleted."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = (
    "tasks/test_run_classifier.py",
    "tasks/test_run_squad.py",
    "prediction/test_text_models.py",
)


@pytest.mark.night
def test_the_rest_works_without_embeddings(tmp_path):
    for folder in ("bert_tf", "tests"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.rmtree(tmp_path / "bert_tf" / "embeddings")
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not night", "-p", "no:cacheprovider"]
    subprocess.run(
        [*command, *(f"tests/{name}" for name in TESTS)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=True,
    )
