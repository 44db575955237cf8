"""Labels of a checkpoint's classifier: their names, their order, and rows in another order."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from bert_tf.checkpoints.checkpoint import LazyArrays, PretrainedCheckpoint, shape_of
from bert_tf.checkpoints.heads import CLASSIFIER
from bert_tf.config import BertConfig
from bert_tf.tasks.base import Task

logger = logging.getLogger(__name__)

_TRANSITIONS = "crf/transitions"  # one row and column per label, and one for the ends of a sentence


def split_labels(comma_list: str) -> tuple[str, ...]:
    """Return the labels of a flag, such as "neg,pos"."""
    return tuple(label.strip() for label in comma_list.split(",") if label.strip())


def default_labels(config: BertConfig, num_labels: int) -> tuple[str, ...] | None:
    """Return LABEL_0, LABEL_1, ... for a classifier that needs no `id2label`, else None.

    Such a classifier has a single output, a number, or is in a Hugging Face folder. `transformers` uses
    the same names.
    """
    if num_labels == 1 or "model_type" in config.extra:
        return tuple(f"LABEL_{index}" for index in range(num_labels))
    return None


def label_order(
    theirs: Sequence[str], ours: Sequence[str], other_names: Sequence[str] = ()
) -> list[int] | None:
    """Return the row of `theirs` for each label of `ours`, or None if the names do not match.

    Equal names come first. Else names are compared without regard to case, spaces, "-" and "_", and
    LABEL_1 and 1 are one name.

    Args:
        theirs: labels of a checkpoint, in the order of its outputs.
        ours: labels of the data. Their order also applies to a checkpoint without names
            (LABEL_0, LABEL_1, ... or 0, 1, ...).
        other_names: second names of `ours`, in the same order.

    >>> label_order(["ENTAILMENT", "NOT_ENTAILMENT"], ["not entailment", "entailment"])
    [1, 0]
    >>> label_order(["negative", "positive"], ["0", "1"], other_names=["negative", "positive"])
    [0, 1]
    >>> label_order(["joy", "anger"], ["positive", "negative"]) is None
    True
    """
    found = [_plain(label) for label in theirs]
    for names in (ours, other_names):
        if len(set(theirs)) == len(theirs) and sorted(theirs) == sorted(names):
            return [theirs.index(label) for label in names]
        wanted = [_plain(label) for label in names]
        if len(set(found)) == len(found) and sorted(found) == sorted(wanted):
            return [found.index(label) for label in wanted]
    if are_unnamed(theirs) and len(theirs) == len(ours):
        return list(range(len(ours)))
    return None


def in_order_of(theirs: Sequence[str], labels: Sequence[str]) -> Sequence[str]:
    """Return `labels` in the order of the outputs `theirs`, or as they are if the names do not match.

    >>> in_order_of(["NEUTRAL", "BAD", "GOOD"], ["bad", "good", "neutral"])
    ['neutral', 'bad', 'good']
    """
    if set(theirs) == set(labels):
        return theirs
    order = label_order(labels, theirs) if theirs else None
    return labels if order is None else [labels[index] for index in order]


def are_unnamed(labels: Sequence[str]) -> bool:
    """Return True if labels are only numbers: LABEL_0, LABEL_1, ... or 0, 1, ..."""
    return [_plain(label) for label in labels] == [str(index) for index in range(len(labels))]


def spelled_as(labels: Sequence[str], found: Sequence[str]) -> tuple[str, ...]:
    """Return `labels` in the spelling of `found`, if they occur there.

    >>> spelled_as(["NEGATIVE", "POSITIVE", "MIXED"], ["positive", "negative"])
    ('negative', 'positive', 'MIXED')
    >>> spelled_as(["LABEL_0", "LABEL_1"], ["1"])
    ('LABEL_0', '1')
    """
    spellings = {_plain(label): label for label in found}
    spelled = [label if label in found else spellings.get(_plain(label), label) for label in labels]
    return tuple(spelled if len(set(spelled)) == len(spelled) else labels)


def _plain(label: str) -> str:
    """Return a label in NFC and lower case, with single spaces, and LABEL_<number> as a number."""
    label = unicodedata.normalize("NFC", re.sub(r"[\s_-]+", " ", label.strip())).casefold()
    return re.sub(r"^label ?(?=\d+$)", "", label)


def align_head(
    checkpoint: PretrainedCheckpoint,
    known: Task | None,
    task: Task,
    other_names: Sequence[str] = (),
    will_train: bool = False,
) -> PretrainedCheckpoint:
    """Return the checkpoint with its classifier's rows in the order of a task's labels.

    Args:
        known: task of the checkpoint; None if unknown, to skip the comparison.
        task: task of the new model.
        other_names: second names of the labels of `task`, in their order.
        will_train: True if the model will be trained. Then a classifier for other labels is dropped, and
            that of `task` starts with random values.

    Raises:
        ValueError: the classifier is for other labels, and the model will not be trained.
    """
    theirs, ours = getattr(known, "labels", ()), getattr(task, "labels", ())
    if type(known) is not type(task) or not set(CLASSIFIER) <= set(checkpoint.arrays):
        return checkpoint
    if not theirs or not ours:  # a regression
        return checkpoint
    order = label_order(theirs, ours, other_names)
    if order is None:
        named = f"for the labels {', '.join(theirs)}, but those of the data are {', '.join(ours)}"
        if not will_train:
            raise ValueError(
                f"{checkpoint.source} is a classifier {named}. Use data with its labels, correct its "
                "labels in task.json or `id2label` in config.json, or train with do_train."
            )
        logger.warning("%s is a classifier %s: a new one is trained.", checkpoint.source, named)
        return replace(
            checkpoint,
            arrays=without_classifier(checkpoint.arrays),
            unused_head=f"The checkpoint's head is for {len(theirs)} other labels.",
        )
    if are_unnamed(theirs) and set(map(_plain, theirs)) != set(map(_plain, ours)):
        logger.warning(
            "%s does not name its labels (%s). They are assumed to be %s, in this order. If that is "
            "wrong, correct `id2label` in its config.json.",
            checkpoint.source,
            ", ".join(theirs),
            ", ".join(ours),
        )
    return replace(checkpoint, arrays=reordered(checkpoint.arrays, order))


def reordered(arrays: Mapping[str, np.ndarray], order: Sequence[int]) -> LazyArrays:
    """Return arrays with the labels of the classifier and of a CRF in another order."""
    with_ends = [*order, len(order)]

    def read(name: str) -> np.ndarray:
        if name == _TRANSITIONS:
            return arrays[name][np.ix_(with_ends, with_ends)]
        return arrays[name][list(order)] if name in CLASSIFIER else arrays[name]

    return LazyArrays({name: shape_of(arrays, name) for name in arrays}, read)


def without_classifier(arrays: Mapping[str, np.ndarray]) -> LazyArrays:
    """Return arrays without the classifier and its CRF."""
    left_out = (*CLASSIFIER, _TRANSITIONS)
    shapes = {name: shape_of(arrays, name) for name in arrays if name not in left_out}
    return LazyArrays(shapes, arrays.__getitem__)
