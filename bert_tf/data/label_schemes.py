"""Schemes of labels that mark entities: IOB1, IOB2, BIOES.

words    John    Smith   Ann     lives  in  New     York
iob1     I-PER   I-PER   B-PER   O      O   I-LOC   I-LOC     B- only after another of its type
iob2     B-PER   I-PER   B-PER   O      O   B-LOC   I-LOC     B- at each beginning
bioes    B-PER   E-PER   S-PER   O      O   B-LOC   E-LOC     E- at each end, S- at both

BILOU and BMES are BIOES with other letters. Labels without a type, B and I, are of one nameless type.
The scheme `words` is for labels that mark no entities, such as parts of speech.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bert_tf.data.conlleval import entities

# Scheme -> its prefixes, in the order of the model's outputs.
PREFIXES = {"iob2": "BI", "iob1": "IB", "bioes": "BIES"}
SCHEMES = tuple(PREFIXES)
WORDS = "words"
OUTSIDE = "O"
_ONLY_INSIDE = {"iob2": "I", "iob1": "B"}  # only directly after an entity of the same type
_IN_BIOES = {**{prefix: prefix for prefix in "BIES"}, "L": "E", "U": "S", "M": "I"}


def entity_label(text: str) -> str | None:
    """Return a label of entities with a prefix of BIOES; None if `text` is none.

    >>> [entity_label(text) for text in ("O", "B-PER", "M-PER", "U-a-b", "I", "B-", "NN", "b-PER")]
    ['O', 'B-PER', 'I-PER', 'S-a-b', 'I', None, None, None]
    """
    prefix, dash, kind = text.partition("-")
    if text == OUTSIDE:
        return text
    return (
        _IN_BIOES[prefix] + dash + kind
        if prefix in _IN_BIOES and bool(dash) == bool(kind)
        else None
    )


def entity_type(label: str) -> str | None:
    """Return the part after the prefix, "" without a type; None for O."""
    return None if label == OUTSIDE else label.partition("-")[2]


def _with_prefix(prefix: str, kind: str | None) -> str:
    return f"{prefix}-{kind}" if kind else prefix


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
        found[start:end] = [_with_prefix(prefix, kind) for prefix in inside]
    return tuple(found)


def find_scheme(sentences: Iterable[Sequence[str]]) -> str:
    """Return the scheme of entities with the fewest violations. Ties go to iob2."""
    sentences = list(sentences)
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
    types = sorted({kind for kind in map(entity_type, labels) if kind is not None})
    prefixes = PREFIXES[scheme]
    return (OUTSIDE, *(_with_prefix(prefix, kind) for kind in types for prefix in prefixes))
