"""Scores of named entities as conlleval counts them, the script of the CoNLL shared tasks.

An entity is right if its type, its first and its last word are right. The labels are those of IOB1,
IOB2 or BIOES; no sequence of them is refused, since a model may predict any:

    O  I-PER  I-PER  B-PER  I-LOC        ->  PER at words 1-2, PER at word 3, LOC at word 4

Source: conlleval.pl (Erik Tjong Kim Sang, CoNLL-2000 to 2003). For IOB1 and IOB2 these are its numbers.
The script has no S- and no rule for B-X after E-X, so it joins the entities of B-X E-X B-X E-X. Here S-X
is an entity of one word, and B-X begins an entity after every label.
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
    """Of entities: of one type, or of all.

    Args:
        correct: predicted, and right.
        predicted: by the model.
        actual: in the data.
    """

    correct: int
    predicted: int
    actual: int

    @property
    def precision(self) -> float:
        """Share of the predicted that are right, 0 to 1; 0 where there are none."""
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Share of the actual that were found, 0 to 1; 0 where there are none."""
        return self.correct / self.actual if self.actual else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall ("FB1")."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


@dataclass(frozen=True)
class Scores:
    """What conlleval prints.

    Args:
        num_tokens: words.
        num_correct_tokens: words whose label is right.
        overall: entities of all types.
        by_type: type -> its entities, in the order of the types' names.
    """

    num_tokens: int
    num_correct_tokens: int
    overall: Counts
    by_type: Mapping[str, Counts]

    @property
    def accuracy(self) -> float:
        """Share of the words whose label is right, 0 to 1."""
        return self.num_correct_tokens / self.num_tokens if self.num_tokens else 0.0

    @property
    def f1_macro(self) -> float:
        """Mean of the F1 of the types, 0 to 1."""
        return sum(counts.f1 for counts in self.by_type.values()) / max(1, len(self.by_type))


def entities(labels: Sequence[str]) -> list[Entity]:
    """The entities in the labels of one sentence.

    An entity begins at B and S; at I and E where no entity of the same type goes on. It ends before
    the next begins, before O, and after E and S.

    >>> entities(["B-PER", "I-PER", "O", "I-LOC"])
    [Entity(type='PER', start=0, end=2), Entity(type='LOC', start=3, end=4)]
    """
    found: list[Entity] = []
    start, current = None, ""
    for index, label in enumerate([*labels, "O"]):
        prefix, _, kind = label.partition("-")
        goes_on = start is not None and prefix in ("I", "E") and kind == current
        if start is not None and not goes_on:
            found.append(Entity(current, start, index))
            start = None
        if prefix != "O" and start is None:
            start, current = index, kind
        if prefix in ("E", "S") and start is not None:
            found.append(Entity(current, start, index + 1))
            start = None
    return found


def conlleval(actual: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> Scores:
    """Compares the labels of sentences.

    Args:
        actual: of each sentence the labels in the data.
        predicted: of each sentence the model's labels, as many.

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
    """Return the label of an entity of one word, for labels of words such as parts of speech.

    With it `conlleval` counts each word, `by_type` is by label, and `f1_macro` the mean over labels.

    >>> entities([as_entities(label) for label in ("NN", "I-X")])
    [Entity(type='NN', start=0, end=1), Entity(type='I-X', start=1, end=2)]
    """
    return f"S-{label}"


def word_report(scores: Scores) -> str:
    """Return a line for all words and a line for each label, in per cent."""
    lines = [
        f"processed {scores.num_tokens} words; correct: {scores.num_correct_tokens}.",
        f"accuracy: {100 * scores.accuracy:6.2f}%; macro F1: {100 * scores.f1_macro:6.2f}",
    ]
    return _with_types(lines, scores)


def report(scores: Scores) -> str:
    """The lines that conlleval.pl prints, in per cent."""
    overall = scores.overall
    lines = [
        f"processed {scores.num_tokens} tokens with {overall.actual} phrases; "
        f"found: {overall.predicted} phrases; correct: {overall.correct}.",
        f"accuracy: {100 * scores.accuracy:6.2f}%; {_figures(overall)}",
    ]
    return _with_types(lines, scores)


def _with_types(lines: list[str], scores: Scores) -> str:
    for kind, counts in scores.by_type.items():
        lines.append(f"{kind:>17}: {_figures(counts)}  {counts.predicted}")
    return "\n".join(lines) + "\n"


def _figures(counts: Counts) -> str:
    return (
        f"precision: {100 * counts.precision:6.2f}%; recall: {100 * counts.recall:6.2f}%; "
        f"FB1: {100 * counts.f1:6.2f}"
    )
