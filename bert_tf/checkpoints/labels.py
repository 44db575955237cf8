"""Labels of a checkpoint's classifier: their names, their order, and rows in another order."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from bert_tf.checkpoints.checkpoint import (
    LazyArrays,
    PretrainedCheckpoint,
    rename_arrays,
    shape_of,
)
from bert_tf.checkpoints.heads import CLASSIFIER

logger = logging.getLogger(__name__)

_TRANSITIONS = "crf/transitions"  # one row and column per label, and one for the ends of a sentence


def split_labels(comma_list: str) -> tuple[str, ...]:
    """Return the labels of a flag, such as "neg,pos"."""
    return tuple(label.strip() for label in comma_list.split(",") if label.strip())


def label_order(
    checkpoint_labels: Sequence[str], labels: Sequence[str], other_names: Sequence[str] = ()
) -> list[int] | None:
    """Return the row of the checkpoint for each label, or None if the names do not match.

    Equal names come first. Else names are compared without regard to case, spaces, "-" and "_", and
    LABEL_1 and 1 are one name.

    Args:
        checkpoint_labels: in the order of its outputs.
        labels: of the data. Their order also applies to a checkpoint without names (LABEL_0, LABEL_1,
            ... or 0, 1, ...).
        other_names: second names of `labels`, in the same order.

    >>> label_order(["ENTAILMENT", "NOT_ENTAILMENT"], ["not entailment", "entailment"])
    [1, 0]
    >>> label_order(["negative", "positive"], ["0", "1"], other_names=["negative", "positive"])
    [0, 1]
    >>> label_order(["joy", "anger"], ["positive", "negative"]) is None
    True
    """
    plain = [_normalize(label) for label in checkpoint_labels]
    for names in (labels, other_names):
        for rows, targets in (
            (list(checkpoint_labels), names),
            (plain, [_normalize(n) for n in names]),
        ):
            if len(set(rows)) == len(rows) and sorted(rows) == sorted(targets):
                return [rows.index(label) for label in targets]
    if are_unnamed(checkpoint_labels) and len(checkpoint_labels) == len(labels):
        return list(range(len(labels)))
    return None


def are_unnamed(labels: Sequence[str]) -> bool:
    """Return True if labels are only numbers: LABEL_0, LABEL_1, ... or 0, 1, ..."""
    return [_normalize(label) for label in labels] == [str(index) for index in range(len(labels))]


def _normalize(label: str) -> str:
    """Return a label in NFC and lower case, with single spaces, and LABEL_<number> as a number."""
    label = unicodedata.normalize("NFC", re.sub(r"[\s_-]+", " ", label.strip())).casefold()
    return re.sub(r"^label ?(?=\d+$)", "", label)


def align_labels(
    checkpoint: PretrainedCheckpoint,
    checkpoint_labels: Sequence[str],
    labels: Sequence[str],
    other_names: Sequence[str] = (),
    will_train: bool = False,
) -> PretrainedCheckpoint:
    """Return the checkpoint with its classifier's rows in the order of a model's labels.

    Args:
        checkpoint_labels: labels of the checkpoint; () if it has no such head, or a number.
        labels: labels of the new model; () for a number.
        other_names: second names of `labels`, in their order.
        will_train: True if the model will be trained. Then a classifier for other labels is dropped, and
            that of the model starts with random values.

    Raises:
        ValueError: the classifier is for other labels, and the model will not be trained.
    """
    if not checkpoint_labels or not labels or not set(CLASSIFIER) <= set(checkpoint.arrays):
        return checkpoint
    order = label_order(checkpoint_labels, labels, other_names)
    names = ", ".join(checkpoint_labels), ", ".join(labels)
    if order is None:
        problem = "The checkpoint's head has the labels {}, the model's {}.".format(*names)
        if not will_train:
            raise ValueError(
                f"{checkpoint.source}: {problem} Use data with its labels, correct its labels in "
                "task.json or `id2label` in config.json, or train with do_train."
            )
        others = {n: n for n in checkpoint.arrays if n not in (*CLASSIFIER, _TRANSITIONS)}
        arrays = rename_arrays(checkpoint.arrays, others)
        return replace(checkpoint, arrays=arrays, unused_head=problem)
    if are_unnamed(checkpoint_labels) and not are_unnamed(labels):
        logger.warning(
            "%s does not name its labels (%s). They are assumed to be %s, in this order. If that is "
            "wrong, correct `id2label` in its config.json.",
            *(checkpoint.source, *names),
        )
    return replace(checkpoint, arrays=reorder_labels(checkpoint.arrays, order))


def reorder_labels(arrays: Mapping[str, np.ndarray], order: Sequence[int]) -> LazyArrays:
    """Return arrays with the labels of the classifier and of a CRF in another order."""
    with_ends = [*order, len(order)]

    def read(name: str) -> np.ndarray:
        if name == _TRANSITIONS:
            return arrays[name][np.ix_(with_ends, with_ends)]
        return arrays[name][list(order)] if name in CLASSIFIER else arrays[name]

    # The shapes are those of the file, so that other numbers of rows are found.
    return LazyArrays({name: shape_of(arrays, name) for name in arrays}, read)
