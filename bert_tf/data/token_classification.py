"""Reader of labelled words in CoNLL columns, and writer of the same files with other labels.

    -DOCSTART- -X- -X- O          a new document begins (optional)

    EU NNP B-NP B-ORG             a line per word: the word first, its label last
    rejects VBZ B-VP O

    Peter NNP B-NP B-PER          an empty line after each sentence

Tabs separate columns, or spaces if the first row has no tab. A line that begins with "#" and has fewer
columns than the rows is a comment, as in CoNLL-U and GermEval. Rows of CoNLL-U that are not words (1-2
for several words, 1.1 for an omitted one) are skipped if the word is not in the first column. Files are
read as in files.py. Errors contain file:line and the row.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from bert_tf.data.label_schemes import is_entity_label
from bert_tf.files import read_lines
from bert_tf.limits import DataError

logger = logging.getLogger(__name__)

DOCSTART = "-DOCSTART-"
_NOT_A_WORD = re.compile(r"\d+[-.]\d+\t([^\t]*\t){8}[^\t]*")  # of CoNLL-U's ten columns


@dataclass(frozen=True)
class Sentence:
    """Labelled words and their places in a file."""

    words: tuple[str, ...]  # one or more
    labels: tuple[str, ...] | None  # one per word; None if unknown
    document: int  # number of -DOCSTART- lines before it
    file: str
    lines: Sequence[int]  # one per word, from 1; () without a file

    def location(self, index: int) -> str:
        """Return "file:line" of a word, for messages; without a file its number in the sentence."""
        if not self.lines:
            return f"Word {index + 1} of {' '.join(self.words)[:60]!r}"
        return f"{self.file}:{self.lines[index]}"


@dataclass(frozen=True)
class ConllColumns:
    """Column layout of a file, counted from 1."""

    word: int = 1  # column of the word
    label: int | None = None  # column of the label; None means the last
    labelled: bool = False  # a file without labels, of one column, is an error

    def label_index(self, num_columns: int) -> int | None:
        """Return the index of the label in a row, from 0; None for a file without labels."""
        if num_columns == 1:
            return None
        return num_columns - 1 if self.label is None else self.label - 1


def read_conll(
    path: str, columns: ConllColumns = ConllColumns(), word_labels: bool = False
) -> list[Sentence]:
    """Return the sentences of a file.

    Args:
        word_labels: True for labels of any form, False for those of entities.

    Raises:
        ValueError: a row or a label is invalid, or the file is empty.
    """
    sentences: list[Sentence] = []
    rows: dict[int, list[str]] = {}  # of a sentence, by their lines
    document, num_columns, num_skipped = 0, 0, 0
    for number, row in enumerate(chain(_rows(path, columns), [None]), 1):
        if isinstance(row, str):
            num_skipped += 1
            continue
        cells = [] if row is None else row[::2]
        if not cells or cells[0] == DOCSTART:
            if rows:
                sentences.append(_sentence(rows, columns, word_labels, document, path))
                rows = {}
            document += bool(cells)
            continue
        if not num_columns:
            num_columns = len(cells)
            _check_columns(columns, num_columns, f"{path}:{number}")
        if len(cells) != num_columns:
            problem = f"found {len(cells)} columns, but the first row has {num_columns}."
            raise DataError(f"{path}:{number}", problem)
        rows[number] = cells
    if num_skipped:
        logger.info("%s: %d comments and rows that are no words were skipped", path, num_skipped)
    if not sentences:
        raise DataError(path, "it contains no word.")
    return sentences


def relabel_lines(
    path: str, labels: Iterable[str], columns: ConllColumns, gold: Iterable[str] | None = None
) -> Iterator[str]:
    """Yield the lines of a file that `read_conll` has read, with other labels.

    Args:
        labels: one for each word of the file, in order.
        gold: the file's labels as they were read. Add a column of `labels` to them and leave out
            -DOCSTART- and comments, as input of conlleval. Default: `labels` replace the file's. A file
            without labels always gets a new column.
    """
    labels, true_labels = iter(labels), iter(gold or ())
    for row in _rows(path, columns):
        if row is None:
            yield ""
        elif isinstance(row, str) or row[0] == DOCSTART:
            if gold is None:
                yield "".join(row)
        else:
            target = columns.label_index(len(row[::2]))
            if target is not None:
                row[2 * target] = next(labels if gold is None else true_labels)
            if target is None or gold is not None:
                row += [row[1] if len(row) > 1 else "\t", next(labels)]
            yield "".join(row)


def _rows(path: str, columns: ConllColumns) -> Iterator[list[str] | str | None]:
    """Yield each line's columns with the separators between them.

    An empty line is None. A comment, and a row of CoNLL-U that is not a word, is a string.
    """
    rows = (line for line in read_lines(path) if line.strip(" \t") and line[0] != "#")
    first = next((line for line in rows if not line.startswith(DOCSTART)), "")
    split = re.compile("(\t)" if "\t" in first else "( +)").split
    num_columns = len(split(first.rstrip(" \t"))[::2])
    for line in read_lines(path):
        row = split(line.rstrip(" \t"))
        if not line.strip(" \t"):
            yield None
        elif line.startswith(DOCSTART):  # its columns may be separated otherwise than the words'
            yield re.split("([ \t]+)", line.rstrip(" \t"))
        elif (line[0] == "#" and len(row[::2]) < num_columns) or (
            columns.word > 1 and _NOT_A_WORD.fullmatch(line)
        ):
            yield line
        else:
            yield row


def _check_columns(columns: ConllColumns, num_columns: int, location: str) -> None:
    label = columns.label_index(num_columns)
    if label is None and columns.labelled:
        label = 1
    for flag, index in (("word_column", columns.word - 1), ("label_column", label)):
        if index is not None and not 0 <= index < num_columns:
            raise DataError(location, f"found {num_columns} columns, but --{flag} is {index + 1}.")


def _sentence(
    rows: dict[int, list[str]], columns: ConllColumns, word_labels: bool, document: int, path: str
) -> Sentence:
    index = columns.label_index(len(next(iter(rows.values()))))
    words = tuple(row[columns.word - 1] for row in rows.values())
    for number, row in rows.items():
        location = f"{path}:{number}"
        if not row[columns.word - 1] or (index is not None and not row[index]):
            raise DataError(location, f"a word or its label is missing in {row!r:.60}.")
        if not (index is None or word_labels or is_entity_label(row[index])):
            remedy = "Labels of words need --label_scheme=words."
            raise DataError(location, f"{row[index]!r} is not like B-PER or O. {remedy}")
    labels = None if index is None else tuple(row[index] for row in rows.values())
    return Sentence(words, labels, document, path, tuple(rows))
