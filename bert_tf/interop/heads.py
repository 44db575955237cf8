"""The heads of a checkpoint: their variables, and Hugging Face's class for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from bert_tf.interop.checkpoint import LazyArrays, shape_of

_ROOT = ("output_weights", "output_bias")
_MASKED_LM = "cls/predictions/"
_NEXT_SENTENCE = "cls/seq_relationship/"
_SPAN = "cls/squad/"


@dataclass(frozen=True)
class Head:
    """One type of head.

    Args:
        name: its value in head and `task.json`.
        architecture: Hugging Face's class.
        starts: prefixes of its variables' names; full names for variables at the root.
        uses_pooler: whether Hugging Face's class has a pooler. (Ours and the reference's always do.)
        has_labels: whether its outputs have names.
    """

    name: str
    architecture: str
    starts: tuple[str, ...]
    uses_pooler: bool
    has_labels: bool = False

    def owns(self, name: str) -> bool:
        """Return True if the variable `name` belongs to this head."""
        return name in self.starts or any(name.startswith(s) for s in self.starts if "/" in s)


HEADS = {
    head.name: head
    for head in (
        Head("encoder", "BertModel", (), True),
        Head("pretraining", "BertForPreTraining", (_MASKED_LM, _NEXT_SENTENCE), True),
        Head("masked_lm", "BertForMaskedLM", (_MASKED_LM,), False),
        Head("next_sentence", "BertForNextSentencePrediction", (_NEXT_SENTENCE,), True),
        Head("classification", "BertForSequenceClassification", _ROOT, True, has_labels=True),
        Head("token_classification", "BertForTokenClassification", _ROOT, False, has_labels=True),
        Head("question_answering", "BertForQuestionAnswering", (_SPAN,), False),
        Head("multiple_choice", "BertForMultipleChoice", _ROOT, True),
    )
}
BY_ARCHITECTURE = {head.architecture: head for head in HEADS.values()}


def find_head(
    arrays: Iterable[str], stated: str | None, architecture: str | None, source: str
) -> Head:
    """Return the head of a checkpoint.

    Args:
        arrays: names of its variables.
        stated: a name in `TYPES`, from a user or from `task.json`; or None.
        architecture: Hugging Face's class name, or None.
        source: the checkpoint, for messages.

    Raises:
        ValueError: the stated head's variables are missing, or the head is ambiguous.
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
                f"head={stated} (or task.json) needs variables {', '.join(absent)}..., which are "
                f"missing in {source}. Its heads' variables: "
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
            f"{source} has a classifier, but no file next to it states what it classifies. Give "
            "head=classification (sentences; written by the original run_classifier.py), "
            "head=token_classification or head=multiple_choice."
        )
    raise ValueError(
        f"{source} has several heads ({', '.join(present)}). Choose the one to write: head="
        + "|".join(HEADS)
    )


def select(
    arrays: Mapping[str, np.ndarray], head: TaskType, known: Iterable[str], drop_others: bool
) -> tuple[LazyArrays, tuple[str, ...]]:
    """Return the variables of the encoder and of one head, and the names of the omitted ones.

    Args:
        known: all names that a BERT and its heads may have.
        drop_others: whether other variables may be omitted.

    Raises:
        ValueError: the encoder is incomplete, or other variables may not be omitted.
    """
    known = set(known)
    needed = {n for n in known if n.startswith("bert/") and not n.startswith("bert/pooler/")}
    missing = sorted(needed - set(arrays))
    if missing:
        raise ValueError(
            f"The encoder is incomplete: {len(missing)} variables are missing, such as {missing[0]}. "
            "Check that the configuration belongs to these weights and `num_hidden_layers` is right."
        )
    taken = [n for n in arrays if n in known and (n.startswith("bert/") or head.owns(n))]
    others = tuple(n for n in arrays if n not in set(taken))
    if others and not drop_others:
        raise ValueError(
            f"{len(others)} variables belong neither to BERT's encoder nor to its head "
            f"`{head.name}`: {', '.join(others[:3])}{', ...' if len(others) > 3 else ''}. The other "
            f"format cannot store them. To omit them, give head={head.name}."
        )
    return LazyArrays({n: shape_of(arrays, n) for n in taken}, arrays.__getitem__), others


def _starts(names: Iterable[str], start: str) -> bool:
    return any(name.startswith(start) for name in names)
