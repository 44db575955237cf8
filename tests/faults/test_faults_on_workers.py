"""One of two training processes is killed: the other ends too, and both together reach the same bits."""

import json
import random
import subprocess
import time

import pytest
from fault_runs import steps_saved, training_command
from tiny_runs import assert_bit_equal, checkpoint_arrays, free_addresses

NUM_STEPS = 30


def start_both(command):
    addresses = free_addresses(2)
    processes = []
    for index in range(2):
        cluster = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = {**command["env"], "TF_CONFIG": json.dumps(cluster)}
        processes.append(
            subprocess.Popen(command["args"], env=environment, stderr=subprocess.PIPE, text=True)
        )
    return processes


def end_of_both(processes):
    try:
        errors = [process.communicate(timeout=240)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], errors


@pytest.fixture(scope="module")
def command(records, toy_text, tmp_path_factory):
    """Output folder -> the command."""
    return lambda folder: training_command(
        records, toy_text, folder, num_train_steps=NUM_STEPS, save_checkpoints_steps=5
    )


@pytest.fixture(scope="module")
def whole(command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("two") / "whole"
    codes, errors = end_of_both(start_both(command(folder)))
    assert codes == [0, 0], errors[0][-3000:]
    return checkpoint_arrays(folder / f"model.ckpt-{NUM_STEPS}")


@pytest.mark.long  # test_three_workers.py kills worker 0 of a training without a program
def test_one_of_two_is_killed(command, whole, tmp_path, fault_seed):
    rng, folder = random.Random(fault_seed), tmp_path / "output"
    processes = start_both(command(folder))
    deadline = time.monotonic() + 240
    while not steps_saved(folder) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3 * rng.random())
    victim = fault_seed % 2  # worker 0, which writes the files, first
    processes[victim].kill()
    codes, _ = end_of_both(processes)
    killed = codes[victim] == -9
    if killed:
        assert codes[1 - victim] != 0
    codes, errors = end_of_both(start_both(command(folder)))
    assert codes == [0, 0], errors[0][-3000:]
    assert_bit_equal(checkpoint_arrays(folder / f"model.ckpt-{NUM_STEPS}"), whole)
