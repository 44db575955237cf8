"""Errors that name their file, JSON files, and names in messages."""

from __future__ import annotations

import difflib
import itertools
import json
import os
import re
from collections.abc import Collection, Iterable
from typing import Any

_MAX_BYTES = 1 << 30  # of JSON and vocabularies; n-best answers to SQuAD 2.0 have 600 MB


class DataError(ValueError):
    """A file has content that cannot be used. `location` is "file:line" or "file"."""

    def __init__(self, location: str, text: str) -> None:
        super().__init__(location, text)  # `args`, from which pickle makes it again
        self.location = location

    def __str__(self) -> str:
        return ": ".join(self.args)


def read_whole(path: str | os.PathLike) -> bytes:
    name, open_file = os.fspath(path), open
    if "://" in name:
        import tensorflow as tf  # a local tokenizer needs none

        open_file = tf.io.gfile.GFile
    with open_file(name, "rb") as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise DataError(name, "more than 1 GiB, so it is no such file.")
    return data


def read_json(path: str | os.PathLike, kind: type = dict) -> Any:
    """Read a JSON object, or a list with `kind`, local or remote. Errors name the file."""
    try:
        values = json.loads(read_whole(path).decode("utf-8-sig"))
        problem = f"has a {type(values).__name__}, but must have a {kind.__name__}."
    except (ValueError, RecursionError) as error:
        values, problem = None, f"not JSON in UTF-8: {error}"
    if not isinstance(values, kind):
        raise DataError(os.fspath(path), problem)
    return values


def join_names(names: Collection[str], max_names: int = 20) -> str:
    """Join the first names for a message, each shortened, and give their number if there are more.

    >>> join_names(["a", "b", "c"], max_names=2)
    'a, b, ... (3 in all)'
    """
    first = [name[:60] for name in itertools.islice(names, max_names)]
    text = ", ".join(first)
    return text if len(names) <= max_names else f"{text}, ... ({len(names):,} in all)"


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name, with the nearest known one in any case."""
    by_case = {candidate.casefold(): candidate for candidate in known}
    close = difflib.get_close_matches(name.casefold(), list(by_case), n=1)
    return f'; did you mean "{by_case[close[0]]}"?' if close else "."


def check_inside(name: str, kind: str, source: str) -> None:
    """Raise unless a name in the file `source`, of a "file" or "folder", stays in its folder."""
    if os.path.isabs(name) or ".." in re.split(r"[/\\]", name) or "\0" in name:
        raise DataError(source, f"names the {kind} {name!r}, which is outside of its own folder.")
