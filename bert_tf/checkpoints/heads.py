"""The heads of checkpoints: their variables and Hugging Face's classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from bert_tf.checkpoints.checkpoint import LazyArrays, shape_of
from bert_tf.limits import DataError, join_names


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
        """Return True if a variable belongs to this head."""
        starts = (*self.variables, *self.optional)
        return variable in starts or variable.startswith(
            tuple(start for start in starts if "/" in start)
        )


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
    names = (base.__name__ for base in cls.__mro__)
    return next((BY_ARCHITECTURE[name] for name in names if name in BY_ARCHITECTURE), None)


def find_head(
    arrays: Iterable[str], stated: str | None, architecture: str | None, source: str
) -> Head:
    """Return the type of a checkpoint's head.

    Args:
        arrays: names of its variables.
        stated: a key of `HEADS`, from a user or from `task.json`; or None.
        architecture: Hugging Face's class name, or None.
        source: the checkpoint's name in messages.

    Raises:
        ValueError: the stated head has no variables, or the variables do not identify the head.
    """
    names = list(arrays)
    starts = dict.fromkeys(entry.variables[0] for entry in HEADS.values() if entry.variables)
    present = [start for start in starts if _starts(names, start)]
    head = HEADS[stated] if stated else BY_ARCHITECTURE.get(architecture or "")
    if head is not None:
        absent = [start for start in head.variables if not _starts(names, start)]
        if not absent:
            return head
        if stated:
            raise ValueError(
                f"head={stated} (or task.json) needs {', '.join(absent)}, which {source} lacks: it has "
                f"{join_names([n for n in names if not n.startswith('bert/')], 4) or 'no head'}."
            )
    fitting = [
        head
        for head in HEADS.values()
        if head.architecture
        if set(present) == {start for start in head.variables if start in starts}
    ]
    if len(fitting) == 1:
        return fitting[0]
    raise DataError(
        source,
        f"the variables {', '.join(present)} are of several heads or tasks: give head="
        + "|".join(entry.name for entry in HEADS.values() if set(entry.variables) & set(present)),
    )


def select(
    arrays: Mapping[str, np.ndarray], head: Head, known: Iterable[str], drop_others: bool
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
            f"The other format has no place for {join_names(others, 3)}: give head={head.name} to omit "
            "them, which changes the answers of a model that uses them."
        )
    return LazyArrays({n: shape_of(arrays, n) for n in taken}, arrays.__getitem__), others


def _starts(names: Iterable[str], start: str) -> bool:
    return any(name.startswith(start) for name in names)
