"""Helpers of several folders: files of a run, tensors of a checkpoint, and a run that is cut short."""

import contextlib
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf


def read_results(folder: Path) -> dict[str, float]:
    """`eval_results.txt`, in the order of its lines."""
    lines = (Path(folder) / "eval_results.txt").read_text().splitlines()
    return {key: float(value) for key, value in (line.split(" = ") for line in lines)}


def read_json_lines(path) -> list:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def write_json_lines(path: Path, rows) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def checkpoint_arrays(prefix) -> dict:
    """Every tensor of a checkpoint by name."""
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def assert_bit_equal(found: dict, expected: dict) -> None:
    assert sorted(found) == sorted(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def remove_last_checkpoint(folder: Path) -> None:
    """Leave a folder with two checkpoints as a run that was killed between them."""
    last, before = tf.train.latest_checkpoint(str(folder)), {}
    for path in folder.glob("model.ckpt-*.index"):
        before[int(path.stem.rpartition("-")[2])] = path.stem
    for path in folder.glob(f"{Path(last).name}.*"):
        path.unlink()
    del before[max(before)]
    name = before[max(before)]
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{name}"\n')


@contextlib.contextmanager
def refused(name: str):
    """The body is refused: with an error about the option, or at the place in a file, that is `name`.

    An error without such a field begins with the name, or is about a file of this name.
    """
    with pytest.raises((ValueError, OSError)) as error:
        yield error
    found = getattr(error.value, "option", getattr(error.value, "location", None))
    if found is None:
        assert name in str(error.value)
    else:
        assert str(found).endswith(name), error.value
