"""Files that the disk or a copy has spoilt: an error that names them, never a silent wrong result."""

import random
import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from fault_runs import damaged_copy
from tiny_runs import (
    Interruption,
    assert_bit_equal,
    checkpoint_arrays,
    interrupt_at,
    pretraining_options,
    write_records,
)

from bert_tf.programs.run_pretraining import run_pretraining
from bert_tf.training.checkpoints import latest_checkpoint

pytestmark = pytest.mark.night

NUM_STEPS = 40
PER_SEED = 5  # places in a file; each is a run in this process


def train_records(records, toy_text, record_file, output_dir):
    """40 steps on these records; the last checkpoint."""
    own = SimpleNamespace(train=str(record_file), held_out=records.held_out)
    options = {
        "bert_config_file": str(toy_text / "one_layer.json"),
        "do_eval": False,
        "eval_file": None,
        "evaluate_steps": 0,
        "num_train_steps": NUM_STEPS,
        "save_checkpoints_steps": 10,
    }
    run_pretraining(pretraining_options(own, toy_text, output_dir, **options))
    return checkpoint_arrays(output_dir / f"model.ckpt-{NUM_STEPS}")


@pytest.fixture
def train(records, toy_text):
    return partial(train_records, records, toy_text)


@pytest.fixture(scope="module")
def few_records(toy_text, tmp_path_factory):
    """Fewer than 40 batches read, so that each record is met."""
    return write_records(
        toy_text / "train.txt", tmp_path_factory.mktemp("some") / "some.tf_record", dupe_factor=1
    )


def test_a_file_that_was_cut_off(few_records, train, tmp_path, fault_seed):
    """The manifest lies beside it, so that a cut between two records is seen as well."""
    for number in range(PER_SEED):
        rng, folder = random.Random(100 * fault_seed + number), tmp_path / str(number)
        shutil.copytree(Path(few_records).parent, folder)
        copy = folder / Path(few_records).name
        data = copy.read_bytes()
        ends = record_ends(data)
        at = rng.choice(ends[:-1]) if number == 0 else rng.randrange(len(data))
        copy.write_bytes(data[:at])
        with pytest.raises(ValueError, match=str(copy)):
            train(copy, tmp_path / f"output{number}")


def record_ends(data):
    ends = [0]
    while ends[-1] < len(data):
        length = int.from_bytes(data[ends[-1] : ends[-1] + 8], "little")
        ends.append(ends[-1] + 16 + length)
    return ends


@pytest.fixture(scope="module")
def trained(records, toy_text, tmp_path_factory):
    """A run of 40 steps: the bits of its end, and its folder as it was at step 20."""
    folder = tmp_path_factory.mktemp("trained")
    arrays = train_records(records, toy_text, records.train, folder / "whole")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Interruption):
        interrupt_at(patch, 20)
        train_records(records, toy_text, records.train, folder / "half")
    return SimpleNamespace(arrays=arrays, at_step_20=folder / "half")


def spoil(folder, how, rng):
    """Does it to the newest checkpoint; the names of what it touched."""
    prefix = Path(latest_checkpoint(str(folder)))
    data = Path(f"{prefix}.data-00000-of-00001")
    if how == "data gone":
        data.unlink()
    elif how == "data cut off":
        data.write_bytes(data.read_bytes()[: rng.randrange(data.stat().st_size)])
    elif how == "a bit of data flipped":
        damaged_copy(data, data, rng)
    elif how == "`checkpoint` cut off":
        state = folder / "checkpoint"
        state.write_bytes(state.read_bytes()[: rng.randrange(state.stat().st_size)])
    return prefix


@pytest.mark.weekly_cases("0-data gone", "0-data cut off", "0-a bit of", "0-`checkpoint` cut off")
@pytest.mark.parametrize(
    "how", ["data gone", "data cut off", "a bit of data flipped", "`checkpoint` cut off"]
)
def test_a_checkpoint_that_is_half_gone(records, train, trained, tmp_path, fault_seed, how):
    rng, folder = random.Random(f"{how} {fault_seed}"), tmp_path / "output"
    shutil.copytree(trained.at_step_20, folder)
    prefix = spoil(folder, how, rng)
    try:
        found = train(records.train, folder)
    except ValueError as error:
        assert prefix.name in str(error) or "checkpoint" in str(error).split()[-1], error
        for file in folder.glob(f"{prefix.name}.*"):  # as the message says
            file.unlink()
        found = train(records.train, folder)
    assert_bit_equal(found, trained.arrays)
