"""Text as Markdown, for model cards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any


def table(rows: Iterable[Sequence[str]]) -> str:
    """Return a table of two columns with an empty header."""
    lines = [f"| {name} | {value} |" for name, value in rows]
    return "\n".join(["| | |", "|---|---|", *lines])


def code(value: Any) -> str:
    """Return any text as code, on one line, inside a cell of a table."""
    text = re.sub(r"\s", " ", str(value)).replace("|", "\\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"`{text}`" if fence == "`" else f"{fence} {text} {fence}"


def number(text: str) -> str:
    """Return a whole number as it is, other numbers with six digits, and other text as code."""
    try:
        return text if text.isdigit() else f"{float(text):.6g}"
    except ValueError:
        return code(text)
