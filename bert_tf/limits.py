"""Limits on untrusted files: a hostile or damaged file is rejected before it fills the memory.

All readers use these. Real files are far below every limit. The whole size of text and records is
unlimited where they are read line by line or record by record.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

MEBIBYTE = 1 << 20
MAX_WHOLE_FILE = 64 * MEBIBYTE  # configurations, vocabularies; the largest known tokenizer has 33
MAX_DOCUMENT = 1024 * MEBIBYTE  # JSON of questions or answers; SQuAD 2.0 has 40, its n-best 600
MAX_DOCUMENT_CONTAINERS = 20_000_000  # lists and objects in it; SQuAD 2.0 has 0.4 million
MAX_LINE = 64 * MEBIBYTE  # of text, or a row of a table; whole books have 5
MAX_CONTAINERS = 1_000_000  # lists and objects in a JSON file or line; 30 times their bytes
MAX_COMMAS = 20_000_000  # in a JSON file or line; SQuAD 2.0 has 0.8 million, its n-best 14
MAX_COLUMNS = 1_000_000  # in a row
MAX_TOKENS = 4_000_000  # of a vocabulary; the largest known one has 1,000,000
MAX_RECORD = 64 * MEBIBYTE  # 16 choices of 512 tokens have 0.1; hidden states of 24 layers 50
MAX_TENSOR_HEADER = 16 * MEBIBYTE  # of a safetensors file; BERT-Large has 0.05
MAX_LAYERS = 1_000
MAX_BILSTM_UNITS = 1 << 12  # the paper's have 768
MAX_TASK_NUMBER = 1 << 16  # a whole number in task.json, such as max_seq_length
MAX_MEMORY = 0.9  # of the machine, while text is read; then the system would end the process
MAX_PARAMETERS = 20_000_000_000  # the largest known BERT has 4 billion
# Text in gzip is 3 to 30 times smaller, records with much padding up to 100 times. A bomb is 1,000.
MAX_GZIP_RATIO = 200
GZIP_ALLOWANCE = 4 * MEBIBYTE  # decompressed bytes without a limit on the ratio

_CGROUP_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)
ORIGIN = "a limit of bert_tf/limits.py"


def read_whole(path: str | os.PathLike, most: int = MAX_WHOLE_FILE) -> bytes:
    """Return the bytes of a file, local or remote (`tf.io.gfile`).

    Raises:
        ValueError: it has more than `most` bytes.
    """
    name = os.fspath(path)
    if "://" in name:
        with import_module("tensorflow").io.gfile.GFile(name, "rb") as file:
            return read_at_most(file, name, most)
    with open(name, "rb") as file:
        return read_at_most(file, name, most)


def read_at_most(stream: Any, name: str, most: int) -> bytes:
    """Return the rest of a binary stream.

    Args:
        name: of the file, for messages.

    Raises:
        ValueError: the rest has more than `most` bytes.
    """
    blocks, size = [], 0
    while block := stream.read(MEBIBYTE):
        size += len(block)
        check_size(size, name, most)
        blocks.append(block)
    return b"".join(blocks)


def check_size(size: int, name: str, most: int) -> None:
    """Raise unless the part of a file that was read has at most `most` bytes."""
    if size > most:
        raise ValueError(
            f"{name} has more than {most:,} bytes, {ORIGIN} for files that are read whole. It is "
            "damaged or has another format. Name another file, or split it."
        )


def bounded_lines(stream: Any, name: str) -> Iterator[Any]:
    """Yield the lines of a stream, binary or text, with their ends.

    Raises:
        ValueError: a line is longer than `MAX_LINE`, or the lines that were kept fill the memory.
    """
    lines = iter(partial(stream.readline, MAX_LINE + 1), stream.read(0))
    unchecked = 0
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE:
            raise ValueError(
                f"{name}:{number}: a line has more than {MAX_LINE:,} bytes, {ORIGIN}. It begins "
                f"{line[:60]!r}. The file is damaged, or needs line ends."
            )
        unchecked += len(line)
        if unchecked > MAX_LINE:
            unchecked = 0
            _check_memory(f"{name}:{number}")
        yield line


def _check_memory(place: str) -> None:
    used, memory = _used_bytes(), host_bytes()
    if used > MAX_MEMORY * memory:
        raise ValueError(
            f"{place}: with what was read so far, the process has {used / 2**30:.1f} of the machine's "
            f"{memory / 2**30:.1f} GiB of memory, but at most {MAX_MEMORY:.0%} are allowed, {ORIGIN}. A "
            "training keeps its tables in memory. Use fewer rows, or more memory."
        )


def host_bytes() -> int:
    """Return the memory of the machine, or of its container."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in filter(Path.exists, map(Path, _CGROUP_LIMITS)):
        limit = path.read_text().strip()
        found += [int(limit)] if limit.isdecimal() else []  # otherwise "max"
    return min(found)


def _used_bytes() -> int:
    """Return the memory of the process without pages of files, 0 if it is unknown."""
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("RssAnon:"):
                return 1024 * int(line.split()[1])
    return 0


def parse_json(text: str, most: int = MAX_CONTAINERS, unique_keys: bool = False) -> Any:
    """Return `json.loads(text)`.

    Args:
        unique_keys: True if a key may occur only once in an object. Python keeps its last value.

    Raises:
        JSONDecodeError: invalid JSON, a key twice, deep nesting, very long numbers, more than `most`
            lists and objects, or more than `MAX_COMMAS` commas (those in strings are counted as well).
    """
    containers = text.count("[") + text.count("{")
    commas = text.count(",")  # a list of numbers takes 20 times its bytes
    for number, what, limit in (
        (containers, "lists or objects", most),
        (commas, "commas", MAX_COMMAS),
    ):
        if number > limit:
            message = f"found {number:,} {what}, but at most {limit:,} are allowed, {ORIGIN}"
            raise json.JSONDecodeError(message, text, 0)
    try:
        return json.loads(text, object_pairs_hook=_with_unique_keys if unique_keys else None)
    except RecursionError as error:
        message = "lists or objects are nested too deeply for Python's parser"
        raise json.JSONDecodeError(message, text, 0) from error
    except json.JSONDecodeError:
        raise
    except ValueError as error:  # a key twice, or a number with more digits than Python converts
        raise json.JSONDecodeError(str(error), text, 0) from error


def _with_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(
                f"the key {key[:60]!r} occurs twice, so one of its values would be lost"
            )
        values[key] = value
    return values


def listed(names: Collection[str], most: int = 20) -> str:
    """Return the first names for a message, each shortened, and their number if there are more.

    Names with spaces around them have quotation marks.

    >>> listed(["a", "b", "c"], most=2)
    'a, b, ... (3 in all)'
    >>> listed(["query ", " positive"])
    "'query ', ' positive'"
    """
    some = [name[:60] for name in itertools.islice(names, most)]
    shown = ", ".join(name if name == name.strip() else repr(name) for name in some)
    return shown if len(names) <= most else f"{shown}, ... ({len(names):,} in all)"


def check_unicode(texts: Iterable[Any], what: str, source: str) -> None:
    """Raise if a text has half of a surrogate pair, such as "\\ud800" in JSON.

    Such a text cannot be written or passed to TensorFlow, because UTF-8 has no bytes for it.

    Args:
        texts: values of other types are ignored.
        what: "token" or "label".
        source: the file that contains the texts.
    """
    for text in texts:
        try:
            str(text).encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{source}: the {what} {text[:60]!r} contains half of a surrogate pair, "
                f"{text[error.start]!r}, which is not a character. Correct the file, or get it again."
            ) from error


def check_inside(name: str, what: str, source: str) -> None:
    """Raise unless a name in a file is a relative path that does not leave the file's folder.

    Args:
        what: "file" or "folder".
        source: the file that contains the name.
    """
    if os.path.isabs(name) or ".." in re.split(r"[/\\]", name) or "\0" in name:
        raise ValueError(
            f"{source} names the {what} {name!r}, but what belongs to it must be in its own folder. It "
            "is damaged or not trustworthy; get it again."
        )
