"""Base of served models: a trained model as TensorFlow functions on text and on ids.

    served = ServedClassification(trained)
    trace_signatures(served, ["serving_default", "tokens"])     # what tf.saved_model.save writes

Shapes: B batch, S sequence.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import keras
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.batching import length_step
from bert_tf.prediction.model_folder import TrainedModel
from bert_tf.prediction.runtimes import TEXT, TOKENS
from bert_tf.serving.signatures import (
    HUGGING_FACE,
    HUGGING_FACE_INPUTS,
    INPUT_NAMES,
    TF_EXAMPLE,
    ConcreteFunction,
    Outputs,
    check_ids,
    check_texts,
    parse_examples,
)
from bert_tf.serving.text_packing import pack_ragged
from bert_tf.serving.text_tokenizer import GraphTokenizer


@dataclass(frozen=True, eq=False)
class Served(abc.ABC):
    """A trained model as functions that TensorFlow can save.

    Args:
        trained: the model; its task, if it has one, is of the type of the subclass. Texts longer than
            its `max_seq_length` are truncated, or read in windows if the type of task does so.
        network: called instead of the model, such as its `InferenceEncoder`.

    Attributes:
        kind: type of the model in export.json.
        has_spans: True if the shapes of the outputs for text depend on its labels.
        ids_shape: shape of the ids.
    """

    trained: TrainedModel
    network: Callable[..., Any] | None = field(default=None, kw_only=True)

    kind: ClassVar[str] = ""
    has_spans: ClassVar[bool] = False
    ids_shape: ClassVar[Sequence[int | None]] = (None, None)

    @abc.abstractmethod
    def text_functions(self) -> Mapping[str, tuple[Any, Sequence[tf.TensorSpec]]]:
        """Return signature -> the function on text and its inputs. `TEXT` is the first."""

    @abc.abstractmethod
    def tokens(self, **ids: tf.Tensor) -> Outputs:
        """Return the outputs for the ids of `ids_specs`."""

    def hugging_face(self, **ids: tf.Tensor) -> Outputs:
        """Return the outputs of Hugging Face's TensorFlow models, under their names, for INPUT_NAMES."""
        outputs = self.tokens(**ids)
        return {name: value for name, value in outputs.items() if name.endswith("logits")}

    def ids_functions(self) -> dict[str, tuple[Any, Mapping[str, tf.TensorSpec]]]:
        """Return signature -> the function on ids and its inputs by name. `TOKENS` is the first."""
        names = dict(zip(INPUT_NAMES, HUGGING_FACE_INPUTS, strict=True))
        return {
            TOKENS: (self.tokens, self.ids_specs()),
            HUGGING_FACE: (
                lambda **ids: self.hugging_face(**{own: ids[name] for own, name in names.items()}),
                {name: tf.TensorSpec(self.ids_shape, tf.int32, name) for name in names.values()},
            ),
        }

    def ids_specs(self) -> dict[str, tf.TensorSpec]:
        return {name: tf.TensorSpec(self.ids_shape, tf.int32, name) for name in INPUT_NAMES}

    def requests(self, texts: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """Return signature on text -> a request for each text, with one row."""
        return {
            name: [{spec.name: [text] for spec in specs} for text in texts]
            for name, (_, specs) in self.text_functions().items()
        }

    @property
    def model(self) -> keras.Model:
        return self.trained.model

    @property
    def config(self) -> BertConfig:
        return self.model.config

    @property
    def task(self) -> Any:
        """Task of the model; None for a pre-trained one."""
        return self.trained.task

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels in the order of the outputs; empty for a model without labels."""
        return getattr(self.task, "labels", ())

    @property
    def length_step(self) -> int:
        """Packed lengths are multiples of this: TensorFlow keeps memory for each shape."""
        return length_step(self.trained.max_seq_length)

    @cached_property
    def tokenizer(self) -> GraphTokenizer:
        with tf.init_scope():  # its constants belong to no function that is traced first
            return GraphTokenizer(self.pieces, self.trained.tokenizer.do_lower_case)

    @cached_property
    def pieces(self) -> list[str]:
        """WordPieces in the order of their ids."""
        tokenizer = self.trained.tokenizer
        return tokenizer.convert_ids_to_tokens(range(len(tokenizer.vocab)))

    @cached_property
    def packing(self) -> dict[str, int]:
        """Arguments of the functions that pack ids."""
        cls_id, sep_id = self.trained.tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
        max_seq_length = self.trained.max_seq_length
        return {"max_seq_length": max_seq_length, "cls_id": cls_id, "sep_id": sep_id}

    def pack(self, ids_a: tf.RaggedTensor, ids_b: tf.RaggedTensor | None) -> dict[str, tf.Tensor]:
        """Truncate to `max_seq_length`, and pad to little more than the batch's longest."""
        return pack_ragged(ids_a, ids_b, length_step=self.length_step, **self.packing)

    def call_model(self, **inputs: tf.Tensor) -> dict[str, Any]:
        return self.network(inputs) if self.network else self.model(inputs, training=False)


def trace_signatures(served: Served, names: Sequence[str]) -> dict[str, ConcreteFunction]:
    """Return the signatures with these names, which check their inputs."""
    text, ids = served.text_functions(), served.ids_functions()
    traced = {}
    for name in names:
        if name in ids:
            function, by_name = ids[name]
            row_names = HUGGING_FACE_INPUTS if name == HUGGING_FACE else INPUT_NAMES
            graph = tf.function(check_ids(function, row_names, served.config), autograph=False)
            traced[name] = graph.get_concrete_function(**by_name)
        else:
            function, specs = parse_examples(*text[TEXT]) if name == TF_EXAMPLE else text[name]
            graph = tf.function(check_texts(function, specs), autograph=False)
            traced[name] = graph.get_concrete_function(*specs)
    return traced


def texts_spec(name: str) -> tf.TensorSpec:
    return tf.TensorSpec([None], tf.string, name)
