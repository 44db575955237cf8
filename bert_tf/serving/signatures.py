"""Signatures of exports: names, checks of their inputs, and those of other libraries.

    serving_default   texts -> the outputs
    tokens            input_ids, input_mask, segment_ids: int32 [B, S] -> the outputs
    tf_example        examples: string [B], serialized `tf.train.Example`s with the inputs of
                      `serving_default` -> its outputs
    hugging_face      input_ids, attention_mask, token_type_ids: int32 [B, S]
                      -> logits, or start_logits and end_logits; of an encoder last_hidden_state
                         [B, S, H] and pooler_output [B, H]; of a masked LM logits [B, S, V] of every
                         position

Clients of other libraries often name no signature. Without `serving_default`, the first of the last two
is therefore written under that name as well.

Shapes: B batch, S sequence, H hidden, V vocabulary, K texts of a row.

Source: huggingface/transformers 4, `TFPreTrainedModel.serving` and models/bert/modeling_tf_bert.py; the
TFX guides for `examples`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.prediction.runtimes import TOKENS

ConcreteFunction: TypeAlias = tf.types.experimental.ConcreteFunction
Outputs = dict[str, tf.Tensor]
Function = Callable[..., Outputs]

TF_EXAMPLE, HUGGING_FACE = "tf_example", "hugging_face"
IDS_SIGNATURES = (TOKENS, HUGGING_FACE)  # take ids, and need no tokenizer
INPUT_NAMES = ("input_ids", "input_mask", "segment_ids")
HUGGING_FACE_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
EXAMPLES = "examples"  # the input of TF_EXAMPLE


def check_texts(function: Function, specs: Sequence[tf.TensorSpec]) -> Function:
    """Wrap `function`, asserting that its inputs have the ranks of `specs` and one number of rows."""

    @functools.wraps(function)
    def checked(*inputs: tf.Tensor) -> Outputs:
        ranks = []
        for spec, value in zip(specs, inputs, strict=True):
            # `tf.rank` would be the constant of the spec, but servers accept other shapes.
            rank = tf.reduce_sum(tf.cast(tf.shape(value) >= 0, tf.int32))
            rule = "1: one text" if spec.shape.rank == 1 else "2: a row of texts"
            data = [f"`{spec.name}` has this many dimensions:", rank]
            data.append(f"but must have {rule} for each example.")
            ranks.append(tf.debugging.Assert(tf.equal(rank, spec.shape.rank), data))
        with tf.control_dependencies(ranks):
            sizes = [tf.shape(value)[0] for value in inputs]
        checks = list(ranks)
        for spec, size in zip(specs[1:], sizes[1:], strict=True):
            data = [f"`{specs[0].name}` has this many rows:", sizes[0]]
            data += [f"but `{spec.name}` has this many:", size]
            data.append("Send one row of each for every example.")
            checks.append(tf.debugging.Assert(size == sizes[0], data))
        with tf.control_dependencies(checks):  # before another operation fails on the sizes
            return function(*map(tf.identity, inputs))

    return checked


def check_ids(function: Function, names: Sequence[str], config: BertConfig) -> Function:
    """Wrap a function on ids, asserting that its inputs have one shape, short enough, and valid ids.

    Args:
        names: of input_ids, input_mask and segment_ids. Other inputs are positions in their rows.
    """
    first = names[0]
    max_length = config.max_position_embeddings
    sizes = {first: "vocab_size", names[2]: "type_vocab_size"}

    def checked(**ids: tf.Tensor) -> Outputs:
        shape = tf.shape(ids[first])
        rule = f"but the model has {max_length} positions (`max_position_embeddings`). Truncate the ids."
        data = [f"`{first}` has this length:", shape[-1], rule]
        checks = [tf.debugging.Assert(shape[-1] <= max_length, data)]
        for name in names[1:]:
            other = tf.shape(ids[name])
            data = [f"`{first}` has this shape:", shape, f"but `{name}` has this:", other]
            data.append("Pad all inputs to one shape.")
            checks.append(tf.debugging.Assert(tf.reduce_all(tf.equal(other, shape)), data))
        for name, size in sizes.items():
            last, (min_id, max_id) = getattr(config, size) - 1, _range(ids[name])
            rule = f"`{name}` must be from 0 to {last} (`{size}` - 1), but is from"
            is_valid = (min_id >= 0) & (max_id <= last)
            checks.append(tf.debugging.Assert(is_valid, [rule, min_id, "to", max_id]))
        for name in ids.keys() - names:
            rows, (first_position, last_position) = tf.shape(ids[name])[0], _range(ids[name])
            data = [
                f"`{first}` has this many rows:",
                shape[0],
                f"but `{name}` has this many:",
                rows,
            ]
            data.append("Send the positions of each row.")
            checks.append(tf.debugging.Assert(rows == shape[0], data))
            data = [f"`{name}` is from", first_position, "to", last_position]
            data += [f"but `{first}` has this length:", shape[1], "Count from 0 in each row."]
            is_valid = (first_position >= 0) & (last_position < shape[1])
            checks.append(tf.debugging.Assert(is_valid, data))
        with tf.control_dependencies(checks):
            return function(**{name: tf.identity(value) for name, value in ids.items()})

    return checked


def _range(values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.reduce_min(values), tf.reduce_max(values)


def parse_examples(
    function: Function, specs: Sequence[tf.TensorSpec]
) -> tuple[Function, list[tf.TensorSpec]]:
    """Return a function on serialized `tf.train.Example`s, and its input.

    Args:
        function: on texts.
        specs: its inputs, the features to read: [B], one string; or [B, K], one string or more.
    """
    all_names = ", ".join(spec.name for spec in specs)

    def parsed(examples: tf.Tensor) -> Outputs:
        feature = tf.io.RaggedFeature(tf.string)
        rows = tf.io.parse_example(examples, {spec.name: feature for spec in specs})
        checks = []
        for spec in specs:
            lengths = rows[spec.name].row_lengths()
            single = spec.shape.rank == 1
            wrong = tf.where(lengths != 1 if single else lengths < 1)[:1, 0]
            number = "one string" if single else "one string or more"
            rule = (
                f"A tf.train.Example needs the feature `{spec.name}` with {number}, but in `{EXAMPLES}` "
                "the one with this index:"
            )
            data = [rule, wrong, "has this many:", tf.gather(lengths, wrong)]
            data.append(f"The model reads {all_names}.")
            checks.append(tf.debugging.Assert(tf.equal(tf.size(wrong), 0), data))
        columns = []
        with tf.control_dependencies(checks):
            for spec in specs:
                column = rows[spec.name].with_values(tf.identity(rows[spec.name].values))
                width = tf.maximum(column.bounding_shape(axis=1), 1)
                is_single = spec.shape.rank == 1
                columns.append(
                    column.values if is_single else column.to_tensor("", shape=[-1, width])
                )
        return function(*columns)

    return parsed, [tf.TensorSpec([None], tf.string, EXAMPLES)]


def serialize_examples(request: Mapping[str, Sequence[Any]]) -> list[bytes]:
    """Return the `tf.train.Example`s of a request of texts by input name."""
    examples = []
    for row in zip(*request.values(), strict=True):
        features = {}
        for name, value in zip(request, row, strict=True):
            texts = [value] if isinstance(value, str) else value
            values = tf.train.BytesList(value=[text.encode() for text in texts])
            features[name] = tf.train.Feature(bytes_list=values)
        example = tf.train.Example(features=tf.train.Features(feature=features))
        examples.append(example.SerializeToString())
    return examples
