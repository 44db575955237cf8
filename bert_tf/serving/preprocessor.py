"""Keras layer from strings to the inputs of a model, as TensorFlow operations."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.data.batching import length_step
from bert_tf.serving.served import INPUT_NAMES
from bert_tf.serving.text_packing import pack_ragged
from bert_tf.serving.text_tokenizer import GraphTokenizer
from bert_tf.tokenization import FullTokenizer


@keras.saving.register_keras_serializable(package="bert_tf")
class TextPreprocessor(keras.layers.Layer):
    """Layer from texts, or pairs of texts, to model inputs that equal those of `FullTokenizer`.

    It works on eager tensors, in `tf.data` and in graphs. `dataset.map(preprocessor)` also takes batches
    of (texts, labels) and (texts, labels, weights), as Keras' `fit` does.

    >>> preprocessor = TextPreprocessor(["[UNK]", "[CLS]", "[SEP]", "a", "dog"], max_length=6)
    >>> preprocessor(["A dog"])["input_ids"].numpy().tolist()
    [[1, 3, 4, 2, 0, 0]]

    Args:
        vocabulary: WordPieces in the order of their ids.
        max_length: S, tokens with [CLS] and [SEP]; longer texts are truncated as in `FullTokenizer`.
        do_lower_case: lower-case and strip accents, as for the uncased models.
        pad_to_max_length: True if S is always `max_length`. If False, S is the longest of the batch,
            rounded up to a multiple of 8 or 16.

    Call arguments:
        inputs: string [B]; for pairs a tuple (texts, second texts) of two of them, not a list of pairs.
        y, sample_weight: passed through. Numbers, because strings may be the second texts of pairs.

    Returns:
        dict of int32 [B, S]: `input_ids`; `input_mask` (1 = real, 0 = padding); `segment_ids` (0 = first
        text and padding, 1 = second). With `y`, a tuple of that dict, `y` and `sample_weight`.

    Raises:
        ValueError: the vocabulary has no [UNK], or a token twice.
        TypeError: `y` are strings.
    """

    def __init__(
        self,
        vocabulary: Sequence[str],
        max_length: int,
        do_lower_case: bool = True,
        pad_to_max_length: bool = True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self._convert_input_args = False  # strings stay as they are
        self._allow_non_tensor_positional_args = True
        self._vocabulary = tuple(vocabulary)
        self.max_length = max_length
        self.do_lower_case = do_lower_case
        self.pad_to_max_length = pad_to_max_length
        ids = {token: index for index, token in enumerate(vocabulary)}
        self._special = {
            "cls_id": ids["[CLS]"],
            "sep_id": ids["[SEP]"],
            "pad_id": ids.get("[PAD]", 0),
        }
        self._tokenizer = GraphTokenizer(self._vocabulary, do_lower_case)

    @classmethod
    def from_pretrained(
        cls, path: str | os.PathLike, max_length: int, **kwargs
    ) -> TextPreprocessor:
        """Return the preprocessor for a model folder or checkpoint; see `FullTokenizer`."""
        tokenizer = FullTokenizer.from_pretrained(path, kwargs.pop("do_lower_case", None))
        return cls(list(tokenizer.vocab), max_length, tokenizer.do_lower_case, **kwargs)

    def call(self, inputs, y=None, sample_weight=None) -> Any:
        is_list_of_two = isinstance(inputs, list) and len(inputs) == 2
        is_pair = isinstance(inputs, tuple) or (
            is_list_of_two and not isinstance(inputs[0], (str, bytes, tuple))
        )
        if tf.string == getattr(y, "dtype", None):
            raise TypeError(
                "`y` are strings, but labels are numbers. For pairs of texts write "
                "dataset.map(lambda a, b: preprocessor((a, b)))."
            )
        texts, pairs = inputs if is_pair else (inputs, None)
        ids = [None if part is None else self._ids(part) for part in (texts, pairs)]
        step = self.max_length if self.pad_to_max_length else length_step(self.max_length)
        packed = pack_ragged(
            *ids, max_seq_length=self.max_length, length_step=step, **self._special
        )
        if self.pad_to_max_length:
            packed = {n: tf.ensure_shape(t, [None, self.max_length]) for n, t in packed.items()}
        return keras.utils.pack_x_y_sample_weight(packed, y, sample_weight)

    def _ids(self, texts) -> tf.RaggedTensor:
        texts = tf.convert_to_tensor(texts, tf.string)
        if texts.shape.rank not in (0, 1, None) and texts.shape[1:].num_elements() != 1:
            raise ValueError(
                f"`inputs` has the shape {texts.shape}: pairs are a tuple (texts, second texts)."
            )
        return self._tokenizer(tf.reshape(texts, [-1]))

    def compute_output_spec(self, inputs, y=None, sample_weight=None) -> Any:
        first = inputs[0] if isinstance(inputs, (list, tuple)) else inputs
        length = self.max_length if self.pad_to_max_length else None
        spec = {n: keras.KerasTensor((first.shape[0], length), "int32") for n in INPUT_NAMES}
        return keras.utils.pack_x_y_sample_weight(spec, y, sample_weight)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocabulary": list(self._vocabulary),
            "max_length": self.max_length,
            "do_lower_case": self.do_lower_case,
            "pad_to_max_length": self.pad_to_max_length,
        }
