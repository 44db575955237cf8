"""The heads a checkpoint may have: their variables, and the class that Hugging Face has for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from bert_tf.interop.checkpoint import LazyArrays, shape_of

_ROOT = ("output_weights", "output_bias")
_MASKED_LM = "cls/predictions/"
_NEXT_SENTENCE = "cls/seq_relationship/"
_SPAN = "cls/squad/"


@dataclass(frozen=True)
class Head:
    """One kind of head.

    Args:
        name: as --head and `task.json` have it.
        architecture: Hugging Face's class.
        starts: how the names of its variables start; the names themselves at the root.
        uses_pooler: whether Hugging Face's class has a pooler. (Ours and the reference's always have.)
        has_labels: whether its outputs have names.
    """

    name: str
    architecture: str
    starts: tuple[str, ...]
    uses_pooler: bool
    has_labels: bool = False

    def owns(self, name: str) -> bool:
        """Whether the variable `name` belongs to this head."""
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
    """Which head a checkpoint has.

    Args:
        arrays: names of its variables.
        stated: a name in `HEADS`, from a user or from `task.json`; or None.
        architecture: Hugging Face's class name, or None.
        source: the checkpoint, as messages name it.

    Raises:
        ValueError: the stated head has no variables there, or they do not say which head this is.
    """
    names = list(arrays)
    present = [s for s in (*_ROOT[:1], _MASKED_LM, _NEXT_SENTENCE, _SPAN) if _starts(names, s)]
    head = HEADS[stated] if stated else BY_ARCHITECTURE.get(architecture or "")
    if head is not None:
        absent = [start for start in head.starts if not _starts(names, start)]
        if not absent:
            return head
        if stated:
            raise ValueError(
                f"--head={stated} (or task.json) names a head with variables {', '.join(absent)}..., "
                f"but {source} has none of that name. Its heads' variables: "
                f"{', '.join(n for n in names if not n.startswith('bert/')) or 'none'}."
            )
    fitting = [
        head
        for head in HEADS.values()
        if set(present) == {start for start in head.starts if start != _ROOT[1]}
    ]
    if len(fitting) == 1:
        return fitting[0]
    if present == [_ROOT[0]]:
        raise ValueError(
            f"{source} has a classifier, but nothing beside it says what it classifies. Give "
            "--head=classification (sentences; what the original run_classifier.py writes), "
            "--head=token_classification or --head=multiple_choice."
        )
    raise ValueError(
        f"{source} has several heads ({', '.join(present)}). Say which one shall be written: --head="
        + "|".join(HEADS)
    )


def select(
    arrays: Mapping[str, np.ndarray], head: Head, known: Iterable[str], drop_others: bool
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
            f"format has no place for them. To leave them out, say so with --head={head.name}."
        )
    return LazyArrays({n: shape_of(arrays, n) for n in taken}, arrays.__getitem__), others


def _starts(names: Iterable[str], start: str) -> bool:
    return any(name.startswith(start) for name in names)
