"""FeatureSpec, one declaration of a tensor, and the views derived from it.

Shapes: B batch, S sequence, P predictions, K choices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

# Features with a value for each token, whose last axis is S. The shape is ambiguous if P equals S.
SEQUENCE_FEATURES = ("input_ids", "input_mask", "segment_ids")
# The same of an anchor, a text that is shorter than the texts it is compared with.
ANCHOR_FEATURES = ("anchor_ids", "anchor_mask")


@dataclass(frozen=True)
class FeatureSpec:
    """One tensor of an example.

    Args:
        name: key in the record, name of the Keras input and of the argument, e.g. "input_ids".
        shape: of one example, without the batch: `(S,)`, `(K, S)`, or `()` for a single number. The
            reference writes that as a list of one value, with the same bytes.
        dtype: "int32" or "float32" in the model. Records contain int64 or float32.
        role: "input" (of the model), "label" (of a loss), "weight" (of a loss) or "id" (only passed
            along, e.g. `unique_ids`).
        output: name of the model's output that a label or weight belongs to. A weight without one,
            such as `is_real_example`, belongs to every output.

    Raises:
        ValueError: a field is invalid.

    >>> FeatureSpec("input_ids", (128,))
    FeatureSpec(name='input_ids', shape=(128,), dtype='int32', role='input', output=None)
    """

    name: str
    shape: tuple[int, ...] = ()
    dtype: str = "int32"
    role: str = "input"
    output: str | None = None

    def __post_init__(self) -> None:
        valid = {
            "shape": isinstance(self.shape, tuple) and all(size >= 1 for size in self.shape),
            "dtype": self.dtype in ("int32", "float32"),
            "role": self.role in ("input", "label", "weight", "id"),
            # A label belongs to an output, a weight may, others do not.
            "output": {"label": bool(self.output), "weight": True}.get(self.role, not self.output),
        }
        for field, is_valid in valid.items():
            if not is_valid:
                value = getattr(self, field)
                raise ValueError(f"`{field}` of feature `{self.name}` cannot be {value!r}.")


def sequence_specs(shape: tuple[int, ...]) -> tuple[FeatureSpec, ...]:
    """Return the three inputs of every model, such as [S] or [K, S]."""
    return tuple(FeatureSpec(name, shape) for name in SEQUENCE_FEATURES)


def check_specs(specs: Sequence[FeatureSpec]) -> None:
    """Raise unless the declarations are consistent."""
    names = [spec.name for spec in specs]
    outputs = [spec.output for spec in specs if spec.role == "label"]
    for spec in specs:
        if names.count(spec.name) > 1:
            problem = "another feature has this name"
        elif spec.role == "label" and outputs.count(spec.output) > 1:
            problem = "its output has another label"
        elif spec.role == "weight" and spec.output not in (None, *outputs):
            problem = "its output has no label"
        else:
            continue
        raise ValueError(f"Feature `{spec.name}` (output {spec.output!r}): {problem}.")


def encode_example(specs: Sequence[FeatureSpec], values: Mapping[str, Any]) -> bytes:
    """Return one example as a serialized `tf.train.Example`.

    Features are int64_list for "int32" and float_list for "float32".

    Args:
        values: name -> number, list or array of the spec's shape, within int32 for "int32". Exactly
            the names of `specs`.
    """
    if differing := values.keys() ^ {spec.name for spec in specs}:
        names = "`, `".join(sorted(differing))
        raise ValueError(f"`{names}` is missing in the example, or not declared by a FeatureSpec.")
    example = tf.train.Example()
    features = example.features.feature
    for spec in specs:
        kind = "int64_list" if spec.dtype == "int32" else "float_list"
        getattr(features[spec.name], kind).value.extend(_flat_list(spec, values[spec.name]))
    return example.SerializeToString()


def parse_examples(
    specs: Sequence[FeatureSpec],
) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Return the inverse of `encode_example` on batches, for `Dataset.map`.

    It maps string [B] to a dict of tensors [B, *shape] of the specs' dtypes. Undeclared features of the
    records are ignored.
    """
    check_specs(specs)
    wire = {"int32": tf.int64, "float32": tf.float32}
    schema = {spec.name: tf.io.FixedLenFeature(spec.shape, wire[spec.dtype]) for spec in specs}

    def parse(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed = tf.io.parse_example(serialized, schema)
        return {spec.name: tf.cast(parsed[spec.name], spec.dtype) for spec in specs}

    return parse


def split(
    specs: Sequence[FeatureSpec], features: Mapping[str, tf.Tensor]
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """Split a batch into the arguments of `Model.fit`.

    Args:
        features: name -> tensor [B, *shape], as from `parse_examples`.

    Returns:
        x: name -> tensor, of the inputs.
        y: output -> label.
        sample_weight: output -> float32, product of the output's weights, or ones. Every output has
            one, because Keras requires it. The shape is the label's for int32 labels (class
            numbers) and [B] for float32 labels (vectors). An example with `is_real_example` 0 has
            weight 0 everywhere.
    """
    x = {spec.name: features[spec.name] for spec in specs if spec.role == "input"}
    labels = [spec for spec in specs if spec.role == "label"]
    y: dict[str, tf.Tensor] = {str(label.output): features[label.name] for label in labels}
    sample_weight: dict[str, tf.Tensor] = {}
    for label in labels:
        output = str(label.output)  # every label has one
        loss_shape = tf.shape(y[output])
        product = tf.ones(loss_shape if label.dtype == "int32" else loss_shape[:1])
        for spec in specs:
            if spec.role == "weight" and spec.output in (output, None):
                product = _multiply(product, tf.cast(features[spec.name], tf.float32))
        sample_weight[output] = product
    return x, y, sample_weight


def trim_padding(
    features: Mapping[str, tf.Tensor], specs: Sequence[FeatureSpec], multiple: int = 8
) -> dict[str, tf.Tensor]:
    """Cut a batch to its longest example, because padding costs as much as text.

    Args:
        features: name -> tensor [B, *shape], with `input_mask` (1 = real, 0 = padding).

    Returns:
        The same features; those of `SEQUENCE_FEATURES` are [B, ..., S'] with 1 <= S' <= S, and those of
        `ANCHOR_FEATURES` too, with their own S'.
    """
    trimmed: dict[str, tf.Tensor] = {}
    for name, names in (("input_mask", SEQUENCE_FEATURES), ("anchor_mask", ANCHOR_FEATURES)):
        for mask in (spec for spec in specs if spec.name == name):
            length = mask.shape[-1]
            # The position after the last real token. Padding may be anywhere.
            used = tf.reduce_max(features[name] * tf.range(1, length + 1))
            length = tf.minimum(-(-tf.maximum(used, 1) // multiple) * multiple, length)
            trimmed |= {
                spec.name: features[spec.name][..., :length] for spec in specs if spec.name in names
            }
    return {**features, **trimmed}


def _flat_list(spec: FeatureSpec, value: Any) -> list:
    """Return `value` as a flat list, or raise if its shape or a number does not fit."""
    array, is_valid = np.asarray(value), False
    if spec.dtype == "int32" and array.dtype.kind in "biu":
        is_valid = bool((array == array.astype(np.int32)).all())
    elif spec.dtype == "float32" and array.dtype.kind in "biuf":
        with np.errstate(over="ignore"):
            is_valid = bool(np.isfinite(array.astype(np.float32)).all())
    if array.shape != spec.shape or not is_valid:
        raise ValueError(
            f"`{spec.name}` must be {spec.dtype} of the shape {list(spec.shape)}, but is {value!r:.60}."
        )
    return array.ravel().tolist()


def _multiply(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Multiply tensors [B, ...], extending the lower rank by axes of 1 at the end."""
    rank = max(one.shape.rank, other.shape.rank)
    one, other = (
        tf.reshape(weight, tf.concat([tf.shape(weight), [1] * (rank - weight.shape.rank)], 0))
        for weight in (one, other)
    )
    return one * other
