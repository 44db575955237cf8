"""Classification of single sentences and of pairs.

Shapes: B batch, S sequence, L labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.data.features import FeatureSpec
from bert_tf.data.packing import pack_texts
from bert_tf.data.records import RecordWriter
from bert_tf.modeling.models import BertForSequenceClassification
from bert_tf.tasks.base import Task, Tensors
from bert_tf.tokenization import FullTokenizer
from bert_tf.training import metrics
from bert_tf.training.losses import classification_loss

Metric = Callable[[np.ndarray, np.ndarray], float]

METRICS: Mapping[str, Metric] = {
    "accuracy": metrics.accuracy,
    "f1": metrics.f1,
    "matthews_correlation": metrics.matthews_correlation,
}


@dataclass(frozen=True)
class InputExample:
    """One row of a data set.

    Args:
        guid: names the row, e.g. "dev-17".
        text_a: the sentence, or the first of a pair.
        text_b: the second of a pair.
        label: None where it is not known (a test set).
        origin: "file:line", for messages.
    """

    guid: str
    text_a: str
    text_b: str | None = None
    label: str | None = None
    origin: str = ""


class ClassificationTask(Task):
    """One label for each example.

    Args:
        labels: in the order of the output units.
        max_seq_length: S.
        metric_names: keys of `METRICS` to report.
        is_pair: whether an example has two sentences.
    """

    name = "classification"

    def __init__(
        self,
        labels: Sequence[str],
        max_seq_length: int,
        metric_names: Sequence[str] = ("accuracy",),
        is_pair: bool = False,
    ):
        if len(set(labels)) != len(labels) or len(labels) < 2:
            raise ValueError(
                f"`labels` are {list(labels)}, but must be two or more that differ. "
                "With one label there is nothing to learn."
            )
        self.labels = tuple(labels)
        self.max_seq_length = max_seq_length
        self.metric_names = tuple(metric_names)
        self.best_metric = f"eval_{self.metric_names[0]}"
        self.is_pair = is_pair
        self.features = classification_features(max_seq_length)
        self.losses = (classification_loss(),)

    def arguments(self) -> dict[str, Any]:
        return {
            "labels": list(self.labels),
            "max_seq_length": self.max_seq_length,
            "metric_names": list(self.metric_names),
            "is_pair": self.is_pair,
        }

    def build_model(
        self, config: BertConfig, dtype: str | None = None
    ) -> BertForSequenceClassification:
        return BertForSequenceClassification(config, len(self.labels), dtype=dtype)

    def write_records(
        self, examples: Iterable[InputExample], tokenizer: FullTokenizer, path: str
    ) -> int:
        """Writes `examples` as a TFRecord file; their number.

        Raises:
            ValueError: an example has a label that is not among `labels`; the message names its line.
        """
        ids = {label: index for index, label in enumerate(self.labels)}
        with RecordWriter(path, self.features) as writer:
            for example in examples:
                packed = pack_texts(tokenizer, example.text_a, example.text_b, self.max_seq_length)
                # A test set has no labels; its records hold the first one, which nobody reads.
                label_id = 0 if example.label is None else _label_id(example, ids)
                writer.write({**packed._asdict(), "label_ids": label_id, "is_real_example": 1})
        return writer.count

    def eval_outputs(self, outputs: Tensors, features: Tensors) -> Tensors:
        return {"logits": outputs["logits"], "label_ids": features["label_ids"]}

    def metrics(self, kept: Mapping[str, np.ndarray]) -> dict[str, float]:
        """`eval_loss` in nats, and `eval_<metric>`; `loss` repeats the loss, as in the reference."""
        logits, labels = kept["logits"], kept["label_ids"]
        predictions = logits.argmax(axis=-1)
        loss = metrics.mean_cross_entropy(logits, labels)
        named = {f"eval_{name}": METRICS[name](predictions, labels) for name in self.metric_names}
        return {**named, "eval_loss": loss, "loss": loss}


def classification_features(max_seq_length: int) -> tuple[FeatureSpec, ...]:
    """The reference's record for classification."""
    return (
        FeatureSpec("input_ids", (max_seq_length,)),
        FeatureSpec("input_mask", (max_seq_length,)),
        FeatureSpec("segment_ids", (max_seq_length,)),
        FeatureSpec("label_ids", role="label", output="logits"),
        FeatureSpec("is_real_example", role="weight", output="logits"),
    )


def _label_id(example: InputExample, ids: Mapping[str, int]) -> int:
    if example.label not in ids:
        raise ValueError(
            f"{example.origin or example.guid}: the label is {example.label!r}, but the labels of "
            f"this task are {', '.join(map(repr, ids))}."
        )
    return ids[example.label]
