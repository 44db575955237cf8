"""Scores of named entities, counted as in conlleval, the script of the CoNLL shared tasks.

An entity is correct if its type, first word and last word are. Labels are in IOB1, IOB2 or BIOES, or
in BILOU or BMES, as models of others have them. Every sequence is valid, since a model may predict any:

    O  I-PER  I-PER  B-PER  I-LOC        ->  PER at words 1-2, PER at word 3, LOC at word 4

Source: conlleval.pl (Erik Tjong Kim Sang, CoNLL-2000 to 2003), with equal scores for IOB1 and IOB2. The
script has no S- and joins the entities of B-X E-X B-X E-X. Here S-X is an entity of one word, and B-X
always begins an entity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Entity(NamedTuple):
    """Words `start` to `end` - 1 of a sentence."""

    type: str
    start: int
    end: int


@dataclass(frozen=True)
class Counts:
    """Numbers of entities, of one type or in all."""

    correct: int  # predicted correctly
    predicted: int  # by the model
    actual: int  # in the data

    @property
    def precision(self) -> float:
        """Fraction of the predicted entities that are correct; 0 without any."""
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Fraction of the actual entities that were predicted; 0 without any."""
        return self.correct / self.actual if self.actual else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall ("FB1")."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


@dataclass(frozen=True)
class Scores:
    """Results of conlleval."""

    num_tokens: int  # words
    num_correct_tokens: int  # words with the correct label
    overall: Counts  # of all types
    by_type: Mapping[str, Counts]  # sorted by type

    @property
    def accuracy(self) -> float:
        """Fraction of the words with the correct label, 0 to 1."""
        return self.num_correct_tokens / self.num_tokens if self.num_tokens else 0.0

    @property
    def f1_macro(self) -> float:
        """Mean F1 of the types, 0 to 1."""
        return sum(counts.f1 for counts in self.by_type.values()) / max(1, len(self.by_type))


def entities(labels: Sequence[str]) -> list[Entity]:
    """Return the entities in the labels of one sentence.

    An entity begins at B and S, and at an I or E that continues no entity of its type. It ends before
    the next entity, before O, and after E and S. L of BILOU is E, and U is S; M of BMES is I. A
    label X without a prefix is I-X, as in the pipelines of transformers.

    >>> entities(["B-PER", "I-PER", "O", "I-LOC"])
    [Entity(type='PER', start=0, end=2), Entity(type='LOC', start=3, end=4)]
    """
    found: list[Entity] = []
    start, current = None, ""
    for index, label in enumerate([*labels, "O"]):
        prefix, _, kind = label.partition("-")
        if not kind and prefix not in tuple("OBIESLUM"):
            prefix, kind = "I", label
        goes_on = start is not None and prefix in ("I", "E", "L", "M") and kind == current
        if start is not None and not goes_on:
            found.append(Entity(current, start, index))
            start = None
        if prefix != "O" and start is None:
            start, current = index, kind
        if prefix in ("E", "S", "L", "U") and start is not None:
            found.append(Entity(current, start, index + 1))
            start = None
    return found


def conlleval(actual: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> Scores:
    """Return the scores of predicted labels, sentence by sentence.

    >>> scores = conlleval([["B-PER", "I-PER", "O"]], [["B-PER", "O", "O"]])
    >>> scores.overall, round(scores.accuracy, 3)
    (Counts(correct=0, predicted=1, actual=1), 0.667)
    """
    num_tokens = num_correct_tokens = 0
    correct: Counter[str] = Counter()
    found: Counter[str] = Counter()
    existing: Counter[str] = Counter()
    for actual_labels, predicted_labels in zip(actual, predicted, strict=True):
        pairs = list(zip(actual_labels, predicted_labels, strict=True))
        num_tokens += len(pairs)
        num_correct_tokens += sum(right == guess for right, guess in pairs)
        there, guessed = entities(actual_labels), entities(predicted_labels)
        existing.update(entity.type for entity in there)
        found.update(entity.type for entity in guessed)
        correct.update(entity.type for entity in set(there) & set(guessed))
    return Scores(
        num_tokens,
        num_correct_tokens,
        Counts(correct.total(), found.total(), existing.total()),
        {
            kind: Counts(correct[kind], found[kind], existing[kind])
            for kind in sorted(existing.keys() | found.keys())
        },
    )


def as_entities(label: str) -> str:
    """Return a one-word entity for the label of a word, such as a part of speech.

    With these, `conlleval` counts each word, and `by_type` and `f1_macro` are by label.

    >>> entities([as_entities(label) for label in ("NN", "I-X")])
    [Entity(type='NN', start=0, end=1), Entity(type='I-X', start=1, end=2)]
    """
    return f"S-{label}"


def word_report(scores: Scores) -> str:
    """Return a report of labels of words, in percent: a summary and a line per label."""
    lines = [
        f"processed {scores.num_tokens} words; correct: {scores.num_correct_tokens}.",
        f"accuracy: {100 * scores.accuracy:6.2f}%; macro F1: {100 * scores.f1_macro:6.2f}",
    ]
    return _with_types(lines, scores)


def report(scores: Scores) -> str:
    """Return the report of conlleval.pl, in percent."""
    overall = scores.overall
    lines = [
        f"processed {scores.num_tokens} tokens with {overall.actual} phrases; "
        f"found: {overall.predicted} phrases; correct: {overall.correct}.",
        f"accuracy: {100 * scores.accuracy:6.2f}%; {_percentages(overall)}",
    ]
    return _with_types(lines, scores)


def _with_types(lines: list[str], scores: Scores) -> str:
    for kind, counts in scores.by_type.items():
        lines.append(f"{kind:>17}: {_percentages(counts)}  {counts.predicted}")
    return "\n".join(lines) + "\n"


def _percentages(counts: Counts) -> str:
    return (
        f"precision: {100 * counts.precision:6.2f}%; recall: {100 * counts.recall:6.2f}%; "
        f"FB1: {100 * counts.f1:6.2f}"
    )
