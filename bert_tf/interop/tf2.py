"""TensorFlow 2 encoders of tf-models-official: object-based checkpoints, and SavedModels as on TF Hub.

Both hold the weights in an object-based checkpoint: a graph of objects whose edges are the names of
attributes (`_transformer_layers`, `0`, `_attention_layer`, `_query_dense`, `kernel`), and whose leaves
know the name of their variable ("transformer/layer_0/self_attention/query/kernel"). An encoder is
found by its attributes, wherever it hangs; where it has none, by the names of the variables.

Shapes: H hidden, N heads, D = H / N. Their query, key and value kernels are [H, N, D], and the kernel
after attention is [N, D, H]; the reference's are [H, H].

Source: tensorflow/models, official/nlp (`BertEncoder`, `TransformerEncoderBlock`, `BertPretrainerV2`,
tools/tf1_bert_checkpoint_converter_lib.py, tools/export_tfhub_lib.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from bert_tf.config import BertConfig
from bert_tf.interop.checkpoint import (
    LazyArrays,
    PretrainedCheckpoint,
    config_from_values,
    file_beside,
    read_json,
)
from bert_tf.interop.letter_case import stated_lower_case

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"

# Attributes of an encoder -> the reference's names.
_ENCODER = {
    "_embedding_layer/embeddings": "bert/embeddings/word_embeddings",
    "_position_embedding_layer/embeddings": "bert/embeddings/position_embeddings",
    "_type_embedding_layer/embeddings": "bert/embeddings/token_type_embeddings",
    "_embedding_norm_layer/gamma": "bert/embeddings/LayerNorm/gamma",
    "_embedding_norm_layer/beta": "bert/embeddings/LayerNorm/beta",
    "_pooler_layer/kernel": "bert/pooler/dense/kernel",
    "_pooler_layer/bias": "bert/pooler/dense/bias",
}
# Parts of a layer: (attributes, name of the variable, the reference's name).
_LAYER = (
    ("_attention_layer/_query_dense", "self_attention/query", "attention/self/query"),
    ("_attention_layer/_key_dense", "self_attention/key", "attention/self/key"),
    ("_attention_layer/_value_dense", "self_attention/value", "attention/self/value"),
    (
        "_attention_layer/_output_dense",
        "self_attention/attention_output",
        "attention/output/dense",
    ),
    ("_attention_layer_norm", "self_attention_layer_norm", "attention/output/LayerNorm"),
    ("_intermediate_dense", "intermediate", "intermediate/dense"),
    ("_output_dense", "output", "output/dense"),
    ("_output_layer_norm", "output_layer_norm", "output/LayerNorm"),
)
# The masked-LM head of a `BertPretrainerV2`, below its `masked_lm`.
_MASKED_LM = {
    "dense/kernel": "cls/predictions/transform/dense/kernel",
    "dense/bias": "cls/predictions/transform/dense/bias",
    "layer_norm/gamma": "cls/predictions/transform/LayerNorm/gamma",
    "layer_norm/beta": "cls/predictions/transform/LayerNorm/beta",
    "bias": "cls/predictions/output_bias",
}
# Ends of the names of variables -> the reference's names.
_NAMES = {
    "word_embeddings/embeddings": "bert/embeddings/word_embeddings",
    "position_embedding/embeddings": "bert/embeddings/position_embeddings",
    "type_embeddings/embeddings": "bert/embeddings/token_type_embeddings",
    "embeddings/layer_norm/gamma": "bert/embeddings/LayerNorm/gamma",
    "embeddings/layer_norm/beta": "bert/embeddings/LayerNorm/beta",
    "pooler_transform/kernel": "bert/pooler/dense/kernel",
    "pooler_transform/bias": "bert/pooler/dense/bias",
    **{
        f"cls/predictions/{part}": f"cls/predictions/{part}"
        for part in (
            *("transform/dense/kernel", "transform/dense/bias"),
            *("transform/LayerNorm/gamma", "transform/LayerNorm/beta"),
        )
    },
    "cls/predictions/output_bias/bias": "cls/predictions/output_bias",
}
_NEXT_SENTENCE_POOLER = "next_sentence.pooler_dense"
_NOT_WEIGHTS = re.compile(r"(^|/)(optimizer|\.OPTIMIZER_SLOT|save_counter|global_step)(/|$)")


def read_tf2(prefix: str) -> PretrainedCheckpoint:
    """Reads an object-based checkpoint with a BERT encoder of tf-models-official in it.

    Args:
        prefix: such as `folder/bert_model.ckpt-1`. `bert_config.json` and `vocab.txt` are taken from
            the same folder. Without the former, the sizes are read off the shapes.

    Raises:
        ValueError: there is no such encoder in it, or the files are damaged.
    """
    folder = os.path.dirname(prefix)
    arrays, config, notes = _read_variables(prefix)
    config_file = file_beside(folder, "bert_config.json")
    if config_file:
        stated = config_from_values(read_json(config_file), config_file)
        if stated.num_attention_heads != config.num_attention_heads:
            raise ValueError(
                f"{config_file}: `num_attention_heads` is {stated.num_attention_heads}, but the kernels "
                f"in {prefix} have {config.num_attention_heads} heads. The files do not belong together."
            )
        config, notes = stated, notes[:-1]
    return PretrainedCheckpoint(
        source=prefix,
        arrays=arrays,
        config=config,
        vocab_file=file_beside(folder, "vocab.txt"),
        do_lower_case=stated_lower_case(folder),
        notes=notes,
    )


def read_saved_model(folder: str) -> PretrainedCheckpoint:
    """Reads the weights of an encoder as TF Hub has them (BERT, versions 3 and 4).

    Nothing in it is run. The vocabulary is taken from its assets, and whether it lowercases from its
    variable `do_lower_case`.

    Raises:
        ValueError: there is no encoder of tf-models-official in it, or the files are damaged.
    """
    prefix = tf.io.gfile.join(folder, "variables", "variables")
    if not tf.io.gfile.exists(f"{prefix}.index"):
        raise ValueError(
            f"{folder} holds a SavedModel without variables ({prefix}.index is missing), so there are "
            "no weights to read."
        )
    arrays, config, notes = _read_variables(prefix)
    reader = _open(prefix)
    key = "do_lower_case/.ATTRIBUTES/VARIABLE_VALUE"
    lower = bool(reader.get_tensor(key)) if reader.has_tensor(key) else None
    vocab_files = tf.io.gfile.glob(tf.io.gfile.join(folder, "assets", "*vocab*"))
    return PretrainedCheckpoint(
        source=folder,
        arrays=arrays,
        config=config,
        vocab_file=vocab_files[0] if len(vocab_files) == 1 else None,
        do_lower_case=lower,
        notes=notes,
    )


def is_object_based(prefix: str) -> bool:
    """Whether a checkpoint is object-based; one that cannot be read is not."""
    try:
        return tf.train.load_checkpoint(prefix).has_tensor(OBJECT_GRAPH)
    except (tf.errors.OpError, IndexError):
        return False


def _open(prefix: str):
    try:
        return tf.train.load_checkpoint(prefix)
    except (tf.errors.OpError, IndexError) as error:
        raise ValueError(
            f"{prefix}.index cannot be read as a TensorFlow checkpoint ({error}). "
            "The file is damaged or incomplete; copy it again."
        ) from error


def _read_variables(prefix: str) -> tuple[LazyArrays, BertConfig, tuple[str, ...]]:
    """The weights in the reference's names and layout, the sizes that their shapes tell, and notes."""
    reader = _open(prefix)
    graph = _Graph(reader.get_tensor(OBJECT_GRAPH))
    keys, notes = _find_encoder(graph, prefix)
    stored = {name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()}
    config = _config_of({name: stored[key] for name, key in keys.items()}, prefix)
    shapes = {name: _reference_shape(name, stored[key]) for name, key in keys.items()}

    def read(name: str) -> np.ndarray:
        try:
            array = reader.get_tensor(keys[name])
        except (tf.errors.OpError, IndexError) as error:
            raise ValueError(
                f"{prefix}: the values of {name!r} cannot be read ({error}). The .data file is "
                "missing, damaged or of another checkpoint; copy it again beside its .index file."
            ) from error
        if name == "cls/seq_relationship/output_weights":
            array = array.T
        return array.reshape(shapes[name])

    sizes = (
        "there is no configuration beside the weights: sizes were read off the shapes, and "
        f"`hidden_act` is taken to be {config.hidden_act!r}, as in the published models",
    )
    return LazyArrays(shapes, read), config, notes + sizes


class _Graph:
    """Objects by number: edges (attribute -> number), and the variables among them."""

    def __init__(self, serialized: bytes) -> None:
        graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(serialized)
        self.edges = [{c.local_name: c.node_id for c in node.children} for node in graph.nodes]
        self.keys: dict[int, str] = {}  # number -> key in the checkpoint
        self.names: dict[int, str] = {}  # number -> name of the variable
        for number, node in enumerate(graph.nodes):
            for attribute in node.attributes:
                if attribute.name == "VARIABLE_VALUE":
                    self.keys[number] = attribute.checkpoint_key
                    self.names[number] = attribute.full_name

    def at(self, start: int, path: str) -> int | None:
        """The object that `path` (attributes with "/") leads to."""
        number: int | None = start
        for attribute in path.split("/"):
            number = None if number is None else self.edges[number].get(attribute)
        return number

    def objects_with(self, *attributes: str) -> Iterator[int]:
        for number, edges in enumerate(self.edges):
            if all(attribute in edges for attribute in attributes):
                yield number


def _find_encoder(graph: _Graph, prefix: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """The reference's name -> key in the checkpoint, and notes."""
    encoders = list(graph.objects_with("_transformer_layers", "_embedding_layer"))
    if len(encoders) > 1:
        raise ValueError(
            f"{prefix} holds {len(encoders)} encoders, so it is not clear which one is meant. Save the "
            "one alone: tf.train.Checkpoint(encoder=encoder)."
        )
    found: dict[str, int | None] = {}
    notes: tuple[str, ...] = ()
    if encoders:
        found = _by_attributes(graph, encoders[0])
        own_pooler = graph.at(0, _NEXT_SENTENCE_POOLER)
        if own_pooler is not None:
            notes += ("the pooler is that of the next-sentence head, which was trained",)
            found |= _next_sentence(graph, own_pooler)
    found = {name: number for name, number in found.items() if number in graph.keys}
    for name, number in _by_names(graph, prefix).items():
        found.setdefault(name, number)
    if "bert/embeddings/word_embeddings" not in found:
        names = sorted(filter(None, graph.names.values()))
        raise ValueError(
            f"{prefix} is an object-based TensorFlow 2 checkpoint, but there is no BERT encoder of "
            "tf-models-official in it (no object with _embedding_layer and _transformer_layers, no "
            "variable word_embeddings/embeddings). Its variables: "
            f"{', '.join(names[:3]) or 'none'}{', ...' if len(names) > 3 else ''}"
        )
    return {name: graph.keys[number] for name, number in found.items() if number is not None}, notes


def _by_attributes(graph: _Graph, encoder: int) -> dict[str, int | None]:
    found = {name: graph.at(encoder, path) for path, name in _ENCODER.items()}
    layers = graph.edges[graph.edges[encoder]["_transformer_layers"]]
    for index in (int(name) for name in layers if name.isdigit()):
        for path, _, name in _LAYER:
            for part in ("gamma", "beta") if "norm" in path else ("kernel", "bias"):
                ours = f"bert/encoder/layer_{index}/{name}/{part}"
                found[ours] = graph.at(layers[str(index)], f"{path}/{part}")
    for owner in graph.objects_with("masked_lm"):
        found |= {name: graph.at(owner, f"masked_lm/{path}") for path, name in _MASKED_LM.items()}
    return found


def _next_sentence(graph: _Graph, pooler: int) -> dict[str, int | None]:
    """Its pooler, and the projection of the head whose `dense` the pooler is."""
    found = {
        "bert/pooler/dense/kernel": graph.at(pooler, "kernel"),
        "bert/pooler/dense/bias": graph.at(pooler, "bias"),
    }
    for head in graph.objects_with("dense", "out_proj"):
        if graph.at(head, "dense") == pooler:
            found["cls/seq_relationship/output_weights"] = graph.at(head, "out_proj/kernel")
            found["cls/seq_relationship/output_bias"] = graph.at(head, "out_proj/bias")
    return found


def _by_names(graph: _Graph, prefix: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, name in graph.names.items():
        ours = None if _NOT_WEIGHTS.search(graph.keys[number]) else _reference_name(name)
        if ours is not None and found.setdefault(ours, number) != number:
            raise ValueError(
                f"{prefix}: two variables are called {name!r}, so it is not clear which one is meant. "
                "Save the encoder alone: tf.train.Checkpoint(encoder=encoder)."
            )
    return found


def _reference_name(name: str) -> str | None:
    """The reference's name of a variable that tf-models-official calls `name`, or None.

    >>> _reference_name("transformer/layer_3/self_attention/query/kernel")
    'bert/encoder/layer_3/attention/self/query/kernel'
    """
    for end, ours in _NAMES.items():
        if name == end or name.endswith(f"/{end}"):
            return ours
    match = re.search(r"(?:^|/)layer_(\d+)/(.+)/(kernel|bias|gamma|beta)$", name)
    parts = {theirs: ours for _, theirs, ours in _LAYER}
    if match is None or match[2] not in parts:
        return None
    return f"bert/encoder/layer_{match[1]}/{parts[match[2]]}/{match[3]}"


def _reference_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    if name == "cls/seq_relationship/output_weights":
        return shape[::-1]
    if "/attention/self/" in name:
        return (*shape[:-2], shape[-2] * shape[-1]) if name.endswith("bias") else _fold(shape, 1)
    if name.endswith("/attention/output/dense/kernel"):
        return _fold(shape[::-1], 1)[::-1]
    return shape


def _fold(shape: tuple[int, ...], kept: int) -> tuple[int, ...]:
    """All but the first dimensions as one."""
    return (*shape[:kept], int(np.prod(shape[kept:])))


def _config_of(shapes: dict[str, tuple[int, ...]], prefix: str) -> BertConfig:
    """Sizes, from the stored shapes."""
    layers = {int(m[1]) for name in shapes if (m := re.search(r"/layer_(\d+)/", name))}
    needed = [
        "bert/embeddings/position_embeddings",
        "bert/embeddings/token_type_embeddings",
        "bert/encoder/layer_0/attention/self/query/kernel",
        "bert/encoder/layer_0/intermediate/dense/kernel",
    ]
    missing = [name for name in needed if name not in shapes]
    if missing:
        raise ValueError(
            f"{prefix}: the encoder is incomplete: nothing stands for {', '.join(missing)}."
        )
    vocab_size, width = shapes["bert/embeddings/word_embeddings"]
    query = shapes["bert/encoder/layer_0/attention/self/query/kernel"]
    if len(query) != 3 or width != query[0]:
        raise ValueError(
            f"{prefix}: the word embeddings are {width} wide and the kernel of the first query is "
            f"{list(query)}, but [hidden_size, heads, size per head] with equal widths is expected. "
            "Is it an ALBERT or an ELECTRA with a projection? Those are other architectures."
        )
    return BertConfig(
        vocab_size=vocab_size,
        hidden_size=query[0],
        num_hidden_layers=max(layers) + 1,
        num_attention_heads=query[1],
        intermediate_size=shapes["bert/encoder/layer_0/intermediate/dense/kernel"][1],
        max_position_embeddings=shapes["bert/embeddings/position_embeddings"][0],
        type_vocab_size=shapes["bert/embeddings/token_type_embeddings"][0],
    )
