"""Versions of TensorFlow that load our SavedModels and answer like the one that wrote them.

Source: benchmarks/server_versions.py; its table is in docs/results_serving.md.
"""

from __future__ import annotations

import logging
import re

logger = logging.getLogger(__name__)

# Precision -> the versions whose answers are within the limits of that script, the oldest first: float32
# with every type of task, bfloat16 and int8 with one classifier in the exported layout. 2.16 differs by
# 2e-6 in float32. In int8 2.17 gives other probabilities, and 2.16 lacks the operation. 2.19 was tried
# in float32, and in bfloat16 with another layout only.
PROVEN = {
    "float32": ("2.17", "2.18", "2.19", "2.20", "2.21"),
    "bfloat16": ("2.17", "2.18", "2.20", "2.21"),
    "int8": ("2.18", "2.20", "2.21"),
}


def check_server_version(version: str, precision: str) -> None:
    """Raise if a server's TensorFlow is older than all that are proven for SavedModels of a precision.

    Log a warning if it is newer than the oldest, but not proven itself.

    >>> check_server_version("2.19.1", "float32")

    Args:
        version: such as "2.19"; further numbers are ignored.
        precision: key of `PROVEN`.

    Raises:
        ValueError: it is not a version, or older than the oldest proven one.
    """
    if not re.fullmatch(r"\d+\.\d+(\.\w+)*", version):
        raise ValueError(
            f"server_version is {version!r}, but must be a version of TensorFlow, such as 2.19."
        )
    proven = PROVEN[precision]
    oldest = proven[0]
    if _numbers(version) < _numbers(oldest):
        raise ValueError(
            f"server_version is {version}, but SavedModels in {precision} are proven on TensorFlow "
            f"{oldest} and later only (docs/results_serving.md, benchmarks/server_versions.py). "
            f"Use a server of {oldest} or later, {'' if precision != 'int8' else 'precision=float32, '}"
            "or a file for another runtime: format=onnx."
        )
    if _numbers(version) not in map(_numbers, proven):
        logger.warning(
            "server_version is %s, but SavedModels in %s are proven on TensorFlow %s only. Compare this "
            "export with certify --environment=%s:PYTHON, where that TensorFlow is installed.",
            version,
            precision,
            ", ".join(proven),
            version,
        )


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")[:2]]
