"""The wheel and the source distribution, built from a copy and used in an empty folder."""

import os
import shutil
import subprocess
import sys
import tarfile
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
def distributions(tmp_path_factory):
    """Names in the wheel, names in the source distribution, and the folder of the unpacked wheel."""
    folder = tmp_path_factory.mktemp("packaging")
    copy = shutil.copytree(ROOT, folder / "copy", ignore=NOT_COPIED)
    command = [sys.executable, "setup.py", "-q", "sdist", "bdist_wheel"]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    (wheel,) = (copy / "dist").glob("*.whl")
    (source,) = (copy / "dist").glob("*.tar.gz")
    assert wheel.name == f"bert_tf-{bert_tf.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as file:
        in_wheel = file.namelist()
        file.extractall(folder / "installed")
    with tarfile.open(source) as file:
        in_source = [name.partition("/")[2] for name in file.getnames()]
    return in_wheel, in_source, folder / "installed"


def test_the_wheel_holds_every_module_the_assets_of_pages_and_nothing_else(distributions):
    in_wheel, _, _ = distributions
    package = [name for name in in_wheel if ".dist-info/" not in name]
    modules = [str(path.relative_to(ROOT)) for path in (ROOT / "bert_tf").rglob("*.py")]
    assets = [str(path.relative_to(ROOT)) for path in (ROOT / "bert_tf/report/assets").iterdir()]
    assert len(assets) == 5
    assert sorted(package) == sorted([*modules, *assets, "bert_tf/py.typed"])


def test_the_wheel_has_the_licence_and_the_command(distributions):
    _, _, installed = distributions
    (info,) = installed.glob("*.dist-info")
    assert "bert_tf = bert_tf.__main__:main" in (info / "entry_points.txt").read_text()
    assert [path.read_text() for path in info.rglob("LICENSE")] == [(ROOT / "LICENSE").read_text()]


@pytest.mark.parametrize("folder", ["run_scripts", "vocab", "docs", "bert_tf", "tests"])
def test_the_source_distribution_holds_what_a_checkout_does(distributions, folder):
    _, in_source, _ = distributions
    files = {
        str(path.relative_to(ROOT))
        for path in (ROOT / folder).rglob("*")
        if path.is_file()
        and path.suffix in (".py", ".md", ".txt", ".json", ".typed", ".c", ".html", ".css", ".js")
    }
    assert files and files <= set(in_source)


def test_the_source_distribution_can_make_and_holds_no_foreign_data(distributions):
    _, in_source, _ = distributions
    assert {"README.md", "Makefile", "pyproject.toml", "setup.py", "LICENSE"} <= set(in_source)
    folders = {name.partition("/")[0] for name in in_source if "/" in name}
    known = {"bert_tf", "benchmarks", "docker", "docs", "examples", "run_scripts", "tests", "vocab"}
    assert folders <= known | {"bert_tf.egg-info"}


def test_the_wheel_is_imported_and_its_programs_run_in_an_empty_folder(distributions, tmp_path):
    _, _, installed = distributions
    (tmp_path / "text.txt").write_text("One dog. Two cats.\n")
    environment = {**os.environ, "PYTHONPATH": str(installed), "CUDA_VISIBLE_DEVICES": "-1"}

    def run(*arguments):
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    printed = run("-c", "import bert_tf; print(bert_tf.__file__, bert_tf.__version__)")
    assert printed.split() == [str(installed / "bert_tf" / "__init__.py"), bert_tf.__version__]
    flags = ["--input_file=text.txt", "--output_dir=model", "--vocab_size=127"]
    run("-m", "bert_tf", "create_vocab", *flags)
    assert (tmp_path / "model" / "vocab.txt").read_text().count("\n") == 127
