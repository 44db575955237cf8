"""run_pretraining is killed, told to end, or has no room: the same command reaches the same bits."""

import random
import signal

import pytest
from fault_runs import (
    CLEAR_ERROR,
    SAME_END,
    assert_clear_error,
    kill_after,
    run,
    run_whole,
    steps_saved,
    training_command,
    under_fault,
    write_config,
)
from tiny_runs import assert_bit_equal, checkpoint_arrays

NUM_STEPS = 60  # of training_command


@pytest.fixture(scope="module")
def whole(records, toy_text, tmp_path_factory):
    """The last checkpoint of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("trained") / "whole"
    run_whole(training_command(records, toy_text, folder))
    return checkpoint_arrays(folder / f"model.ckpt-{NUM_STEPS}")


def kill_once(command, folder, rng, number=signal.SIGKILL):
    """Some time after its next checkpoint."""
    before = steps_saved(folder)
    return kill_after(command, lambda: steps_saved(folder) - before, 0.3 * rng.random(), number)


def assert_same_end(command, folder, whole):
    run_whole(command)
    assert_bit_equal(checkpoint_arrays(folder / f"model.ckpt-{NUM_STEPS}"), whole)
    assert not list(folder.rglob("*.tmp")) and not list(folder.rglob("*.tempstate*"))


@pytest.mark.parametrize("name", ["SIGKILL", pytest.param("SIGTERM", marks=pytest.mark.long)])
def test_ended_at_a_random_moment(records, toy_text, whole, tmp_path, fault_seed, name, outcome):
    rng, folder = random.Random(fault_seed), tmp_path / "output"
    command = training_command(records, toy_text, folder)
    killed = kill_once(command, folder, rng, getattr(signal, name))
    assert_same_end(command, folder, whole)
    outcome(f"training: {name}", SAME_END if killed else "it had ended")


def test_killed_before_a_file_gets_its_name(
    records, toy_text, whole, tmp_path, fault_seed, outcome
):
    folder = tmp_path / "output"
    command = training_command(records, toy_text, folder)
    ended = run(under_fault(command, "die_before_rename", fault_seed + 1))
    assert_same_end(command, folder, whole)
    outcome(
        "training: SIGKILL before a rename",
        SAME_END if ended.returncode == -9 else "no such rename",
    )


@pytest.mark.long
def test_killed_while_a_checkpoint_is_written(records, toy_text, tmp_path, fault_seed, outcome):
    """A larger model and a checkpoint at each step: most of the time goes into writing."""
    rng, folder = random.Random(fault_seed), tmp_path / "output"
    config = write_config(
        tmp_path / "config.json", toy_text, hidden_size=256, intermediate_size=2048
    )
    changes = {"bert_config_file": config, "num_train_steps": 6, "save_checkpoints_steps": 1}
    command = training_command(records, toy_text, folder, **changes)
    killed = kill_once(command, folder, rng)
    run_whole(command)
    undisturbed = training_command(records, toy_text, tmp_path / "whole", **changes)
    run_whole(undisturbed)
    assert_bit_equal(
        checkpoint_arrays(folder / "model.ckpt-6"),
        checkpoint_arrays(tmp_path / "whole/model.ckpt-6"),
    )
    outcome("training: SIGKILL at a checkpoint", SAME_END if killed else "it had ended")


@pytest.mark.long
def test_no_room_for_a_checkpoint(records, toy_text, whole, tmp_path, fault_seed, outcome):
    folder = tmp_path / "output"
    command = training_command(records, toy_text, folder)
    limit = random.Random(fault_seed).randint(3_000, 20_000)
    assert_clear_error(run(under_fault(command, "file_size_limit", limit)), str(folder))
    assert not list(folder.rglob("*.tempstate*")) and not list(folder.rglob("*.tmp"))
    assert_same_end(command, folder, whole)
    outcome("training: no room on the disk", f"{CLEAR_ERROR}; {SAME_END}")


def test_a_disk_that_is_full(records, toy_text, whole, small_disk, fault_seed, outcome):
    folder = small_disk.folder / "output"
    command = training_command(records, toy_text, folder)
    small_disk.has(f"{random.Random(fault_seed).randint(8, 40) * 4096}")
    assert_clear_error(run(command), str(folder))
    assert not list(folder.rglob("*.tempstate*")) and not list(folder.rglob("*.tmp"))
    small_disk.has("100m")
    assert_same_end(command, folder, whole)
    outcome("training: a full disk (tmpfs)", f"{CLEAR_ERROR}; {SAME_END}")


def test_a_folder_that_cannot_be_written(records, toy_text, fault_seed, outcome):
    folder = f"/sys/bert_tf_{fault_seed}"
    assert_clear_error(run(training_command(records, toy_text, folder)), folder)
    outcome("training: read-only output", CLEAR_ERROR)


def test_a_clock_that_jumps(records, toy_text, whole, tmp_path, fault_seed, outcome):
    folder = tmp_path / "output"
    command = training_command(records, toy_text, folder)
    run_whole(under_fault(command, "clock_jumps", fault_seed))
    assert_bit_equal(checkpoint_arrays(folder / f"model.ckpt-{NUM_STEPS}"), whole)
    outcome("training: the clock jumps", "the same end")
