"""The head of a checkpoint: which of `registry.TYPES` it is, and its variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from bert_tf.interop.checkpoint import LazyArrays, shape_of
from bert_tf.registry import BY_ARCHITECTURE, TYPES, TaskType


def find_head(
    arrays: Iterable[str], stated: str | None, architecture: str | None, source: str
) -> TaskType:
    """Which head a checkpoint has.

    Args:
        arrays: names of its variables.
        stated: a name in `TYPES`, from a user or from `task.json`; or None.
        architecture: Hugging Face's class name, or None.
        source: the checkpoint, as messages name it.

    Raises:
        ValueError: the stated head has no variables there, or they do not say which head this is.
    """
    names = list(arrays)
    starts = dict.fromkeys(entry.variables[0] for entry in TYPES.values() if entry.variables)
    present = [start for start in starts if _starts(names, start)]
    head = TYPES[stated] if stated else BY_ARCHITECTURE.get(architecture or "")
    if head is not None:
        absent = [start for start in head.variables if not _starts(names, start)]
        if not absent:
            return head
        if stated:
            raise ValueError(
                f"head={stated} (or task.json) names a head with variables {', '.join(absent)}..., "
                f"but {source} has none of that name. Its heads' variables: "
                f"{', '.join(n for n in names if not n.startswith('bert/')) or 'none'}."
            )
    fitting = [
        head
        for head in TYPES.values()
        if set(present) == {start for start in head.variables if start in starts}
    ]
    if len(fitting) == 1:
        return fitting[0]
    if present == ["output_weights"]:
        raise ValueError(
            f"{source} has a classifier, but nothing beside it says what it classifies. Give "
            "head=classification (sentences; what the original run_classifier.py writes), "
            "head=token_classification or head=multiple_choice."
        )
    raise ValueError(
        f"{source} has several heads ({', '.join(present)}). Say which one shall be written: head="
        + "|".join(TYPES)
    )


def select(
    arrays: Mapping[str, np.ndarray], head: TaskType, known: Iterable[str], drop_others: bool
) -> tuple[LazyArrays, tuple[str, ...]]:
    """The variables of the encoder and of one head, and the names of those left out.

    Args:
        known: all names that a BERT and its heads may have.
        drop_others: whether variables besides may be left out.

    Raises:
        ValueError: the encoder is incomplete, or there are other variables and they may not be left
            out.
    """
    known = set(known)
    needed = {n for n in known if n.startswith("bert/") and not n.startswith("bert/pooler/")}
    missing = sorted(needed - set(arrays))
    if missing:
        raise ValueError(
            f"The encoder is incomplete: {len(missing)} variables are missing, such as {missing[0]}. "
            "Is the configuration that of these weights, and `num_hidden_layers` right?"
        )
    taken = [n for n in arrays if n in known and (n.startswith("bert/") or head.owns(n))]
    others = tuple(n for n in arrays if n not in set(taken))
    if others and not drop_others:
        raise ValueError(
            f"{len(others)} variables belong neither to BERT's encoder nor to its head "
            f"`{head.name}`: {', '.join(others[:3])}{', ...' if len(others) > 3 else ''}. The other "
            f"format has no place for them. To leave them out, say so with head={head.name}."
        )
    return LazyArrays({n: shape_of(arrays, n) for n in taken}, arrays.__getitem__), others


def _starts(names: Iterable[str], start: str) -> bool:
    return any(name.startswith(start) for name in names)
