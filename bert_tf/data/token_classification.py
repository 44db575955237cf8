"""Reader of labelled words in CoNLL columns, and writer of the same files with other labels.

    -DOCSTART- -X- -X- O          a new document begins (optional)

    EU NNP B-NP B-ORG             a line per word: the word first, its label last
    rejects VBZ B-VP O

    Peter NNP B-NP B-PER          an empty line after each sentence

Tabs separate columns, or spaces if the first row has no tab. Between tabs, a line that begins with "#"
and has no tab is a comment, as in CoNLL-U, and may precede a sentence. Rows of CoNLL-U that are not
words (1-2 for several words, 1.1 for an omitted one) are skipped if the word is not in the first column.
Files are read as in data/lines.py. Errors contain file:line and the row.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from bert_tf.data.label_schemes import WORDS, is_label, marks_entities
from bert_tf.data.lines import read_lines, with_line_feeds
from bert_tf.data.tables import ending_of

logger = logging.getLogger(__name__)

DOCSTART = "-DOCSTART-"
# The longest sentence of CoNLL-2003 has 124 words. A file with one longer sentence has lost its empty
# lines.
_MOST_WORDS_WITHOUT_EMPTY_LINE = 500
_NAMES_OF_WORDS = ("word", "words", "token", "tokens", "form")
_NAMES_OF_LABELS = frozenset(
    ("tag", "tags", "label", "labels", "ner", "ner_tag", "ner_tags", "pos", "upos", "xpos")
)
_BETWEEN = re.compile(r"\d+[-.]\d+")
_NOT_A_WORD = re.compile(_BETWEEN.pattern + r"\t([^\t]*\t){8}[^\t]*")  # of CoNLL-U's ten columns


@dataclass(frozen=True)
class Sentence:
    """Labelled words and their places in a file."""

    words: tuple[str, ...]  # one or more
    labels: tuple[str, ...] | None  # one per word; None if unknown
    document: int  # number of -DOCSTART- lines before it
    file: str
    lines: Sequence[int]  # one per word, from 1; () without a file

    def place(self, index: int) -> str:
        """Return "file:line" of a word, for messages; without a file its number in the sentence."""
        if not self.lines:
            return f"Word {index + 1} of {' '.join(self.words)[:60]!r}"
        return f"{self.file}:{self.lines[index]}"


@dataclass(frozen=True)
class Columns:
    """Column layout of a file, counted from 1."""

    word: int = 1  # column of the word
    label: int | None = None  # column of the label; None means the last
    labelled: bool | None = None  # None means yes if the file has more than one column

    def label_index(self, num_columns: int) -> int | None:
        """Return the index of the label in a row, from 0; None for a file without labels."""
        labelled = num_columns > 1 if self.labelled is None else self.labelled
        if not labelled:
            return None
        return num_columns - 1 if self.label is None else self.label - 1


def read_conll(
    path: str, columns: Columns = Columns(), label_scheme: str = "auto"
) -> list[Sentence]:
    """Return the sentences of a file.

    Args:
        label_scheme: a scheme of entities, or `WORDS` for labels of any form. "auto" accepts any form
            if no label marks an entity.

    Raises:
        ValueError: a row or label is invalid, or the file is empty, or long without an empty line.
    """
    sentences: list[Sentence] = []
    rows: dict[int, list[str]] = {}  # of a sentence, by their lines
    document, num_columns, num_comments, num_not_words = 0, 0, 0, 0
    has_empty_line = False

    def end_sentence() -> None:
        if rows:
            sentences.append(_sentence(rows, columns, num_columns, document, path))
            rows.clear()

    for number, row in enumerate(_rows(path, columns), 1):
        if row is None:
            has_empty_line = True
            end_sentence()
            continue
        if isinstance(row, str) and "\t" in row:
            num_not_words += 1
            continue
        if isinstance(row, str) and not rows:
            num_comments += 1
            continue
        row = [row] if isinstance(row, str) else row
        cells = row[::2]
        if cells[0] == DOCSTART:
            end_sentence()
            document += 1
            continue
        if not num_columns:
            num_columns = len(cells)
            _check_is_no_table(path, number, "".join(row))
            _check_columns(columns, num_columns, f"{path}:{number}", row)
            _check_is_no_header(columns, cells, f"{path}:{number}")
        if len(cells) != num_columns:
            raise ValueError(
                f"{path}:{number}: found {len(cells)} columns, but the first row has {num_columns}. "
                f"The row is {''.join(row)[:80]!r}. An empty line ends a sentence."
            )
        rows[number] = cells
    end_sentence()
    if num_comments:
        logger.info("%s: %d lines were skipped as comments", path, num_comments)
    if num_not_words:
        logger.info(
            "%s: %d rows of CoNLL-U that are not words (1-2, 1.1) were skipped", path, num_not_words
        )
    if not sentences:
        raise ValueError(f"{path} contains no word.")
    if not has_empty_line and len(sentences[-1].words) > _MOST_WORDS_WITHOUT_EMPTY_LINE:
        raise ValueError(
            f"{path} has no empty line, so it would be one sentence of "
            f"{len(sentences[-1].words):,} words. Put an empty line after each sentence."
        )
    if columns.word == 1 and num_columns > 1:
        _check_words_are_not_numbers(sentences)
    if label_scheme != WORDS:
        _check_entity_labels(sentences, may_be_words=label_scheme == "auto")
    return sentences


def _check_is_no_table(path: str, number: int, line: str) -> None:
    """Raise if the first row shows that a file has JSON lines or CSV."""
    ending, is_object = ending_of(path), line.startswith('{"') and line.endswith("}")
    is_csv = ending == "csv" and ("," in line or ";" in line) and "\t" not in line
    if ending in ("json", "jsonl") or is_object or is_csv:
        raise ValueError(
            f"{path}:{number}: JSON lines and CSV are not read, the row is {line[:80]!r}. Write CoNLL "
            "columns: a line per word with the word first and its label last, separated by a tab or a "
            "space, and an empty line after each sentence."
        )


def _check_is_no_header(columns: Columns, cells: Sequence[str], place: str) -> None:
    """Raise if the first row has names of columns, as spreadsheets and pandas write them."""
    index = columns.label_index(len(cells))
    word, label = cells[columns.word - 1].lower(), "" if index is None else cells[index].lower()
    if word in _NAMES_OF_WORDS and label in _NAMES_OF_LABELS:
        raise ValueError(
            f"{place}: the first row must be a word and its label, but names columns: "
            f"{', '.join(cells)[:80]!r}. Remove it."
        )


def _check_words_are_not_numbers(sentences: Sequence[Sentence]) -> None:
    """Raise if the words of every sentence are 1, 2, ..., as in the first column of CoNLL-U."""
    may_be_numbers = any(len(each.words) > 1 for each in sentences)
    if may_be_numbers and all(_are_numbers(each.words) for each in sentences):
        raise ValueError(
            f"{sentences[0].place(0)}: the words of each sentence are 1, 2, ..., which are their "
            "numbers. Set word_column to the column of the words, in CoNLL-U 2, and label_column to "
            "that of the labels."
        )


def _are_numbers(words: Iterable[str]) -> bool:
    """Return True for 1, 2, ..., perhaps with 1-2 and 1.1 between them."""
    whole = [word for word in words if not _BETWEEN.fullmatch(word)]
    return all(word == str(number) for number, word in enumerate(whole, 1))


def _check_entity_labels(sentences: Iterable[Sentence], may_be_words: bool) -> None:
    labelled = [sentence for sentence in sentences if sentence.labels is not None]
    if may_be_words and not marks_entities({n for each in labelled for n in each.labels or ()}):
        return
    for sentence in labelled:
        for index, label in enumerate(sentence.labels or ()):
            if not is_label(label):
                bilou = (
                    " For BILOU, write S- instead of U- and E- instead of L-."
                    if label[:2] in ("U-", "L-")
                    else ""
                )
                raise ValueError(
                    f"{sentence.place(index)}: the label is {label!r}, but must be O, or a type after "
                    f"B-, I-, E- or S-, as in B-PER.{bilou} The word is {sentence.words[index]!r}. "
                    "label_column sets the column of the labels, and label_scheme=words accepts "
                    "labels of any form."
                )


def relabelled_lines(
    path: str, labels: Iterable[str], columns: Columns, *, append: bool = False
) -> Iterator[str]:
    """Yield the lines of a file that `read_conll` has read, with other labels.

    Args:
        labels: one for each word of the file, in order.
        append: add a column of labels and leave out -DOCSTART- and comments, as input of conlleval.
            Otherwise the labels replace the file's. A file without labels always gets a new column.

    Raises:
        ValueError: the numbers of labels and words differ.
    """
    labels, target, separator = iter(labels), None, None
    for row in _rows(path, columns):
        if row is None:
            yield ""
            continue
        if isinstance(row, str):
            if not append:
                yield row
            continue
        if row[0] == DOCSTART:
            if not append:
                yield "".join(row)
            continue
        label = next(labels, None)
        if label is None:
            raise ValueError(f"{path} has more words than labels were given. Was the file changed?")
        if separator is None:
            separator = row[1] if len(row) > 1 else "\t"
            target = None if append else columns.label_index(len(row[::2]))
        if target is None:
            row += [separator, label]
        else:
            row[2 * target] = label
        yield "".join(row)
    if any(True for _ in islice(labels, 1)):
        raise ValueError(f"{path} has fewer words than labels were given. Was the file changed?")


def _rows(path: str, columns: Columns) -> Iterator[list[str] | str | None]:
    """Yield each line's columns with the separators between them.

    An empty line is None. A comment, and a row of CoNLL-U that is not a word, is a string.
    """
    rows = (
        line for line in read_lines(path) if line.strip(" \t") and not line.startswith(DOCSTART)
    )
    has_tabs = "\t" in next((line for line in rows if not _may_be_comment(line)), "")
    split = re.compile("(\t)" if has_tabs else "( +)").split
    for line in with_line_feeds(read_lines(path), path):
        if not line.strip(" \t"):
            yield None
            continue
        if line.startswith(DOCSTART):  # its columns may be separated otherwise than the words'
            yield re.split("([ \t]+)", line.rstrip(" \t"))
            continue
        if has_tabs and (
            _may_be_comment(line) or (columns.word > 1 and _NOT_A_WORD.fullmatch(line))
        ):
            yield line
        else:
            yield split(line.rstrip(" \t"))


def _may_be_comment(line: str) -> bool:
    return line.startswith("#") and "\t" not in line


def _check_columns(columns: Columns, num_columns: int, place: str, row: list[str]) -> None:
    label = columns.label_index(num_columns)
    if columns.labelled and num_columns == 1:
        raise ValueError(
            f"{place}: found one column, but a row needs a word and its label, separated by a tab or "
            f"spaces. The row is {''.join(row)[:80]!r}."
        )
    for flag, index in (("word_column", columns.word - 1), ("label_column", label)):
        if index is not None and not 0 <= index < num_columns:
            raise ValueError(
                f"{place}: {flag} is {index + 1}, but the row has {num_columns} columns, counted "
                f"from 1: {''.join(row)[:80]!r}."
            )


def _sentence(
    rows: dict[int, list[str]], columns: Columns, num_columns: int, document: int, path: str
) -> Sentence:
    index = columns.label_index(num_columns)
    words = tuple(row[columns.word - 1] for row in rows.values())
    labels = None if index is None else tuple(row[index] for row in rows.values())
    sentence = Sentence(words, labels, document, path, tuple(rows))
    for offset, row in enumerate(rows.values()):
        if not words[offset]:
            raise ValueError(f"{sentence.place(offset)}: the row {row!r} has no word.")
        if labels is not None and not labels[offset]:
            raise ValueError(
                f"{sentence.place(offset)}: the row {row!r} has no label. label_column sets the "
                "column of the labels."
            )
        if _is_enclosed(words[offset], "" if labels is None else labels[offset]):
            raise ValueError(
                f"{sentence.place(offset)}: quotation marks enclose columns of the row {row!r}, but are "
                "ordinary characters here. Write the file without them: as TSV of Google Sheets, in "
                "LibreOffice with an empty string delimiter, in pandas with quoting=csv.QUOTE_NONE."
            )
    return sentence


def _is_enclosed(word: str, label: str) -> bool:
    # "," and """" are words of spreadsheets, which write , and " so
    return word in ('","', '""""') or (len(label) > 2 and label[0] == label[-1] == '"')
