"""Types of label: one of several, any number of several, or a number.

A problem type defines the label in a record, the meaning of the outputs, the loss and the metrics.

Shapes: B batch, N examples of a set, L labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_tf import huggingface_config
from bert_tf.config import BertConfig
from bert_tf.data.features import FeatureSpec
from bert_tf.metrics import basic
from bert_tf.training import losses
from bert_tf.training.losses import Loss

# The label of an example: a name, names, a number; None if unknown.
Label = str | tuple[str, ...] | float | None


_ONE, _ANY, _NUMBER = huggingface_config.PROBLEM_TYPES
_FLOAT32_MAX = float(np.finfo(np.float32).max)


Metric = Callable[[np.ndarray, np.ndarray], float]  # predictions, labels


@dataclass(frozen=True)
class ProblemType:
    """One type of label.

    Args:
        name: value of --problem_type.
        huggingface: `problem_type` in Hugging Face's config.json.
        has_labels: True if the outputs have names; otherwise the single output is a number.
        metrics: name -> function of (predictions, labels), as in `predictions` and the records.
        feature: number of labels -> `label_ids` in the records.
        encode: (label, id of each name) -> the value of that feature.
        loss: weights of the labels or None -> the training loss.
        mean_loss: (logits [N, L], labels) -> unweighted mean of that loss.
        predictions: logits [N, L] -> values that the metrics compare with the labels.
        shown: logits [N, L] -> rows of `test_results.tsv`.
    """

    name: str
    huggingface: str
    has_labels: bool
    metrics: Mapping[str, Metric]
    feature: Callable[[int], FeatureSpec]
    encode: Callable[[Any, Mapping[str, int]], Any]
    loss: Callable[[Sequence[float] | None], Loss]
    mean_loss: Callable[[np.ndarray, np.ndarray], float]
    predictions: Callable[[np.ndarray], np.ndarray]
    shown: Callable[[np.ndarray], np.ndarray]


def _one_id(label: str, ids: Mapping[str, int]) -> int:
    _check_known([label], ids)
    return ids[label]


def _many_ids(label: Sequence[str], ids: Mapping[str, int]) -> np.ndarray:
    label = [label] if isinstance(label, str) else label  # one name, not its letters
    _check_known(label, ids)
    values = np.zeros(len(ids), np.float32)
    values[[ids[name] for name in label]] = 1.0
    return values


def _number(label: float, ids: Mapping[str, int]) -> float:
    try:
        value = float(label)
    except (TypeError, ValueError):
        value = math.nan
    if not abs(value) <= _FLOAT32_MAX:
        raise ValueError(
            f"the label is {label!r}, but must be a finite number for problem_type=regression."
        )
    return value


def _check_known(labels: Sequence[str], ids: Mapping[str, int]) -> None:
    for label in labels:
        if label not in ids:
            raise ValueError(
                f"the label is {label!r}, but the labels of this task are "
                f"{', '.join(map(repr, ids))}."
            )


SINGLE_LABEL = ProblemType(
    name="single_label",
    huggingface=_ONE,
    has_labels=True,
    metrics={
        "accuracy": basic.accuracy,
        "f1": basic.f1,
        "f1_macro": basic.f1_macro,
        "matthews_correlation": basic.matthews_correlation,
    },
    feature=lambda num_labels: FeatureSpec("label_ids", role="label", output="logits"),
    encode=_one_id,
    loss=losses.classification_loss,
    mean_loss=basic.mean_cross_entropy,
    predictions=lambda logits: logits.argmax(axis=-1),
    shown=basic.softmax,
)


MULTI_LABEL = ProblemType(
    name="multi_label",
    huggingface=_ANY,
    has_labels=True,
    metrics={
        "f1_micro": basic.multi_label_f1_micro,
        "f1_macro": basic.multi_label_f1_macro,
        "accuracy": basic.exact_match,
    },
    feature=lambda num_labels: FeatureSpec(
        "label_ids", (num_labels,), dtype="float32", role="label", output="logits"
    ),
    encode=_many_ids,
    loss=losses.multi_label_loss,
    mean_loss=basic.mean_sigmoid_cross_entropy,
    predictions=lambda logits: (logits > 0).astype(np.int32),  # a probability above one half
    shown=basic.sigmoid,
)


REGRESSION = ProblemType(
    name="regression",
    huggingface=_NUMBER,
    has_labels=False,
    metrics={
        "pearson": basic.pearson,
        "spearman": basic.spearman,
        "mean_absolute_error": basic.mean_absolute_error,
    },
    feature=lambda num_labels: FeatureSpec(
        "label_ids", dtype="float32", role="label", output="logits"
    ),
    encode=_number,
    loss=lambda weights: losses.regression_loss(),
    mean_loss=lambda logits, labels: basic.mean_squared_error(logits[:, 0], labels),
    predictions=lambda logits: logits[:, 0],
    shown=lambda logits: logits.astype(np.float64),
)


PROBLEM_TYPES = {kind.name: kind for kind in (SINGLE_LABEL, MULTI_LABEL, REGRESSION)}


def problem_type_of(config: BertConfig, labels: Sequence[str]) -> ProblemType:
    """Return the type in Hugging Face's config.json. Default, as there: one output is a number."""
    stated = config.extra.get("problem_type")
    default = REGRESSION if len(labels) == 1 else SINGLE_LABEL
    return next((kind for kind in PROBLEM_TYPES.values() if kind.huggingface == stated), default)
