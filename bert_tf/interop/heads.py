"""The type of a checkpoint's head, one of `registry.TYPES`, and its variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from bert_tf.interop.checkpoint import LazyArrays, shape_of
from bert_tf.limits import DataError, listed
from bert_tf.registry import BY_ARCHITECTURE, TYPES, TaskType


def find_head(
    arrays: Iterable[str], stated: str | None, architecture: str | None, source: str
) -> TaskType:
    """Return the type of a checkpoint's head.

    Args:
        arrays: names of its variables.
        stated: a key of `TYPES`, from a user or from `task.json`; or None.
        architecture: Hugging Face's class name, or None.
        source: the checkpoint's name in messages.

    Raises:
        ValueError: the stated head has no variables, or the variables do not identify the head.
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
                f"head={stated} (or task.json) needs {', '.join(absent)}, which {source} lacks: it has "
                f"{listed([name for name in names if not name.startswith('bert/')], 4) or 'no head'}."
            )
    fitting = [
        head
        for head in TYPES.values()
        if head.architecture
        if set(present) == {start for start in head.variables if start in starts}
    ]
    if len(fitting) == 1:
        return fitting[0]
    raise DataError(
        source,
        f"the variables {', '.join(present)} are of several heads or tasks: give head="
        + "|".join(entry.name for entry in TYPES.values() if set(entry.variables) & set(present)),
    )


def select(
    arrays: Mapping[str, np.ndarray], head: TaskType, known: Iterable[str], drop_others: bool
) -> tuple[LazyArrays, tuple[str, ...]]:
    """Return the variables of the encoder and of one head, and the names of the others.

    Args:
        known: all valid names of a BERT and its heads.
        drop_others: True to allow other variables.

    Raises:
        ValueError: the encoder is incomplete, or other variables exist without `drop_others`.
    """
    known = set(known)
    needed = {n for n in known if n.startswith("bert/") and not n.startswith("bert/pooler/")}
    missing = sorted(needed - set(arrays))
    if missing:
        raise ValueError(
            f"The weights lack {len(missing)} variables of the encoder, such as {missing[0]}: is "
            "`num_hidden_layers` theirs?"
        )
    taken = [n for n in arrays if n in known and (n.startswith("bert/") or head.owns(n))]
    others = tuple(n for n in arrays if n not in set(taken))
    if others and not drop_others:
        raise ValueError(
            f"The other format has no place for {listed(others, 3)}: give head={head.name} to omit "
            "them, which changes the answers of a model that uses them."
        )
    return LazyArrays({n: shape_of(arrays, n) for n in taken}, arrays.__getitem__), others


def _starts(names: Iterable[str], start: str) -> bool:
    return any(name.startswith(start) for name in names)
