"""Writes docs/flags.md: every flag of every script with its meaning, from the code.

python docs/make_flags.py
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = """# Flags

Every flag of every script, made from the code by `python docs/make_flags.py`: change it there.
Booleans are given as `--flag`, `--flag=true` or `--noflag`. Every script also takes `--help`,
`--verbosity` and `--flagfile`.
"""


def option_classes() -> dict[str, type]:
    """Name of a script -> the class that its flags are made from."""
    found = {}
    for script in sorted((ROOT / "run_scripts").glob("*.py")):
        if script.name == "sweep.py":  # runs other scripts
            continue
        tree = ast.parse(script.read_text(encoding="utf-8"))
        modules = {
            alias.name: node.module
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        (name,) = (
            node.args[0].id
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "cli.run"
        )
        found[script.stem] = getattr(importlib.import_module(modules[name]), name)
    return found


def page() -> str:
    """The text of docs/flags.md."""
    from bert_tf.options import flags_of, valid_range  # found when the root is on the path

    parts = [HEADER]
    for script, options_class in option_classes().items():
        parts.append(f"\n## {script}\n\n| flag | default | |\n|---|---|---|\n")
        flags = [f for f in flags_of(options_class).values() if f.type is not tuple]
        for flag in sorted(flags, key=lambda flag: flag.default is not dataclasses.MISSING):
            text = flag.metadata["help"]
            if "choices" in flag.metadata:
                text += (
                    f" One of {', '.join(f'`{choice}`' for choice in flag.metadata['choices'])}."
                )
            if limits := valid_range(flag.metadata):
                text += f" Must be {limits}."
            parts.append(f"| `--{flag.name}` | {_shown(flag.default)} | {_escaped(text)} |\n")
    return "".join(parts)


def with_removed_flags(text: str) -> str:
    """The text of docs/migration.md with the table of removed flags between its two markers."""
    from bert_tf.removed_flags import REMOVED

    before, begin, rest = text.partition("<!-- flags: begin, by docs/make_flags.py -->\n")
    rows = "".join(f"| `--{name}` | {_escaped(instead)} |\n" for name, instead in REMOVED.items())
    _, end, after = rest.partition("<!-- flags: end -->")
    return f"{before}{begin}\n| flag | instead |\n|---|---|\n{rows}\n{end}{after}"


def _shown(default: object) -> str:
    if default is dataclasses.MISSING:
        return "required"
    if default is None:
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    (ROOT / "docs" / "flags.md").write_text(page(), encoding="utf-8")
    migration = ROOT / "docs" / "migration.md"
    migration.write_text(with_removed_flags(migration.read_text("utf-8")), encoding="utf-8")
