"""Helpers of several folders: files of a run, tensors of a checkpoint, and a run that is cut short."""

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.limits import DataError
from bert_tf.options import OptionError, make_options
from bert_tf.packing import pack, window_pairs
from bert_tf.tasks.base import Task
from bert_tf.tasks.load import make_task


def read_results(folder: Path) -> dict[str, float]:
    """`eval_results.txt`, in the order of its lines."""
    pairs = (line.split(" = ") for line in lines_of(Path(folder) / "eval_results.txt"))
    return {key: float(value) for key, value in pairs}


def read_task(folder: str) -> Task:
    return make_task(json.loads(Path(folder, "task.json").read_text()), folder)


def read_json_lines(path) -> list:
    return [json.loads(line) for line in lines_of(path)]


def lines_of(path) -> list[str]:
    return Path(path).read_text().splitlines()


def write_json_lines(path: Path, rows) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def write_vocab(path: Path, tokens) -> str:
    return write(path, "".join(f"{token}\n" for token in tokens))


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


def cause_of(call, *args, **kwargs) -> str:
    """The option or the location ("file:line" or "file") in the error that a call raises."""
    with pytest.raises((OptionError, DataError)) as error:
        call(*args, **kwargs)
    return getattr(error.value, "option", None) or error.value.location


@contextlib.contextmanager
def refused(name: str):
    """The body is refused: with an error about the option, or at the place in a file, that is `name`.

    An error without such a field has it whole; a word of letters only at the beginning or in
    backquotes, for it may stand in any sentence.
    """
    with pytest.raises((ValueError, OSError)) as error:
        yield error
    found = getattr(error.value, "option", getattr(error.value, "location", None))
    if found is None:
        word = re.escape(name)
        whole = rf"(?<!\w){word}(?!\w)" if re.search(r"[/._=]", name) else rf"\A{word}\b|`{word}`"
        assert re.search(whole, str(error.value)), error.value
    else:
        assert str(found).endswith(name), error.value


def python(*arguments, **variables) -> dict:
    """Arguments of `subprocess.run` and `Popen` for a Python that finds what this one finds.

    Without what importing TensorFlow has put into this process' environment: a shell has none of it.
    """
    environment = {n: v for n, v in os.environ.items() if n != "TF_CPP_MIN_LOG_LEVEL"}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), **variables}
    return {"args": [sys.executable, *map(str, arguments)], "env": environment, "text": True}


def output_of(*arguments, **variables) -> str:
    """What a Python prints that ends without an error."""
    done = subprocess.run(**python(*arguments, **variables), capture_output=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def script_command(name: str, **flags) -> dict:
    script = Path(__file__).parents[1] / "run_scripts" / f"{name}.py"
    return python(script, *(f"--{key}={value}" for key, value in flags.items()))


def write_records(text_file: Path, output_file: Path, **changes) -> str:
    """create_pretraining_data with the toy vocabulary; the path of the records."""
    from bert_tf.pretraining.create_pretraining_data import (
        PretrainingDataOptions,
        create_pretraining_data,
    )

    values = {
        "vocab_file": str(text_file.parent / "vocab.txt"),
        "max_seq_length": 23,
        "max_predictions_per_seq": 4,
        "dupe_factor": 3,
    }
    create_pretraining_data(
        make_options(
            PretrainingDataOptions,
            input_file=str(text_file),
            output_file=str(output_file),
            **{**values, **changes},
        )
    )
    return str(output_file)


def pack_windows(ids_a, ids_b=None, *, max_seq_length, doc_stride, cls_id, sep_id):
    """Windows of long texts, packed one by one, to compare with those in bulk and in graphs."""
    pairs = window_pairs(ids_a, ids_b or (), max_seq_length, doc_stride)
    return [
        pack(*pair, max_seq_length=max_seq_length, cls_id=cls_id, sep_id=sep_id) for pair in pairs
    ]
