"""Client of server_versions.py: asks SavedModels in an environment without bert_tf and Keras.

    PYTHON benchmarks/server_versions_client.py JOBS LIBRARY

JOBS is a JSON file: a list of [SavedModel, requests, answers], paths of a folder and two .npz files. If
the model cannot be loaded or asked, the answers are the one array ERROR, with the message. LIBRARY is
the file with the operation of tensorflow-text, because that package itself imports Keras.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping

import numpy as np

ERROR = "error"


def save(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name. Strings are bytes as objects, which every version of NumPy shall read."""
    with open(f"{path}.tmp", "wb") as file:
        np.savez(file, **{name: _fixed(value) for name, value in arrays.items()})
    os.replace(f"{path}.tmp", path)


def load(path: str) -> dict[str, np.ndarray]:
    """Read what `save` wrote."""
    with np.load(path) as arrays:
        return {name: _free(arrays[name]) for name in arrays.files}


def _fixed(value: np.ndarray) -> np.ndarray:
    # NumPy drops zeros at the end of a string, so each gets another last byte.
    if value.dtype != object:
        return value
    return np.array([text + b"." for text in value.ravel()], "S").reshape(value.shape)


def _free(value: np.ndarray) -> np.ndarray:
    if value.dtype.kind != "S":
        return value
    strings = np.empty(value.size, object)
    strings[:] = [text[:-1] for text in value.ravel().tolist()]
    return strings.reshape(value.shape)


def main() -> None:
    sys.modules["keras"] = None  # importing it is an error now
    import tensorflow as tf

    tf.load_op_library(sys.argv[2])
    with open(sys.argv[1], encoding="utf-8") as file:
        jobs = json.load(file)
    for folder, requests, answers in jobs:
        try:
            found = ask(tf.saved_model.load(folder), load(requests), tf.constant)
        except Exception as error:
            found = {ERROR: np.array([str(error).strip().encode()], object)}
        save(answers, found)
    assert "bert_tf" not in sys.modules


def ask(model, requests: Mapping[str, np.ndarray], tensor) -> dict[str, np.ndarray]:
    """Return "signature/number/output" -> array for requests "signature/number/input"."""
    calls = {}
    for name, value in requests.items():
        signature, number, key = name.split("/")
        calls.setdefault((signature, number), {})[key] = tensor(value)
    return {
        f"{signature}/{number}/{key}": value.numpy()
        for (signature, number), inputs in calls.items()
        for key, value in model.signatures[signature](**inputs).items()
    }


if __name__ == "__main__":
    main()
