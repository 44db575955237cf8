"""Which label may follow which, in each scheme of labels (pictures in data/label_schemes.py)."""

from __future__ import annotations

from collections.abc import Sequence

# Scheme -> its prefixes, in the order of the model's outputs.
PREFIXES = {"iob2": "BI", "iob1": "IB", "bioes": "BIES"}
SCHEMES = tuple(PREFIXES)
WORDS = "words"
OUTSIDE = "O"
_ONLY_INSIDE = {"iob2": "I", "iob1": "B"}  # only directly after an entity of the same type


def entity_type(label: str) -> str | None:
    """Return the part after the prefix, "" without a type; None for O."""
    return None if label == OUTSIDE else label.partition("-")[2]


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


def scheme_of_transitions(labels: Sequence[str], allowed: list[list[bool]]) -> str:
    """Return the scheme in which these are the `allowed_transitions`."""
    for scheme in (*SCHEMES, WORDS):
        if allowed_transitions(labels, scheme) == allowed:
            return scheme
    raise ValueError(
        "`allowed_transitions` must be those of the `labels` in one of the schemes "
        f"{', '.join((*SCHEMES, WORDS))}."
    )
