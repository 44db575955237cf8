"""Checks that a model can learn from a teacher: type of task, labels, tokenizer."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from bert_tf.model_folder import TrainedModel
from bert_tf.tasks.base import ExampleTask
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.of_checkpoint import are_unnamed, label_order
from bert_tf.tasks.reranking import RerankingTask
from bert_tf.tokenization import FullTokenizer

logger = logging.getLogger(__name__)


def check_same_type(trained: TrainedModel, task: ExampleTask) -> None:
    """Raise ValueError if the teacher is not for this type of task and of input."""
    found, remedy = trained.task, "Use a teacher that was trained for this task."
    if isinstance(task, RerankingTask):
        task = ClassificationTask(**task.arguments())
    if found is None or found.name != task.name:
        if trained.unused_head:
            raise ValueError(f"The teacher cannot be used. {trained.unused_head}")
        what = "has no trained head" if found is None else f"is for {found.name}"
        raise ValueError(
            f"The teacher {trained.source} {what}, but the model is for {task.name}. {remedy}"
        )
    if not (isinstance(found, ClassificationTask) and isinstance(task, ClassificationTask)):
        return
    theirs, ours = (each.kind.name for each in (found, task))
    if theirs != ours:
        raise ValueError(
            f"The teacher {trained.source} is for problem_type={theirs}, but the model for {ours}. "
            f"{remedy}"
        )
    if None not in (found.is_pair, task.is_pair) and found.is_pair != task.is_pair:
        inputs = ("single sentences", "pairs of sentences")
        raise ValueError(
            f"The teacher {trained.source} is for {inputs[found.is_pair]}, but the data are "
            f"{inputs[task.is_pair]}. {remedy}"
        )


def order_of_labels(
    trained: TrainedModel, task: ExampleTask, other_names: Sequence[str]
) -> Sequence[int] | None:
    """Return the teacher's output for each label of `task`, or None without labels."""
    theirs, ours = (getattr(each, "labels", ()) for each in (trained.task, task))
    if not ours:  # a regression, answers or choices
        return None
    order = label_order(theirs, ours, other_names)
    if order is None:
        raise ValueError(
            f"The teacher {trained.source} has the {len(theirs)} labels {', '.join(theirs)}, but the "
            f"data have {len(ours)}: {', '.join(ours)}. Use a teacher with the labels of the data, or "
            "correct the names in its task.json (Hugging Face: `id2label` in config.json)."
        )
    if are_unnamed(theirs) and not are_unnamed(ours):
        logger.warning(
            "The teacher %s does not name its labels (%s). They are assumed to be %s, in this order.",
            trained.source,
            ", ".join(theirs),
            ", ".join(ours),
        )
    return order


def same_tokenizer(theirs: FullTokenizer, ours: FullTokenizer) -> bool:
    """Return True if vocabulary and case are the same."""
    return theirs.vocab == ours.vocab and theirs.do_lower_case == ours.do_lower_case


def warn_of_other_numbers(teacher: str, numbers: np.ndarray, labels: np.ndarray) -> None:
    """Warn if a teacher's numbers miss the labels by more than the mean of the labels does.

    Such a teacher often has another scale: the logits of scores from 0 to 1, for labels from 0 to 5.

    Args:
        numbers, labels: float [N].
    """
    error, spread = np.sqrt(np.mean((numbers - labels) ** 2)), np.std(labels)
    if error > spread > 0:
        logger.warning(
            "The teacher %s misses the labels by %.3g (root mean square), their own mean by %.3g only. "
            "Its numbers are from %.3g to %.3g, the labels from %.3g to %.3g. Use a teacher with the "
            "scale of the labels, change theirs, or learn the teacher alone: hard_labels=0.",
            *(teacher, error, spread),
            *(numbers.min(), numbers.max(), labels.min(), labels.max()),
        )
