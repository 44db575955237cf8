"""Base of all tasks: features, model, losses and metrics of one type of problem.

A task is independent of optimizers, checkpoints, devices and flags.
"""

from __future__ import annotations

import abc
import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.features import FeatureSpec
from bert_tf.data.records import split_chunks, write_parts
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.losses import Loss

logger = logging.getLogger(__name__)

Tensors = Mapping[str, Any]

MIN_SEQ_LENGTH = 3  # [CLS], a token or the [SEP] of a pair, [SEP]


class Task(abc.ABC):
    """Base of all tasks.

    Attributes:
        name: type of task, in `task.json`.
        features: features of an example for the model and the losses.
        losses: terms of the training loss.
        max_seq_length: S, tokens of an example with [CLS], [SEP] and padding.
        fixed_arguments: those of the constructor that cannot change when a run resumes.
        best_metric: key of `metrics` that selects the best weights.
        lower_is_better: keys of `metrics` of which lower values are better; of all others, higher ones.
        predictions_per_token: of a masked-LM head, for counting operations.
        is_pretrained: only the encoder or the masked-LM head of the model answers texts.
    """

    name: str
    features: Sequence[FeatureSpec]
    losses: Sequence[Loss]
    max_seq_length: int
    fixed_arguments: Sequence[str] = ("labels",)
    best_metric: str = "eval_loss"
    lower_is_better: Collection[str] = ("eval_loss", "loss")
    predictions_per_token: float = 0.0
    is_pretrained: bool = False

    @property
    def min_seq_length(self) -> int:
        """Minimum tokens of a sequence."""
        return MIN_SEQ_LENGTH

    @property
    def uses_pooler(self) -> bool:
        """True if the outputs of the model depend on the pooler."""
        return True

    @property
    def metric_keys(self) -> Sequence[str] | None:
        """Keys of `metrics`, valid as `best_metric`; None if they depend on the data.

        A subclass with other metrics overrides it.
        """
        return None

    @property
    def input_names(self) -> tuple[str, ...]:
        """Features that the model takes."""
        return tuple(spec.name for spec in self.features if spec.role == "input")

    def id_limits(self, config: BertConfig) -> dict[str, int]:
        """Return the number of valid ids of each feature that contains ids."""
        return {"input_ids": config.vocab_size, "segment_ids": config.type_vocab_size}

    @property
    def record_features(self) -> Sequence[FeatureSpec]:
        """Features in one record; `complete` adds the rest of `features`."""
        return self.features

    def complete(
        self, dataset: tf.data.Dataset, seed: int, first_batch: int = 0
    ) -> tf.data.Dataset:
        """Return batches of `features` from batches of `record_features`.

        Added values may depend on the batch, `seed` and the number of the batch, and on nothing else.
        A resumed run then equals an uninterrupted one.

        Args:
            first_batch: number of the first batch of `dataset` in the whole stream.
        """
        return dataset

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, as JSON values: `type(task)(**arguments)`.

        They are the attributes with the names of its parameters. A subclass that keeps `name` has those
        of the class whose name it is, which will be made from them.
        """
        named = next((cls for cls in type(self).__mro__ if "name" in vars(cls)), type(self))
        values = {name: getattr(self, name) for name in inspect.signature(named).parameters}
        lists = {n: list(v) for n, v in values.items() if isinstance(v, tuple)}
        return values | lists

    def values(self) -> dict[str, Any]:
        """Return the content of `task.json`."""
        return {"task": self.name, **self.arguments()}

    @abc.abstractmethod
    def build_model(self, config: BertConfig, dtype: str | None = None) -> keras.Model:
        """Return a new model with random weights; `dtype` is a Keras precision policy."""

    @abc.abstractmethod
    def eval_outputs(self, outputs: Tensors, features: Tensors) -> Tensors:
        """Return the tensors [B, ...] of a batch that evaluation keeps."""

    def decode(self, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outputs of an evaluation set, from the `eval_outputs` of all its examples.

        Makes the decisions that depend on several records.
        """
        return outputs

    def metrics(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Return the metrics of an evaluation set, from the result of `decode`."""
        raise NotImplementedError(f"{type(self).__name__} has no metrics of outputs alone.")


class ExampleTask(Task):
    """A task whose records are made of examples, in their order.

    Attributes:
        truncation: message with the numbers of truncated texts, of all texts, and S.
        soft_loss: what the outputs mean to a student: logits of a "softmax" or of a "sigmoid", a
            "number", or vectors by their "similarities".
    """

    soft_loss = "softmax"
    truncation = "%d of %d texts are longer than --max_seq_length=%d and truncated"

    def write_records(
        self, examples: Sequence[Any], tokenizer: FullTokenizer, path: str, num_workers: int = 1
    ) -> int:
        """Write examples as a TFRecord file, the same for any `num_workers`."""
        rows = self.rows(examples, tokenizer)
        parts, make = split_chunks(rows), self.record_maker(tokenizer)
        count, num_truncated = write_parts(path, self.written_features, make, parts, num_workers)
        if num_truncated:
            num_texts = self.num_sequences(examples)
            logger.warning(self.truncation, num_truncated, num_texts, self.max_seq_length)
        return count

    @property
    def written_features(self) -> Sequence[FeatureSpec]:
        """Features in the record files; those beside `record_features` are not read."""
        return self.record_features

    @property
    def record_names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.written_features)

    def rows(self, examples: Sequence[Any], tokenizer: FullTokenizer) -> Iterable[Any]:
        """Return the examples as `record_maker` takes them; default: as they are."""
        return examples

    @abc.abstractmethod
    def record_maker(
        self, tokenizer: FullTokenizer
    ) -> Callable[[Sequence[Any]], tuple[list[bytes], int]]:
        """Return the function from rows to serialized records and the number of truncated texts."""

    @abc.abstractmethod
    def records_key(self, examples: Sequence[Any], tokenizer: FullTokenizer) -> str:
        """Return a hash of everything that determines the records."""

    def learned_outputs(self, outputs: Tensors, features: Tensors) -> Tensors:
        """Return the outputs [B, ...] that a student learns, of the teacher or of the student itself."""
        tensors = self.eval_outputs(outputs, features)
        return {name: tensors[name] for name in tensors if name.endswith("logits")}

    def num_sequences(self, examples: Sequence[Any]) -> int:
        """Return about how many sequences the records contain in total."""
        return len(examples)


def check_argument(is_valid: object, name: str, value: Any, rule: str) -> None:
    if not is_valid:
        raise ValueError(f"`{name}` is {value!r:.60}, but must be {rule}.")
