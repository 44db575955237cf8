"""Evaluation and prediction: a model over a data set, without training it."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.training.progress import Progress
from bert_tf.training.strategy import distribute, is_chief, is_multi_worker

Tensors = Mapping[str, Any]


class PredictStep:
    """Runs of a model over data sets, compiled once for each function of outputs."""

    def __init__(
        self, model: keras.Model, strategy: tf.distribute.Strategy, input_names: Sequence[str]
    ):
        self._model = model
        self._strategy = strategy
        self._input_names = tuple(input_names)
        self._functions: dict[tuple, Callable] = {}

    def run(
        self,
        dataset: tf.data.Dataset,
        outputs_of: Callable[[Tensors, Tensors], Tensors],
        batch_size: int,
        label: str = "eval",
        max_batches: int | None = None,
    ) -> dict[str, np.ndarray]:
        """Return name -> array [examples, ...] of `outputs_of(outputs, features)`, in order."""
        if max_batches is not None:
            dataset = dataset.take(max_batches)
        replicas = self._strategy.num_replicas_in_sync
        filled_size = -(-batch_size // replicas) * replicas

        @tf.autograph.experimental.do_not_convert
        def fill(features):
            return _fill(features, filled_size)

        progress = Progress(label, int(dataset.cardinality()), unit="batches")
        batches = distribute(self._strategy, dataset.map(fill))
        predict = self._function(outputs_of, batches.element_spec)
        arrays: dict[str, list[np.ndarray]] = defaultdict(list)
        for number, (features, is_real) in enumerate(batches, start=1):
            outputs, is_real = predict(features, is_real)
            keep = self._gather(is_real).astype(bool)
            for name, value in outputs.items():
                arrays[name].append(self._gather(value)[keep])
            if is_chief(self._strategy):
                progress.update(number)
        return {name: np.concatenate(parts) for name, parts in arrays.items()}

    def _function(self, outputs_of: Callable[[Tensors, Tensors], Tensors], specs: Any) -> Callable:
        """Return the compiled step, (features, is_real) -> (outputs, is_real) of all replicas."""
        key = outputs_of, *tf.nest.flatten(specs)
        if key not in self._functions:

            def replica(features, is_real):
                inputs = {name: features[name] for name in self._input_names if name in features}
                outputs = self._model(inputs, training=False)
                # Integers, because `all_gather` takes no booleans.
                results = dict(outputs_of(outputs, features)), tf.cast(is_real, tf.int32)
                if not is_multi_worker(self._strategy):
                    return results
                gather = functools.partial(tf.distribute.get_replica_context().all_gather, axis=0)
                # A feature has no device, without which all_gather fails; its copy has one.
                return tf.nest.map_structure(lambda value: gather(tf.identity(value)), results)

            self._functions[key] = tf.function(
                lambda *args: self._strategy.run(replica, args=args),
                input_signature=specs,
                autograph=False,
            )
        return self._functions[key]

    def _gather(self, value) -> np.ndarray:
        """Concatenate the parts of all replicas, in order."""
        parts = self._strategy.experimental_local_results(value)
        if is_multi_worker(self._strategy):
            parts = parts[:1]  # each already contains those of all workers
        return np.concatenate([part.numpy() for part in parts])


def _fill(features: Tensors, batch_size: int) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Pad the batch to `batch_size` with zeros; also return which rows are real, bool [B]."""
    size = tf.shape(next(iter(features.values())))[0]
    filled = {}
    for name, value in features.items():
        paddings = [[0, batch_size - size]] + [[0, 0]] * (value.shape.rank - 1)
        filled[name] = tf.ensure_shape(tf.pad(value, paddings), [batch_size, *value.shape[1:]])
    return filled, tf.range(batch_size) < size
