"""Classification of single sentences and of pairs: one label, multiple labels or a number.

Shapes: B batch, S sequence, L labels (1 output for a number), W windows, N examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_tf.config import HUGGINGFACE_PROBLEM_TYPES, BertConfig
from bert_tf.data.features import FeatureSpec, sequence_specs
from bert_tf.data.parallel import SentenceRecords, SentenceRow
from bert_tf.data.records import content_key
from bert_tf.limits import DataError
from bert_tf.modeling.models import BertForSequenceClassification
from bert_tf.registry import TaskType, register_task
from bert_tf.tasks import metrics as basic
from bert_tf.tasks.base import ExampleTask, Tensors, check_argument
from bert_tf.tokenization import FullTokenizer
from bert_tf.training import losses
from bert_tf.training.losses import Loss

# The label of an example: a name, names, a number; None if unknown.
Label = str | tuple[str, ...] | float | None

Metric = Callable[[np.ndarray, np.ndarray], float]  # predictions, labels


@dataclass(frozen=True)
class ProblemType:
    name: str  # value of --problem_type
    has_labels: bool  # whether the outputs have names; otherwise the single output is a number
    metrics: Mapping[str, Metric]
    feature: Callable[[int], FeatureSpec]  # number of labels -> `label_ids` in the records
    # (label, id of each name) -> the value of that feature. Raises KeyError, TypeError or ValueError
    # for another label.
    encode: Callable[[Any, Mapping[str, int]], Any]
    loss: Callable[[], Loss]
    mean_loss: Callable[
        [np.ndarray, np.ndarray], float
    ]  # (logits [N, L], labels) -> unweighted mean
    predictions: Callable[[np.ndarray], np.ndarray]  # logits [N, L] -> what the metrics compare
    scores: Callable[[np.ndarray], np.ndarray]  # logits [N, L] -> probabilities, or the numbers


def _multi_hot(label: Sequence[str], ids: Mapping[str, int]) -> np.ndarray:
    names = [label] if isinstance(label, str) else label  # one name, not its letters
    values = np.zeros(len(ids), np.float32)
    values[[ids[name] for name in names]] = 1.0
    return values


def _finite(label: float, ids: Mapping[str, int]) -> float:
    value = float(label)
    if not abs(value) <= np.finfo(np.float32).max:
        raise ValueError
    return value


SINGLE_LABEL = ProblemType(
    name="single_label",
    has_labels=True,
    metrics={
        "accuracy": basic.accuracy,
        "f1": basic.f1,
        "f1_macro": basic.f1_macro,
        "matthews_correlation": basic.matthews_correlation,
    },
    feature=lambda num_labels: FeatureSpec("label_ids", role="label", output="logits"),
    encode=lambda label, ids: ids[label],
    loss=losses.classification_loss,
    mean_loss=basic.mean_cross_entropy,
    predictions=lambda logits: logits.argmax(axis=-1),
    scores=basic.softmax,
)

MULTI_LABEL = ProblemType(
    name="multi_label",
    has_labels=True,
    metrics={
        "f1_micro": basic.multi_label_f1_micro,
        "f1_macro": basic.multi_label_f1_macro,
        "accuracy": basic.exact_match,
    },
    feature=lambda num_labels: FeatureSpec(
        "label_ids", (num_labels,), dtype="float32", role="label", output="logits"
    ),
    encode=_multi_hot,
    loss=losses.multi_label_loss,
    mean_loss=basic.mean_sigmoid_cross_entropy,
    predictions=lambda logits: (logits > 0).astype(np.int32),  # a probability above one half
    scores=basic.sigmoid,
)

REGRESSION = ProblemType(
    name="regression",
    has_labels=False,
    metrics={
        "pearson": basic.pearson,
        "spearman": basic.spearman,
        "mean_absolute_error": basic.mean_absolute_error,
    },
    feature=lambda num_labels: FeatureSpec(
        "label_ids", dtype="float32", role="label", output="logits"
    ),
    encode=_finite,
    loss=losses.regression_loss,
    mean_loss=lambda logits, labels: basic.mean_squared_error(logits[:, 0], labels),
    predictions=lambda logits: logits[:, 0],
    scores=lambda logits: logits.astype(np.float64),
)

PROBLEM_TYPES = {kind.name: kind for kind in (SINGLE_LABEL, MULTI_LABEL, REGRESSION)}


@dataclass(frozen=True)
class InputExample:
    """One row of a data set.

    Args:
        guid: identifies the row, e.g. "dev-17".
        text_a: the sentence, or the first of a pair.
        text_b: the second of a pair.
        label: a name; a tuple of names if multi-label; a number for a regression; None if unknown (a
            test set).
        origin: "file:line", for messages.

    >>> InputExample("dev-17", "It rains.", "The sun shines.", label="contradiction").names
    ['contradiction']
    """

    guid: str
    text_a: str
    text_b: str | None = None
    label: Label = None
    origin: str = ""

    @property
    def location(self) -> str:
        return self.origin or self.guid

    @property
    def names(self) -> Sequence[str]:
        """Labels of a classification: one, several or none."""
        label: Any = self.label
        return [label] if isinstance(label, str) else label or ()


class ClassificationTask(ExampleTask):
    """Classification of texts or pairs: one of several labels, any number of them, or a number.

    >>> task = ClassificationTask(["bad", "good"], max_seq_length=128, is_pair=True)
    >>> task.metric_keys[:2]
    ('eval_accuracy', 'eval_f1')

    Args:
        labels: in the order of the output units; empty for a regression.
        max_seq_length: S, with [CLS] and [SEP]. Choose what most texts need: time grows with it.
        metric_names: metrics of the problem type to report, the selecting one first. None: all.
        is_pair: True if an example has two sentences; None if unknown, so that both are accepted.
        problem_type: key of `PROBLEM_TYPES`.
        doc_stride: tokens between windows of a long example, whose logits are averaged. None: truncate.

    Source: Devlin et al. 2019, section 4.1.
    """

    name = "classification"
    fixed_arguments = ("labels", "problem_type")
    lower_is_better = ("eval_mean_absolute_error", "eval_loss", "loss")
    truncation = (
        "%d of %d examples are longer than --max_seq_length=%d tokens and are truncated. "
        "--doc_stride reads them whole."
    )

    def __init__(
        self,
        labels: Sequence[str],
        max_seq_length: int,
        metric_names: Sequence[str] | None = None,
        is_pair: bool | None = False,
        problem_type: str = "single_label",
        doc_stride: int | None = None,
    ):
        is_known = problem_type in PROBLEM_TYPES
        check_argument(is_known, "problem_type", problem_type, f"one of {', '.join(PROBLEM_TYPES)}")
        self.problem_type, self.kind = problem_type, PROBLEM_TYPES[problem_type]
        names = [name for name in self.kind.metrics if name != "f1" or len(labels) == 2]
        metric_names = names if metric_names is None else metric_names
        min_labels = {"single_label": 2, "multi_label": 1}.get(problem_type, 0)
        # A set has another order than the outputs.
        is_list = not isinstance(labels, str | Set | Mapping) and len(set(labels)) == len(labels)
        rule = f"a list of {min_labels} or more, all different"
        check_argument(is_list and len(labels) >= min_labels, "labels", labels, rule)
        check_argument(
            self.kind.has_labels or not labels, "labels", labels, "empty for a regression"
        )
        check_argument(doc_stride is None or doc_stride > 0, "doc_stride", doc_stride, "1 or more")
        is_valid = bool(metric_names) and set(metric_names) <= set(names)
        check_argument(is_valid, "metric_names", metric_names, f"of {', '.join(names)}")
        self.labels = tuple(labels)
        self._ids = {label: index for index, label in enumerate(self.labels)}
        self.max_seq_length = max_seq_length
        self.metric_names = tuple(metric_names)
        self.best_metric = f"eval_{self.metric_names[0]}"
        self.soft_loss = {"multi_label": "sigmoid", "regression": "number"}.get(
            problem_type, "softmax"
        )
        self.is_pair = is_pair
        self.doc_stride = doc_stride
        self.features = (  # the reference's record, with the example's number for windows
            *sequence_specs((max_seq_length,)),
            self.kind.feature(len(self.labels)),
            FeatureSpec("is_real_example", role="weight", output="logits"),
            *([FeatureSpec("example_numbers", role="id")] if doc_stride else []),
        )
        self.losses = (self.kind.loss(),)

    @property
    def metric_keys(self) -> tuple[str, ...]:
        return (*(f"eval_{name}" for name in self.metric_names), "eval_loss", "loss")

    @property
    def num_outputs(self) -> int:
        return len(self.labels) if self.kind.has_labels else 1

    def id_limits(self, config: BertConfig) -> dict[str, int]:
        own = {"label_ids": len(self.labels)} if self.problem_type == "single_label" else {}
        return super().id_limits(config) | own

    def arguments(self) -> dict[str, Any]:
        values = super().arguments()
        return {n: v for n, v in values.items() if n != "doc_stride" or v is not None}

    @property
    def min_seq_length(self) -> int:
        return 2 + bool(self.is_pair) + bool(self.doc_stride)  # windows move by a token or more

    def build_model(
        self, config: BertConfig, dtype: str | None = None
    ) -> BertForSequenceClassification:
        return BertForSequenceClassification(
            config,
            self.num_outputs,
            labels=[str(label) for label in self.labels] or None,  # older folders may have numbers
            problem_type=HUGGINGFACE_PROBLEM_TYPES[self.problem_type],
            dtype=dtype,
        )

    def check_examples(self, examples: Iterable[InputExample]) -> None:
        """Raise if an example does not fit the task.

        Raises:
            ValueError: a label is unknown, or an example has one text and the task takes pairs, or the
                other way round; the message names the line.
        """
        for example in examples:
            is_pair = example.text_b is not None
            if self.is_pair is not None and is_pair != self.is_pair:
                problem = f"{1 + is_pair} texts, but the task has is_pair={self.is_pair}."
                raise DataError(example.location, problem)
            self._encode_label(example)

    def _encode_label(self, example: InputExample) -> Any:
        """Return the label as in a record; zeros without a label."""
        label = example.label
        if label is None:
            return np.zeros(self.kind.feature(len(self.labels)).shape, np.float32)
        try:
            return self.kind.encode(label, self._ids)
        except (KeyError, TypeError, ValueError) as error:
            label = error.args[0] if isinstance(error, KeyError) else label
            valid = ", ".join(map(repr, self.labels)) or "finite numbers"
            raise DataError(
                example.location,
                f"the label is {label!r}, but the labels of this task are {valid}.",
            ) from error

    def rows(self, examples: Sequence[InputExample], tokenizer: FullTokenizer) -> list[SentenceRow]:
        unlabeled = [example for example in examples if example.label is None]
        if 0 < len(unlabeled) < len(examples):  # they would be learned as the first label
            problem = f"no label, as {len(unlabeled)} of {len(examples)} examples: leave them out."
            raise DataError(unlabeled[0].location, problem)
        self.check_examples(examples)
        return [
            SentenceRow(n, e.text_a, e.text_b, self._encode_label(e))
            for n, e in enumerate(examples)
        ]

    def count_records(self, examples: Sequence[InputExample], tokenizer: FullTokenizer) -> int:
        """Return how many records `write_records` makes of the examples."""
        if not self.doc_stride:
            return len(examples)
        make = self.record_maker(tokenizer)
        return sum(make.count(example.text_a, example.text_b) for example in examples)

    def record_maker(self, tokenizer: FullTokenizer) -> SentenceRecords:
        names, dtype = self.record_names, self.kind.feature(len(self.labels)).dtype
        return SentenceRecords(tokenizer, self.max_seq_length, names, self.doc_stride, dtype)

    def records_key(self, examples: Iterable[InputExample], tokenizer: FullTokenizer) -> str:
        settings = [self.labels, self.kind.name, self.max_seq_length, self.doc_stride]
        rows = ((example.text_a, example.text_b, example.label) for example in examples)
        return content_key(tokenizer, settings, rows)

    def eval_outputs(self, outputs: Tensors, features: Tensors) -> Tensors:
        names = ["label_ids"] + ["example_numbers"] * bool(self.doc_stride)
        return {"logits": outputs["logits"], **{name: features[name] for name in names}}

    def learned_shapes(self, embedding_dim):
        return {"logits": (self.num_outputs,)}

    def decode(self, outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return `logits` and `label_ids` of each example, averaged over its windows."""
        if not self.doc_stride:
            return dict(outputs)
        _, first, number = np.unique(
            outputs["example_numbers"], return_index=True, return_inverse=True
        )
        order = np.argsort(number, kind="stable")
        windows = np.split(outputs["logits"][order], np.cumsum(np.bincount(number))[:-1])
        logits = np.stack([rows.mean(axis=0) for rows in windows])
        return {"logits": logits, "label_ids": outputs["label_ids"][first]}

    def metrics(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Return `eval_loss` in nats (squared error for a regression), and `eval_<metric>`.

        `loss` repeats the loss, as in the reference.

        Args:
            outputs: `logits` [N, L], and `label_ids` of each example.
        """
        logits, labels = outputs["logits"], outputs["label_ids"]
        predictions = self.kind.predictions(logits)
        loss = self.kind.mean_loss(logits, labels)
        values = {
            f"eval_{name}": self.kind.metrics[name](predictions, labels)
            for name in self.metric_names
        }
        return {**values, "eval_loss": loss, "loss": loss}


register_task(
    TaskType(
        name="classification",
        task=ClassificationTask,
        program="run_classifier",
        pipeline="text-classification",
        usage='predict(["A text."])',
    )
)
