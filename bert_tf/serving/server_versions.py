"""Versions of TensorFlow that load our SavedModels and answer like the one that wrote them.

Source: benchmarks/server_versions.py; its table is in docs/results_serving.md.
"""

from __future__ import annotations

import re

# Precision -> the oldest version whose answers are within the limits of that script: float32 and
# bfloat16 with every type of task, int8 with one classifier. 2.16 differs by 2e-6 in float32. In int8
# 2.17 gives other probabilities, and 2.16 lacks the operation.
OLDEST_PROVEN = {"float32": "2.17", "bfloat16": "2.17", "int8": "2.18"}


def check_server_version(version: str, precision: str) -> None:
    """Raise unless a server's TensorFlow is proven to load SavedModels of a precision.

    >>> check_server_version("2.19.1", "float32")

    Args:
        version: such as "2.19"; further numbers are ignored.
        precision: key of `OLDEST_PROVEN`.

    Raises:
        ValueError: it is not a version, or older than the oldest proven one.
    """
    if not re.fullmatch(r"\d+\.\d+(\.\w+)*", version):
        raise ValueError(
            f"server_version is {version!r}, but must be a version of TensorFlow, such as 2.19."
        )
    oldest = OLDEST_PROVEN[precision]
    if _numbers(version) < _numbers(oldest):
        raise ValueError(
            f"server_version is {version}, but SavedModels in {precision} are proven on TensorFlow "
            f"{oldest} and later only (docs/results_serving.md, benchmarks/server_versions.py). "
            f"Use a server of {oldest} or later, or a file for another runtime: format=onnx."
        )


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")[:2]]
