"""The documents: their links lead somewhere, and generated pages are those of the code."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bert_tf.options import flags_of
from bert_tf.removed_flags import REMOVED

ROOT = Path(__file__).parents[1]
NAMES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
DOCUMENTS = sorted([*(ROOT / name for name in NAMES), *(ROOT / "docs").glob("*.md")])


def script(name):
    """A script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(path):
    return path.read_text(encoding="utf-8")


def test_generated_pages_are_those_of_the_code():
    make_flags, make_api = script("make_flags"), script("make_api")
    migration = read(ROOT / "docs/migration.md")
    assert read(ROOT / "docs/flags.md") == make_flags.page(), "run: python docs/make_flags.py"
    assert migration == make_flags.with_removed_flags(migration), "run: python docs/make_flags.py"
    assert read(ROOT / "docs/api.md") == make_api.page(), "run: python docs/make_api.py"
    classes = make_flags.option_classes().values()
    assert not {name for options in classes for name in flags_of(options)} & set(REMOVED)


def anchors(path):
    """What `#...` may name: GitHub's form of each heading."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", read(path), flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_to_files_and_headings():
    broken, followed = [], 0
    for document in DOCUMENTS:
        text = re.sub(r"```.*?```|`[^`]*`", "", read(document), flags=re.S)
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?[^)]*\)", text):
            path = document.parent / target if target else document
            if re.match(r"[a-z]+:", target):
                continue
            followed += 1
            if not path.exists() or (anchor and anchor not in anchors(path)):
                broken.append(f"{document.name}: {target}#{anchor}")
    assert not broken and followed > 100


@pytest.mark.night
def test_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("material", reason="needs the extra [docs]")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = [path.stem for path in (ROOT / "docs").glob("*.md") if path.stem != "index"]
    assert all((tmp_path / name / "index.html").exists() for name in pages)
    assert "not included in the" not in done.stderr  # pages without a place in the menu
