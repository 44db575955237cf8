"""Labels of words that mark entities, and scores as conlleval counts them.

    words    John    Smith   Ann     lives  in  New     York
    iob1     I-PER   I-PER   B-PER   O      O   I-LOC   I-LOC     B- only after another of its type
    iob2     B-PER   I-PER   B-PER   O      O   B-LOC   I-LOC     B- at each beginning
    bioes    B-PER   E-PER   S-PER   O      O   B-LOC   E-LOC     E- at each end, S- at both

Labels of any scheme are read, also of BILOU and BMES, which are BIOES with other letters. Models learn
IOB2. Labels without a type, B and I, are of one nameless type. `words` are labels that mark no entities,
such as parts of speech.

An entity is correct if its type, first word and last word are. Every sequence of labels is valid, since
a model may predict any:

    O  I-PER  I-PER  B-PER  I-LOC        ->  PER at words 1-2, PER at word 3, LOC at word 4

Source: conlleval.pl (Erik Tjong Kim Sang, CoNLL-2000 to 2003), with equal scores for IOB1 and IOB2. The
script has no S- and joins the entities of B-X E-X B-X E-X. Here S-X is an entity of one word, and B-X
always begins an entity.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from bert_tf.modeling.crf import OUTSIDE, entity_type

_ENTITY_LABEL = re.compile("O|[BIESLUM](-.+)?")


class Entity(NamedTuple):
    """Words `start` to `end` - 1 of a sentence."""

    type: str
    start: int
    end: int


def find_entities(labels: Sequence[str]) -> list[Entity]:
    """Return the entities in the labels of one sentence.

    An entity begins at B and S, and at an I or E that continues no entity of its type. It ends before
    the next entity, before O, and after E and S. L of BILOU is E, and U is S; M of BMES is I. A
    label X without a prefix is I-X, as in the pipelines of transformers.
    """
    entities: list[Entity] = []
    start, current = None, ""
    for index, label in enumerate([*labels, "O"]):
        prefix, _, kind = label.partition("-")
        if not kind and prefix not in tuple("OBIESLUM"):
            prefix, kind = "I", label
        goes_on = start is not None and prefix in ("I", "E", "L", "M") and kind == current
        if start is not None and not goes_on:
            entities.append(Entity(current, start, index))
            start = None
        if prefix != "O" and start is None:
            start, current = index, kind
        if prefix in ("E", "S", "L", "U") and start is not None:
            entities.append(Entity(current, start, index + 1))
            start = None
    return entities


def is_entity_label(text: str) -> bool:
    """Return True for a label of one of the schemes.

    >>> [is_entity_label(text) for text in ("O", "M-PER", "U-a-b", "I", "B-", "NN", "b-PER")]
    [True, True, True, True, False, False, False]
    """
    return _ENTITY_LABEL.fullmatch(text) is not None


def to_iob2(labels: Sequence[str]) -> list[str]:
    """Return IOB2 labels of the same entities."""
    converted = [OUTSIDE] * len(labels)
    for kind, start, end in find_entities(labels):
        first, inside = _begin_and_inside(kind)
        converted[start:end] = [first, *[inside] * (end - start - 1)]
    return converted


def complete_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return O and the labels of IOB2 for each type that occurs."""
    types = sorted({kind for kind in map(entity_type, labels) if kind is not None})
    return (OUTSIDE, *chain.from_iterable(map(_begin_and_inside, types)))


def _begin_and_inside(kind: str) -> tuple[str, str]:
    return (f"B-{kind}", f"I-{kind}") if kind else ("B", "I")


# ------------------------------------------------------------------------------------- conlleval


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
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


@dataclass(frozen=True)
class Scores:
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


def conlleval(actual: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> Scores:
    """Return the scores of predicted labels, sentence by sentence."""
    num_tokens = num_correct_tokens = 0
    correct: Counter[str] = Counter()
    num_predicted: Counter[str] = Counter()
    num_actual: Counter[str] = Counter()
    for actual_labels, predicted_labels in zip(actual, predicted, strict=True):
        pairs = list(zip(actual_labels, predicted_labels, strict=True))
        num_tokens += len(pairs)
        num_correct_tokens += sum(label == prediction for label, prediction in pairs)
        entities, guesses = find_entities(actual_labels), find_entities(predicted_labels)
        num_actual.update(entity.type for entity in entities)
        num_predicted.update(entity.type for entity in guesses)
        correct.update(entity.type for entity in set(entities) & set(guesses))
    return Scores(
        num_tokens,
        num_correct_tokens,
        Counts(correct.total(), num_predicted.total(), num_actual.total()),
        {
            kind: Counts(correct[kind], num_predicted[kind], num_actual[kind])
            for kind in sorted(num_actual.keys() | num_predicted.keys())
        },
    )


def mark_as_entity(label: str) -> str:
    """Return a one-word entity for the label of a word, such as a part of speech.

    With these, `conlleval` counts each word, and `by_type` and `f1_macro` are by label.

    >>> find_entities([mark_as_entity(label) for label in ("NN", "I-X")])
    [Entity(type='NN', start=0, end=1), Entity(type='I-X', start=1, end=2)]
    """
    return f"S-{label}"


def format_word_report(scores: Scores) -> str:
    """Return a report of labels of words, in percent: a summary and a line per label."""
    return (
        f"processed {scores.num_tokens} words; correct: {scores.num_correct_tokens}.\n"
        f"accuracy: {100 * scores.accuracy:6.2f}%; macro F1: {100 * scores.f1_macro:6.2f}\n"
        f"{_format_types(scores)}"
    )


def format_report(scores: Scores) -> str:
    """Return the report of conlleval.pl, in percent."""
    overall = scores.overall
    return (
        f"processed {scores.num_tokens} tokens with {overall.actual} phrases; "
        f"found: {overall.predicted} phrases; correct: {overall.correct}.\n"
        f"accuracy: {100 * scores.accuracy:6.2f}%; {_format_percentages(overall)}\n"
        f"{_format_types(scores)}"
    )


def _format_types(scores: Scores) -> str:
    return "".join(
        f"{kind:>17}: {_format_percentages(counts)}  {counts.predicted}\n"
        for kind, counts in scores.by_type.items()
    )


def _format_percentages(counts: Counts) -> str:
    return (
        f"precision: {100 * counts.precision:6.2f}%; recall: {100 * counts.recall:6.2f}%; "
        f"FB1: {100 * counts.f1:6.2f}"
    )
