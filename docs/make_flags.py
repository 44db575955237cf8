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
`--verbosity` and `--flagfile`. The first table has the flags that at least three scripts share. There,
trainings are run_pretraining and the fine-tunings: run_classifier, run_squad, run_ner, run_swag,
run_embeddings and run_reranker.
"""
FINE_TUNINGS = frozenset(
    f"run_{name}" for name in ("classifier", "squad", "ner", "swag", "embeddings", "reranker")
)
TRAININGS = FINE_TUNINGS | {"run_pretraining"}


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
    from bert_tf.options import flags_of  # found when the root is on the path

    rows = {
        script: [
            _row(flag)
            for flag in sorted(
                flags_of(options_class).values(),
                key=lambda flag: flag.default is not dataclasses.MISSING,
            )
            if flag.type is not tuple
        ]
        for script, options_class in option_classes().items()
    }
    scripts: dict[tuple[str, str, str], list[str]] = {}
    for script, own in rows.items():
        for row in own:
            scripts.setdefault(row, []).append(script)
    shared = {row: names for row, names in scripts.items() if len(names) >= 3}
    parts = [HEADER, "\n## Shared flags\n\n| flag | default | | scripts |\n|---|---|---|---|\n"]
    for row, names in sorted(shared.items(), key=lambda item: (-len(item[1]), item[1])):
        parts.append(f"| {' | '.join(row)} | {_summarize(names)} |\n")
    for script, own in rows.items():
        parts.append(f"\n## {script}\n\n| flag | default | |\n|---|---|---|\n")
        parts += [f"| {' | '.join(row)} |\n" for row in own if row not in shared]
    return "".join(parts)


def _row(flag: dataclasses.Field) -> tuple[str, str, str]:
    """The flag, its default and its meaning."""
    from bert_tf.options import valid_range

    text = flag.metadata["help"]
    if "choices" in flag.metadata:
        text += f" One of {', '.join(f'`{choice}`' for choice in flag.metadata['choices'])}."
    if limits := valid_range(flag.metadata):
        text += f" Must be {limits}."
    return f"`--{flag.name}`", _shown(flag.default), _escaped(text)


def _summarize(scripts: list[str]) -> str:
    """The scripts, with the trainings or the fine-tunings in a word."""
    for word, group in (("trainings", TRAININGS), ("fine-tunings", FINE_TUNINGS)):
        if group <= set(scripts):
            return ", ".join([word, *(name for name in scripts if name not in group)])
    return ", ".join(scripts)


def with_removed_flags(text: str) -> str:
    """The text of docs/migration.md with the table of removed flags between its two markers."""
    from bert_tf.removed_flags import REMOVED

    before, begin, rest = text.partition("<!-- flags: begin, by docs/make_flags.py -->\n")
    rows = "".join(
        f"| `--{name}` | {_escaped(instead)} |\n" for name, instead in sorted(REMOVED.items())
    )
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
