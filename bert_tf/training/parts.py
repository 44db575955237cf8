"""Loops over the parts of a batch within a training step, for `gradient_accumulation_steps`.

Each part is a function that TensorFlow must not inline into the loop. Otherwise the graph optimizer
on CPUs computes sums of three or more large tensors in temporary variables, and one of them remains
after the loop. The second call of the step then fails with "Resource __per_step_0/.../tmp_var"
(TensorFlow 2.21, vocabulary of 30,522). Other devices do not need this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf


def part_of(values: Mapping[str, tf.Tensor], index, num_parts: int) -> dict[str, tf.Tensor]:
    """Return part `index` of tensors [B, ...] -> [b, ...]; b is static if B divides evenly."""
    return {name: _rows_of_part(value, index, num_parts) for name, value in values.items()}


def _rows_of_part(value, index, num_parts: int):
    if value.shape[0] is None or value.shape[0] % num_parts:
        size = tf.shape(value)[0]
        return value[index * size // num_parts : (index + 1) * size // num_parts]
    shape = tf.shape(value)
    rest = [shape[i] if n is None else n for i, n in enumerate(value.shape[1:], start=1)]
    return tf.reshape(value, [num_parts, value.shape[0] // num_parts, *rest])[index]


def gradients_over_parts(
    part: Callable[[tf.Tensor], tuple[list, dict, list]], num_parts: int
) -> tuple[list, dict, list]:
    """Return the sums of the gradients and terms of all parts, and the variables used.

    Args:
        part: index -> (gradients, name -> term, variables of the gradients).
    """
    used: list[keras.Variable] = []

    @_not_inlined
    def gradients_and_terms(index):
        gradients, terms, found = part(index)
        used[:] = found  # a tf.function cannot return variables
        return gradients, terms

    def add(index, sums):
        return index + 1, tf.nest.map_structure(tf.add, sums, gradients_and_terms(index))

    _, (gradients, terms) = tf.while_loop(
        lambda index, _: index < num_parts,
        add,
        (tf.constant(1), gradients_and_terms(tf.constant(0))),
        parallel_iterations=1,  # one part in memory at a time
    )
    return gradients, terms, used


def outputs_over_parts(
    part: Callable[[tf.Tensor], Mapping[str, Any]], num_parts: int, is_even: bool
) -> dict[str, tf.Tensor]:
    """Return the outputs of all parts, one after the other: `part(index)` -> name -> [b, ...].

    Args:
        is_even: True if all parts have one size; the results then have static shapes, as for a TPU.
    """
    part = _not_inlined(part)
    first = part(tf.constant(0))
    names = list(first)
    arrays = [
        tf.TensorArray(
            value.dtype,
            size=num_parts,
            infer_shape=False,
            element_shape=[value.shape[0] if is_even else None, *value.shape[1:]],
        ).write(0, value)
        for value in first.values()
    ]

    def add(index, *arrays):
        values = part(index)
        return index + 1, *(a.write(index, values[n]) for a, n in zip(arrays, names, strict=True))

    _, *arrays = tf.while_loop(
        lambda index, *_: index < num_parts, add, (tf.constant(1), *arrays), parallel_iterations=1
    )
    if not is_even:
        return {name: array.concat() for name, array in zip(names, arrays, strict=True)}
    return {
        name: tf.reshape(array.stack(), [num_parts * value.shape[0], *value.shape[1:]])
        for (name, value), array in zip(first.items(), arrays, strict=True)
    }


def _not_inlined(function: Callable) -> Callable:
    return tf.function(function, autograph=False, experimental_attributes={"_noinline": True})
