"""Loops over micro-batches within a training step, for `gradient_accumulation_steps`.

The function of a micro-batch must not be inlined into the loop. Otherwise TensorFlow's graph optimizer
on CPUs computes sums of three or more large tensors in temporary variables, and one of them remains
after the loop. The second call of the step then fails with "Resource __per_step_0/.../tmp_var"
(TensorFlow 2.21, vocabulary of 30,522). Other devices do not need this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from bert_tf.training.losses import Loss


def micro_batch(
    values: Mapping[str, tf.Tensor], index, num_micro_batches: int
) -> dict[str, tf.Tensor]:
    """Return micro-batch `index` of tensors [B, ...] -> [b, ...]; b is static if B divides evenly."""
    rows = {}
    for name, value in values.items():
        size = value.shape[0]
        if size is None or size % num_micro_batches:
            size = tf.shape(value)[0]
            first = index * size // num_micro_batches
            rows[name] = _rows(value, first, (index + 1) * size // num_micro_batches - first)
        else:
            rows[name] = _rows(
                value, index * (size // num_micro_batches), size // num_micro_batches
            )
    return rows


def accumulate_gradients(
    differentiate: Callable[[tf.Tensor], tuple[dict, dict]], num_micro_batches: int
) -> tuple[dict, dict]:
    """Return the sums of the gradients and of the loss terms of all micro-batches.

    Args:
        differentiate: index -> (path -> gradient, name -> term).
    """
    differentiate = _not_inlined(differentiate)
    _, sums = tf.while_loop(
        lambda index, _: index < num_micro_batches,
        lambda index, sums: (index + 1, tf.nest.map_structure(tf.add, sums, differentiate(index))),
        (tf.constant(1), differentiate(tf.constant(0))),
        parallel_iterations=1,  # one micro-batch in memory at a time
    )
    return sums


def concat_outputs(
    forward: Callable[[tf.Tensor], Mapping[str, Any]], num_micro_batches: int, size: int | None
) -> dict[str, tf.Tensor]:
    """Return the outputs of all micro-batches: `forward(index)` -> name -> [b, ...].

    Args:
        size: rows of all micro-batches. If `num_micro_batches` divides it, the shapes are static, as
            for a TPU.
    """
    forward = _not_inlined(forward)
    arrays, shapes = {}, {}
    for name, value in forward(tf.constant(0)).items():
        rows = None if size is None or size % num_micro_batches else size // num_micro_batches
        shapes[name] = [rows and size, *value.shape[1:]]
        element_shape = [rows, *value.shape[1:]]
        array = tf.TensorArray(
            value.dtype, num_micro_batches, infer_shape=False, element_shape=element_shape
        )
        arrays[name] = array.write(0, value)

    def add(index, arrays):
        values = forward(index)
        return index + 1, {name: a.write(index, values[name]) for name, a in arrays.items()}

    _, arrays = tf.while_loop(
        lambda index, _: index < num_micro_batches,
        add,
        (tf.constant(1), arrays),
        parallel_iterations=1,
    )
    return {n: tf.ensure_shape(array.concat(), shapes[n]) for n, array in arrays.items()}


def _not_inlined(function: Callable) -> Callable:
    return tf.function(function, autograph=False, experimental_attributes={"_noinline": True})


Tensors = Mapping[str, Any]


def output_gradients(
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
            {name: _all_gather(replica, value) for name, value in tensors.items()}
            for tensors in (outputs, features)
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
    replica_id = replica.replica_id_in_sync_group  # known only at run time, on a TPU
    if value.shape[0] is not None:
        return replica_id * value.shape[0], value.shape[0]
    count = tf.shape(value)[0]
    sizes = replica.all_gather(count[None], axis=0)
    return tf.reduce_sum(sizes[:replica_id]), count


def _all_gather(replica: tf.distribute.ReplicaContext, value: tf.Tensor) -> tf.Tensor:
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
