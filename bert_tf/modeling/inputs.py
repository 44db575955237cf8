"""Checks of the names, types, shapes and values of the models' inputs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops
from keras.src.backend.common.symbolic_scope import in_symbolic_scope

from bert_tf.config import BertConfig

# Other name (as in Hugging Face's tokenizers) -> our name.
OTHER_NAMES = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}
ENCODER_INPUTS = (
    *("input_ids", "input_mask", "segment_ids"),
    *("position_ids", "sequence_ids", "packed_positions", "embedding_output"),
)
_FLOATS = ("embedding_output",)
_PACKED = ("sequence_ids", "packed_positions")
# Inputs that are rows of a table -> the field of the configuration with its size.
_TABLES = {
    "input_ids": "vocab_size",
    "anchor_ids": "vocab_size",
    "segment_ids": "type_vocab_size",
    "position_ids": "max_position_embeddings",
}
_FORMS = {2: "[B, S]", 3: "[B, K, S]"}  # by the number of axes


def as_tensors(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dict with tensors instead of lists. Keras takes no lists and no other mapping.

    Hugging Face's tokenizers return a BatchEncoding, with lists if `return_tensors` is not given.

    Raises:
        ValueError: the rows of a list differ in length, or contain something other than numbers.
    """
    found = dict(inputs)
    for name, value in inputs.items():
        if isinstance(value, (list, tuple)):
            try:
                found[name] = ops.convert_to_tensor(value)
            except ValueError as error:
                raise ValueError(
                    f"`{name}` is a list that makes no tensor ({error}). It must have rows of numbers, "
                    "all of one length. Pad them: tokenizer(texts, padding=True) with a tokenizer of "
                    "Hugging Face."
                ) from error
    return found


def check_values(given: Mapping[str, Any], tensors: Mapping[str, Any], config: BertConfig) -> None:
    """Raise ValueError if ids, positions or masks in NumPy arrays or lists are out of range.

    The models would count negative ids from the end, and weaken a mask of other values than 0 and 1.
    Warn of rows that end with 0 and have no mask. Tensors are not checked: their values may be on
    another device, or unknown.

    Args:
        given: the inputs.
        tensors: the same as tensors, for their shapes.
    """
    masked = any(given.get(n) is not None for n in ("input_mask", "attention_mask", "sequence_ids"))
    for name, values in given.items():
        ours = OTHER_NAMES.get(name, name)
        if ours == "input_ids" and given.get("embedding_output") is not None:
            continue  # which replaces them
        if isinstance(values, (list, tuple)) and _is_of_numbers(values):
            values = np.array(values)
        if not (isinstance(values, np.ndarray) and values.size and values.dtype.kind in "iu"):
            continue
        if ours == "input_ids" and values.shape[-1] > 1 and not (values[..., -1].all() or masked):
            warnings.warn(
                "`input_ids` end with 0, but there is no `input_mask`, so padding is read as tokens. "
                'Pass "input_mask": (input_ids != 0).',
                stacklevel=3,
            )
        limit: int | None
        if ours in _TABLES:
            limit, reason = getattr(config, _TABLES[ours]), f"`{_TABLES[ours]}` of the model"
        elif ours == "masked_lm_positions":
            examples = tensors.get("packed_positions", tensors.get("input_ids"))
            limit = (getattr(examples, "shape", None) or (None,))[-1]
            reason = "the length of the sequences"
        elif ours == "input_mask":
            limit, reason = 2, "because 1 is a token and 0 is padding"
        else:
            continue
        least, most = int(values.min()), int(values.max())
        if least < 0 or (limit is not None and most >= limit):
            wrong = least if least < 0 else most
            below = "" if limit is None else f" and below {limit}, {reason}"
            raise ValueError(
                f"`{name}` has the value {wrong}, but must have values of 0 or more{below}. Pad with 0."
            )


def _is_of_numbers(values: Any) -> bool:
    """Return True if the first value in nested lists is a number of Python or NumPy."""
    while isinstance(values, (list, tuple)) and values:
        values = values[0]
    return isinstance(values, (int, np.integer))


def checked_inputs(
    inputs: Mapping[str, Any],
    *more: str,
    optional: tuple[str, ...] = (),
    axes: tuple[int, ...] = (2,),
) -> dict[str, Any]:
    """Return the inputs as tensors under our names, without None values.

    Args:
        more: names of required inputs other than `input_ids`.
        optional: names of optional inputs.
        axes: numbers of axes that `input_ids` may have.

    Raises:
        TypeError: the inputs are not a dict, or ids are not integers.
        ValueError: an input is unknown, missing, or given under two names, or has a wrong shape. Unknown
            dimensions are not compared.
    """
    if not isinstance(inputs, Mapping):
        raise TypeError(
            f"The inputs are of type {type(inputs).__name__}, but must be a dict of tensors such as "
            '{"input_ids": ids, "input_mask": mask, "segment_ids": segments}.'
        )
    known = (*ENCODER_INPUTS, *more, *optional)
    found: dict[str, Any] = {}
    for name, value in inputs.items():
        ours = OTHER_NAMES.get(name, name)
        if ours not in known:
            others = " and ".join(f"{other} (= {our})" for other, our in OTHER_NAMES.items())
            raise ValueError(
                f"{name!r} is not an input of this model. Its inputs are {', '.join(known)}, "
                f"{others}. Remove {name!r} or correct its name."
            )
        if value is None:
            continue
        if ours in found:
            other = next(other for other, our in OTHER_NAMES.items() if our == ours)
            raise ValueError(
                f"`{other}` and `{ours}` are the same input, but both were given. Pass one."
            )
        found[ours] = _checked_type(name, ours, value)
    for name in ("input_ids", *more):
        if name not in found:
            raise ValueError(
                f"The inputs have no `{name}`, which this model needs. They have "
                f"{', '.join(map(str, inputs)) or 'nothing'}. Add it."
            )
    for name, other in (_PACKED, _PACKED[::-1]):
        if name in found and other not in found:
            raise ValueError(
                f"`{name}` is given without `{other}`, but a packed batch needs both: one separates the "
                "sequences of a row, the other finds their tokens. Add it."
            )
    _check_shapes(found, axes)
    return found


def _check_shapes(found: Mapping[str, Any], axes: tuple[int, ...]) -> None:
    """Raise ValueError unless the ids have one of these numbers of axes, and the others fit them."""
    shapes = {name: tuple(value.shape) for name, value in found.items()}
    ids = shapes["input_ids"]
    if len(ids) not in axes:
        forms = " or ".join(_FORMS[number] for number in axes)
        raise ValueError(f"`input_ids` has the shape {ids}, but must be {forms} in this model.")
    of_mask = "packed_positions" if "packed_positions" in found else "input_ids"
    for name, of in (("segment_ids", "input_ids"), ("input_mask", of_mask)):
        shape, wanted = shapes.get(name, shapes[of]), shapes[of]
        if name == "input_mask" and axes == (2,) and len(shape) == 3:  # [B, F, T]
            wanted = (*wanted, wanted[-1])
        fits = len(shape) == len(wanted) and all(
            None in pair or pair[0] == pair[1] or (pair[0] == 1 and axis < len(wanted) - 1)
            for axis, pair in enumerate(zip(shape, wanted, strict=True))
        )
        if not fits:
            other = next(other for other, ours in OTHER_NAMES.items() if ours == name)
            raise ValueError(
                f"`{name}` ({other}) has the shape {shape}, but must be {wanted}, because `{of}` has "
                f"the shape {shapes[of]}."
            )


def _checked_type(name: str, ours: str, value: Any) -> Any:
    if type(value).__name__ == "RaggedTensor":
        raise ValueError(
            f"`{name}` is a RaggedTensor, but must have rows of one length. Pass the result of its "
            "`.to_tensor()`, and an `input_mask` that is 0 at the added positions."
        )
    tensor = ops.convert_to_tensor(value)
    dtype = keras.backend.standardize_dtype(tensor.dtype)
    is_integer = "int" in dtype or (dtype == "bool" and ours == "input_mask")
    # Before `fit` on several devices Keras infers shapes with float32 for every input.
    if ours not in _FLOATS and not is_integer and not in_symbolic_scope():
        raise TypeError(
            f'`{name}` is {dtype}, but must be integers. Cast it to int32, or pass dtype="int32" '
            "to keras.Input."
        )
    if len(tensor.shape) < 2:
        raise ValueError(
            f"`{name}` has the shape {tuple(tensor.shape)}, but must be [batch, sequence]. Write "
            "[ids] for one sequence."
        )
    return tensor
