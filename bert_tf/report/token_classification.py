"""Sections of report.html about named entities and labels of words: scores, confusions and errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bert_tf.report.page import (
    MAX_ERRORS,
    Section,
    bars,
    matrix,
    paragraph,
    shorten,
    table,
)

_NOTHING = "(none)"
_BOUNDS = "other words"
_MAX_TYPES = 30  # of a matrix

Span = tuple[str, int, int]  # type, first word, word after the last one
Pair = tuple[Span | None, Span | None]  # known and predicted


class Spans(NamedTuple):
    """The words of a sentence, its known and predicted spans, and its "file:line"."""

    words: Sequence[str]
    actual: Sequence[Span]
    predicted: Sequence[Span]
    location: str


# Type, precision, recall, F1, number in the data, predicted, correct.
TypeCounts = tuple[str, float, float, float, int, int, int]


def span_sections(
    sentences: Sequence[Spans], counts: Sequence[TypeCounts], are_words: bool = False
) -> list[Section]:
    """Return the sections of one set of sentences."""
    kind, name = ("label", "labels") if are_words else ("entity type", "entities")
    groups = {name: (f1, actual) for name, _, _, f1, actual, _, _ in counts}
    unit = f"F1, and {'words' if are_words else 'entities'} in the data"
    header = [kind, "precision", "recall", "F1", "in the data", "predicted", "right"]
    pairs = [side_by_side(sentence.actual, sentence.predicted) for sentence in sentences]
    types = list(groups)
    return [
        Section(f"F1 by {kind}", [bars(groups, unit)]),
        Section(f"Counts by {kind}", [table(header, counts)]),
        *_confusions(types, [pair for row in pairs for pair in row], are_words),
        _errors(sentences, pairs, name),
    ]


def side_by_side(actual: Sequence[Span], predicted: Sequence[Span]) -> list[Pair]:
    """Return pairs of known and predicted spans that share a word, or None without a partner.

    >>> side_by_side([("PER", 0, 2)], [("LOC", 1, 2), ("PER", 4, 5)])
    [(('PER', 0, 2), ('LOC', 1, 2)), (None, ('PER', 4, 5))]
    """
    left = list(predicted)
    pairs: list[Pair] = []
    for span in actual:
        overlapping = (other for other in left if other[1] < span[2] and other[2] > span[1])
        partner = span if span in left else next(overlapping, None)
        if partner is not None:
            left.remove(partner)
        pairs.append((span, partner))
    return pairs + [(None, other) for other in left]


def _confusions(types: Sequence[str], pairs: Iterable[Pair], are_words: bool) -> list[Section]:
    if len(types) > _MAX_TYPES:
        return []
    counts: Counter[tuple[str, str]] = Counter()
    for known, guess in pairs:
        row, column = known[0] if known else _NOTHING, guess[0] if guess else _NOTHING
        has_other_words = row == column and known != guess
        counts[row, _BOUNDS if has_other_words else column] += 1
    columns, rows = [*types, _BOUNDS, _NOTHING], [*types, _NOTHING]
    note = f'Rows are those in the data, columns the predictions. "{_BOUNDS}": the type is right.'
    if are_words:
        columns, rows, note = [*types], [*types], "Rows are those in the data."
    cells = [[counts[row, column] for column in columns] for row in rows]
    return [Section("Confusion matrix", [matrix(rows, columns, cells)], note)]


def _errors(sentences: Sequence[Spans], pairs: Sequence[Sequence[Pair]], counted: str) -> Section:
    """Return the sentences with the most errors."""
    errors = [[pair for pair in row if pair[0] != pair[1]] for row in pairs]
    wrong = [index for index in range(len(errors)) if errors[index]]
    wrong.sort(key=lambda index: -len(errors[index]))
    rows = []
    for index in wrong[:MAX_ERRORS]:
        words, location = sentences[index].words, sentences[index].location
        known, predicted = zip(*errors[index], strict=True)
        names = _name(words, known), _name(words, predicted)
        rows.append([shorten(" ".join(words)), *names, len(errors[index]), location])
    if not rows:
        return Section("Errors", [paragraph("No errors.")], wide=True)
    note = f"{len(rows)} of {len(wrong)} sentences with errors, most errors first."
    header = ["sentence", counted, "predicted", "errors", "where"]
    return Section("Errors", [table(header, rows, texts=True)], note, wide=True)


def _name(words: Sequence[str], spans: Iterable[Span | None]) -> str:
    texts = (f"{' '.join(words[span[1] : span[2]])} [{span[0]}]" for span in spans if span)
    return "; ".join(texts)
