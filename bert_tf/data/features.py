"""FeatureSpec: one declaration of a tensor, and the views that are derived from it.

The views: a serialized `tf.train.Example` (`encode_example`; many at once without TensorFlow:
`example_bytes.encode_columns`), the parser of a batch of them (`parse_examples`), Keras inputs
(`keras_inputs`), the `(x, y, sample_weight)` of `Model.fit` (`split`), the batch without needless
padding (`trim_padding`), and the all-zero example that fills a last batch (`zeros`).

Shape letters: B batch, S sequence, P predictions, K choices.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    import keras

DTYPES = ("int32", "float32")
ROLES = ("input", "label", "weight", "id")

# The features with a value for each token, whose last axis is S. Their shape would not tell them:
# P predictions may be as many as S tokens.
SEQUENCE_FEATURES = ("input_ids", "input_mask", "segment_ids")


@dataclass(frozen=True)
class FeatureSpec:
    """One tensor of an example.

    Args:
        name: key in the record, name of the Keras input and of the argument, e.g. "input_ids".
        shape: of one example, without the batch: `(S,)`, `(K, S)`, or `()` for a single number
            (the reference writes that as a list of one value; the bytes are the same).
        dtype: "int32" or "float32", inside the model. Records hold int64 or float32.
        role: "input" (goes into the model), "label" (goes into a loss), "weight" (of a loss) or
            "id" (travels along, e.g. `unique_ids`).
        output: name of the model's output that a label or weight belongs to. A weight without one,
            such as `is_real_example`, belongs to every output.

    Raises:
        ValueError: a field has a value outside these rules.

    >>> FeatureSpec("input_ids", (128,))
    FeatureSpec(name='input_ids', shape=(128,), dtype='int32', role='input', output=None)
    """

    name: str
    shape: tuple[int, ...] = ()
    dtype: str = "int32"
    role: str = "input"
    output: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"`name` of a FeatureSpec is {self.name!r}, but must be a text.")
        sizes = self.shape if isinstance(self.shape, tuple) else (None,)
        if not all(isinstance(size, int) and size >= 1 for size in sizes):
            raise ValueError(
                f"`shape` of feature `{self.name}` is {self.shape!r}, but must be a tuple of whole "
                "numbers of 1 or more; () is a single number."
            )
        if self.dtype not in DTYPES:
            raise ValueError(
                f"`dtype` of feature `{self.name}` is {self.dtype!r}, but must be one of "
                f"{', '.join(DTYPES)}."
            )
        if self.role not in ROLES:
            raise ValueError(
                f"`role` of feature `{self.name}` is {self.role!r}, but must be one of "
                f"{', '.join(ROLES)}."
            )
        if self.role == "label" and not self.output:
            raise ValueError(
                f"Label `{self.name}` has no `output`: name the model's output it belongs to."
            )
        if self.role in ("input", "id") and self.output is not None:
            raise ValueError(
                f"`output` of feature `{self.name}` is {self.output!r}, but only a label or a "
                f"weight has one, not an {self.role!r}."
            )


def check_specs(specs: Sequence[FeatureSpec]) -> None:
    """Refuses declarations that contradict each other.

    Raises:
        ValueError: there are none, two share a name, two labels share an output, or a weight
            belongs to an output without a label.
    """
    if not specs:
        raise ValueError("There are no features: give at least one FeatureSpec.")
    names: set[str] = set()
    outputs: dict[str | None, str] = {}
    for spec in specs:
        if spec.name in names:
            raise ValueError(f"Feature `{spec.name}` is declared twice.")
        names.add(spec.name)
        if spec.role == "label":
            if spec.output in outputs:
                raise ValueError(
                    f"Labels `{outputs[spec.output]}` and `{spec.name}` both belong to output "
                    f"{spec.output!r}; an output has one label."
                )
            outputs[spec.output] = spec.name
    for spec in specs:
        if spec.role == "weight" and spec.output is not None and spec.output not in outputs:
            raise ValueError(
                f"Weight `{spec.name}` belongs to output {spec.output!r}, which has no label."
            )


def encode_example(specs: Sequence[FeatureSpec], values: Mapping[str, Any]) -> bytes:
    """One example as a serialized `tf.train.Example`.

    Args:
        specs: what the example consists of.
        values: name -> number, list or array of the spec's shape (whole numbers within int32 for
            "int32"). Exactly the names of `specs`.

    Returns:
        Serialized example: int64_list for "int32", float_list for "float32".

    Raises:
        ValueError: a value is missing, unknown, of another length, or not a number of that dtype.
    """
    example = tf.train.Example()
    features = example.features.feature
    for spec in specs:
        if spec.name not in values:
            raise ValueError(f"Feature `{spec.name}` is missing in the example.")
        flat = _flat_list(spec, values[spec.name])
        if spec.dtype == "int32":
            _check_int32(spec, flat)
            features[spec.name].int64_list.value.extend(flat)
        else:
            _check_float32(spec, flat)
            features[spec.name].float_list.value.extend(flat)
    if len(values) != len(specs):
        unknown = sorted(set(values) - {spec.name for spec in specs})
        raise ValueError(
            f"The example has `{'`, `'.join(unknown)}`, which no FeatureSpec declares; declared "
            f"are {', '.join(spec.name for spec in specs)}."
        )
    return example.SerializeToString()


def parse_examples(
    specs: Sequence[FeatureSpec],
) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """The inverse of `encode_example` on batches, for `Dataset.map`.

    Returns:
        Function from serialized examples, string [B], to a dict with one tensor [B, *shape] of the
        spec's dtype per feature. Features of the record that no spec declares are ignored.
    """
    check_specs(specs)
    wire = {"int32": tf.int64, "float32": tf.float32}
    schema = {spec.name: tf.io.FixedLenFeature(spec.shape, wire[spec.dtype]) for spec in specs}

    def parse(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed = tf.io.parse_example(serialized, schema)
        return {spec.name: tf.cast(parsed[spec.name], spec.dtype) for spec in specs}

    return parse


def keras_inputs(specs: Sequence[FeatureSpec]) -> dict[str, keras.KerasTensor]:
    """One `keras.Input` per feature of the role "input", under the feature's name."""
    import keras

    check_specs(specs)
    return {
        spec.name: keras.Input(spec.shape, dtype=spec.dtype, name=spec.name)
        for spec in specs
        if spec.role == "input"
    }


def split(
    specs: Sequence[FeatureSpec], features: Mapping[str, tf.Tensor]
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """A batch as `Model.fit` takes it.

    Args:
        specs: the declarations.
        features: name -> tensor [B, *shape], as `parse_examples` makes them.

    Returns:
        x: name -> tensor, of the inputs.
        y: output -> label.
        sample_weight: output -> float32, for every output and of the loss's shape, as Keras demands:
            the label's shape where labels are class numbers (int32), [B] where a label is a vector
            of float32. Weights of one output are multiplied, so an example with
            `is_real_example` 0 weighs nothing anywhere; ones where there is no weight.
    """
    x = {spec.name: features[spec.name] for spec in specs if spec.role == "input"}
    labels = [spec for spec in specs if spec.role == "label"]
    y: dict[str, tf.Tensor] = {str(label.output): features[label.name] for label in labels}
    sample_weight: dict[str, tf.Tensor] = {}
    for label in labels:
        output = str(label.output)  # every label has one
        loss_shape = tf.shape(y[output])
        weights = [tf.ones(loss_shape if label.dtype == "int32" else loss_shape[:1])]
        weights += [
            tf.cast(features[spec.name], tf.float32)
            for spec in specs
            if spec.role == "weight" and spec.output in (output, None)
        ]
        sample_weight[output] = _product(weights)
    return x, y, sample_weight


def trim_padding(
    features: Mapping[str, tf.Tensor], specs: Sequence[FeatureSpec], multiple: int = 8
) -> dict[str, tf.Tensor]:
    """A batch cut to its longest example, since padding cannot be seen and costs as much as text.

    Args:
        features: name -> tensor [B, *shape], with `input_mask` (1 = real, 0 = padding).
        specs: the declarations.
        multiple: the new length is the least multiple of this that holds the longest example (or
            the whole length), so that there are few different shapes.

    Returns:
        The same features; those of `SEQUENCE_FEATURES` are [B, ..., S'] with 1 <= S' <= S.
    """
    (mask,) = (spec for spec in specs if spec.name == "input_mask")
    length = mask.shape[-1]
    # The position after the last real token, wherever padding stands.
    used = tf.reduce_max(features["input_mask"] * tf.range(1, length + 1))
    length = tf.minimum(-(-tf.maximum(used, 1) // multiple) * multiple, length)
    trimmed = {
        spec.name: features[spec.name][..., :length]
        for spec in specs
        if spec.name in SEQUENCE_FEATURES
    }
    return {**features, **trimmed}


def zeros(specs: Sequence[FeatureSpec]) -> dict[str, np.ndarray]:
    """The example that fills a last batch: every feature zero, so `is_real_example` is 0 too."""
    return {spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs}


def _flat_list(spec: FeatureSpec, value: Any) -> list:
    """`value` as a flat list, after a look at its shape."""
    if isinstance(value, (list, tuple)) and len(spec.shape) == 1:  # the common case, and quick
        found: tuple[int, ...] = (len(value),)
        flat: Any = value
    else:
        try:
            tensor = np.asarray(value)
        except ValueError as error:  # rows of different lengths
            raise ValueError(
                f"Feature `{spec.name}` has rows of different lengths, but its shape is "
                f"{list(spec.shape)}."
            ) from error
        found = tensor.shape
        flat = tensor.ravel().tolist()
    if found != spec.shape:
        raise ValueError(
            f"Feature `{spec.name}` has shape {list(found)}, but its FeatureSpec says "
            f"{list(spec.shape)}."
        )
    return flat


def _check_int32(spec: FeatureSpec, flat: Sequence) -> None:
    try:
        array("i", flat)  # refuses in one pass what is no whole number or beyond int32
    except (TypeError, OverflowError) as error:
        culprit = next(number for number in flat if not _is_int32(number))
        raise ValueError(
            f"Feature `{spec.name}` holds {culprit!r}, but must hold whole numbers between "
            "-2147483648 and 2147483647 (int32)."
        ) from error


def _is_int32(number: Any) -> bool:
    try:
        array("i", (number,))
    except (TypeError, OverflowError):
        return False
    return True


def _check_float32(spec: FeatureSpec, flat: Sequence) -> None:
    try:
        with np.errstate(over="ignore"):
            numbers = np.asarray(flat, np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Feature `{spec.name}` holds {flat!r}, but must hold numbers.") from error
    finite = np.isfinite(numbers)
    if numbers.ndim != 1 or not finite.all():
        culprit = flat[int(np.argmin(finite))] if numbers.ndim == 1 else flat
        raise ValueError(
            f"Feature `{spec.name}` holds {culprit!r}, but must hold finite numbers within float32."
        )


def _product(weights: Sequence[tf.Tensor]) -> tf.Tensor:
    """Product of tensors [B, ...], the shorter ones extended by axes of 1 at the end."""
    rank = max(weight.shape.rank for weight in weights)
    product = 1.0
    for weight in weights:
        missing = [1] * (rank - weight.shape.rank)
        product *= tf.reshape(weight, tf.concat([tf.shape(weight), missing], 0))
    return product
