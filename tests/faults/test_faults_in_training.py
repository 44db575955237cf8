"""run_pretraining is killed, told to end, or has no room: the same command reaches the same bits."""

import random
import signal

import pytest
from fault_runs import (
    assert_clear_error,
    kill_after,
    run,
    run_whole,
    steps_saved,
    training_command,
    under_fault,
)
from tiny_runs import assert_bit_equal, checkpoint_arrays

pytestmark = pytest.mark.night

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


@pytest.mark.weekly
def test_no_room_for_a_checkpoint(records, toy_text, whole, tmp_path, fault_seed):
    folder = tmp_path / "output"
    command = training_command(records, toy_text, folder)
    limit = random.Random(fault_seed).randint(3_000, 20_000)
    assert_clear_error(run(under_fault(command, "file_size_limit", limit)), str(folder))
    assert not list(folder.rglob("*.tempstate*")) and not list(folder.rglob("*.tmp"))
    assert_same_end(command, folder, whole)
