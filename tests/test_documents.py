"""What the guides say is so: their commands have flags that exist, their links lead somewhere."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


make_flags, make_api = script("make_flags"), script("make_api")


def commands(text):
    """(script, [(flag, value or None)]) of each command line, over lines that end with a backslash."""
    joined = re.sub(r"\\\n\s*", " ", text)
    for line in joined.splitlines():
        for command in re.split(r"`|\|(?!\S)", line):
            found = re.search(r"\b(\w+)(?:\.py)?((?:\s+--\w+(?:=\S+)?)+)", command)
            if found and found[1] in SCRIPTS:
                flags = re.findall(r"--(\w+)(?:=(\S+))?", found[2])
                yield found[1], [(name, value or None) for name, value in flags]


SCRIPTS = make_flags.option_classes()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_have_flags_that_exist_with_values_that_they_take(document):
    for script, flags in commands(document.read_text(encoding="utf-8")):
        fields = make_flags.flags_of(SCRIPTS[script])
        for name, value in flags:
            known = name in fields or name.removeprefix("no") in fields
            assert known, f"{document.name}: {script} has no flag --{name}"
            choices = fields[name].metadata.get("choices") if name in fields else None
            if choices and value and not value.startswith(("$", "'", '"')) and value != "...":
                assert value in choices, f"{document.name}: {script} --{name}={value}"


def test_the_guides_have_many_commands():
    texts = [document.read_text(encoding="utf-8") for document in DOCUMENTS]
    assert len([c for text in texts for c in commands(text)]) > 40


def test_the_page_of_flags_is_that_of_the_code():
    there = (ROOT / "docs" / "flags.md").read_text(encoding="utf-8")
    assert there == make_flags.page(), "run: python docs/make_flags.py"


def test_the_table_of_removed_flags_is_that_of_the_code():
    there = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
    assert there == make_flags.with_removed_flags(there), "run: python docs/make_flags.py"
    flags = {name for options in SCRIPTS.values() for name in make_flags.flags_of(options)}
    assert not flags & set(REMOVED)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_to_files_lead_to_files(document):
    text = re.sub(r"```.*?```|`[^`]*`", "", document.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not re.match(r"[a-z]+:", target):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def anchors(document):
    """What `#...` may name: GitHub's form of each heading."""
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.S)
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_to_headings_lead_to_headings(document):
    text = re.sub(r"```.*?```|`[^`]*`", "", document.read_text(encoding="utf-8"), flags=re.S)
    for target, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", text):
        there = document.parent / target if target else document
        assert anchor in anchors(there), f"{document.name}: {target}#{anchor}"


def test_the_page_of_the_api_is_that_of_the_docstrings():
    there = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert there == make_api.page(), "run: python docs/make_api.py"


def test_the_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("material", reason="needs the extra [docs]")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = [path.stem for path in (ROOT / "docs").glob("*.md") if path.stem != "index"]
    assert all((tmp_path / name / "index.html").exists() for name in pages)
    assert "not included in the" not in done.stderr  # pages without a place in the menu
