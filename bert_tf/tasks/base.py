"""Task: one kind of problem, as the training loop and the workflows see it.

A task knows its features, its model, its losses and its metrics. It does not know optimizers,
checkpoints, devices or flags.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.features import FeatureSpec
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.losses import Loss

Tensors = Mapping[str, Any]


class Task(abc.ABC):
    """What every task answers.

    Attributes:
        name: of the kind of problem, in `task.json`.
        features: what the model and the losses take of an example.
        losses: terms of the training loss.
        max_seq_length: S, tokens of an example with [CLS], [SEP] and padding.
        best_metric: name in `metrics` of the figure that says which weights are best; lower is better
            where it has "loss" or "perplexity" in it.
        predictions_per_token: of a masked-LM head, for counting operations.
    """

    name: str
    features: Sequence[FeatureSpec]
    losses: Sequence[Loss]
    max_seq_length: int
    best_metric: str = "eval_loss"  # of `metrics`: which weights are best
    predictions_per_token: float = 0.0  # of a masked-LM head, for the count of operations

    @property
    def min_seq_length(self) -> int:
        """Fewest tokens of a sequence: [CLS], a token or the [SEP] of a pair, [SEP]."""
        return 3

    @property
    def input_names(self) -> tuple[str, ...]:
        """The features that the model takes."""
        return tuple(spec.name for spec in self.features if spec.role == "input")

    @property
    def record_features(self) -> Sequence[FeatureSpec]:
        """What one record holds; `complete` makes the rest of `features`."""
        return self.features

    def complete(
        self, dataset: tf.data.Dataset, seed: int, first_batch: int = 0
    ) -> tf.data.Dataset:
        """Batches of `features` from batches of `record_features`.

        What is added may depend on the batch, `seed` and the number of the batch, and on nothing
        else: so a run goes on as if it had never been interrupted.

        Args:
            first_batch: number of the first batch of `dataset` in the whole stream.
        """
        return dataset

    @abc.abstractmethod
    def arguments(self) -> dict[str, Any]:
        """What makes this task again, in values that JSON can hold: `type(task)(**arguments)`."""

    @classmethod
    def of_head(
        cls,
        config: BertConfig,
        labels: Sequence[str],
        max_seq_length: int,
        *,
        is_pair: bool | None,
        num_choices: int,
    ) -> Task | None:
        """Return the task of a checkpoint, or None if there is none; see `of_checkpoint.make_task`."""
        return None

    @abc.abstractmethod
    def build_model(self, config: BertConfig, dtype: str | None = None) -> keras.Model:
        """A new model with random weights; `dtype` is a Keras precision policy."""

    @abc.abstractmethod
    def eval_outputs(self, outputs: Tensors, features: Tensors) -> Tensors:
        """What evaluation keeps of a batch: tensors [B, ...]."""

    @abc.abstractmethod
    def metrics(self, kept: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Figures of an evaluation set, from what `eval_outputs` kept of all its examples."""


class ExampleTask(Task):
    """A task whose records are made of examples, one after the other."""

    @abc.abstractmethod
    def write_records(
        self, examples: Sequence[Any], tokenizer: FullTokenizer, path: str, num_workers: int = 1
    ) -> int:
        """Writes examples as a TFRecord file, in so many processes; the number of records."""

    @abc.abstractmethod
    def records_key(self, examples: Sequence[Any], tokenizer: FullTokenizer) -> str:
        """A hash of all that `write_records` depends on."""

    def num_sequences(self, examples: Sequence[Any]) -> int:
        """About how many sequences the records hold in all."""
        return len(examples)
