"""Labelled words in CoNLL columns, read and written; and words of raw text, split as these are.

    -DOCSTART- -X- -X- O          a new document begins (optional)

    EU NNP B-NP B-ORG             a line per word: the word first, its label last
    rejects VBZ B-VP O

    Peter NNP B-NP B-PER          an empty line after each sentence

Tabs separate columns, or spaces if the first row has no tab. A line that begins with "#" and has fewer
columns than the rows is a comment, as in CoNLL-U and GermEval. Rows of CoNLL-U that are not words (1-2
for several words, 1.1 for an omitted one) are skipped if the word is not in the first column. Errors
contain file:line and the row.

    rule                 "Yahoo! left Baden-Baden."
    whitespace           Yahoo!  left  Baden-Baden.
    outer_punctuation    Yahoo  !  left  Baden-Baden  .      or Yahoo! of the training data
    basic                Yahoo  !  left  Baden  -  Baden  .  as BERT's tokenizer; also each ideograph
    characters           Y  a  h  o  o  !  l  e  f  t ...

`serving.text_tokenizer.graph_split_words` does the same in a graph.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import NamedTuple

from bert_tf.characters import is_chinese_char, is_punctuation, is_whitespace
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
    """Return the sentences of a file."""
    sentences: list[Sentence] = []
    rows: dict[int, list[str]] = {}  # of a sentence, by their lines
    document = num_columns = num_skipped = 0
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

    With `gold`, the labels as they were read, `labels` are an additional column, and -DOCSTART- and
    comments are left out, as input of conlleval. Otherwise they replace the file's, if any.
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


# ------------------------------------------------------------------------------- words of raw text

RULES = ("basic", "outer_punctuation", "whitespace", "characters")
_SAMPLED_SENTENCES = 10_000
_CLOSING = re.compile(r"[.,:;!?)\]}%»”’…،؛؟।]+|['’][^\W\d]{1,2}|n['’]t")
_OPENING = re.compile(r"[(\[{«“‘„¿¡]+")
# a single letter or digit; or Thai, Lao, Burmese, Khmer, kana
_WITHOUT_SPACES = re.compile(r"\w\Z|[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff]")


class WordSpan(NamedTuple):
    """Characters `start` to `end` - 1 of a text."""

    start: int
    end: int


def split_words(
    text: str, rule: str = "basic", whole_words: Collection[str] = ()
) -> list[WordSpan]:
    """Return the words of a text, in order."""
    spans: list[WordSpan] = []
    spaces = [-1, *(i for i, char in enumerate(text) if is_whitespace(char)), len(text)]
    for start, end in ((before + 1, after) for before, after in pairwise(spaces)):
        first, last = start, end
        if rule == "outer_punctuation":
            first, last = _without_outer_marks(text, start, end, whole_words)
        is_open = False  # whether the next character continues the last word
        for index in range(start, end):
            is_alone = not first <= index < last or rule == "characters"
            if rule == "basic":
                is_alone = is_punctuation(text[index]) or is_chinese_char(ord(text[index]))
            if is_open and not is_alone:
                spans[-1] = WordSpan(spans[-1].start, index + 1)
            else:
                spans.append(WordSpan(index, index + 1))
            is_open = not is_alone
    return spans


def _without_outer_marks(
    text: str, start: int, end: int, whole_words: Collection[str] = ()
) -> tuple[int, int]:
    """Return the bounds of what lies between the outer punctuation; (start, start) for nothing."""
    first, last = start, end
    while last > start and is_punctuation(text[last - 1]):
        last -= 1
    while first < last and is_punctuation(text[first]):
        first += 1
    if first == last:
        return start, start
    if text[first : last + 1] in whole_words:
        last += last < end
    if first > start and text[first - 1 : last] in whole_words:
        first -= 1
    return first, last


def join_words(words: Sequence[str], with_spaces: bool = True) -> tuple[str, list[WordSpan]]:
    """Return words as a text, with punctuation as people write it, and where each word is in it."""
    text, spans = "", []
    for before, word in pairwise(["(", *words]):
        is_close = _OPENING.fullmatch(before) or _CLOSING.fullmatch(word)
        text += "" if is_close or not with_spaces else " "
        spans.append(WordSpan(len(text), len(text) + len(word)))
        text += word
    return text, spans


def are_spaced(sentences: Iterable[Sequence[str]]) -> bool:
    """Return False if most words are single characters, or of a script without spaces."""
    words = list(chain.from_iterable(sentences))
    unspaced = (is_chinese_char(ord(word[0])) or _WITHOUT_SPACES.match(word) for word in words)
    return 2 * sum(map(bool, unspaced)) <= len(words)


def choose_rule(sentences: Iterable[Sequence[str]]) -> tuple[str, list[str]]:
    """Return the rule that finds most of the words in their joined text, and its `whole_words`.

    Among equals the first of `RULES` is chosen. A whole word has one mark at an end, and occurs more
    often with it than without.
    """
    sampled = list(islice(sentences, _SAMPLED_SENTENCES))
    with_spaces = are_spaced(sampled)
    texts = [join_words(words, with_spaces) for words in sampled]
    total = sum(map(len, sampled))

    def fraction(rule: str, whole_words: Collection[str] = ()) -> float:
        rows = ((set(split_words(text, rule, whole_words)), spans) for text, spans in texts)
        return sum(span in split for split, spans in rows for span in spans) / total

    rule = max(RULES, key=fraction)
    whole_words: list[str] = []
    if rule == "outer_punctuation":
        counts = Counter(chain.from_iterable(sampled))
        for word, count in counts.items():
            first, last = _without_outer_marks(word, 0, len(word))
            if last and len(word) == last - first + 1 and 1 < count > counts[word[first:last]]:
                whole_words.append(word)
    logger.info(
        "Raw text will be split by the rule %s, which finds %.1f%% of the training words.",
        *(rule, 100 * fraction(rule, frozenset(whole_words))),
    )
    return rule, sorted(whole_words)
