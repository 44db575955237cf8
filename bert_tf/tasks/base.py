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

from bert_tf.config import BertConfig
from bert_tf.data.features import FeatureSpec
from bert_tf.training.losses import Loss

Tensors = Mapping[str, Any]


class Task(abc.ABC):
    """What every task answers.

    Attributes:
        name: of the kind of problem, in `task.json`.
        features: what one record holds.
        losses: terms of the training loss.
        max_seq_length: S, tokens of an example with [CLS], [SEP] and padding.
    """

    name: str
    features: Sequence[FeatureSpec]
    losses: Sequence[Loss]
    max_seq_length: int

    @property
    def input_names(self) -> tuple[str, ...]:
        """The features that the model takes."""
        return tuple(spec.name for spec in self.features if spec.role == "input")

    @abc.abstractmethod
    def arguments(self) -> dict[str, Any]:
        """What makes this task again, in values that JSON can hold: `type(task)(**arguments)`."""

    @abc.abstractmethod
    def build_model(self, config: BertConfig, dtype: str | None = None) -> keras.Model:
        """A new model with random weights; `dtype` is a Keras precision policy."""

    @abc.abstractmethod
    def eval_outputs(self, outputs: Tensors, features: Tensors) -> Tensors:
        """What evaluation keeps of a batch: tensors [B, ...]."""

    @abc.abstractmethod
    def metrics(self, kept: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Figures of an evaluation set, from what `eval_outputs` kept of all its examples."""
