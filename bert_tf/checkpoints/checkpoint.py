"""The content of a checkpoint, independent of the program that wrote it.

All readers and writers use the reference's variable names, with float32 arrays in the reference's
layout: kernels [in, out], weights of heads [out, in].
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.limits import DataError, read_json

# Fraction of a checkpoint's tokens that --vocab_file may replace. The published vocabularies have up to
# 994 free places, [unused0] to [unused993]: 3.3 % of 30,522. Unrelated vocabularies differ in nearly all
# ids.
MOST_REPLACED = 0.05


@dataclass(frozen=True)
class PretrainedCheckpoint:
    """The weights of a BERT and the files next to them.

    Args:
        source: the path that was read, for messages.
        arrays: variable name of the reference -> float32 array. Arrays without a name there keep the
            name of their file. Arrays may be read lazily.
        config: the architecture; None without a configuration next to the weights.
        vocab_file: path of the `vocab.txt` next to the weights, or None. The current `transformers`
            writes `tokenizer.json` only.
        vocab: the WordPieces of either file in the order of their ids, or None.
        do_lower_case: from a tokenizer's configuration; None if it is not set there.
        max_seq_length: longest input, in tokens, by the same files; None if not set. It may exceed the
            positions.
        architecture: the class name of Hugging Face's model, such as
            "BertForSequenceClassification", or None.
        labels: names of the classifier's outputs, in order, or None.
        task: content of `task.json`, as of `Task.values`; None without the file.
        embeddings: settings of a model of sentence-transformers, arguments of `EmbeddingTask`; None for
            other checkpoints.
        problem: reason why an embedder's settings are not supported, a sentence; "" if they are.
        is_pair: True if the classifier is a cross-encoder of sentence-transformers; None if unknown.
        step: optimizer steps taken (`global_step`), or None.
        notes: remarks for the user on how the checkpoint was read, one sentence each.
        unused_head: reason why `arrays` lacks the head of the file, a sentence; "" if it does not.
    """

    source: str
    arrays: Mapping[str, np.ndarray]
    config: BertConfig | None = None
    vocab_file: str | None = None
    vocab: tuple[str, ...] | None = None
    do_lower_case: bool | None = None
    max_seq_length: int | None = None
    architecture: str | None = None
    labels: tuple[str, ...] | None = None
    task: Mapping[str, Any] | None = None
    embeddings: Mapping[str, Any] | None = None
    problem: str = ""
    is_pair: bool | None = None
    step: int | None = None
    notes: tuple[str, ...] = ()
    unused_head: str = ""

    @property
    def folder(self) -> str:
        """Folder of the weights and of the files next to them."""
        return self.source if tf.io.gfile.isdir(self.source) else os.path.dirname(self.source)

    def check_embeddings(self) -> None:
        """Raise ValueError for an embedder whose settings are not supported."""
        if self.problem:
            raise ValueError(self.problem)

    def longest_input(self, config: BertConfig) -> int:
        """Return `max_seq_length`, or all positions if they are fewer or it is None."""
        positions = config.max_position_embeddings
        return min(self.max_seq_length or positions, positions)


class LazyArrays(Mapping[str, np.ndarray]):
    """Arrays that `read` loads from their file at each access, by name; they are not kept."""

    def __init__(
        self, shapes: Mapping[str, tuple[int, ...]], read: Callable[[str], np.ndarray]
    ) -> None:
        self._shapes = dict(shapes)
        self._read = read

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._shapes:
            raise KeyError(name)
        return as_float32(self._read(name))

    def __contains__(self, name: object) -> bool:  # Mapping's default would read the array
        return name in self._shapes

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of one array without reading it."""
        return self._shapes[name]


def shape_of(arrays: Mapping[str, np.ndarray], name: str) -> tuple[int, ...]:
    """Return the shape of `arrays[name]` without reading a lazy one."""
    if isinstance(arrays, LazyArrays):
        return arrays.shape(name)
    return tuple(np.shape(arrays[name]))


def as_float32(array: np.ndarray) -> np.ndarray:
    """Convert floating-point numbers to float32; leave integers and strings unchanged."""
    array = np.asarray(array)
    # ml_dtypes' bfloat16 has NumPy's kind "V". Its name distinguishes it from raw bytes.
    if array.dtype.kind == "f" or array.dtype.name == "bfloat16":
        return array.astype(np.float32, copy=False)
    return array


def file_beside(folder: str, name: str) -> str | None:
    """Return the path of `name` in `folder`, or None if the file does not exist."""
    path = tf.io.gfile.join(folder, name) if folder else name
    return path if tf.io.gfile.exists(path) else None


def read_beside(folder: str, name: str) -> dict[str, Any]:
    """Return the content of a JSON file in `folder`, {} if it does not exist."""
    path = file_beside(folder, name)
    return read_json(path) if path else {}


class Bundle:
    """A TensorFlow checkpoint, name-based or object-based. Errors name the file.

    Args:
        prefix: of the files.

    Attributes:
        shapes: of the variables by name.

    Raises:
        ValueError: the files are damaged.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        with self._naming("index"):
            self._reader = tf.train.load_checkpoint(prefix)
            shapes = self._reader.get_variable_to_shape_map()
        self.shapes = {name: tuple(shape) for name, shape in shapes.items()}

    def read(self, name: str) -> np.ndarray:
        """Return the values of one variable."""
        with self._naming(f"data ({name})"):
            return self._reader.get_tensor(name)

    @contextmanager
    def _naming(self, part: str) -> Iterator[None]:
        try:
            yield
        except (tf.errors.OpError, IndexError) as error:  # a truncated file raises IndexError
            raise DataError(
                f"{self._prefix}.{part}", f"damaged or missing ({error}): copy it again."
            ) from error
