"""TensorFlow 2 encoders of tf-models-official: object-based checkpoints, and SavedModels of TF Hub.

Both have an object-based checkpoint, whose graph has attributes as edges (`_transformer_layers`, `0`,
`_attention_layer`, `_query_dense`, `kernel`) and at its leaves the names of variables
("transformer/layer_0/self_attention/query/kernel"). An encoder is found by its attributes, or else by
the names of its variables; its heads are found by attributes.

Shapes: H hidden, N heads, D = H / N. Query, key and value kernels are [H, N, D]. The kernel after
attention is [N, D, H]. The reference's are [H, H].

Source: tensorflow/models, official/nlp (`BertEncoder`, `TransformerEncoderBlock`, `BertPretrainerV2`,
tools/tf1_bert_checkpoint_converter_lib.py, tools/export_tfhub_lib.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from bert_tf.checkpoints.checkpoint import (
    Bundle,
    LazyArrays,
    PretrainedCheckpoint,
    rename_arrays,
    sibling_file,
)
from bert_tf.config import BertConfig
from bert_tf.limits import DataError, join_names

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
# Suffixes of variable names -> the reference's names.
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
# Projections of models that contain an encoder as `_network`: attributes -> (prefix of the reference's
# names, Hugging Face's class).
_PROJECTIONS = {
    "classifier/out_proj": ("", "BertForSequenceClassification"),
    "classifier": ("", "BertForTokenClassification"),
    "span_labeling/layer_with_weights-0": ("cls/squad/", "BertForQuestionAnswering"),
}
_NEXT_SENTENCE = "cls/seq_relationship/"
_NEXT_SENTENCE_POOLER = "next_sentence.pooler_dense"
# Parts of keys in a checkpoint.
_NOT_WEIGHTS = re.compile(
    r"(^|/)(optimizer|\.OPTIMIZER_SLOT|save_counter|global_step|keras_api|do_lower_case)(/|$)"
)
_ALONE = "save the encoder alone, tf.train.Checkpoint(encoder=encoder)."
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


class ObjectGraph:
    """Objects by number: edges (attribute -> number), and the variables among them."""

    def __init__(self, serialized: Any) -> None:
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
        """Return the object at `path` (attributes joined by "/"), or None."""
        number: int | None = start
        for attribute in path.split("/"):
            number = None if number is None else self.edges[number].get(attribute)
        return number

    def name(self, start: int, path: str) -> str:
        """Return the name of the variable at `path`, or ""."""
        return self.names.get(self.at(start, path) or 0, "")

    def objects_with(self, *attributes: str) -> Iterator[int]:
        for number, edges in enumerate(self.edges):
            if all(attribute in edges for attribute in attributes):
                yield number


def find_weights(
    graph: ObjectGraph, prefix: str
) -> tuple[dict[str, str], str | None, tuple[str, ...]]:
    """Return name -> key of all weights, Hugging Face's class for the head or None, and notes.

    Names are the reference's. Variables without one have their keys, to be reported as unused.
    """
    encoders = list(graph.objects_with("_transformer_layers", "_embedding_layer"))
    if len(encoders) > 1:
        raise DataError(prefix, f"{len(encoders)} encoders: {_ALONE}")
    variables: dict[str, int] = {}
    unused: list[int] = []
    architecture = None
    notes: tuple[str, ...] = ()
    if encoders:
        encoder = _present(graph, _by_attributes(graph, encoders[0]))
        heads, architecture = _heads(graph)
        variables = encoder | _present(graph, heads)
        unused = [number for name, number in encoder.items() if variables[name] != number]
    if unused:
        notes = ("the pooler is the head's, which was trained; the encoder's own is unused",)
    variables = _by_names(graph, prefix) | variables
    keys = {name: graph.keys[number] for name, number in variables.items()}
    unread = {
        key.removesuffix(VALUE): key
        for number, key in graph.keys.items()
        if number not in {*variables.values(), *unused} and not _NOT_WEIGHTS.search(key)
    }
    return keys | unread, architecture, notes


def _present(graph: ObjectGraph, objects: Mapping[str, int | None]) -> dict[str, int]:
    """Keep the objects that are variables."""
    return {name: number for name, number in objects.items() if number in graph.keys}


def _by_attributes(graph: ObjectGraph, encoder: int) -> dict[str, int | None]:
    objects = {name: graph.at(encoder, path) for path, name in _ENCODER.items()}
    layers = graph.edges[graph.edges[encoder]["_transformer_layers"]]
    for index in filter(re.compile(r"[0-9]{1,9}").fullmatch, layers):
        for path, _, name in _LAYER:
            for part in ("gamma", "beta") if "norm" in path else ("kernel", "bias"):
                variable = f"bert/encoder/layer_{index}/{name}/{part}"
                objects[variable] = graph.at(layers[index], f"{path}/{part}")
    for owner in graph.objects_with("masked_lm"):
        objects |= {name: graph.at(owner, f"masked_lm/{path}") for path, name in _MASKED_LM.items()}
    return objects


def _heads(graph: ObjectGraph) -> tuple[dict[str, int | None], str | None]:
    """Return the projections and the pooler of the heads, and Hugging Face's class for the head."""
    heads = list(graph.objects_with("dense", "out_proj"))
    named = [head for head in heads if "next_sentence/" in graph.name(head, "out_proj/kernel")]
    projections = {graph.edges[head]["out_proj"]: _NEXT_SENTENCE for head in named}
    architecture = None
    for owner in graph.objects_with("_network"):
        for path, (start, name) in _PROJECTIONS.items():
            projection = graph.at(owner, path)
            if projection is not None and "kernel" in graph.edges[projection]:
                projections[projection], architecture = start, name
    objects: dict[str, int | None] = {}
    for projection, start in projections.items():
        objects[f"{start}output_weights"] = graph.at(projection, "kernel")
        objects[f"{start}output_bias"] = graph.at(projection, "bias")
    # If a head has its own pooler, that of the encoder is untrained.
    heads = named or heads
    pooler = graph.at(heads[0], "dense") if len(heads) == 1 else graph.at(0, _NEXT_SENTENCE_POOLER)
    if pooler is not None:
        for part in ("kernel", "bias"):
            objects[f"bert/pooler/dense/{part}"] = graph.at(pooler, part)
    return objects, architecture


def _by_names(graph: ObjectGraph, prefix: str) -> dict[str, int]:
    variables: dict[str, int] = {}
    for number, name in graph.names.items():
        reference = None if _NOT_WEIGHTS.search(graph.keys[number]) else _reference_name(name)
        if reference is not None and variables.setdefault(reference, number) != number:
            raise DataError(prefix, f"two variables {name!r}: {_ALONE}")
    return variables


def _reference_name(name: str) -> str | None:
    """Return the reference's name of the variable `name` of tf-models-official, or None."""
    for end, reference in _NAMES.items():
        if name == end or name.endswith(f"/{end}"):
            return reference
    match = re.search(r"(?:^|/)layer_([0-9]{1,9})/(.+)/(kernel|bias|gamma|beta)$", name)
    parts = {own_name: reference for _, own_name, reference in _LAYER}
    if match is None or match[2] not in parts:
        return None
    return f"bert/encoder/layer_{match[1]}/{parts[match[2]]}/{match[3]}"


def read_tf2(prefix: str) -> PretrainedCheckpoint:
    """Read an encoder and its heads; without a `bert_config.json` the sizes follow from the shapes."""
    folder = os.path.dirname(prefix)
    arrays, config, architecture, notes = _read_variables(Bundle(prefix), prefix)
    config_file = sibling_file(folder, "bert_config.json")
    if config_file:
        stated = BertConfig.from_json_file(config_file)
        if (heads := stated.num_attention_heads) != config.num_attention_heads:
            problem = f"`num_attention_heads` is {heads}, but the kernels have"
            raise DataError(config_file, f"{problem} {config.num_attention_heads} heads.")
        config, notes = stated, notes[:-1]
    return PretrainedCheckpoint(prefix, arrays, config, architecture=architecture, notes=notes)


def read_saved_model(folder: str) -> PretrainedCheckpoint:
    """Read the weights of an encoder from TF Hub (BERT, versions 3 and 4). No code of it is run."""
    prefix = _saved_prefix(folder)
    arrays, config, architecture, notes = _read_variables(Bundle(prefix), prefix)
    return PretrainedCheckpoint(folder, arrays, config, architecture=architecture, notes=notes)


def read_saved_tokenizer(folder: str) -> tuple[str | None, bool | None]:
    """Return the vocabulary among the assets of such a SavedModel, and its variable `do_lower_case`."""
    bundle, key = Bundle(_saved_prefix(folder)), f"do_lower_case{VALUE}"
    do_lower_case = bool(bundle.read(key)) if key in bundle else None
    files = tf.io.gfile.glob(tf.io.gfile.join(folder, "assets", "*vocab*"))
    return (files[0] if len(files) == 1 else None), do_lower_case


def _saved_prefix(folder: str) -> str:
    return tf.io.gfile.join(folder, "variables", "variables")


def is_object_based(prefix: str) -> bool:
    """Return True if a checkpoint is object-based; False if it cannot be read."""
    try:
        return OBJECT_GRAPH in Bundle(prefix)
    except ValueError:
        return False


def _read_variables(
    bundle: Bundle, prefix: str
) -> tuple[LazyArrays, BertConfig, str | None, tuple[str, ...]]:
    """Return weights in the reference's terms, inferred sizes, Hugging Face's class, and notes."""
    graph = ObjectGraph(bundle.read(OBJECT_GRAPH))
    keys, architecture, notes = find_weights(graph, prefix)
    config = _infer_config({name: bundle.shape(key) for name, key in keys.items()}, prefix)
    sizes = (
        "there is no configuration next to the weights: sizes were inferred from the shapes, and "
        f"`hidden_act` is assumed to be {config.hidden_act!r}, as in the published models",
    )
    return rename_arrays(bundle, keys, _to_reference_layout), config, architecture, notes + sizes


def _to_reference_layout(name: str, array: np.ndarray) -> np.ndarray:
    if name.endswith("output_weights"):  # [out, in] there
        return array.T
    if "/attention/self/" in name:
        return array.reshape(*array.shape[:-2], -1)
    if name.endswith("/attention/output/dense/kernel"):
        return array.reshape(-1, array.shape[-1])
    return array


def _infer_config(shapes: dict[str, tuple[int, ...]], prefix: str) -> BertConfig:
    layers = {int(m[1]) for name in shapes if (m := re.match(r"bert/encoder/layer_(\d+)/", name))}
    vocab_size, width = shapes.get("bert/embeddings/word_embeddings", (0, 0))
    query = shapes.get("bert/encoder/layer_0/attention/self/query/kernel", ())
    if len(query) != 3 or width != query[0]:
        names = join_names(sorted(shapes), 3) or "no variables"
        raise DataError(prefix, f"no BERT of tf-models-official, but {names}: is it an ALBERT?")
    return BertConfig(
        vocab_size=vocab_size,
        hidden_size=query[0],
        num_hidden_layers=max(layers) + 1,
        num_attention_heads=query[1],
        intermediate_size=shapes["bert/encoder/layer_0/intermediate/dense/kernel"][1],
        max_position_embeddings=shapes["bert/embeddings/position_embeddings"][0],
        type_vocab_size=shapes["bert/embeddings/token_type_embeddings"][0],
    )
