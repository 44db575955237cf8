"""What the guides say is so: their commands have flags that exist, their links lead somewhere."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
IMAGES, NOTEBOOKS = ROOT / "docs" / "images", ROOT / "examples"
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


def test_the_page_of_the_api_has_what_a_docstring_says(monkeypatch):
    source = '''"""Dogs.

More of them.
"""
class Base:
    def __init__(self, name: str, *tricks, age: int | None = None, **others): ...
class Dog(Base):
    """One dog; < 5 kg.

    Args:
        name: how it
            is called.

    >>> Dog("Rex").bark()
    'Wau'

    Not on the page.
    """
    @property
    def size(self) -> int:
        """In cm."""
    def _hidden(self):
        """No."""
'''
    monkeypatch.setattr(make_api, "parsed", lambda module: ast.parse(source))
    expected = """
## Dog

```python
Dog(name: str, *tricks, age: int | None = None, **others)
```

One dog; &lt; 5 kg.

Args

- `name`: how it
  is called.

```python
>>> Dog("Rex").bark()
'Wau'
```

### Dog.size

```python
size: int
```

In cm.
"""
    assert make_api.name_text("Dog", "dogs") == expected


def strings_of_the_package():
    """Every string literal, adjacent ones joined."""
    for file in (ROOT / "bert_tf").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_the_messages_of_the_guide_are_those_of_the_code():
    table = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8").split("##")[0]
    rows = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `")]
    strings = list(strings_of_the_package())
    missing = [
        message
        for row in rows
        for message in re.findall(r"`([^`]+)`", row)
        if not any(message.replace("--", "") in string for string in strings)  # cli.py adds them
    ]
    assert len(rows) > 15 and not missing, missing


def test_images_are_those_of_the_script():
    images = script("make_images").images()
    there = {path.name: path.read_text(encoding="utf-8") for path in IMAGES.glob("*.svg")}
    assert there == images, "run: python docs/make_images.py"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) < 150
    assert {"way.svg", "serving.svg", "accuracy.svg"} <= set(
        re.findall(r"images/(\w+\.svg)", readme)
    )


def test_notebooks_are_those_of_the_scripts():
    there = {path.name: path.read_text(encoding="utf-8") for path in NOTEBOOKS.glob("*.ipynb")}
    assert there == script("make_notebooks").notebooks()


def test_values_in_charts_stand_in_the_tables_that_they_name():
    for chart in json.loads((IMAGES / "numbers.json").read_text(encoding="utf-8")).values():
        page = re.search(r"docs/(\w+\.md)#", chart["note"])[1]
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        bars = [(name, value) for name, value, _ in chart.get("bars", [])]
        points = [(name, y) for name, line, _ in chart.get("lines", []) for _, y in line]
        for name, value in bars + points:
            shown = {f"{value:g}", f"{value:.2f}", f"{value / 100:.3f}", f"{value:.1f}"}
            assert any(stands_in(form, text) for form in shown), name


def stands_in(number, text):
    """Whether the text has the number, and not only as a part of another one."""
    return re.search(rf"(?<![\d.]){re.escape(number)}(?!\d|\.\d)", text) is not None


def test_main_figures_are_those_of_the_detailed_page():
    """Numbers with a decimal point or three digits in the tables of results.md."""
    main, details = (
        (ROOT / "docs" / name).read_text(encoding="utf-8")
        for name in ("results.md", "results_details.md")
    )
    rows = [line for line in main.splitlines() if line.startswith("|")]
    numbers = re.findall(r"(?<![\w.-])\d[\d,]*\.?\d+(?![\w.-])", " ".join(rows))
    kept = [number for number in numbers if "." in number or len(number) > 2]
    assert len(kept) > 100
    assert [number for number in kept if not stands_in(number, details)] == []


def test_the_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("material", reason="needs the extra [docs]")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = [path.stem for path in (ROOT / "docs").glob("*.md") if path.stem != "index"]
    assert all((tmp_path / name / "index.html").exists() for name in pages)
    assert "not included in the" not in done.stderr  # pages without a place in the menu
