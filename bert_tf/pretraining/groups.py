"""A corpus of any size as groups of documents, each of which fits into memory.

A corpus is text files with one sentence per line and an empty line between documents. The end of a
file does not end a document, as in the reference. A corpus of more than `max_group_bytes` is cut at ends
of documents into groups of about the same size, which depend only on the files and on that number.

    a.txt                    b.txt
    ├──────────────┬─────────┼────┬──────────────┤
      group 0        group 1        group 2
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import BinaryIO, NamedTuple

import tensorflow as tf

from bert_tf.files import BLOCK, detect_compression, open_binary, read_lines


class TextRange(NamedTuple):
    file: str
    start: int  # byte of the uncompressed file at which a line begins
    end: int


Group = tuple[TextRange, ...]


def plan_groups(files: Sequence[str], max_group_bytes: int) -> list[Group]:
    """Return the groups of a corpus of plain or gzip files: at least one.

    Their ranges together are the corpus, in order. A group exceeds `max_group_bytes` of uncompressed
    text only by the rest of its last document.
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
    """Return the bytes of a file, uncompressed."""
    if not detect_compression(file):
        return tf.io.gfile.stat(file).length
    with open_binary(file) as stream:
        return sum(map(len, iter(lambda: stream.read(BLOCK), b"")))


def _find_cuts(files: Sequence[str], sizes: Sequence[int], targets: Sequence[int]) -> set[int]:
    """Return the ends of the first empty lines after each of `targets` (ascending), or of the corpus."""
    cuts: set[int] = set()
    remaining = deque(targets)
    before = 0  # bytes of the files before this one
    for file, size in zip(files, sizes, strict=True):
        if remaining and remaining[0] < before + size:
            with open_binary(file) as stream:
                while remaining and remaining[0] < before + size:
                    start, end = _next_empty_line(stream, remaining[0] - before)
                    if end is None:
                        break
                    cuts.add(before + end)
                    while remaining and remaining[0] < before + max(start, 1):
                        remaining.popleft()
        before += size
    return cuts | {before} if remaining else cuts


def _next_empty_line(stream: BinaryIO, target: int) -> tuple[int, int | None]:
    """Return start and end of the first empty line that begins after `target` and the position."""
    if 0 < target >= stream.tell():
        stream.seek(target)
        stream.readline()  # perhaps only the end of a line
    end = stream.tell()
    for line in stream:
        start, end = end, end + len(line)
        if not line.decode("utf-8", "replace").strip():
            return start, end
    return end, None


def _ranges(files: Sequence[str], sizes: Sequence[int], start: int, end: int) -> Group:
    """Return the part of the corpus from byte `start` to byte `end`."""
    ranges = []
    before = 0
    for file, size in zip(files, sizes, strict=True):
        first, last = max(0, start - before), min(size, end - before)
        if first < last:
            ranges.append(TextRange(file, first, last))
        before += size
    return tuple(ranges)
