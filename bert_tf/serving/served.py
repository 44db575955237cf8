"""Base of served models: a trained model as TensorFlow functions on text and on ids.

    served = ServedClassification(trained)
    trace_signatures(served, ["serving_default", "tokens"])     # what tf.saved_model.save writes

    serving_default   texts -> the outputs
    tokens            input_ids, input_mask, segment_ids: int32 [B, S] -> the outputs
    tf_example        examples: string [B], serialized `tf.train.Example`s with the inputs of
                      `serving_default` -> its outputs
    hugging_face      input_ids, attention_mask, token_type_ids: int32 [B, S] -> the outputs of
                      Hugging Face's TensorFlow classes: logits, start_logits and end_logits, or
                      last_hidden_state [B, S, H] and pooler_output [B, H]

Shapes: B batch, S sequence.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import keras
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.batching import length_step
from bert_tf.prediction.loading import TEXT, TOKENS, TrainedModel
from bert_tf.serving.text_packing import pack_ragged
from bert_tf.serving.text_tokenizer import GraphTokenizer

ConcreteFunction: TypeAlias = tf.types.experimental.ConcreteFunction
Outputs = dict[str, tf.Tensor]
Function = Callable[..., Outputs]

INPUT_NAMES = ("input_ids", "input_mask", "segment_ids")
TF_EXAMPLE, HUGGING_FACE = "tf_example", "hugging_face"
EXAMPLES = "examples"  # the input of TF_EXAMPLE
HUGGING_FACE_NAMES = dict(
    zip(INPUT_NAMES, ("input_ids", "attention_mask", "token_type_ids"), strict=True)
)


@dataclass(frozen=True, eq=False)
class Served(abc.ABC):
    """A trained model as functions that TensorFlow can save."""

    trained: TrainedModel
    # Called instead of the model, such as its `InferenceEncoder`.
    network: Callable[..., Any] | None = field(default=None, kw_only=True)

    kind: ClassVar[str] = ""  # type of the model in export.json
    has_spans: ClassVar[bool] = False  # do the shapes of the outputs for text depend on its labels
    ids_shape: ClassVar[Sequence[int | None]] = (None, None)

    @abc.abstractmethod
    def text_functions(self) -> Mapping[str, tuple[Function, Sequence[tf.TensorSpec]]]:
        """Return signature -> the function on text and its inputs. `TEXT` is the first."""

    @abc.abstractmethod
    def tokens(self, **ids: tf.Tensor) -> Outputs:
        """Return the outputs for the ids of `ids_specs`."""

    def ids_specs(self) -> dict[str, tf.TensorSpec]:
        return {name: tf.TensorSpec(self.ids_shape, tf.int32, name) for name in INPUT_NAMES}

    def hugging_face(self, **ids: tf.Tensor) -> Outputs:
        """Return the outputs of Hugging Face's TensorFlow classes for INPUT_NAMES."""
        outputs = self.tokens(**ids)
        return {name: value for name, value in outputs.items() if name.endswith("logits")}

    def signature_names(self) -> list[str]:
        """Return the signatures on text, and `TOKENS`: those of an export by default."""
        return [*self.text_functions(), TOKENS]

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

    @cached_property
    def tokenizer(self) -> GraphTokenizer:
        with tf.init_scope():  # its constants belong to no function that is traced first
            return GraphTokenizer(self.pieces, self.trained.tokenizer.do_lower_case)

    @cached_property
    def pieces(self) -> list[str]:
        """WordPieces in the order of their ids."""
        return list(self.trained.tokenizer.vocab)

    @cached_property
    def packing(self) -> dict[str, int]:
        """Arguments of the functions that pack ids."""
        cls_id, sep_id = self.trained.tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
        max_seq_length = self.trained.max_seq_length
        return {"max_seq_length": max_seq_length, "cls_id": cls_id, "sep_id": sep_id}

    def pack(self, ids_a: tf.RaggedTensor, ids_b: tf.RaggedTensor | None) -> dict[str, tf.Tensor]:
        """Truncate to `max_seq_length`, and pad to little more than the batch's longest."""
        step = length_step(self.trained.max_seq_length)  # TensorFlow keeps memory for each shape
        return pack_ragged(ids_a, ids_b, length_step=step, **self.packing)

    def call_model(self, **inputs: tf.Tensor) -> dict[str, Any]:
        return self.network(inputs) if self.network else self.model(inputs, training=False)


def make_signatures(served: Served) -> dict[str, tuple[Function, Sequence[tf.TensorSpec]]]:
    """Return signature -> the function that checks its inputs, by name, and answers; and its inputs."""
    signatures = {
        name: (check_texts(function, specs), specs)
        for name, (function, specs) in served.text_functions().items()
    }
    checked = check_ids(served.hugging_face, served.config)
    names = HUGGING_FACE_NAMES.values()
    return {
        **signatures,
        TOKENS: (check_ids(served.tokens, served.config), list(served.ids_specs().values())),
        TF_EXAMPLE: parse_examples(*signatures[TEXT]),
        HUGGING_FACE: (
            lambda **ids: checked(**{own: ids[name] for own, name in HUGGING_FACE_NAMES.items()}),
            [tf.TensorSpec(served.ids_shape, tf.int32, name) for name in names],
        ),
    }


def trace_signatures(served: Served, names: Sequence[str]) -> dict[str, ConcreteFunction]:
    traced, signatures = {}, make_signatures(served)
    for name in names:
        function, specs = signatures[name]
        graph = tf.function(function, autograph=False)
        traced[name] = graph.get_concrete_function(**{spec.name: spec for spec in specs})
    return traced


def parse_examples(
    function: Function, specs: Sequence[tf.TensorSpec]
) -> tuple[Function, list[tf.TensorSpec]]:
    """Return a function on serialized `tf.train.Example`s of `specs` ([B] or [B, K]), and its input."""
    one, several = tf.io.FixedLenFeature([], tf.string), tf.io.RaggedFeature(tf.string)
    features = {spec.name: one if spec.shape.rank == 1 else several for spec in specs}

    def parsed(examples: tf.Tensor) -> Outputs:
        columns = tf.io.parse_example(examples, features)
        for name in features:
            if features[name] is several:
                is_present = columns[name].row_lengths() > 0
                check = tf.debugging.Assert(tf.reduce_all(is_present), [f"`{name}` is missing."])
                with tf.control_dependencies([check]):
                    columns[name] = tf.identity(columns[name].to_tensor(""))
        return function(**columns)

    return parsed, [tf.TensorSpec([None], tf.string, EXAMPLES)]


def texts_spec(name: str) -> tf.TensorSpec:
    return tf.TensorSpec([None], tf.string, name)


def check_texts(function: Function, specs: Sequence[tf.TensorSpec]) -> Function:
    """Wrap `function`, asserting that its inputs have the ranks of `specs` and one number of rows."""
    message = " and ".join(f"`{spec.name}`" for spec in specs)

    def checked(**inputs: tf.Tensor) -> Outputs:
        # `ensure_shape` is computed, because servers accept other shapes than those of the signature.
        texts = [tf.ensure_shape(inputs[spec.name], spec.shape, spec.name) for spec in specs]
        rows = [tf.shape(value)[0] for value in texts]
        rule = f"{message} need one row of each for every example."
        checks = [tf.debugging.assert_equal(number, rows[0], rule) for number in rows[1:]]
        with tf.control_dependencies(checks):  # before another operation fails on the sizes
            return function(*map(tf.identity, texts))

    return checked


def check_ids(function: Function, config: BertConfig) -> Function:
    """Wrap a function on ids, asserting that they have one shape and are in the tables of the model."""

    def checked(**ids: tf.Tensor) -> Outputs:
        shape = tf.shape(ids["input_ids"])
        checks = [
            tf.debugging.assert_less_equal(
                shape[-1],
                config.max_position_embeddings,
                "`input_ids` are longer than the positions of the model.",
            )
        ]
        limits = {"input_ids": config.vocab_size, "segment_ids": config.type_vocab_size}
        for name, value in ids.items():
            if name in INPUT_NAMES:
                rule = f"`{name}` must have the shape of `input_ids`: pad all to one."
                checks.append(tf.debugging.assert_equal(tf.shape(value), shape, rule))
            else:  # positions in the rows
                rule = f"`{name}` must have as many rows as `input_ids`."
                checks.append(tf.debugging.assert_equal(tf.shape(value)[0], shape[0], rule))
                limits[name] = shape[1]
        for name, limit in limits.items():
            is_valid = tf.reduce_all((ids[name] >= 0) & (ids[name] < limit))
            checks.append(
                tf.debugging.Assert(is_valid, [f"`{name}` must be from 0, and below", limit])
            )
        with tf.control_dependencies(checks):
            return function(**{name: tf.identity(value) for name, value in ids.items()})

    return checked
