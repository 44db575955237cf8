"""Third-party files that are read whole, names in messages, and optional packages."""

from __future__ import annotations

import difflib
import itertools
import json
import os
import re
from collections.abc import Collection, Iterable
from importlib import import_module
from typing import Any

MEBIBYTE = 1 << 20
MAX_WHOLE_FILE = 64 * MEBIBYTE  # configurations, vocabularies; the largest known tokenizer has 33
MAX_DOCUMENT = 1024 * MEBIBYTE  # JSON of questions or answers; SQuAD 2.0 has 40, its n-best 600


class DataError(ValueError):
    """A file has content that cannot be used. `location` is "file:line" or "file"."""

    def __init__(self, location: str, text: str) -> None:
        super().__init__(location, text)  # `args`, from which pickle makes it again
        self.location = location

    def __str__(self) -> str:
        return ": ".join(self.args)


def read_whole(path: str | os.PathLike, max_bytes: int = MAX_WHOLE_FILE) -> bytes:
    """Return the bytes of a file, local or remote (`tf.io.gfile`).

    Raises:
        ValueError: it has more than `max_bytes`.
    """
    name = os.fspath(path)
    if "://" in name:
        with import_module("tensorflow").io.gfile.GFile(name, "rb") as file:
            return read_at_most(file, name, max_bytes)
    with open(name, "rb") as file:
        return read_at_most(file, name, max_bytes)


def read_at_most(stream: Any, name: str, max_bytes: int) -> bytes:
    """Return the rest of a binary stream.

    Args:
        name: of the file, for messages.

    Raises:
        ValueError: the rest has more than `max_bytes`.
    """
    blocks, size = [], 0
    while block := stream.read(MEBIBYTE):
        size += len(block)
        if size > max_bytes:
            raise DataError(name, f"more than {max_bytes:,} bytes. Split it, or name another file.")
        blocks.append(block)
    return b"".join(blocks)


def parse_json(text: str, unique_keys: bool = False) -> Any:
    """Return `json.loads(text)`.

    Args:
        unique_keys: True if a key may occur only once in an object. Python keeps its last value.

    Raises:
        JSONDecodeError: invalid JSON, a key twice, deep nesting, or very long numbers.
    """
    try:
        return json.loads(text, object_pairs_hook=_with_unique_keys if unique_keys else None)
    except json.JSONDecodeError:
        raise
    except (RecursionError, ValueError) as error:
        raise json.JSONDecodeError(str(error), text, 0) from error


def _with_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"the key {key[:60]!r} occurs twice")
        values[key] = value
    return values


def read_json(path: str | os.PathLike, max_bytes: int = MAX_WHOLE_FILE, kind: type = dict) -> Any:
    """Read a JSON object, or a list with `kind`, local or remote. Errors name the file."""
    try:
        values = parse_json(read_whole(path, max_bytes).decode("utf-8-sig"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(os.fspath(path), f"not JSON in UTF-8: {error}") from error
    if not isinstance(values, kind):
        raise DataError(os.fspath(path), f"must have a {kind.__name__}, as Python calls it.")
    return values


def join_names(names: Collection[str], most: int = 20) -> str:
    """Return the first names for a message, each shortened, and their number if there are more.

    Names with spaces around them have quotation marks.

    >>> join_names(["a", "b", "c"], most=2)
    'a, b, ... (3 in all)'
    >>> join_names(["query ", " positive"])
    "'query ', ' positive'"
    """
    some = [name[:60] for name in itertools.islice(names, most)]
    shown = ", ".join(name if name == name.strip() else repr(name) for name in some)
    return shown if len(names) <= most else f"{shown}, ... ({len(names):,} in all)"


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name, with the nearest known one in any case."""
    by_case = {each.casefold(): each for each in known}
    close = difflib.get_close_matches(name.casefold(), list(by_case), n=1)
    return f'; did you mean "{by_case[close[0]]}"?' if close else "."


def import_extra(module: str, path: str) -> Any:
    """Return an optional module, which a file or model needs.

    Raises:
        ImportError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = "torch" if module == "torch" else "-e '.[hf]' in the checkout of bert_tf"
        raise ImportError(f"{path} needs {module}: pip install {package}.") from error


def check_inside(name: str, what: str, source: str) -> None:
    """Raise unless a name in a file is a relative path that does not leave the file's folder.

    Args:
        what: "file" or "folder".
        source: the file that contains the name.
    """
    if os.path.isabs(name) or ".." in re.split(r"[/\\]", name) or "\0" in name:
        raise DataError(source, f"names the {what} {name!r}, which is outside of its own folder.")
