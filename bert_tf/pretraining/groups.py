"""A corpus of any size as groups of documents, each of which fits into memory.

A corpus is text files with one sentence per line and an empty line between documents. The end of a
file does not end a document, as in the reference. A corpus of at most `max_group_bytes` is one group.
A larger one is cut at ends of documents into groups of about the same size. The groups depend only on
the files and on that number.

    a.txt                    b.txt
    ├──────────────┬─────────┼────┬──────────────┤
      group 0        group 1        group 2
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import BinaryIO, NamedTuple

import tensorflow as tf

from bert_tf.files import BLOCK, detect_compression, open_binary, read_lines
from bert_tf.limits import DataError

logger = logging.getLogger(__name__)


class TextRange(NamedTuple):
    """Consecutive lines of a file."""

    file: str
    start: int  # byte of the uncompressed file at which a line begins
    end: int


Group = tuple[TextRange, ...]


def plan_groups(files: Sequence[str], max_group_bytes: int) -> list[Group]:
    """Return the groups of a corpus of plain or gzip files: at least one.

    Their ranges together are the corpus, in order. A group exceeds `max_group_bytes` of uncompressed
    text only by the rest of its last document.

    Raises:
        ValueError: a file is WikiExtractor's output.
    """
    sizes = [_text_size(file) for file in files]
    total = sum(sizes)
    number = -(-total // max_group_bytes) or 1
    cuts = _find_cuts(files, sizes, [total * index // number for index in range(1, number)])
    bounds = sorted({0, *cuts, total})
    return [_ranges(files, sizes, start, end) for start, end in pairwise(bounds)] or [()]


def group_size(group: Group) -> int:
    """Return the bytes of uncompressed text."""
    return sum(part.end - part.start for part in group)


def group_lines(group: Group) -> Iterator[str]:
    """Yield the lines of a group, stripped as in the reference. An empty line ends a document."""
    for part in group:
        for line in read_lines(part.file, start=part.start, end=part.end):
            # The reference uses TensorFlow's line reader, which drops every carriage return.
            yield line.replace("\r", "").strip()


def _text_size(file: str) -> int:
    """Return the bytes of a file, uncompressed, whose beginning is checked."""
    with open_binary(file) as stream:
        if stream.peek(5).startswith(b"<doc "):
            raise DataError(file, "WikiExtractor's output: use examples/prepare_corpus.py.")
        if not detect_compression(file):
            return tf.io.gfile.stat(file).length
        stream.seek(0)
        return sum(map(len, iter(lambda: stream.read(BLOCK), b"")))


def _find_cuts(files: Sequence[str], sizes: Sequence[int], targets: Sequence[int]) -> set[int]:
    """Return the ends of the first empty lines that begin after these bytes of the corpus, or its end.

    One pass over the files finds all of them.

    Args:
        targets: ascending.
    """
    cuts: set[int] = set()
    left = deque(targets)
    before = 0
    for file, size in zip(files, sizes, strict=True):
        if left and left[0] < before + size:
            with open_binary(file) as stream:
                cuts |= {before + cut for cut in _cuts_in_file(stream, file, before, size, left)}
        before += size
    return cuts | {before} if left else cuts


def _cuts_in_file(
    stream: BinaryIO, file: str, before: int, size: int, left: deque[int]
) -> Iterator[int]:
    """Yield the ends of empty lines of one file, and remove the targets from `left` that they end."""
    offset = 0  # at which the next line begins
    while left and left[0] < before + size:
        target = left[0] - before
        skips = target > 0 and target >= offset
        if skips:
            stream.seek(target)
            offset = target
        lines = iter(stream)
        if skips:
            offset += len(next(lines, b""))  # perhaps only the end of a line
        for line in lines:
            start, offset = offset, offset + len(line)
            if not line.decode("utf-8", "replace").strip():
                break
        else:
            return
        yield offset
        while left and (left[0] <= before or left[0] < before + start):
            left.popleft()


def _ranges(files: Sequence[str], sizes: Sequence[int], start: int, end: int) -> Group:
    """Return the part of the corpus from byte `start` to byte `end`."""
    result = []
    before = 0
    for file, size in zip(files, sizes, strict=True):
        first, last = max(0, start - before), min(size, end - before)
        if first < last:
            result.append(TextRange(file, first, last))
        before += size
    return tuple(result)
