"""Unknown names of keys, columns and arguments: typos, and the nearest known name."""

from __future__ import annotations

import difflib
import inspect
import itertools
from collections.abc import Callable, Iterable

LONGEST_NAME = 100  # comparing takes time and memory
_MOST_KNOWN = 2000  # names among which one is suggested
_TYPO = 0.85  # similarity to a known name, by difflib, from which a name is a typo


def is_typo(name: str, known: Iterable[str]) -> bool:
    """Return True if a name is very similar to a known one."""
    name = name[:LONGEST_NAME].casefold()
    return bool(difflib.get_close_matches(name, list(known), n=1, cutoff=_TYPO))


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name, with the nearest known one in any case."""
    some = itertools.islice((each for each in known if len(each) < 2 * LONGEST_NAME), _MOST_KNOWN)
    by_case = {each.casefold(): each for each in some}
    close = difflib.get_close_matches(name[:LONGEST_NAME].casefold(), list(by_case), n=1)
    return f'; did you mean "{by_case[close[0]]}"?' if close else "."


def check_names(
    function: str, names: Iterable[str], target: Callable, hint: str | None = None
) -> None:
    """Raise TypeError if `target` has neither a parameter of one of the names nor `**kwargs`.

    Args:
        function: its name in the message.
        hint: end of the message for users of Hugging Face's function. Default: the nearest parameter
            of the first unknown name.
    """
    known = inspect.signature(target).parameters
    unknown = [name for name in names if name not in known]
    if not unknown or any(each.kind is each.VAR_KEYWORD for each in known.values()):
        return
    if hint is None:
        name = unknown[0]
        raise TypeError(f"{function}() has no argument {name!r}{suggestion(name, known)}")
    raise TypeError(
        f"{function}() has no argument {', '.join(map(repr, unknown))}. {hint} docs/migration.md maps "
        "the arguments of Hugging Face."
    )
