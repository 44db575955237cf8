"""Base of all models on raw text, and the batches in which they compute.

    prepared = [model.prepare(item) for item in items]     # cheap; raises for invalid inputs
    model.answer(prepared)                                 # one dict per item, in their order

A model on text is text in Python and a network, a function from ids to outputs: a Keras model, or an
export in its runtime. Texts of similar length are batched together, which saves padding. Answers keep
the order of the texts.

Shapes: N sequences, B batch, S length of the longest of a batch.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.data.batching import group_by_length
from bert_tf.packing import PackedSequence, pack
from bert_tf.prediction.loading import TrainedModel

Network = Callable[[Mapping[str, tf.Tensor]], Mapping[str, tf.Tensor]]

_LENGTH_STEP = 16  # batch lengths are multiples of this, which limits the number of shapes


class TextModel(abc.ABC):
    """A model on raw text.

    Args:
        trained: from `loading.load_model` or `load_export`.
        batch_size: sequences per batch.

    Attributes:
        fields: parts of an input, such as ("question", "context").
        optional_fields: those of `fields` that an input may lack.
        columns: of a flat table of answers, in order; "a.b" is the value b in the dict a.
        num_truncated: number of texts that were truncated to the longest input.
        run: the network on sequences of all lengths.
    """

    fields: tuple[str, ...] = ("text_a",)
    optional_fields: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    num_truncated: int = 0
    task: Any

    def __init__(self, trained: TrainedModel, batch_size: int = 32):
        self.task, self.tokenizer = trained.task, trained.tokenizer
        self.max_seq_length = trained.max_seq_length
        self.run = SequenceRunner(self.network(trained), self.max_seq_length, batch_size)

    def network(self, trained: TrainedModel) -> Network:
        """Return the function from ids to what `answer` needs. Default: all outputs of the model."""
        return trained.network

    @abc.abstractmethod
    def prepare(self, item: Any) -> Any:
        """Convert one input to the form that the model takes; raise ValueError if it is invalid."""

    @abc.abstractmethod
    def answer(self, prepared: Sequence[Any]) -> list[dict[str, Any]]:
        """Return the answers in plain Python values, in the order of `prepared`."""

    def predict(self, items: Any) -> list[dict[str, Any]]:
        """Return `answer` for a list of inputs, or for a single text."""
        return self.answer([self.prepare(item) for item in list_inputs(items)])

    def pack(self, ids_a: Sequence[int], ids_b: Sequence[int] = ()) -> PackedSequence:
        """Return the sequence of a text or a pair, without padding; count it if it is truncated."""
        length = len(ids_a) + len(ids_b) + (3 if ids_b else 2)
        self.num_truncated += length > self.max_seq_length
        length = min(length, self.max_seq_length)
        cls_id, sep_id = self.tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
        return pack(ids_a, ids_b, max_seq_length=length, cls_id=cls_id, sep_id=sep_id)

    def parse_line(self, line: str) -> Any:
        """Convert a line of text, with a tab between the fields, to an input."""
        return self.parse_fields(line.split("\t", len(self.fields) - 1))

    def parse_fields(self, values: Sequence[Any]) -> Any:
        """Convert the values of `fields` to an input. That of a missing optional one is None."""
        return values[0] if len(self.fields) == 1 else tuple(values)

    @abc.abstractmethod
    def short(self, answer: Mapping[str, Any]) -> str:
        """Return an answer in a few words."""


class SequenceRunner:
    """A compiled function on sequences of all lengths: int32 [B, S] by name -> [B, ...] by name."""

    def __init__(self, function: Network, max_length: int, batch_size: int):
        self._function = function
        self._run: Callable | None = None
        self._max_length = max_length
        self.batch_size = batch_size

    def __call__(
        self,
        sequences: Sequence[PackedSequence],
        others: Mapping[str, Sequence[Sequence[int]]] | None = None,
        batch_size: int | None = None,
    ) -> list[dict[str, np.ndarray]]:
        """Return the outputs of each sequence, in order; those [S, ...] end with padding."""
        results: list[dict[str, np.ndarray]] = [{}] * len(sequences)
        lengths = [len(sequence.input_ids) for sequence in sequences]
        for rows in group_by_length(lengths, batch_size or self.batch_size):
            columns = {
                name: [getattr(sequences[row], name) for row in rows]
                for name in PackedSequence._fields
            }
            longest = -(-lengths[rows[-1]] // _LENGTH_STEP) * _LENGTH_STEP
            inputs = pad_rows(columns, min(longest, self._max_length))
            for name, values in (others or {}).items():
                selected = [values[row] for row in rows]
                inputs |= pad_rows({name: selected}, max(map(len, selected)))
            outputs = self._compute(inputs)
            for index, row in enumerate(rows):
                results[row] = {name: values[index] for name, values in outputs.items()}
        return results

    def _compute(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return the outputs of one batch; floating-point numbers are float32."""
        if self._run is None:  # one trace for all shapes
            specs = {name: tf.TensorSpec([None, None], tf.int32) for name in inputs}
            self._run = tf.function(self._function, input_signature=[specs], autograph=False)
        outputs = self._run({name: tf.constant(value) for name, value in inputs.items()})
        return {
            name: (tf.cast(value, tf.float32) if value.dtype.is_floating else value).numpy()
            for name, value in outputs.items()
        }


def list_inputs(items: Any) -> list[Any]:
    """Return a list of inputs; a single text is one."""
    if isinstance(items, Mapping):  # not its keys
        raise TypeError(f"items is {items!r:.60}, but must be a text or a list of inputs.")
    return [items] if isinstance(items, str) else list(items)


def pad_rows(columns: Mapping[str, Sequence[Sequence[int]]], length: int) -> dict[str, np.ndarray]:
    """Pad the lists of integers of each example with zeros, int32 [B, length]."""
    arrays = {}
    for name, rows in columns.items():
        array = arrays[name] = np.zeros((len(rows), length), np.int32)
        for index, row in enumerate(rows):
            array[index, : len(row)] = row
    return arrays


def without_padding(packed: PackedSequence) -> PackedSequence:
    length = sum(packed.input_mask)
    return PackedSequence(*(values[:length] for values in packed))


def check_parts(item: Any, fields: Sequence[str]) -> None:
    if not isinstance(item, tuple | list) or len(item) != len(fields):
        raise ValueError(
            f"An input must be ({', '.join(fields)}) or a line with tabs, but is {item!r:.60}."
        )


def check_texts(*texts: Any) -> None:
    """Raise ValueError if an input is not a str."""
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"An input must be a text, but is {text!r:.60}.")
