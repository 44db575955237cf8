"""Base of the predictions of SavedModels: the folder, its signatures, batches, truncated texts."""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.data.buckets import batches_by_length
from bert_tf.interop.checkpoint import read_json, typed
from bert_tf.prediction.exports import EXTRA, METADATA_FILE, check_sums
from bert_tf.prediction.runtimes import TEXT, Runtime, SavedModel
from bert_tf.prediction.saved_graph import check_graph, damaged
from bert_tf.prediction.text_model import TextModel
from bert_tf.tokenization import FullTokenizer


class SavedTextModel(TextModel):
    """Base of all SavedModels.

    Args:
        runtime: has the folder, if it was loaded before.

    Attributes:
        max_seq_length: longest input in tokens; None if unknown, so that `num_cut` stays 0.

    Raises:
        ValueError: the SavedModel is of another class, or damaged.
    """

    max_seq_length: int | None = None
    _signature = TEXT

    def __init__(self, folder: str, batch_size: int = 32, runtime: Runtime | None = None):
        self._folder = folder
        self._runtime = load_runtime(folder) if runtime is None else runtime
        signature = self._runtime.signatures[TEXT]
        self._takes, self._gives = signature["inputs"], signature["outputs"]
        if not self.fits(self._takes.keys(), self._gives.keys()):
            raise ValueError(
                f"{folder} takes {', '.join(self._takes)} and returns {', '.join(self._gives)}, so it "
                f"is not for {type(self).__name__}. Use `load_saved_model`, which finds the class of "
                "every export."
            )
        self._batch_size = batch_size
        self._tokenizer: FullTokenizer | None = None  # counts truncated texts
        self._settings: Mapping[str, Any] = {}
        metadata, vocab_file = (
            os.path.join(folder, EXTRA, name) for name in (METADATA_FILE, "vocab.txt")
        )
        if tf.io.gfile.exists(metadata) and tf.io.gfile.exists(vocab_file):
            facts = read_json(metadata)
            self.max_seq_length = typed(facts, "max_seq_length", int, metadata)
            self._settings = typed(facts, "task", dict, metadata) or {}
            self._tokenizer = FullTokenizer(vocab_file, bool(facts.get("do_lower_case", True)))

    def _count_if_cut(self, text: str, *seconds: str) -> None:
        """Add 1 to `num_cut` if a text, alone or with one of `seconds`, exceeds the longest input."""
        if self._tokenizer is None or self.max_seq_length is None:
            return
        if 3 * (len(text) + max(map(len, seconds), default=0) + 1) <= self.max_seq_length:
            return  # a character becomes at most three tokens
        length = len(self._tokenizer.encode(text)) + 2
        others = [len(self._tokenizer.encode(second)) for second in seconds]
        longest = max((number + 1 for number in others if number), default=0)
        self.num_cut += length + longest > self.max_seq_length

    def answer(self, prepared: Sequence[Any]) -> list[dict[str, Any]]:
        return self._in_batches(prepared, self._answer_batch)

    @classmethod
    @abc.abstractmethod
    def fits(cls, takes: Set[str], gives: Set[str]) -> bool:
        """Return True if the text signature of a SavedModel is one of this class.

        Args:
            takes, gives: names of its inputs and outputs.
        """

    @abc.abstractmethod
    def _answer_batch(self, items: Sequence[Any]) -> list[dict[str, Any]]:
        """Return `answer` for one batch."""

    def _ask(self, **inputs: Any) -> dict[str, np.ndarray]:
        return self._runtime.ask(self._signature, inputs)

    def _in_batches(self, items: Sequence[Any], function: Callable) -> list[Any]:
        """Call a function on batches of similar length; return the results in the original order."""
        results: list[Any] = [None] * len(items)
        lengths = [len(item) if isinstance(item, str) else len(str(item)) for item in items]
        for rows in batches_by_length(lengths, self._batch_size):
            for row, found in zip(rows, function([items[row] for row in rows]), strict=True):
                results[row] = found
        return results


def load_runtime(folder: str) -> Runtime:
    """Return TensorFlow with a SavedModel.

    Raises:
        ValueError: it is damaged, or see `check_graph`.
    """
    metadata = os.path.join(folder, EXTRA, METADATA_FILE)
    if tf.io.gfile.exists(metadata):
        check_sums(folder, read_json(metadata))
    check_graph(folder)
    try:
        return SavedModel(folder)
    except (IndexError, OSError, tf.errors.OpError) as error:
        raise damaged(folder, error) from error


def rows_of(outputs: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Return the outputs of a batch, example by example, in plain Python values."""
    columns = {name: value.tolist() for name, value in outputs.items()}
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def plain(value: Any) -> Any:
    """Decode bytes; return other values as they are."""
    return value.decode("utf-8") if isinstance(value, bytes) else value
