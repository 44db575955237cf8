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

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import tensorflow as tf

from bert_tf.data.encodings import wide_encoding
from bert_tf.data.lines import read_lines
from bert_tf.data.streams import BLOCK, compression_of, open_binary
from bert_tf.limits import bounded_lines


class TextRange(NamedTuple):
    """Consecutive lines of a file."""

    file: str
    start: int  # byte of the uncompressed file at which a line begins
    end: int


Group = tuple[TextRange, ...]


def plan_groups(files: Sequence[str], max_group_bytes: int) -> list[Group]:
    """Return the groups of a corpus.

    Args:
        files: plain or gzip.
        max_group_bytes: bytes of uncompressed text. A group exceeds it only by the rest of its last
            document.

    Returns:
        At least one group. Their ranges together are the corpus, in order.

    Raises:
        ValueError: `max_group_bytes` is below 1, or a file begins with the byte order mark of UTF-16 or
            UTF-32.
    """
    if max_group_bytes < 1:
        raise ValueError(f"`max_group_bytes` is {max_group_bytes}, but must be 1 or more.")
    sizes = [_text_size(file) for file in files]
    total = sum(sizes)
    number = -(-total // max_group_bytes) or 1
    cuts = [_next_cut(files, sizes, total * index // number) for index in range(1, number)]
    bounds = sorted({0, *cuts, total})
    return [_ranges(files, sizes, start, end) for start, end in pairwise(bounds)] or [()]


def group_size(group: Group) -> int:
    """Return the bytes of uncompressed text."""
    return sum(part.end - part.start for part in group)


def group_lines(group: Group, errors: str = "strict") -> Iterator[str]:
    """Yield the lines of a group, stripped as in the reference. An empty line ends a document.

    Args:
        group: of `plan_groups`.
        errors: as in `lines.read_lines`.
    """
    for part in group:
        for line in read_lines(part.file, errors, start=part.start, end=part.end):
            # The reference uses TensorFlow's line reader, which drops every carriage return.
            yield line.replace("\r", "").strip()


def _text_size(file: str) -> int:
    """Return the bytes of a file, uncompressed.

    Raises:
        ValueError: it is not UTF-8 by its byte order mark, so that its lines do not end at b"\\n".
    """
    compressed = compression_of(file)
    with open_binary(file) as stream:
        if encoding := wide_encoding(stream):
            cat = "zcat" if compressed else "cat"
            raise ValueError(
                f"{file} is {encoding.upper()}, as its byte order mark shows, but a corpus must be "
                f"UTF-8. Convert it: {cat} {file} | iconv -f {encoding} -t utf8 > utf8.txt"
            )
        if not compressed:
            return tf.io.gfile.stat(file).length
        return sum(map(len, iter(lambda: stream.read(BLOCK), b"")))


def _next_cut(files: Sequence[str], sizes: Sequence[int], target: int) -> int:
    """Return the end of the first empty line that begins after byte `target` of the corpus."""
    before = 0
    for file, size in zip(files, sizes, strict=True):
        if before + size > target:
            offset = max(0, target - before)
            with open_binary(file) as stream:
                stream.seek(offset)
                lines = bounded_lines(stream, f"{file} from byte {offset}")
                if offset:
                    offset += len(next(lines, b""))  # perhaps only the end of a line
                for line in lines:
                    offset += len(line)
                    if not line.decode("utf-8", "replace").strip():
                        return before + offset
        before += size
    return before


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
