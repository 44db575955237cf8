"""Schemes of labels that mark entities: IOB1, IOB2, BIOES.

words    John    Smith   Ann     lives  in  New     York
iob1     I-PER   I-PER   B-PER   O      O   I-LOC   I-LOC     B- only after another of its type
iob2     B-PER   I-PER   B-PER   O      O   B-LOC   I-LOC     B- at each beginning
bioes    B-PER   E-PER   S-PER   O      O   B-LOC   E-LOC     E- at each end, S- at both

The scheme `words` is for labels that mark no entities, such as parts of speech:

words    NNP     NNP     NNP     VBZ    IN  NNP     NNP
"""

from __future__ import annotations

import logging
import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence

from bert_tf.metrics.conlleval import entities

logger = logging.getLogger(__name__)

# Scheme -> its prefixes, in the order of the model's outputs.
PREFIXES = {"iob2": "BI", "iob1": "IB", "bioes": "BIES"}
SCHEMES = tuple(PREFIXES)
WORDS = "words"
OUTSIDE = "O"
_ONLY_INSIDE = {"iob2": "I", "iob1": "B"}  # only directly after an entity of the same type


def check_unicode_forms(labels: Iterable[tuple[str, str]]) -> None:
    """Raise if two labels differ only in their Unicode form, such as é and e with an accent.

    Args:
        labels: each label with its place, file:line.

    Raises:
        ValueError: as above; the message shows both with escapes.
    """
    forms: dict[str, tuple[str, str]] = {}
    for label, place in labels:
        form = unicodedata.normalize("NFC", label)
        known, known_place = forms.setdefault(form, (label, place))
        if known != label:
            raise ValueError(
                f"{place}: the label is {label!a}, but {known!a} in {known_place}. They look the same, "
                "but their Unicode form (NFC, NFD) differs, so they would be two classes. Bring all "
                f'files to one form: unicodedata.normalize("NFC", text) in Python makes {form!a}.'
            )


def warn_of_similar_labels(labels: Iterable[str], file: str) -> None:
    """Warn of labels that are probably one: good and Good, 1 and 1.0."""
    groups: dict[str | float, list[str]] = {}
    for label in labels:
        groups.setdefault(_meaning(label), []).append(label)
    similar = [group for group in groups.values() if len(group) > 1]
    if similar:
        logger.warning(
            "%s: labels that differ only in case or spaces, or are equal numbers, are different "
            "classes: %s. Use one spelling if they are one class.",
            file,
            "; ".join(" and ".join(map(repr, group)) for group in similar[:3]),
        )


def is_label(text: str) -> bool:
    """Return True if `text` is O, or B, I, E or S with a type, such as B-PER.

    >>> [is_label(text) for text in ("O", "B-PER", "I-creative-work", "B-", "NN", "o")]
    [True, True, True, False, False, False]
    """
    prefix, _, kind = text.partition("-")
    return text == OUTSIDE or (prefix in tuple("BIES") and bool(kind))


def entity_type(label: str) -> str:
    """Return the part after the prefix; "" for O."""
    return label.partition("-")[2]


def marks_entities(labels: Collection[str]) -> bool:
    """Return True if labels mark entities: B- or I- occurs, or all are O, S- or E-.

    >>> [marks_entities(labels) for labels in (["B-PER", "NN"], ["O"], ["NN", "O"])]
    [True, True, False]
    """
    return any(text[:2] in ("B-", "I-") for text in labels) or all(map(is_label, labels))


def may_mark_entities(labels: Collection[str]) -> bool:
    """Return True if O occurs, and all others look like B- and I- with a type, in another form or case.

    >>> may_mark_entities(["O", "B_PER", "I_PER"]), may_mark_entities(["o", "b-per"])
    (True, True)
    >>> may_mark_entities(["O", "NN", "B_X"]), may_mark_entities(["O"])
    (False, False)
    """
    upper = {label.upper() for label in labels}
    others = upper - {OUTSIDE}
    form = re.compile("[BIES][^A-Z0-9].+|.+[^A-Z0-9][BIES]|[BIES]")
    return OUTSIDE in upper and bool(others) and all(map(form.fullmatch, others))


def breaks(labels: Sequence[str], scheme: str) -> Iterator[tuple[int, str]]:
    """Yield the violations of the scheme in the labels of a sentence, as (index, reason).

    >>> list(breaks(["O", "I-PER"], "iob2"))
    [(1, 'I-PER after O')]
    """
    pairs = zip([OUTSIDE, *labels], [*labels, OUTSIDE], strict=True)  # before, after each border
    for index, (before, label) in enumerate(pairs):
        if may_follow(label, before, scheme):
            continue
        if label[0] not in PREFIXES[scheme] + OUTSIDE:
            yield index, f"{label} is not a label of {scheme}"
        else:
            at_end = index == len(labels)
            what = "the end of the sentence" if at_end else label
            yield index - at_end, f"{what} after {before}"


def may_follow(label: str, before: str, scheme: str) -> bool:
    """Return True if the scheme allows a label after another. The border of a sentence is like O.

    >>> [may_follow("I-PER", before, "iob2") for before in ("B-PER", "B-LOC", "O")]
    [True, False, False]
    """
    if scheme == WORDS:
        return True
    start, end = label[0], before[0]
    same_type = entity_type(before) == entity_type(label)
    if start not in PREFIXES[scheme] + OUTSIDE:
        return False
    if start == _ONLY_INSIDE.get(scheme) and not same_type:
        return False
    is_open, goes_on = end in "BI", start in "IE"
    return scheme != "bioes" or (is_open == goes_on and (same_type or not is_open))


def allowed_transitions(labels: Sequence[str], scheme: str) -> list[list[bool]]:
    """Return `may_follow` of all pairs of labels, and of the border of a sentence: [L + 1][L + 1].

    Row i is for the label before, column j for the label after. The last row is for the first word of a
    sentence, the last column for its last word.

    >>> allowed_transitions(["O", "B-PER", "I-PER"], "iob2")[0]
    [True, True, False, True]
    """
    names = [*labels, OUTSIDE]
    return [[may_follow(label, before, scheme) for label in names] for before in names]


def in_scheme(labels: Sequence[str], scheme: str) -> tuple[str, ...]:
    """Return labels of the scheme for the same entities, as conlleval finds them.

    >>> in_scheme(["O", "I-PER", "I-PER"], "iob2")
    ('O', 'B-PER', 'I-PER')
    """
    if scheme == WORDS:
        return tuple(labels)
    found = [OUTSIDE] * len(labels)
    for kind, start, end in entities(labels):
        inside = ["I"] * (end - start)
        follows = start > 0 and entity_type(found[start - 1]) == kind
        if scheme != "iob1" or follows:
            inside[0] = "B"
        if scheme == "bioes":
            inside[-1] = "E" if len(inside) > 1 else "S"
        found[start:end] = [f"{prefix}-{kind}" for prefix in inside]
    return tuple(found)


def find_scheme(sentences: Iterable[Sequence[str]]) -> str:
    """Return the scheme with the fewest violations, or `WORDS` if the labels mark no entities.

    Ties go to iob2.
    """
    sentences = list(sentences)
    if not marks_entities({label for labels in sentences for label in labels}):
        return WORDS
    numbers = {
        scheme: sum(1 for labels in sentences for _ in breaks(labels, scheme)) for scheme in SCHEMES
    }
    return min(SCHEMES, key=numbers.__getitem__)


def complete_labels(labels: Iterable[str], scheme: str) -> tuple[str, ...]:
    """Return O and every label of the scheme for each type that occurs. Labels of words are sorted.

    >>> complete_labels(["B-PER", "O", "B-LOC", "I-LOC"], "iob2")
    ('O', 'B-LOC', 'I-LOC', 'B-PER', 'I-PER')
    """
    if scheme == WORDS:
        return tuple(sorted(set(labels)))
    types = sorted({entity_type(label) for label in labels} - {""})
    prefixes = PREFIXES[scheme]
    return (OUTSIDE, *(f"{prefix}-{kind}" for kind in types for prefix in prefixes))


def _meaning(label: str) -> str | float:
    """Return the value of a finite number, equal for "1" and "1.0", else the text in one spelling."""
    try:
        if math.isfinite(number := float(label)):
            return number
    except ValueError:
        pass
    return " ".join(label.casefold().split())
