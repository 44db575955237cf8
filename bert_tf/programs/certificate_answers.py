"""Parts of inputs and answers that a certificate compares, for each type of task."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.prediction.classification import LabelModel
from bert_tf.prediction.masked_lm import MaskModel
from bert_tf.prediction.multiple_choice import ChoiceModel
from bert_tf.prediction.question_answering import QuestionModel
from bert_tf.prediction.text_model import TextModel
from bert_tf.prediction.token_classification import EntityModel

_ACCENTS = str.maketrans("aeioucn", "áèîöüçñ")

Decisions = Mapping[Any, Any]  # place in an answer -> what was chosen there
Numbers = Mapping[str, np.ndarray]


def texts_of(item: Any) -> Iterator[str]:
    if isinstance(item, str):
        yield item
    elif item is not None:
        for part in item:
            yield from texts_of(part)


@functools.singledispatch
def decisions_of(model: TextModel, answer: Mapping[str, Any]) -> Decisions:
    """Return the decisions in an answer."""
    return {}


@decisions_of.register
def _(model: LabelModel, answer: Mapping[str, Any]) -> Decisions:
    if model.problem_type == "multi_label":
        return {label: label in answer["labels"] for label in model.labels}
    return {"label": answer["label"]} if "label" in answer else {}


@decisions_of.register
def _(model: QuestionModel, answer: Mapping[str, Any]) -> Decisions:
    return {name: answer[name] for name in ("answer", "start", "end")}


@decisions_of.register
def _(model: EntityModel, answer: Mapping[str, Any]) -> Decisions:
    kind = "label" if model.word_labels else "type"
    return {(each["start"], each["end"]): each[kind] for each in answer[model.columns[0]]}


@decisions_of.register
def _(model: ChoiceModel, answer: Mapping[str, Any]) -> Decisions:
    return {"prediction": answer["prediction"]}


@decisions_of.register
def _(model: MaskModel, answer: Mapping[str, Any]) -> Decisions:
    return {number: mask[0]["token"] for number, mask in enumerate(answer["masks"])}


def margin_of(model: TextModel, answer: Mapping[str, Any], place: Any) -> float | None:
    """Return how much more probable a decision is than the next one; None if unknown.

    Args:
        answer: of a model with probabilities of labels or choices.
        place: of the decision.
    """
    found = answer.get("probabilities")
    if not isinstance(model, (LabelModel, ChoiceModel)) or not found:
        return None
    if getattr(model, "problem_type", "") == "multi_label":
        return abs(2 * found[place] - 1) if place in found else None
    best = sorted(found.values() if isinstance(found, Mapping) else found)
    return best[-1] - best[-2] if len(best) > 1 else None


def numbers_of(
    model: TextModel, ours: Mapping[str, Any], theirs: Mapping[str, Any]
) -> tuple[Numbers, Numbers]:
    """Return the numbers in two answers to the same input that can be compared."""
    names: tuple[str, ...] = ("probabilities", "score", "embedding", "null_odds")
    if isinstance(model, QuestionModel) and ours["start"] is None:
        names = ("null_odds",)  # a score belongs to an answer
    sides = [{name: side[name] for name in names if name in side} for side in (ours, theirs)]
    if isinstance(model, LabelModel) and "probabilities" in sides[0]:
        for side in sides:
            side["probabilities"] = [side["probabilities"].get(n, np.nan) for n in model.labels]
    if isinstance(model, EntityModel) and decisions_of(model, ours) == decisions_of(model, theirs):
        for side, answer in zip(sides, (ours, theirs), strict=True):
            side["probability"] = [each["probability"] for each in answer[model.columns[0]]]
    if isinstance(model, MaskModel):
        pairs = list(zip(ours["masks"], theirs["masks"], strict=False))
        for place, side in enumerate(sides):
            side["probability"] = [
                one["probability"] for pair in pairs for one in pair[place][: min(map(len, pair))]
            ]
    plain = [{name: np.float32(value) for name, value in side.items()} for side in sides]
    return plain[0], plain[1]


def variants(model: TextModel, items: Sequence[Any], max_seq_length: int) -> list[Any]:
    """Return inputs in upper case, with accents, with rare characters, and beyond the longest.

    Those that the model does not take are left out, such as a [MASK] beyond the longest input.
    """
    found = []
    for each in (other for item in items for other in _changes(item, max_seq_length)):
        try:
            model.prepare(each)
            found.append(each)
        except ValueError:
            continue
    return found


def _changes(item: Any, max_seq_length: int) -> list[Any]:

    def longer(text: str) -> str:
        plain = text.replace("[MASK]", " ") or "word"
        return " ".join([text, *[plain] * (max_seq_length // max(1, len(plain.split())) + 1)])

    changes: list[Callable[[str], str]] = [
        str.upper,
        lambda text: text.translate(_ACCENTS),
        lambda text: f"{text}\u200b 猫½ ﬁn İ 😀\ufffd",
        longer,
    ]
    return [_changed(item, change) for change in changes]


def _changed(item: Any, change: Callable[[str], str]) -> Any:
    if item is None or isinstance(item, str):
        return item if item is None else change(item)
    return type(item)(_changed(part, change) for part in item)
