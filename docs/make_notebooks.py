"""Make examples/*.ipynb from the scripts in the same folder, whose cells begin with "# %%".

python docs/make_notebooks.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "examples"
_CELL = re.compile(r"^# %%( \[markdown\])?\n", re.M)


def notebook(script: str) -> str:
    """Return the JSON of a notebook without outputs.

    >>> cells = json.loads(notebook("# %% [markdown]\\n# # A title\\n\\n# %%\\nprint(1)\\n"))["cells"]
    >>> [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    [('markdown', '# A title'), ('code', 'print(1)')]
    """
    cells = []
    _, *parts = _CELL.split(script)
    for number, (kind, text) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
        lines = text.strip().splitlines(keepends=True)
        cell = {"id": f"cell-{number}", "metadata": {}, "source": lines}
        if kind:
            lines[:] = [line.removeprefix("#").removeprefix(" ") for line in lines]
            cells.append({"cell_type": "markdown", **cell})
        else:
            cells.append({"cell_type": "code", "execution_count": None, "outputs": [], **cell})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    values = {
        "cells": cells,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(values, indent=1, ensure_ascii=False) + "\n"


def notebooks() -> dict[str, str]:
    """Return name -> content of each notebook."""
    scripts = {path: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.py"))}
    return {f"{p.stem}.ipynb": notebook(text) for p, text in scripts.items() if _CELL.match(text)}


if __name__ == "__main__":
    for name, content in notebooks().items():
        (FOLDER / name).write_text(content, encoding="utf-8")
