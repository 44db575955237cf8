"""Names, types, shapes and values of the models' inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from bert_tf.config import BertConfig

# Other name (as in Hugging Face's tokenizers) -> our name.
OTHER_NAMES = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}
ENCODER_INPUTS = (
    *("input_ids", "input_mask", "segment_ids"),
    *("position_ids", "sequence_ids", "packed_positions", "embedding_output"),
)
# Inputs that are rows of a table, or positions -> the field of the configuration with their number.
_TABLES = {
    "input_ids": "vocab_size",
    "anchor_ids": "vocab_size",
    "segment_ids": "type_vocab_size",
    "position_ids": "max_position_embeddings",
    "masked_lm_positions": "max_position_embeddings",
}


def as_tensors(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dict of integer tensors, except for `embedding_output`, without None values.

    Keras would cast floats to the precision of the model: bfloat16 has no ids above 256.
    """
    tensors = {}
    for name, value in inputs.items():
        if value is None:
            continue
        tensor = ops.convert_to_tensor(value)
        dtype = keras.backend.standardize_dtype(tensor.dtype)
        is_kept = name == "embedding_output" or "int" in dtype
        tensors[name] = tensor if is_kept else ops.cast(tensor, "int32")
    return tensors


def check_values(inputs: Mapping[str, Any], config: BertConfig) -> None:
    """Raise ValueError if ids, positions or masks in NumPy arrays or lists are out of range.

    The models would count negative ids from the end, and weaken a mask of other values than 0 and 1.
    """
    limits = {name: getattr(config, field) for name, field in _TABLES.items()} | {"input_mask": 2}
    for name, value in inputs.items():
        limit = limits.get(OTHER_NAMES.get(name, name))
        if limit is None or not isinstance(value, np.ndarray | list | tuple) or not np.size(value):
            continue
        low, high = np.min(value), np.max(value)
        if low < 0 or high >= limit or np.any(np.mod(value, 1)):
            raise ValueError(
                f"`{name}` has values from {low} to {high}, but must be whole, from 0 to {limit - 1}."
            )


def normalize_inputs(
    inputs: Mapping[str, Any],
    *more: str,
    optional: tuple[str, ...] = (),
    axes: tuple[int, ...] = (2,),
) -> dict[str, Any]:
    """Return the inputs as tensors under our names, without None values.

    `more` are required inputs besides `input_ids`, which may have these numbers of `axes`.
    """
    known = (*ENCODER_INPUTS, *more, *optional)
    tensors = {OTHER_NAMES.get(name, name): value for name, value in as_tensors(inputs).items()}
    unknown = [name for name in tensors if name not in known]
    missing = [name for name in ("input_ids", *more) if name not in tensors]
    if unknown or missing:
        names = ", ".join((*known, *OTHER_NAMES))
        problem = f"no inputs {unknown}" if unknown else f"the inputs {missing}, which are missing"
        raise ValueError(f"The model has {problem}. Its inputs are {names}.")
    _check_shapes(tensors, axes)
    return tensors


def _check_shapes(tensors: Mapping[str, Any], axes: tuple[int, ...]) -> None:
    """Raise ValueError unless the ids have one of these numbers of axes, and the others fit them."""
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    ids = shapes["input_ids"]
    if len(ids) not in axes:
        number = " or ".join(map(str, axes))
        raise ValueError(f"`input_ids` has the shape {ids}, but must have {number} axes.")
    for name, other_name in (("segment_ids", "token_type_ids"), ("input_mask", "attention_mask")):
        is_unpacked = name == "input_mask" and "packed_positions" in tensors
        expected = shapes["packed_positions" if is_unpacked else "input_ids"]
        shape = shapes.get(name, expected)
        if name == "input_mask" and axes == (2,) and len(shape) == 3:  # [B, F, T]
            expected = (*expected, expected[-1])
        if len(shape) != len(expected) or any(
            None not in pair and pair[0] != pair[1] for pair in zip(shape, expected, strict=True)
        ):
            raise ValueError(f"`{name}` ({other_name}) has the shape {shape}, not {expected}.")
