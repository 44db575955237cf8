"""The heads of checkpoints: their variables, Hugging Face's classes, their tasks and labels."""

from __future__ import annotations

import logging
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bert_tf.checkpoints.checkpoint import LazyArrays, PretrainedCheckpoint, rename_arrays, shape_of
from bert_tf.config import HUGGINGFACE_PROBLEM_TYPES, BertConfig
from bert_tf.limits import DataError, join_names
from bert_tf.registry import TASK_FILE

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Head:
    """A head, or none.

    Args:
        name: of its type of task, if it has one.
        architecture: Hugging Face's class, or "".
        variables: prefixes of the names of its variables; whole names at the root.
        optional: the same of variables that only some models have.
        uses_pooler: True if Hugging Face's class has a pooler. Our models and the reference's always
            do.
        has_labels: True if the outputs have names.
    """

    name: str
    architecture: str
    variables: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    uses_pooler: bool = True
    has_labels: bool = False

    def owns(self, variable: str) -> bool:
        starts = (*self.variables, *self.optional)
        return variable in starts or variable.startswith(
            tuple(start for start in starts if "/" in start)
        )


_TRANSITIONS = "crf/transitions"  # one row and column per label, and one for the ends of a sentence
CLASSIFIER = ("output_weights", "output_bias")  # one row per label
_MASKED_LM, _NEXT_SENTENCE = "cls/predictions/", "cls/seq_relationship/"
HEADS = {
    head.name: head
    for head in (
        Head("encoder", "BertModel"),
        Head("pretraining", "BertForPreTraining", (_MASKED_LM, _NEXT_SENTENCE)),
        Head("masked_lm", "BertForMaskedLM", (_MASKED_LM,), uses_pooler=False),
        Head("next_sentence", "BertForNextSentencePrediction", (_NEXT_SENTENCE,)),
        Head("classification", "BertForSequenceClassification", CLASSIFIER, has_labels=True),
        Head(
            *("token_classification", "BertForTokenClassification", CLASSIFIER),
            uses_pooler=False,
            has_labels=True,
        ),
        Head(
            *("question_answering", "BertForQuestionAnswering", ("cls/squad/",)), uses_pooler=False
        ),
        Head("multiple_choice", "BertForMultipleChoice", CLASSIFIER),
        Head("embeddings", "", optional=("cls/embedding/",), uses_pooler=False),
    )
}
BY_ARCHITECTURE = {head.architecture: head for head in HEADS.values() if head.architecture}


def head_of_model(cls: type) -> Head | None:
    """Return the head of a class of models, which a subclass shares, or None."""
    heads = {**BY_ARCHITECTURE, "BertForSentenceEmbedding": HEADS["embeddings"]}
    return next((heads[base.__name__] for base in cls.__mro__ if base.__name__ in heads), None)


def find_head(
    arrays: Iterable[str], stated: str | None, architecture: str | None, source: str
) -> Head:
    """Return the type of a checkpoint's head."""
    known = [name for name in arrays if any(head.owns(name) for head in HEADS.values())]

    def is_complete(head: Head) -> bool:
        return all(any(name.startswith(start) for name in known) for start in head.variables)

    head = HEADS[stated] if stated else BY_ARCHITECTURE.get(architecture or "")
    if head is not None and is_complete(head):
        return head
    complete = list(filter(is_complete, BY_ARCHITECTURE.values()))
    matching = [head for head in complete if all(map(head.owns, known))]
    if stated or len(matching) != 1:
        names = "|".join(head.name for head in matching or complete)
        raise DataError(source, f"has {join_names(known, 4) or 'no head'}: give head={names}.")
    return matching[0]


def select(
    arrays: Mapping[str, np.ndarray], head: Head, known: Iterable[str], drop_others: bool
) -> tuple[LazyArrays, tuple[str, ...]]:
    """Return the variables of the encoder and of one head, and the names of the others."""
    known = set(known)
    needed = {n for n in known if n.startswith("bert/") and not n.startswith("bert/pooler/")}
    if missing := sorted(needed - set(arrays)):
        raise ValueError(
            f"The weights lack {join_names(missing, 3)}: is `num_hidden_layers` theirs?"
        )
    names = [n for n in arrays if n in known and (n.startswith("bert/") or head.owns(n))]
    dropped = tuple(name for name in arrays if name not in set(names))
    if dropped and not drop_others:
        raise ValueError(
            f"The other format has no place for {join_names(dropped, 3)}: give head={head.name} to omit "
            "them."
        )
    return rename_arrays(arrays, {name: name for name in names}), dropped


# ---------------------------------------------------------------------------- the task of a head


def find_problem_type(config: BertConfig, labels: Sequence[str] | None) -> str:
    """Return the problem type that a config.json states. Default, as there: one output is a number."""
    stated = config.extra.get("problem_type")
    default = "regression" if len(labels or ()) == 1 else "single_label"
    return next((n for n, value in HUGGINGFACE_PROBLEM_TYPES.items() if value == stated), default)


def default_labels(config: BertConfig, num_labels: int) -> tuple[str, ...] | None:
    """Return LABEL_0, LABEL_1, ... as `transformers`, for a number or in its folders, else None."""
    if num_labels == 1 or "model_type" in config.extra:
        return tuple(f"LABEL_{index}" for index in range(num_labels))
    return None


def task_values(
    checkpoint: PretrainedCheckpoint, max_seq_length: int | None = None
) -> tuple[dict[str, Any] | None, str]:
    """Return what a `task.json` of a checkpoint contains; or None, and why its head has no task.

    Without that file, the head is that of Hugging Face's `architectures`, or the only one that matches
    the variables, and arguments with a default may be absent.
    """
    if checkpoint.task is not None:
        _check_same_head(checkpoint, checkpoint.task)
        return dict(checkpoint.task), ""
    if checkpoint.config is None or checkpoint.problem:
        return None, checkpoint.problem
    longest = checkpoint.longest_input(checkpoint.config)
    length = max_seq_length or longest
    if checkpoint.embeddings is not None:
        length = longest if checkpoint.tokenizer.max_seq_length else length
        return {"task": "embeddings", "max_seq_length": length, **checkpoint.embeddings}, ""
    return _values_of_head(checkpoint, checkpoint.config, length)


def _check_same_head(checkpoint: PretrainedCheckpoint, task: Mapping[str, Any]) -> None:
    """Raise if Hugging Face's config.json, which others may have written anew, has another head."""
    path = os.path.join(checkpoint.folder, TASK_FILE)
    if task["task"] not in HEADS:  # a user's own
        return
    # The architecture of an embedder is that of the encoder.
    expected = HEADS[task["task"]].architecture or HEADS["encoder"].architecture
    stated, labels = checkpoint.architecture, tuple(task.get("labels") or ())
    has_other_labels = labels and checkpoint.labels and labels != checkpoint.labels
    if has_other_labels or (stated in BY_ARCHITECTURE and stated != expected):
        here, there = (expected, *labels), (str(stated), *(checkpoint.labels or ()))
        names = join_names(here, 5), join_names(there, 5)
        raise DataError(path, "{}, but the config.json next to it {}: delete one.".format(*names))


def _values_of_head(
    checkpoint: PretrainedCheckpoint, config: BertConfig, max_seq_length: int
) -> tuple[dict[str, Any] | None, str]:
    """Return `task_values` for the head of another project."""
    source, labels = checkpoint.source, checkpoint.labels
    try:
        head = find_head(checkpoint.arrays, None, checkpoint.architecture, source)
    except ValueError as error:
        return None, f"{error} Convert it with its task by convert_checkpoint."
    if head.has_labels and labels is None:
        num_labels = shape_of(checkpoint.arrays, "output_weights")[0]
        labels = default_labels(config, num_labels)
        if labels is None:
            remedy = f"name the {num_labels} outputs with convert_checkpoint --labels."
            return None, f"{source} has no names for its labels: {remedy}"
    values: dict[str, Any] = {"task": head.name, "max_seq_length": max_seq_length}
    if head.name == "classification":
        problem_type = find_problem_type(config, labels)
        if problem_type == "regression" and len(labels or ()) > 1:
            return None, f"{source} has a regression head with several outputs, which no task has."
        values |= {"is_pair": checkpoint.is_pair, "problem_type": problem_type}
        values["labels"] = [] if problem_type == "regression" else list(labels or ())
    elif head.name == "token_classification":
        values["labels"] = list(labels or ())
    elif head.name == "question_answering":
        values["max_query_length"] = max(1, min(64, max_seq_length - 4))
    elif head.name == "multiple_choice":
        values["num_choices"] = 4
    elif head.name == "pretraining":
        values["max_predictions_per_seq"] = min(20, max_seq_length)
    else:
        return None, ""
    return values, ""


# ------------------------------------------------------------------------------------------ labels


def split_labels(comma_list: str) -> tuple[str, ...]:
    return tuple(label.strip() for label in comma_list.split(",") if label.strip())


def label_order(
    checkpoint_labels: Sequence[str], labels: Sequence[str], other_names: Sequence[str] = ()
) -> list[int] | None:
    """Return the row of the checkpoint for each label, or None if the names do not match.

    Equal names come first. Else names are compared without regard to case, spaces, "-" and "_", and
    LABEL_1 and 1 are one name. Without names (LABEL_0, ...) a checkpoint has the order of `labels`.
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
        will_train: True if the model will be trained. Then a classifier for other labels is dropped, and
            that of the model starts with random values.
    """
    if not checkpoint_labels or not labels or not set(CLASSIFIER) <= set(checkpoint.arrays):
        return checkpoint
    order = label_order(checkpoint_labels, labels, other_names)
    names = ", ".join(checkpoint_labels), ", ".join(labels)
    if order is None:
        problem = "The checkpoint's head has the labels {}, the model's {}.".format(*names)
        if not will_train:
            raise DataError(
                checkpoint.source, f"{problem} Use its labels, or correct its `id2label`."
            )
        others = {n: n for n in checkpoint.arrays if n not in (*CLASSIFIER, _TRANSITIONS)}
        arrays = rename_arrays(checkpoint.arrays, others)
        return replace(checkpoint, arrays=arrays, unused_head=problem)
    if are_unnamed(checkpoint_labels) and not are_unnamed(labels):
        logger.warning(
            "%s has the labels %s, assumed to be %s. If that is wrong, correct its `id2label`.",
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
