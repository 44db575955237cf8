"""Gradients of a loss over the whole batch, with the memory of a part of it.

A loss that compares the examples of a batch with each other cannot be computed part by part. But its
gradient with respect to the outputs is small: it is computed from the outputs of all parts and replicas
at once. Then each part goes forward again, and backward from that gradient.

Source: Gao et al. 2021, arXiv 2101.06983 ("GradCache").

Shapes: B examples of a replica, N of the global batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_tf.training.losses import Loss

Tensors = Mapping[str, Any]


def gradients_of_outputs(
    outputs: Tensors, features: Tensors, loss: Loss, weight: tf.Tensor
) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Return the gradient of the loss with respect to this replica's outputs, and its part of the loss.

    Args:
        outputs: those that `loss.whole_batch` names, [B, ...].
        features: of this replica, without the inputs of the model.
        weight: sum of the weights over the global batch.
    """
    replica = tf.distribute.get_replica_context()
    num_replicas = replica.num_replicas_in_sync
    if num_replicas > 1:
        first, count = _own_rows(replica, outputs)
        outputs, features = (
            {name: _gathered(replica, value) for name, value in each.items()}
            for each in (outputs, features)
        )
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        total = loss.total(outputs, features) / (weight + loss.epsilon)
    gradients = tape.gradient(total, dict(outputs))
    if num_replicas > 1:
        gradients = {name: _rows(g, first, count) for name, g in gradients.items()}
        total = total / num_replicas  # every replica computes the same loss
    return gradients, total


def _own_rows(replica: tf.distribute.ReplicaContext, outputs: Tensors) -> tuple[Any, Any]:
    """Return the first row of this replica in the global batch, and the number of its rows.

    The number is an int if it is known when the step is traced; all replicas have as many then.
    """
    value = next(iter(outputs.values()))
    own = replica.replica_id_in_sync_group  # known only at run time, on a TPU
    if value.shape[0] is not None:
        return own * value.shape[0], value.shape[0]
    count = tf.shape(value)[0]
    sizes = replica.all_gather(count[None], axis=0)
    return tf.reduce_sum(sizes[:own]), count


def _gathered(replica: tf.distribute.ReplicaContext, value: tf.Tensor) -> tf.Tensor:
    """Return the rows of all replicas, in the order of the replicas."""
    rows = replica.all_gather(tf.identity(value), axis=0)
    size = value.shape[0]
    total = None if size is None else size * replica.num_replicas_in_sync
    return tf.ensure_shape(rows, [total, *value.shape[1:]])


def _rows(value: tf.Tensor, first: Any, count: Any) -> tf.Tensor:
    """Return `count` rows from row `first` on; of a static shape if `count` is an int."""
    rest = value.shape.rank - 1
    rows = tf.slice(value, [first, *[0] * rest], [count, *[-1] * rest])
    return tf.ensure_shape(rows, [count if isinstance(count, int) else None, *value.shape[1:]])
