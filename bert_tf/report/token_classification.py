"""Sections of report.html about named entities and labels of words: scores, confusions and errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from bert_tf.data.label_schemes import Entity, Scores, find_entities
from bert_tf.data.token_classification import Sentence
from bert_tf.report.page import Section, bars, matrix, paragraph, table
from bert_tf.report.sections import MOST_ERRORS, most_common, shortened

_NOTHING = "(none)"
_BOUNDS = "other words"
_MOST_TYPES = 15  # of a matrix


def entity_sections(
    sentences: Sequence[Sentence],
    actual: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    scores: Scores,
) -> list[Section]:
    """Return the sections of one set of sentences.

    Args:
        actual, predicted: labels of each sentence.
        scores: metrics of conlleval.
    """
    sections = _scores("entity type", "entities", scores)
    pairs = [
        entities_side_by_side(find_entities(there), find_entities(guessed))
        for there, guessed in zip(actual, predicted, strict=True)
    ]
    kinds = list(scores.by_type)
    if len(kinds) <= _MOST_TYPES:
        sections.append(_confusions(kinds, [pair for found in pairs for pair in found]))
    return [*sections, _errors(sentences, pairs, "entities")]


def word_sections(
    sentences: Sequence[Sentence],
    actual: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    scores: Scores,
) -> list[Section]:
    """Return the sections for labels of words; arguments as of `entity_sections`."""
    kinds = list(scores.by_type)
    pairs = [
        [
            (Entity(right, index, index + 1), Entity(guess, index, index + 1))
            for index, (right, guess) in enumerate(zip(there, guessed, strict=True))
        ]
        for there, guessed in zip(actual, predicted, strict=True)
    ]
    counts = Counter((there.type, guess.type) for found in pairs for there, guess in found)
    if len(kinds) <= _MOST_TYPES:
        cells = [[counts[row, column] for column in kinds] for row in kinds]
        note = "Rows are the labels in the data, columns those of the model."
        confusions = Section("Confusion matrix", [matrix(kinds, kinds, cells)], note)
    else:
        wrong = [[*pair, n] for pair, n in counts.most_common() if pair[0] != pair[1]]
        rows = wrong[:MOST_ERRORS]
        confusions = Section("Commonest confusions", [table(["label", "predicted", "words"], rows)])
    sections = _scores("label", "words", scores)
    return [*sections, confusions, _errors(sentences, pairs, "labels")]


def _scores(kind: str, counted: str, scores: Scores) -> list[Section]:
    by_type = {name: (counts.f1, counts.actual) for name, counts in scores.by_type.items()}
    rows = [
        [name, c.precision, c.recall, c.f1, c.actual, c.predicted, c.correct]
        for name, c in scores.by_type.items()
    ]
    header = [kind, "precision", "recall", "F1", "in the data", "predicted", "right"]
    return [
        Section(f"F1 by {kind}", [bars(most_common(by_type), f"F1, and {counted} in the data")]),
        Section(f"Counts by {kind}", [table(header, rows)]),
    ]


def entities_side_by_side(
    actual: Sequence[Entity], predicted: Sequence[Entity]
) -> list[tuple[Entity | None, Entity | None]]:
    """Return pairs of known and predicted entities that share a word, or None without a partner.

    >>> entities_side_by_side([Entity("PER", 0, 2)], [Entity("LOC", 1, 2), Entity("PER", 4, 5)])
    ... # doctest: +NORMALIZE_WHITESPACE
    [(Entity(type='PER', start=0, end=2), Entity(type='LOC', start=1, end=2)),
     (None, Entity(type='PER', start=4, end=5))]
    """
    left = list(predicted)
    pairs: list[tuple[Entity | None, Entity | None]] = []
    for entity in actual:
        overlapping = (o for o in left if o.start < entity.end and o.end > entity.start)
        other = entity if entity in left else next(overlapping, None)
        if other is not None:
            left.remove(other)
        pairs.append((entity, other))
    return pairs + [(None, other) for other in left]


def _confusions(
    kinds: Sequence[str], pairs: Sequence[tuple[Entity | None, Entity | None]]
) -> Section:
    counts = Counter(
        (there.type if there else _NOTHING, _said(there, guessed)) for there, guessed in pairs
    )
    columns = [*kinds, _BOUNDS, _NOTHING]
    rows = [*kinds, _NOTHING]
    cells = [[counts[row, column] for column in columns] for row in rows]
    return Section(
        "Confusion of types",
        [matrix(rows, columns, cells)],
        f'Rows are the entities in the data, columns the predictions. "{_BOUNDS}": the type is right, '
        "the first or last word is not.",
    )


def _said(there: Entity | None, guessed: Entity | None) -> str:
    kind = guessed.type if guessed else _NOTHING
    return _BOUNDS if there and kind == there.type and there != guessed else kind


def _errors(
    sentences: Sequence[Sentence],
    pairs: Sequence[Sequence[tuple[Entity | None, Entity | None]]],
    counted: str,
) -> Section:
    """Return the sentences with the most errors."""
    wrong = [
        (sentence, [pair for pair in found if pair[0] != pair[1]])
        for sentence, found in zip(sentences, pairs, strict=True)
    ]
    wrong = sorted((row for row in wrong if row[1]), key=lambda row: -len(row[1]))
    rows = [
        [
            shortened(" ".join(sentence.words)),
            "; ".join(_names(sentence, (there for there, _ in errors))),
            "; ".join(_names(sentence, (guessed for _, guessed in errors))),
            len(errors),
            sentence.location(0),
        ]
        for sentence, errors in wrong[:MOST_ERRORS]
    ]
    if not rows:
        return Section("Errors", [paragraph("No errors.")], wide=True)
    note = f"{len(rows)} of {len(wrong)} sentences with errors, most errors first."
    header = ["sentence", counted, "predicted", "errors", "where"]
    return Section("Errors", [table(header, rows, texts=True)], note, wide=True)


def _names(sentence: Sentence, found: Iterator[Entity | None]) -> Iterator[str]:
    for entity in found:
        if entity is not None:
            yield f"{' '.join(sentence.words[entity.start : entity.end])} [{entity.type}]"
