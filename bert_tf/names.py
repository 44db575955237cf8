"""The nearest known name, for messages about an unknown one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name, with the nearest known one in any case."""
    by_case = {each.casefold(): each for each in known}
    close = difflib.get_close_matches(name.casefold(), list(by_case), n=1)
    return f'; did you mean "{by_case[close[0]]}"?' if close else "."
