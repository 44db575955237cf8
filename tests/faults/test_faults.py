"""Programs and files under faults: the same command reaches the same end, or an error names the file.

`FAULTS=20 pytest tests/faults` injects each fault twenty times, at other random moments and places.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (operations of the exported model)
from helpers import checkpoint_arrays
from models import DATA, golden, train

pytestmark = pytest.mark.night

SEEDS = range(int(os.environ.get("FAULTS", "1")))
TEXTS = ["the happy cat in the barn", "", "a sad owl"]
# Runs a command in which no file can be larger, as on a full disk.
LIMITED = """import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"""


def file_contents(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def export_answers(folder):
    signature = tf.saved_model.load(str(folder / "1")).signatures["serving_default"]
    return {"answers": signature(tf.constant(TEXTS))["probabilities"].numpy()}


class Program:
    """A program's flags, the flag of its output, and what must be the same after a fault."""

    def __init__(self, name, output, result, limits=(2_000, 20_000), **flags):
        self.name, self.output, self.result, self.limits = name, output, result, limits
        self.flags = flags

    def command(self, folder, limit=None):
        flag, path = self.output.split("=")
        flags = {**self.flags, flag: folder / path}
        arguments = ["-m", "bert_tf", self.name, *(f"--{n}={v}" for n, v in flags.items())]
        return [sys.executable, *(() if limit is None else ("-c", LIMITED, str(limit))), *arguments]


TEXT = DATA / "text"
PROGRAMS = {
    "records": Program(
        *("create_pretraining_data", "output_file=train.tf_record", file_contents),
        **{"input_file": TEXT / "train.txt", "vocab_file": TEXT / "vocab.txt", "dupe_factor": 5},
    ),
    "training": Program(
        *("run_pretraining", "output_dir=.", lambda folder: checkpoint_arrays(folder / "model.ckpt-60")),
        **{"input_file": TEXT / "train.tf_record", "bert_config_file": TEXT / "one_layer.json"},
        **{"do_train": True, "max_seq_length": 23, "max_predictions_per_seq": 4},
        **{"train_batch_size": 8, "num_train_steps": 60, "num_warmup_steps": 5},
        **{"save_checkpoints_steps": 4, "jit_compile": "false"},
    ),
    "export": Program(
        *("export_saved_model", "export_dir=1", export_answers),
        model_dir=golden("classifier"),
    ),
    "predictions": Program(
        *("predict", "output_file=answers.jsonl", file_contents),
        **{"model_dir": golden("classifier"), "input_file": "lines.txt"},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Function of a program's name -> the result of a run that nothing disturbs, made once."""
    folder, results = tmp_path_factory.mktemp("whole"), {}
    lines = "".join(f"the happy cat in barn {number}\n" for number in range(10_000))
    (folder / "lines.txt").write_text(lines)
    PROGRAMS["predictions"].flags["input_file"] = folder / "lines.txt"

    def result(name):
        if name not in results:
            (folder / name).mkdir()
            results[name] = run_whole(PROGRAMS[name], folder / name)
        return results[name]

    return result


def run(command):
    environment = {n: v for n, v in os.environ.items() if n != "TF_CPP_MIN_LOG_LEVEL"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def run_whole(program, folder):
    process = run(program.command(folder))
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said[-3000:]
    return program.result(folder)


def assert_equal(found, expected):
    assert sorted(found) == sorted(expected)
    for name, value in expected.items():
        if name == "answers":  # of a graph that is made again
            np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-6)
        else:
            np.testing.assert_array_equal(found[name], value, err_msg=name)


def cases(nightly):
    weekly = pytest.mark.weekly
    return [pytest.param(n, marks=[] if n == nightly else [weekly]) for n in PROGRAMS]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", cases(nightly="records"))
def test_no_room_for_a_file_is_told_and_leaves_nothing(name, seed, whole, tmp_path):
    program, folder = PROGRAMS[name], tmp_path / "out"
    expected = whole(name)
    folder.mkdir()
    process = run(program.command(folder, random.Random(seed).randint(*program.limits)))
    _, said = process.communicate(timeout=300)
    assert process.returncode == 1 and "Traceback" not in said, said[-3000:]
    assert str(folder) in said[said.rindex("error:") :]
    assert not [path for path in folder.rglob("*") if "temp" in path.name or ".tmp" in path.name]
    assert_equal(run_whole(program, folder), expected)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", cases(nightly="training"))
def test_killed_program_reaches_the_same_end(name, seed, whole, tmp_path):
    program = PROGRAMS[name]
    expected = whole(name)
    pause = 0.1 * random.Random(seed).random()
    for number in range(5):  # a run that ended before it was killed is none
        folder = tmp_path / f"out{number}"
        folder.mkdir()
        process = run(program.command(folder))
        begun = "model.ckpt-*.index" if name == "training" else "*"
        while process.poll() is None and not any(folder.glob(begun)):
            time.sleep(0.002)
        time.sleep(pause / 4**number)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=120)
        if process.returncode == -signal.SIGKILL:
            break
    assert process.returncode == -signal.SIGKILL
    if (
        name == "predictions" and (folder / "answers.jsonl").exists()
    ):  # it is whole, for it has its name
        assert_equal(program.result(folder), expected)
    assert_equal(run_whole(program, folder), expected)


# ---- Files that the disk or a copy has spoilt


def train_records(input_file, folder, **changes):
    """Arrays of the last of six steps."""
    options = {"bert_config_file": f"{TEXT}/one_layer.json", "do_eval": False}
    options |= {"evaluate_steps": 0, "num_train_steps": 6, "num_warmup_steps": 1}
    options |= {"save_checkpoints_steps": 2, "input_file": str(input_file), **changes}
    train("pretrained", folder, **options)
    return checkpoint_arrays(tf.train.latest_checkpoint(folder))


@pytest.mark.parametrize("seed", SEEDS)
def test_record_file_that_was_cut_off_is_refused(seed, tmp_path, eagerly):
    """The manifest lies beside it, so that a cut between two records is seen as well."""
    data = (TEXT / "train.tf_record").read_bytes()
    first_record = 16 + int.from_bytes(data[:8], "little")
    for size in (first_record, random.Random(seed).randrange(len(data))):
        copy = tmp_path / f"{size}.tf_record"
        copy.write_bytes(data[:size])
        manifest = (TEXT / "train.tf_record.manifest.json").read_text()
        copy.with_name(f"{copy.name}.manifest.json").write_text(manifest)
        with pytest.raises(ValueError) as error:
            train_records(copy, tmp_path / "output", num_train_steps=40)
        assert str(copy) in str(error.value)


def spoil(folder, how, rng):
    """Does it to the newest checkpoint; its prefix."""
    prefix = Path(tf.train.latest_checkpoint(folder))
    file = folder / "checkpoint" if how == "state" else Path(f"{prefix}.data-00000-of-00001")
    data = bytearray(file.read_bytes())
    if how == "bit":
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data if how == "bit" else data[: rng.randrange(len(data))])
    if how == "gone":
        file.unlink()
    return prefix


@pytest.mark.parametrize("seed", SEEDS)
def test_checkpoint_that_is_half_gone_is_refused_by_name(seed, tmp_path, eagerly):
    records = TEXT / "train.tf_record"
    expected = train_records(records, tmp_path / "whole")
    train_records(records, tmp_path / "half", stop_step=4)
    for how in ("gone", "cut", "bit", "state"):
        folder = shutil.copytree(tmp_path / "half", tmp_path / how)
        prefix = spoil(folder, how, random.Random(f"{how} {seed}"))
        try:
            found = train_records(records, folder)
        except ValueError as error:
            assert prefix.name in str(error) or "checkpoint" in str(error).split()[-1], error
            for file in folder.glob(f"{prefix.name}.*"):  # as the message says
                file.unlink()
            found = train_records(records, folder)
        assert_equal(found, expected)
