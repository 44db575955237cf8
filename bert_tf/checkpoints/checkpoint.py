"""The content of a checkpoint, independent of the program that wrote it.

All readers and writers use the reference's variable names, with float32 arrays in the reference's
layout: kernels [in, out], weights of heads [out, in].
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.limits import DataError, join_names, read_json


@dataclass(frozen=True)
class TokenizerFiles:
    """What the files of a tokenizer state.

    Args:
        folder: that contains the files.
        vocab_file: path of the vocabulary, or None. The current `transformers` writes `tokenizer.json`
            only.
        vocab: the WordPieces in the order of their ids, or None.
        cases: (True if text is lower-cased, the file that states it), the most reliable first.
        max_seq_length: longest input, in tokens; None if not stated. It may exceed the positions.
        settings: (file, problem, case) of those that `FullTokenizer` does not follow; without effect
            if `do_lower_case` equals the case.
        added_tokens: file -> tokens that it adds to the vocabulary, without `SPECIAL_TOKENS`.
    """

    folder: str = ""
    vocab_file: str | None = None
    vocab: tuple[str, ...] | None = None
    cases: tuple[tuple[bool, str], ...] = ()
    max_seq_length: int | None = None
    settings: tuple[tuple[str, str, bool | None], ...] = ()
    added_tokens: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def do_lower_case(self) -> bool | None:
        """True if text is lower-cased; None if no file states it."""
        return self.cases[0][0] if self.cases else None

    def unsupported(
        self, do_lower_case: bool, tokenize: Callable[[str], list[str]]
    ) -> Iterator[DataError]:
        """Yield the settings that change the tokens of a `FullTokenizer`, by its `tokenize`."""
        for file, problem, case in self.settings:
            if case != do_lower_case:
                yield DataError(file, problem)
        for file, tokens in self.added_tokens.items():
            if split := [token for token in tokens if tokenize(token) != [token]]:
                yield DataError(
                    file, f"adds {join_names(split, 5)}, which bert_tf cannot keep whole"
                )


@dataclass(frozen=True)
class PretrainedCheckpoint:
    """The weights of a BERT and the files next to them.

    Args:
        source: the path that was read.
        arrays: variable name of the reference -> float32 array. Arrays without a name there keep the
            name of their file. Arrays may be read lazily.
        config: the architecture; None without a configuration next to the weights.
        tokenizer: content of the tokenizer's files.
        architecture: the class name of Hugging Face's model, such as
            "BertForSequenceClassification", or None.
        labels: names of the classifier's outputs, in order, or None.
        task: content of `task.json`, as of `Task.values`; None without the file.
        embeddings: settings of a model of sentence-transformers, arguments of `EmbeddingTask`; None for
            other checkpoints.
        problem: reason why an embedder's settings are not supported, a sentence; "" if they are.
        is_pair: True if the classifier is a cross-encoder of sentence-transformers; None if unknown.
        notes: remarks for the user on how the checkpoint was read, one sentence each.
        unused_head: reason why `arrays` lacks the head of the file, a sentence; "" if it does not.
    """

    source: str
    arrays: Mapping[str, np.ndarray]
    config: BertConfig | None = None
    tokenizer: TokenizerFiles = TokenizerFiles()
    architecture: str | None = None
    labels: tuple[str, ...] | None = None
    task: Mapping[str, Any] | None = None
    embeddings: Mapping[str, Any] | None = None
    problem: str = ""
    is_pair: bool | None = None
    notes: tuple[str, ...] = ()
    unused_head: str = ""

    @property
    def folder(self) -> str:
        return self.source if tf.io.gfile.isdir(self.source) else os.path.dirname(self.source)

    def check_embeddings(self) -> None:
        if self.problem:
            raise ValueError(self.problem)

    def longest_input(self, config: BertConfig) -> int:
        """Return the length that the tokenizer's files state, but at most all positions."""
        positions = config.max_position_embeddings
        return min(self.tokenizer.max_seq_length or positions, positions)


class LazyArrays(Mapping[str, np.ndarray]):
    """Arrays that `read` loads from their file at each access; they are not kept."""

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
        return self._shapes[name]


def shape_of(arrays: Mapping[str, np.ndarray], name: str) -> tuple[int, ...]:
    """Return the shape of `arrays[name]` without reading a lazy one."""
    if isinstance(arrays, LazyArrays):
        return arrays.shape(name)
    return tuple(np.shape(arrays[name]))


def rename_arrays(
    arrays: Mapping[str, np.ndarray],
    sources: Mapping[str, str],
    transform: Callable[[str, np.ndarray], np.ndarray] = lambda name, array: array,
) -> LazyArrays:
    """Return arrays under new names (new -> old), lazily as views `transform(new name, array)`."""
    shapes = {}
    for name, source in sources.items():
        stand_in = np.broadcast_to(np.float32(0), shape_of(arrays, source))  # takes no memory
        shapes[name] = transform(name, stand_in).shape
    return LazyArrays(shapes, lambda name: transform(name, arrays[sources[name]]))


def as_float32(array: np.ndarray) -> np.ndarray:
    """Convert floating-point numbers to float32; leave integers and strings unchanged."""
    array = np.asarray(array)
    # ml_dtypes' bfloat16 has NumPy's kind "V". Its name distinguishes it from raw bytes.
    if array.dtype.kind == "f" or array.dtype.name == "bfloat16":
        return array.astype(np.float32, copy=False)
    return array


def find_config(
    bert_config_file: str | None, checkpoint: PretrainedCheckpoint | None
) -> BertConfig:
    """Return the architecture from the flag, or from the file next to the checkpoint."""
    if bert_config_file:
        return BertConfig.from_json_file(bert_config_file)
    if checkpoint is None or checkpoint.config is None:
        source = "init_checkpoint" if checkpoint is None else checkpoint.source
        raise ValueError(f"There is no bert_config.json next to {source}: give bert_config_file.")
    return checkpoint.config


def sibling_file(folder: str, name: str) -> str | None:
    """Return the path of `name` in `folder`, or None if the file does not exist."""
    path = tf.io.gfile.join(folder, name) if folder else name
    return path if tf.io.gfile.exists(path) else None


def read_sibling(folder: str, name: str) -> dict[str, Any]:
    """Return the content of a JSON file in `folder`, {} if it does not exist."""
    path = sibling_file(folder, name)
    return read_json(path) if path else {}


class Bundle(LazyArrays):
    """The variables of a TensorFlow checkpoint, name-based or object-based. Errors name its prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        with self._name_prefix():
            self._reader = tf.train.load_checkpoint(prefix)
            shapes = self._reader.get_variable_to_shape_map()
        super().__init__({name: tuple(shape) for name, shape in shapes.items()}, self.read)

    def read(self, name: str) -> Any:
        """Return the value of one variable as TensorFlow does; strings are bytes."""
        with self._name_prefix():
            return self._reader.get_tensor(name)

    @contextmanager
    def _name_prefix(self) -> Iterator[None]:
        try:
            yield
        except (tf.errors.OpError, IndexError) as error:  # a truncated file raises IndexError
            raise DataError(self._prefix, f"corrupt or incomplete: {error}") from error
