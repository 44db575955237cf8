"""Construction of ONNX graphs, node by node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

EXTENSIONS = "ai.onnx.contrib"  # domain of onnxruntime-extensions
CONTRIBUTED, ML = (
    "com.microsoft",
    "ai.onnx.ml",
)  # of ONNX Runtime, and of ONNX's operations on strings
VERSIONS = {EXTENSIONS: 1, CONTRIBUTED: 1, ML: 2}


class Nodes:
    """Nodes and constants of an ONNX graph under construction."""

    def __init__(self, prefix: str):
        self.prefix = prefix
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def __call__(self, op: str, *inputs: Any, **attributes: Any) -> str:
        """Add a node with one output, and return that. An input is a name, or an array or list."""
        return self.several(op, *inputs, outputs=1, **attributes)[0]

    def several(self, op: str, *inputs: Any, outputs: int, **attributes: Any) -> list[str]:
        names = [f"{self.prefix}/{op}_{len(self.nodes)}_{index}" for index in range(outputs)]
        self.add(op, [self._name_of(value) for value in inputs], names, **attributes)
        return names

    def add(self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any):
        from onnx import helper

        self.nodes.append(helper.make_node(op, inputs, outputs, outputs[0], **attributes))

    def _name_of(self, value: Any) -> str:
        from onnx import numpy_helper

        if isinstance(value, str):
            return value
        array = np.array(value)
        array = array.astype(object if array.dtype.kind == "U" else np.int64)
        name = f"{self.prefix}/constant_{len(self.constants)}_of_{len(self.nodes)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def put_before(self, model: Any, names: Sequence[str]) -> None:
        """Put the nodes in front of those of a model, whose inputs become strings [B]."""
        from onnx import TensorProto, helper

        graph, rest = model.graph, list(model.graph.node)
        del graph.node[:], graph.input[:]
        graph.node.extend([*self.nodes, *rest])
        graph.initializer.extend(self.constants)
        graph.input.extend(
            helper.make_tensor_value_info(name, TensorProto.STRING, ["batch"]) for name in names
        )
        known = {each.domain for each in model.opset_import}
        model.opset_import.extend(
            helper.make_opsetid(domain, version)
            for domain, version in VERSIONS.items()
            if domain not in known
        )

    def if_any(self, flags: str, dtype: int, then: Callable, otherwise: Callable) -> str:
        """Return the output of `then(nodes)` if a flag, int64, is not 0, else of `otherwise(nodes)`."""
        from onnx import helper

        any_flag = self("Greater", self("ReduceMax", flags, keepdims=0), 0)
        branches = {}
        for branch, make in (("then_branch", then), ("else_branch", otherwise)):
            inner = Nodes(f"{self.prefix}/{len(self.nodes)}_{branch}")
            output = inner("Identity", make(inner))
            value = helper.make_tensor_value_info(output, dtype, None)
            branches[branch] = helper.make_graph(
                inner.nodes, branch, [], [value], initializer=inner.constants
            )
        return self("If", any_flag, **branches)


def int64_value(value: int) -> Any:
    """Return the value of a ConstantOfShape."""
    from onnx import numpy_helper

    return numpy_helper.from_array(np.array([value], np.int64))
