"""Base of served models: TensorFlow functions on text and on ids.

Shapes: B batch, S sequence.
"""

from __future__ import annotations

import abc
import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.batching import length_step
from bert_tf.modeling.inference import InferenceEncoder, Layout
from bert_tf.modeling.int8 import QuantizedAffine, QuantizedTable
from bert_tf.options import OptionError
from bert_tf.prediction.model_folder import TrainedModel
from bert_tf.prediction.runtimes import TEXT, TOKENS
from bert_tf.serving.other_names import (
    HUGGING_FACE,
    INPUTS,
    TF_EXAMPLE,
    Outputs,
    checked_ids,
    from_examples,
)
from bert_tf.serving.text_packing import pack_ragged
from bert_tf.serving.text_tokenizer import GraphTokenizer
from bert_tf.tokenization import FullTokenizer

INPUT_NAMES = ("input_ids", "input_mask", "segment_ids")
ROWS_AT_ONCE = 32  # windows of long texts that the model computes together

IDS_SIGNATURES = (TOKENS, HUGGING_FACE)  # take ids, and need no tokenizer

Signature: TypeAlias = tf.types.experimental.ConcreteFunction


class Served(tf.Module, abc.ABC):
    """A model for export.

    Args:
        trained: the model; its task, if it has one, is of the type of the subclass.
        max_seq_length: the largest S of text; longer texts are truncated, or read in windows if the
            type of task does so.
        with_text: True if it takes text. Without text, it uses TensorFlow's own operations only.

    Attributes:
        has_spans: True if the shapes of the outputs for text depend on its labels.
        source: facts about the checkpoint and the command of the export, for export.json.
        record: gets the inputs of the model in every call, if set (quantization.py).
    """

    task: Any
    has_spans = False
    ids_shape: Sequence[int | None] = (None, None)
    record: Callable[[dict[str, np.ndarray]], None] | None = None

    def __init__(self, trained: TrainedModel, max_seq_length: int, with_text: bool = True):
        super().__init__()
        self._model, self._source = _Untracked(trained.model), _Untracked(None)
        self._encoder = _Untracked(None)  # until `prepare`, the model's layers compute
        self.task, self.checkpoint = trained.task, trained.checkpoint
        tokenizer = trained.tokenizer
        self._set_parameters(trained.model.weights)
        self.max_seq_length = max_seq_length
        self.length_step = length_step(max_seq_length)
        self.vocabulary = tokenizer.vocab
        self.do_lower_case = tokenizer.do_lower_case
        special = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]", "[UNK]"])
        self.cls_id, self.sep_id, self.unk_id = special
        if with_text:
            self.tokenizer = GraphTokenizer(tokenizer.vocab, tokenizer.do_lower_case)

    @property
    def model(self) -> keras.Model:
        return self._model.object

    @property
    def source(self) -> dict[str, Any] | None:
        return self._source.object

    def note_source(self, source: dict[str, Any]) -> None:
        """Set `source`, which TensorFlow would wrap if it were assigned."""
        self._source = _Untracked(source)

    @property
    def parameters(self) -> list[keras.Variable]:
        """Variables that the functions compute with."""
        return self._parameters.object

    def prepare(
        self,
        layout: Layout = "plain",
        quantized: Mapping[str, QuantizedAffine | QuantizedTable] | None = None,
    ) -> None:
        """Use the encoder for inference, before anything is traced; see `InferenceEncoder`."""
        self._encoder = _Untracked(InferenceEncoder(self.model, layout, quantized))
        self._set_parameters(self._encoder.object.variables)

    def _set_parameters(self, parameters: Sequence[keras.Variable]) -> None:
        self._parameters = _Untracked(list(parameters))
        self.weights = [variable.value for variable in parameters]

    @property
    def full_tokenizer(self) -> FullTokenizer:
        """The tokenizer in Python."""
        vocabulary = sorted(self.vocabulary, key=self.vocabulary.__getitem__)
        return FullTokenizer(vocabulary, self.do_lower_case)

    @property
    def config(self) -> BertConfig:
        return self.model.config

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels in the order of the outputs; empty for a model without labels."""
        return getattr(self.task, "labels", ())

    @abc.abstractmethod
    def text_functions(self) -> Mapping[str, tuple[Any, Sequence[tf.TensorSpec]]]:
        """Return signature -> the function on text and its inputs. `TEXT` is the first."""

    @abc.abstractmethod
    def tokens(self, input_ids, input_mask, segment_ids) -> Outputs:
        """Return the outputs for ids."""

    def hugging_face(self, input_ids, input_mask, segment_ids) -> Outputs:
        """Return the outputs for ids that Hugging Face's TensorFlow models have, under their names."""
        outputs = self.tokens(input_ids, input_mask, segment_ids)
        return {name: value for name, value in outputs.items() if name.endswith("logits")}

    def ids_functions(self) -> dict[str, tuple[Any, Mapping[str, tf.TensorSpec]]]:
        """Return signature -> the function on ids and its inputs by name. `TOKENS` is the first."""
        renamed = {name: tf.TensorSpec(self.ids_shape, tf.int32, name) for name in INPUTS}
        return {
            TOKENS: (self.tokens, self.ids_specs()),
            HUGGING_FACE: (lambda **ids: self.hugging_face(*map(ids.get, INPUTS)), renamed),
        }

    def requests(self, texts: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """Return signature on text -> a request for each text, with one row."""
        return {
            name: [{spec.name: [text] for spec in specs} for text in texts]
            for name, (_, specs) in self.text_functions().items()
        }

    def ids_specs(self) -> dict[str, tf.TensorSpec]:
        return {name: tf.TensorSpec(self.ids_shape, tf.int32, name) for name in INPUT_NAMES}

    def check_signatures(self, names: Sequence[str]) -> None:
        """Raise ValueError if a name is not a signature of this model."""
        known = [*self.text_functions(), *self.ids_functions(), TF_EXAMPLE]
        for name in names:
            if name not in known:
                raise OptionError(
                    "signature", f"the model has {', '.join(known)}, but no {name!r}."
                )

    def signatures(self, names: Sequence[str]) -> dict[str, Signature]:
        """Return the signatures with these names."""
        text, ids = self.text_functions(), self.ids_functions()
        signatures = {}
        for name in names:
            if name in ids:
                function, by_name = ids[name]
                shaped = INPUTS if name == HUGGING_FACE else INPUT_NAMES
                checked = checked_ids(function, shaped, self.config)
                signatures[name] = _graph(checked).get_concrete_function(**by_name)
            else:
                function, specs = from_examples(*text[TEXT]) if name == TF_EXAMPLE else text[name]
                checked = _checked_texts(function, specs)
                signatures[name] = _graph(checked).get_concrete_function(*specs)
        return signatures

    def numeric_tokens(self, weights_are_inputs: bool = False) -> Any:
        """Return `tokens` as a graph without strings and variables, for other runtimes.

        It takes the inputs of `ids_specs` by position, then `parameters` if the weights are inputs, for
        formats that store them separately; else they are constants.
        """
        specs, num_ids = list(self.ids_specs().values()), len(self.ids_specs())
        arrays = [] if weights_are_inputs else [variable.numpy() for variable in self.parameters]
        if weights_are_inputs:
            specs += [
                tf.TensorSpec(variable.shape, variable.dtype, f"weight_{number}")
                for number, variable in enumerate(self.parameters)
            ]

        @tf.function(input_signature=specs, autograph=False)
        def numbers(*values: tf.Tensor) -> Outputs:
            weights = values[num_ids:] or [tf.constant(array) for array in arrays]
            with keras.StatelessScope(list(zip(self.parameters, weights, strict=True))):
                outputs = self.tokens(**dict(zip(self.ids_specs(), values[:num_ids], strict=True)))
            return {name: o for name, o in outputs.items() if o.dtype != tf.string}

        return numbers

    def call_model(self, **inputs: tf.Tensor) -> dict[str, Any]:
        """Return the model's outputs for a few rows."""
        record = self.record
        if record is not None:
            names = list(inputs)
            tf.numpy_function(
                lambda *values: record(dict(zip(names, values, strict=True))),
                list(inputs.values()),
                [],
            )
        encoder = self._encoder.object
        with contextlib.nullcontext() if encoder is None else encoder.forms():
            return self.model(inputs, training=False)

    def call_in_parts(
        self, function: Callable[..., Outputs], inputs: Mapping[str, tf.Tensor]
    ) -> Outputs:
        """Call `function` on any number of rows, few at a time, so that long texts need little memory.

        Args:
            function: inputs [R, S] -> float32 [R, ...] by name. The dimensions after R are static or
                equal to S.
            inputs: int32 [W, S].
        """
        rows, length = tf.unstack(tf.shape(inputs["input_ids"]))
        together = tf.clip_by_value(rows, 1, ROWS_AT_ONCE)
        missing = tf.maximum(-rows % together, 1 - rows)  # at least one part
        parts = {
            name: tf.reshape(tf.pad(value, [[0, missing], [0, 0]]), [-1, together, length])
            for name, value in inputs.items()
        }
        inputs_specs = {name: self.ids_specs()[name] for name in inputs}
        specs = _graph(function).get_concrete_function(**inputs_specs).structured_outputs
        outputs = tf.map_fn(
            lambda part: function(**part),
            parts,
            fn_output_signature={
                name: tf.TensorSpec(o.shape, o.dtype) for name, o in specs.items()
            },
            parallel_iterations=1,
        )
        return {
            name: tf.reshape(value, tf.concat([[-1], tf.shape(value)[2:]], axis=0))[:rows]
            for name, value in outputs.items()
        }

    def pack(self, ids_a: tf.RaggedTensor, ids_b: tf.RaggedTensor | None) -> dict[str, tf.Tensor]:
        """Truncate to `max_seq_length`, and pad to little more than the batch's longest.

        Short texts stay cheap, and shapes few: TensorFlow keeps memory for each shape.
        """
        return pack_ragged(
            ids_a,
            ids_b,
            max_seq_length=self.max_seq_length,
            cls_id=self.cls_id,
            sep_id=self.sep_id,
            length_step=self.length_step,
        )


class _Untracked:
    """Wrapper that keeps an object out of a SavedModel.

    Saving a Keras model with a module restores its variables into copies that no function reads (Keras
    3.15, `Variable._export_to_saved_model_graph`). `tf.saved_model.load` tolerates this, but servers and
    the C API find variables without values. The module therefore holds TensorFlow's own variables.
    """

    def __init__(self, value: Any):
        self.object = value


def _graph(function: Callable[..., Outputs]):
    return tf.function(function, autograph=False)


def _checked_texts(function: Callable[..., Outputs], specs: Sequence[tf.TensorSpec]):
    """Wrap `function`, asserting that its inputs have the ranks of `specs` and one number of rows."""

    @functools.wraps(function)
    def checked(*inputs: tf.Tensor) -> Outputs:
        shapes = list(map(tf.shape, inputs))
        ranks = []
        for spec, shape in zip(specs, shapes, strict=True):
            # `tf.rank` would be the constant of the spec, but servers accept other shapes.
            rank = tf.reduce_sum(tf.cast(shape >= 0, tf.int32))
            expected = "1: one text" if spec.shape.rank == 1 else "2: a row of texts"
            data = [f"`{spec.name}` has this many dimensions:", rank]
            data.append(f"but must have {expected} for each example.")
            ranks.append(tf.debugging.Assert(tf.equal(rank, spec.shape.rank), data))
        with tf.control_dependencies(ranks):
            sizes = [tf.identity(shape)[0] for shape in shapes]
        checks = list(ranks)
        first = specs[0].name
        for spec, size in zip(specs[1:], sizes[1:], strict=True):
            before, between = f"`{first}` has this many rows:", f"but `{spec.name}` has this many:"
            rule = "Send one row of each for every example."
            data = [before, sizes[0], between, size, rule]
            checks.append(tf.debugging.Assert(size == sizes[0], data))
        with tf.control_dependencies(checks):  # before another operation fails on the sizes
            return function(*map(tf.identity, inputs))

    return checked


def valid_utf8(texts: tf.Tensor) -> tf.Tensor:
    """Replace bytes that are not UTF-8 by U+FFFD, one character each, as in the offsets."""
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")


def texts_spec(name: str) -> tf.TensorSpec:
    return tf.TensorSpec([None], tf.string, name)
