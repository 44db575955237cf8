"""PretrainedCheckpoint: what a checkpoint holds, whichever program wrote it.

The common currency is the reference's variable names with float32 arrays in the reference's layout:
kernels [in, out], the weights of heads [out, in].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig, parse_json

# Fraction of a checkpoint's tokens that --vocab_file may replace. The published vocabularies have up to
# 994 places to fill, [unused0] to [unused993]: 3.3 % of 30,522. Two vocabularies of different origin
# differ in nearly all ids.
MOST_REPLACED = 0.05


@dataclass(frozen=True)
class PretrainedCheckpoint:
    """The weights of a BERT and what lies beside them.

    Args:
        source: what was read, as messages name it.
        arrays: variable name of the reference -> float32 array. What has no name there stands under
            the name its file gives it. Arrays may be read only when they are asked for.
        config: the architecture, or None where no configuration lies beside the weights.
        vocab_file: path of the `vocab.txt` beside the weights, or None.
        vocab: the WordPieces in the order of their ids, where only a `tokenizer.json` has them (the
            current `transformers` writes no `vocab.txt`); otherwise None.
        do_lower_case: whether the tokenizer lowercases, where a tokenizer's configuration says so.
        architecture: the class name of Hugging Face's model, such as
            "BertForSequenceClassification", or None.
        labels: names of the classifier's outputs, in order, or None.
        step: optimizer steps taken (`global_step`), or None.
        notes: what a user should know about how this was read; one sentence each.
    """

    source: str
    arrays: Mapping[str, np.ndarray]
    config: BertConfig | None = None
    vocab_file: str | None = None
    vocab: tuple[str, ...] | None = None
    do_lower_case: bool | None = None
    architecture: str | None = None
    labels: tuple[str, ...] | None = None
    step: int | None = None
    notes: tuple[str, ...] = ()


class LazyArrays(Mapping[str, np.ndarray]):
    """Arrays that are read from their file each time one is asked for, and not kept.

    Args:
        shapes: name -> shape of the array.
        read: takes a name and returns the array.
    """

    def __init__(
        self, shapes: Mapping[str, tuple[int, ...]], read: Callable[[str], np.ndarray]
    ) -> None:
        self._shapes = dict(shapes)
        self._read = read

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._shapes:
            raise KeyError(name)
        return as_float32(self._read(name))

    def __contains__(self, name: object) -> bool:  # Mapping's own would read the array
        return name in self._shapes

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of one array, without reading it."""
        return self._shapes[name]


def shape_of(arrays: Mapping[str, np.ndarray], name: str) -> tuple[int, ...]:
    """The shape of `arrays[name]`, without reading a lazy one."""
    if isinstance(arrays, LazyArrays):
        return arrays.shape(name)
    return tuple(np.shape(arrays[name]))


def as_float32(array: np.ndarray) -> np.ndarray:
    """Real numbers of any precision as float32; whole numbers and strings as they are."""
    array = np.asarray(array)
    # ml_dtypes' bfloat16 is of kind "V" for NumPy, and its name tells it apart from raw bytes.
    if array.dtype.kind == "f" or array.dtype.name == "bfloat16":
        return array.astype(np.float32, copy=False)
    return array


def read_json(path: str) -> dict[str, Any]:
    """A JSON object; local or remote. Errors name the file."""
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            values = parse_json(file.read().decode("utf-8-sig"))
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise ValueError(f"{path}: this is not JSON in UTF-8: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(
            f"{path}: a JSON object was expected, but it holds {type(values).__name__}."
        )
    return values


def config_from_values(values: Mapping[str, Any], path: str) -> BertConfig:
    """`BertConfig.from_dict`, with the file named in its errors."""
    try:
        return BertConfig.from_dict(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def file_beside(folder: str, name: str) -> str | None:
    """The path of `name` in `folder`, or None where there is no such file."""
    path = tf.io.gfile.join(folder, name) if folder else name
    return path if tf.io.gfile.exists(path) else None
