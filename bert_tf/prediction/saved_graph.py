"""Reject SavedModels whose graph reaches files, other processes or the network."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

# Parts of the names of TensorFlow's operations that read or write files, run Python, or exchange
# values with other processes. FixedUnigramCandidateSampler reads a vocabulary.
_REACHES_OUT = re.compile(
    "File|Dataset|Iterator|Reader|RecordInput|Save|Restore|Load|Checkpoint|Snapshot|FixedUnigram|PyFunc"
    "|Print|Debug|Summary|Event|Session|Send|Recv|Remote|Rpc|Collective|Distributed|Heartbeat|feed"
)


def check_graph(folder: str) -> None:
    """Raise if a SavedModel has operations that reach files, other processes or the network.

    Those of TensorFlow's functions that save and restore the variables are allowed, if only the saver
    calls them. `tf.saved_model.load` uses it only for graphs without objects, such as those of TF1.

    Raises:
        ValueError: names the operation; or the file is damaged.
    """
    path = os.path.join(folder, "saved_model.pb")
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            model = SavedModel.FromString(file.read())
    except Exception as error:  # DecodeError, whose module differs between protobuf versions
        raise damaged(folder, error) from error
    graphs = model.meta_graphs
    has_objects = len(graphs) == 1 and graphs[0].HasField("object_graph_def")
    for graph in graphs:
        for operation in _operations(graph, uses_saver=not has_objects):
            if _REACHES_OUT.search(operation):
                raise ValueError(
                    f"{path} has the operation {operation}, which may reach files, other processes or "
                    "the network, and which no model needs. Load it with tf.saved_model.load if you "
                    "trust it."
                )


def damaged(folder: str, error: Exception) -> ValueError:
    """Return an error for a SavedModel that cannot be read."""
    what = str(error).strip().splitlines()[0]
    return ValueError(
        f"The SavedModel in {folder} cannot be read, so it is damaged or incomplete ({what}). Copy it "
        "whole, or export it again."
    )


def _operations(graph: MetaGraphDef, uses_saver: bool) -> Iterator[str]:
    """Yield the operations that may run when the graph is loaded and called."""
    saver, functions = graph.saver_def, graph.graph_def.library.function
    names = {saver.save_tensor_name.partition(":")[0], saver.restore_op_name}
    if uses_saver:
        names = set()
    savers = _names_in(node for node in graph.graph_def.node if node.name in names)
    others = [node for node in graph.graph_def.node if node.name not in names]
    called = _names_in([*others, *(node for function in functions for node in function.node_def)])
    objects = graph.object_graph_def.SerializeToString()
    for node in others:
        yield node.op
    for function in functions:
        name = function.signature.name
        if name not in savers or name in called or name.encode() in objects:
            for node in function.node_def:
                yield node.op


def _names_in(nodes: Iterable[NodeDef]) -> set[str]:
    """Return the names of the operations of the nodes and of all functions in their attributes."""
    names = set()
    for node in nodes:
        names.add(node.op)
        attributes = list(node.attr.values())
        for value in attributes:  # grows
            for function in (value.func, *value.list.func):
                names.add(function.name)
                attributes += function.attr.values()
    return names
