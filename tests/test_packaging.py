"""The wheel, built from a copy and used in an empty folder."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import bert_tf

pytestmark = pytest.mark.night

ROOT = Path(__file__).parents[1]
# What a working tree may hold besides the repository.
NOT_COPIED = shutil.ignore_patterns(
    ".*", "__pycache__", "*.egg-info", "build", "dist", "shared", "*_output"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Names in the wheel, and the folder of the unpacked wheel."""
    folder = tmp_path_factory.mktemp("packaging")
    copy = shutil.copytree(ROOT, folder / "copy", ignore=NOT_COPIED)
    command = [sys.executable, "setup.py", "-q", "bdist_wheel"]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    (built,) = (copy / "dist").glob("*.whl")
    assert built.name == f"bert_tf-{bert_tf.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(built) as file:
        in_wheel = file.namelist()
        file.extractall(folder / "installed")
    return in_wheel, folder / "installed"


def files_of(folder, endings):
    paths = (path for path in (ROOT / folder).rglob("*") if path.is_file())
    return [str(path.relative_to(ROOT)) for path in paths if path.name.endswith(endings)]


def test_wheel_holds_modules_assets_licence_command_and_nothing_else(wheel):
    in_wheel, installed = wheel
    package = [name for name in in_wheel if ".dist-info/" not in name]
    assets = files_of("bert_tf/report/assets", "")
    assert len(assets) == 5
    assert sorted(package) == sorted([*files_of("bert_tf", ".py"), *assets, "bert_tf/py.typed"])
    (info,) = installed.glob("*.dist-info")
    assert "bert_tf = bert_tf.__main__:main" in (info / "entry_points.txt").read_text()
    assert [path.read_text() for path in info.rglob("LICENSE")] == [(ROOT / "LICENSE").read_text()]


def test_wheel_is_imported_and_its_programs_run_in_an_empty_folder(wheel, tmp_path):
    _, installed = wheel
    (tmp_path / "text.txt").write_text("One dog. Two cats.\n")
    environment = {**os.environ, "PYTHONPATH": str(installed), "CUDA_VISIBLE_DEVICES": "-1"}

    def run(*arguments):
        pipes = {"capture_output": True, "text": True}
        done = subprocess.run([sys.executable, *arguments], cwd=tmp_path, env=environment, **pipes)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    printed = run("-c", "import bert_tf; print(bert_tf.__file__, bert_tf.__version__)")
    assert printed.split() == [str(installed / "bert_tf" / "__init__.py"), bert_tf.__version__]
    flags = ["--input_file=text.txt", "--output_dir=model", "--vocab_size=127"]
    run("-m", "bert_tf", "create_vocab", *flags)
    assert (tmp_path / "model" / "vocab.txt").read_text().count("\n") == 127
