"""Writes docs/api.md: the classes and functions that users import, from their docstrings.

python docs/make_api.py

Files are parsed and not imported, so that TensorFlow is not loaded. Of a docstring the page has the
first paragraph, what goes in and comes out, what is raised, and the examples, which the tests run.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).resolve().parent.parent
HEADER = """# The Python API

All public names of `bert_tf`, made from the docstrings by `python docs/make_api.py`: change them there.
Only these names are promised: the modules that they come from may move.
"""
SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises")
OF_KERAS = {"build", "compute_loss", "get_config", "from_config"}  # overridden, with Keras' meaning
_WIDTH = 98

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def parsed(module: str) -> ast.Module:
    """The syntax tree of `bert_tf.<module>`."""
    path = ROOT / "bert_tf" / f"{module.replace('.', '/')}.py"
    return ast.parse(path.read_text(encoding="utf-8"))


def public_names() -> dict[str, str]:
    """Public name -> its module, as `bert_tf/__init__.py` lists them."""
    root = ast.parse((ROOT / "bert_tf" / "__init__.py").read_text(encoding="utf-8"))
    (modules,) = (
        ast.literal_eval(node.value)
        for node in root.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_NAMES"
    )
    return {name: module for module, names in modules.items() for name in names.split()}


def page() -> str:
    """The text of docs/api.md."""
    names = public_names()
    return HEADER + "".join(name_text(name, module) for name, module in names.items())


def name_text(name: str, module: str) -> str:
    """The section of one class or function."""
    tree = parsed(module)
    found = {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, *FUNCTIONS))}
    node = found[name]
    made = isinstance(node, ast.ClassDef)
    code = _constructor(node, tree) if made else _signature(node)
    summary, entries, examples = _docstring_parts(node)
    parts = [f"\n## {name}\n\n{_code(code)}\n{_wrap(summary)}"]
    parts += ["\n" + _code(example) for example in examples]
    if entries:
        parts.append("\n" + "".join(_wrap(entry, "- ") for entry in entries))
    methods = list(_methods(node)) if made else []
    if methods and not entries:
        parts.append("\n")
    for method in methods:
        summary, entries, examples = _docstring_parts(method)
        parts.append(_wrap(f"**`{_signature(method)}`**: {summary}", "- "))
        parts += [_wrap(entry, "    - ") for entry in entries]
        parts += [textwrap.indent("\n" + _code(example), "    ") for example in examples]
    return "".join(parts)


def _methods(node: ast.ClassDef) -> Iterator[Function]:
    """Those that a docstring explains."""
    for child in node.body:
        if isinstance(child, FUNCTIONS) and ast.get_docstring(child):
            is_public = child.name == "__call__" or not child.name.startswith("_")
            if is_public and child.name not in OF_KERAS:
                yield child


def _constructor(node: ast.ClassDef, tree: ast.Module) -> str:
    """How an instance is made: by `__init__`, its own or inherited, or by the fields."""
    arguments = _init_arguments(node, tree)
    if arguments is not None:
        return _call(node.name, arguments)
    is_dataclass = any("dataclass" in ast.unparse(item) for item in node.decorator_list)
    is_tuple = any(ast.unparse(base) == "NamedTuple" for base in node.bases)
    if not (is_dataclass or is_tuple):
        return f"class {node.name}"
    fields = [
        f"{ast.unparse(child.target)}: {ast.unparse(child.annotation)}{_default(child.value)}"
        for child in node.body
        if isinstance(child, ast.AnnAssign) and "ClassVar" not in ast.unparse(child.annotation)
    ]
    if any("kw_only=True" in ast.unparse(item) for item in node.decorator_list):
        fields.insert(0, "*")
    return _call(node.name, fields)


def _default(value: ast.expr | None) -> str:
    """` = ...` of a field."""
    if value is None:
        return ""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "field":
        given = {keyword.arg: keyword.value for keyword in value.keywords}
        if "default_factory" in given:
            return f" = {ast.unparse(given['default_factory'])}()"
        return f" = {ast.unparse(given['default'])}" if "default" in given else ""
    return f" = {ast.unparse(value)}"


def _init_arguments(node: ast.ClassDef, tree: ast.Module) -> list[str] | None:
    for child in node.body:
        if isinstance(child, FUNCTIONS) and child.name == "__init__":
            return _arguments(child)[1:]
    for base in map(ast.unparse, node.bases):
        found = _definition(base, tree)
        if found is not None:
            arguments = _init_arguments(*found)
            if arguments is not None:
                return arguments
    return None


def _definition(name: str, tree: ast.Module) -> tuple[ast.ClassDef, ast.Module] | None:
    """Where a base class is defined: in the module, or in one of ours that it imports from."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node, tree
        ours = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bert_tf.")
        if ours and any(alias.name == name for alias in node.names):
            return _definition(name, parsed(node.module.removeprefix("bert_tf.")))
    return None


def _signature(node: Function) -> str:
    decorators = {ast.unparse(item) for item in node.decorator_list}
    returns = ast.unparse(node.returns) if node.returns else "None"
    returns = "" if returns == "None" else f" -> {returns}"
    if decorators & {"property", "cached_property", "functools.cached_property"}:
        return f"{node.name}{returns.replace(' -> ', ': ')}"
    arguments = _arguments(node)
    if arguments and arguments[0] in ("self", "cls"):
        arguments = arguments[1:]
    return _call(node.name, arguments, returns)


def _arguments(node: Function) -> list[str]:
    """Each argument with its type and default, the bare `*` among them."""
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + given.defaults
    found = [_argument(*pair) for pair in zip(positional, defaults, strict=True)]
    if given.vararg or given.kwonlyargs:
        found.append(f"*{_argument(given.vararg)}" if given.vararg else "*")
    pairs = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    found += [_argument(*pair) for pair in pairs]
    return [*found, f"**{_argument(given.kwarg)}"] if given.kwarg else found


def _argument(argument: ast.arg, default: ast.expr | None = None) -> str:
    text = ast.unparse(argument)
    if default is None:
        return text
    return f"{text}{' = ' if argument.annotation else '='}{ast.unparse(default)}"


def _call(name: str, arguments: list[str], returns: str = "") -> str:
    return f"{name}({', '.join(arguments)}){returns}"


def _code(text: str) -> str:
    if not text.startswith(">>> "):
        text = text.replace(" ", "\xa0").replace(",\xa0", ", ")  # an argument stays on its line
        options = {"break_long_words": False, "break_on_hyphens": False}
        text = textwrap.fill(text, _WIDTH, subsequent_indent="    ", **options)
        text = text.replace("\xa0", " ")
    return f"```python\n{text}\n```\n"


def _wrap(text: str, bullet: str = "") -> str:
    """The text in lines; `bullet` is in front of the first."""
    spaces = " " * len(bullet)
    options = {"break_long_words": False, "break_on_hyphens": False}
    lines = textwrap.wrap(text, _WIDTH, initial_indent=bullet, subsequent_indent=spaces, **options)
    return "\n".join(lines) + "\n"


def _docstring_parts(node: ast.ClassDef | Function) -> tuple[str, list[str], list[str]]:
    """The first paragraph of a docstring, the entries of its sections, and its examples."""
    blocks = inspect.cleandoc(ast.get_docstring(node, clean=False)).split("\n\n")
    entries: list[str] = []
    examples: list[str] = []
    for block in blocks[1:]:
        head, _, body = block.partition("\n")
        section = head.removesuffix(":")
        if block.startswith(">>> "):
            examples.append(block)
        elif section in SECTIONS and head.endswith(":"):
            word = "" if section in ("Args", "Attributes") else f"{section} "
            entries += [word + entry for entry in _entries(textwrap.dedent(body))]
        elif re.match(r"(Inputs|Outputs|Shapes): ", block):
            entries.append(_escaped(" ".join(block.split())))
    return _escaped(" ".join(blocks[0].split())), entries, examples


def _entries(body: str) -> list[str]:
    """`name: text` with deeper continuation lines, or other text as one entry."""
    entries: list[str] = []
    for line in body.splitlines():
        continues = line.startswith(" ")
        entry = re.match(r"([*\w][\w*, ./]*): (.*)", line)
        if not continues and entry and not entry[1].endswith("."):
            entries.append(f"`{entry[1]}`: {_escaped(entry[2])}")
        elif entries:
            entries[-1] += f" {_escaped(line.strip())}"
        else:
            entries.append(_escaped(line))
    return entries


def _escaped(text: str) -> str:
    """With `<` and `*` as letters, but for what stands in backquotes."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else part.replace("<", "&lt;").replace("*", "\\*")
        for part in parts
    )


if __name__ == "__main__":
    (ROOT / "docs" / "api.md").write_text(page(), encoding="utf-8")
