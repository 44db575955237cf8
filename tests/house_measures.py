"""Measures of the size of the package, for tests/test_budget.py. Run from the project's root:

    python tests/house_measures.py

Code lines are counted by tokenize and ast: no blank line, no comment line, no docstring.
"""

import ast
import functools
import importlib
import io
import tokenize
from collections import Counter, defaultdict
from pathlib import Path

from bert_tf.__main__ import PROGRAMS
from bert_tf.options import flags_of

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "bert_tf"


def count_code_lines(source, tree):
    """Return the number of lines that are neither blank, nor comments, nor docstrings."""
    lines = source.splitlines()
    is_code = [bool(line.strip()) for line in lines]
    for node in ast.walk(tree):
        has_docstring = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, has_docstring) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            for number in range(text.lineno - 1, text.end_lineno):
                is_code[number] = False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        number = token.start[0] - 1
        if token.type == tokenize.COMMENT and lines[number].lstrip().startswith("#"):
            is_code[number] = False
    return sum(is_code)


def room_of(path):
    """Return the folder of a file below the package, or "(root)"."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else "(root)"


def option_names():
    """Return program -> names of its flags."""
    classes = {
        program: getattr(importlib.import_module(f"bert_tf.{module}"), name)
        for program, (module, name) in PROGRAMS.items()
    }
    return {name: set(flags_of(c)) for name, c in classes.items()}


def imported_names(node):
    """Return what a node of a syntax tree imports, lazy imports included, with dots."""
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        return [ast.unparse(node.args[0]).strip("'\"")]
    return []


def upward_imports(order):
    """Return "file -> part" for each import of a part of the package that stands later.

    Args:
        order: parts of the package. A part may import itself and what stands before it.
    """
    wrong = set()
    for path in PACKAGE.rglob("*.py"):
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if part == "__init__":  # it names what is imported later
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for name in imported_names(node):
                package, _, rest = name.partition(".")
                if package == "bert_tf" and rest.split(".")[0] in order[order.index(part) + 1 :]:
                    wrong.add(f"{path.relative_to(PACKAGE)} -> {rest.split('.')[0]}")
    return sorted(wrong)


@functools.cache
def measure():
    """Return (measures of the whole, room -> Counter of code lines, files and raises)."""
    paths = sorted(path for path in PACKAGE.rglob("*.py") if path.read_text(encoding="utf-8"))
    rooms, long_functions, lines = defaultdict(Counter), 0, 0
    for path in paths:
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        lines += source.count("\n")
        nodes = list(ast.walk(tree))
        rooms[room_of(path)].update(
            code=count_code_lines(source, tree),
            files=1,
            raises=sum(isinstance(node, ast.Raise) for node in nodes),
        )
        long_functions += sum(
            node.end_lineno - node.lineno >= 60
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        )
    options = option_names()
    tests = sum(path.read_text("utf-8").count("\n") for path in (ROOT / "tests").rglob("*.py"))
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"]
    whole = {
        "lines": lines,
        "code lines": sum(count["code"] for count in rooms.values()),
        "files": len(paths),
        "raises": sum(count["raises"] for count in rooms.values()),
        "distinct flags": len(set().union(*options.values())),
        "flags of run_classifier": len(options["run_classifier"]),
        "functions above 60 lines": long_functions,
        "lines of tests": tests,
        "lines of documents": sum(page.read_text("utf-8").count("\n") for page in pages),
    }
    return whole, rooms


if __name__ == "__main__":
    for measures in measure():
        for name, value in sorted(measures.items()):
            print(f"{name:28}", value if isinstance(value, int) else dict(value))
