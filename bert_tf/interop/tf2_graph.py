"""The object graph of a TensorFlow 2 checkpoint, and the weights of tf-models-official in it.

Edges are names of attributes (`_transformer_layers`, `0`, `_attention_layer`, `_query_dense`, `kernel`).
Leaves have the key of their values in the checkpoint and the name of their variable
("transformer/layer_0/self_attention/query/kernel"). An encoder is found by its attributes, or else by
the names of its variables. Its heads are found by attributes.

Source: tensorflow/models, official/nlp/modeling (`BertEncoder`, `TransformerEncoderBlock`,
`BertPretrainerV2`, `BertClassifier`, `BertTokenClassifier`, `BertSpanLabeler`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tensorflow.core.protobuf import trackable_object_graph_pb2

from bert_tf.limits import listed

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
    """Find the encoder, its heads and all other weights.

    Returns:
        Name -> key in the checkpoint; Hugging Face's class for the head, or None; notes. The names are
        the reference's. Other variables are named by their keys, so that they are reported as unused.

    Raises:
        ValueError: an encoder is not found, several are found, or two variables have the same name.
    """
    encoders = list(graph.objects_with("_transformer_layers", "_embedding_layer"))
    if len(encoders) > 1:
        raise ValueError(f"{prefix} has {len(encoders)} encoders: {_ALONE}")
    found: dict[str, int] = {}
    unused: list[int] = []
    architecture = None
    notes: tuple[str, ...] = ()
    if encoders:
        encoder = _present(graph, _by_attributes(graph, encoders[0]))
        heads, architecture = _heads(graph)
        found = encoder | _present(graph, heads)
        unused = [number for name, number in encoder.items() if found[name] != number]
    if unused:
        notes += ("the pooler is the head's, which was trained; the encoder's own is unused",)
    for name, number in _by_names(graph, prefix).items():
        found.setdefault(name, number)
    if "bert/embeddings/word_embeddings" not in found:
        names = sorted(filter(None, graph.names.values()))
        raise ValueError(
            f"{prefix} has no encoder of tf-models-official, but {listed(names, 3) or 'no variables'}."
        )
    keys = {name: graph.keys[number] for name, number in found.items()}
    unread = {
        key.removesuffix(VALUE): key
        for number, key in graph.keys.items()
        if number not in {*found.values(), *unused} and not _NOT_WEIGHTS.search(key)
    }
    return keys | unread, architecture, notes


def _present(graph: ObjectGraph, found: Mapping[str, int | None]) -> dict[str, int]:
    """Keep the variables among `found`."""
    return {name: number for name, number in found.items() if number in graph.keys}


def _by_attributes(graph: ObjectGraph, encoder: int) -> dict[str, int | None]:
    found = {name: graph.at(encoder, path) for path, name in _ENCODER.items()}
    layers = graph.edges[graph.edges[encoder]["_transformer_layers"]]
    for index in filter(re.compile(r"[0-9]{1,9}").fullmatch, layers):
        for path, _, name in _LAYER:
            for part in ("gamma", "beta") if "norm" in path else ("kernel", "bias"):
                ours = f"bert/encoder/layer_{index}/{name}/{part}"
                found[ours] = graph.at(layers[index], f"{path}/{part}")
    for owner in graph.objects_with("masked_lm"):
        found |= {name: graph.at(owner, f"masked_lm/{path}") for path, name in _MASKED_LM.items()}
    return found


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
    found: dict[str, int | None] = {}
    for projection, start in projections.items():
        found[f"{start}output_weights"] = graph.at(projection, "kernel")
        found[f"{start}output_bias"] = graph.at(projection, "bias")
    # If a head has its own pooler, that of the encoder is untrained.
    heads = named or heads
    pooler = graph.at(heads[0], "dense") if len(heads) == 1 else graph.at(0, _NEXT_SENTENCE_POOLER)
    if pooler is not None:
        found |= {
            f"bert/pooler/dense/{part}": graph.at(pooler, part) for part in ("kernel", "bias")
        }
    return found, architecture


def _by_names(graph: ObjectGraph, prefix: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, name in graph.names.items():
        ours = None if _NOT_WEIGHTS.search(graph.keys[number]) else _reference_name(name)
        if ours is not None and found.setdefault(ours, number) != number:
            raise ValueError(f"{prefix} has two variables {name!r}: {_ALONE}")
    return found


def _reference_name(name: str) -> str | None:
    """Return the reference's name of the variable `name` of tf-models-official, or None.

    >>> _reference_name("transformer/layer_3/self_attention/query/kernel")
    'bert/encoder/layer_3/attention/self/query/kernel'
    """
    for end, ours in _NAMES.items():
        if name == end or name.endswith(f"/{end}"):
            return ours
    match = re.search(r"(?:^|/)layer_([0-9]{1,9})/(.+)/(kernel|bias|gamma|beta)$", name)
    parts = {theirs: ours for _, theirs, ours in _LAYER}
    if match is None or match[2] not in parts:
        return None
    return f"bert/encoder/layer_{match[1]}/{parts[match[2]]}/{match[3]}"
