"""Signatures under the names of other libraries, for client code that exists already.

    tf_example     examples: string [B], serialized `tf.train.Example`s with the inputs of
                   `serving_default` -> its outputs
    hugging_face   input_ids, attention_mask, token_type_ids: int32 [B, S]
                   -> logits, or start_logits and end_logits; of an encoder last_hidden_state [B, S, H]
                      and pooler_output [B, H]; of a masked LM logits [B, S, V] of every position

Clients of these libraries often name no signature. Without `serving_default`, the first of these names
is therefore written under that name as well.

Shapes: B batch, S sequence, H hidden, V vocabulary.

Source: huggingface/transformers 4, `TFPreTrainedModel.serving` and models/bert/modeling_tf_bert.py; the
TFX guides for `examples`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.config import BertConfig

Outputs = dict[str, tf.Tensor]

TF_EXAMPLE, HUGGING_FACE = "tf_example", "hugging_face"
INPUTS = ("input_ids", "attention_mask", "token_type_ids")  # of HUGGING_FACE
EXAMPLES = "examples"  # the input of TF_EXAMPLE


# ------------------------------------------------------------------------------------- tf.train.Example


def from_examples(
    function: Callable[..., Outputs], specs: Sequence[tf.TensorSpec]
) -> tuple[Callable[[tf.Tensor], Outputs], list[tf.TensorSpec]]:
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
                columns.append(column.values if spec.shape.rank == 1 else _table(column))
        return function(*columns)

    return parsed, [tf.TensorSpec([None], tf.string, EXAMPLES)]


def _table(rows: tf.RaggedTensor) -> tf.Tensor:
    """Return rows padded with "", at least one column wide: string [B, K]."""
    return rows.to_tensor("", shape=[-1, tf.maximum(rows.bounding_shape(axis=1), 1)])


def serialized(request: Mapping[str, Sequence[Any]]) -> list[bytes]:
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


# -------------------------------------------------------------------------------------------------- ids


def checked_ids(
    function: Callable[..., Outputs], names: Sequence[str], config: BertConfig
) -> Callable[..., Outputs]:
    """Wrap a function on ids, asserting that its inputs have one shape, short enough, and valid ids.

    Args:
        names: of input_ids, input_mask and segment_ids. Other inputs are positions in their rows.
    """
    first, *rest = names
    max_length = config.max_position_embeddings
    sizes = {first: "vocab_size", names[2]: "type_vocab_size"}

    def checked(**ids: tf.Tensor) -> Outputs:
        shape = tf.shape(ids[first])
        rule = f"but the model has {max_length} positions (`max_position_embeddings`). Truncate the ids."
        data = [f"`{first}` has this length:", shape[-1], rule]
        checks = [tf.debugging.Assert(shape[-1] <= max_length, data)]
        for name in rest:
            actual = tf.shape(ids[name])
            data = [f"`{first}` has this shape:", shape, f"but `{name}` has this:", actual]
            data.append("Pad all inputs to one shape.")
            checks.append(tf.debugging.Assert(tf.reduce_all(tf.equal(actual, shape)), data))
        for name, field in sizes.items():
            last, (smallest, largest) = getattr(config, field) - 1, _range(ids[name])
            rule = f"`{name}` must be from 0 to {last} (`{field}` - 1), but is from"
            is_valid = (smallest >= 0) & (largest <= last)
            checks.append(tf.debugging.Assert(is_valid, [rule, smallest, "to", largest]))
        for name in (extra for extra in ids if extra not in names):
            rows, (smallest, largest) = tf.shape(ids[name])[0], _range(ids[name])
            before, between = f"`{first}` has this many rows:", f"but `{name}` has this many:"
            data = [before, shape[0], between, rows, "Send the positions of each row."]
            checks.append(tf.debugging.Assert(rows == shape[0], data))
            data = [f"`{name}` is from", smallest, "to", largest, f"but `{first}` has this length:"]
            data += [shape[1], "Count from 0 in each row."]
            checks.append(tf.debugging.Assert((smallest >= 0) & (largest < shape[1]), data))
        with tf.control_dependencies(checks):
            return function(**{name: tf.identity(value) for name, value in ids.items()})

    return checked


def _range(values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.reduce_min(values), tf.reduce_max(values)
