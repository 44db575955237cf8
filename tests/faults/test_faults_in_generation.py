"""create_pretraining_data is killed, has no room, or a clock that jumps: the same bytes in the end."""

import random

import pytest
from fault_runs import (
    CLEAR_ERROR,
    SAME_END,
    assert_clear_error,
    contents,
    generation_command,
    kill_after,
    run,
    run_whole,
    under_fault,
    write_corpus,
)

SECONDS_OF_WORK = 1.0  # about; a kill after the end is no fault, and a test says so


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.txt", num_documents=1200)


@pytest.fixture(scope="module")
def command(toy_text, corpus):
    """Output folder -> the command. The groups are small, so that there are several."""
    return lambda folder, **changes: generation_command(
        toy_text, corpus, folder, max_group_bytes=50_000, **changes
    )


@pytest.fixture(scope="module")
def whole(command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("generated") / "whole"
    run_whole(command(folder))
    return contents(folder)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_killed_at_a_random_moment(command, whole, tmp_path, fault_seed, num_workers, outcome):
    rng, folder = random.Random(fault_seed), tmp_path / "out"
    arguments = command(folder, num_workers=num_workers)
    killed = kill_after(arguments, folder.exists, SECONDS_OF_WORK * rng.random())
    run_whole(arguments)
    assert contents(folder) == whole
    outcome(f"generation, {num_workers} worker(s): SIGKILL", SAME_END if killed else "it had ended")


def test_killed_before_a_file_gets_its_name(command, whole, tmp_path, fault_seed, outcome):
    folder = tmp_path / "out"
    ended = run(under_fault(command(folder), "die_before_rename", fault_seed + 1))
    assert ended.returncode == -9
    run_whole(command(folder))
    assert contents(folder) == whole
    outcome("generation: SIGKILL before a rename", SAME_END)


@pytest.mark.long
def test_no_room_for_a_file(command, whole, tmp_path, fault_seed, outcome):
    folder = tmp_path / "out"
    limit = random.Random(fault_seed).randint(2_000, 40_000)
    ended = run(under_fault(command(folder), "file_size_limit", limit))
    assert_clear_error(ended, str(folder))
    assert not [name for name in contents(folder) if name.endswith(".tmp")]
    run_whole(command(folder))
    assert contents(folder) == whole
    outcome("generation: no room on the disk", f"{CLEAR_ERROR}; {SAME_END}")


def test_a_disk_that_is_full(command, whole, small_disk, fault_seed, outcome):
    folder = small_disk.folder / "out"
    size = sum(map(len, whole.values()))
    small_disk.has(f"{random.Random(fault_seed).randint(4096, size)}")
    assert_clear_error(run(command(folder)), str(folder))
    small_disk.has("100m")
    run_whole(command(folder))
    assert contents(folder) == whole
    outcome("generation: a full disk (tmpfs)", f"{CLEAR_ERROR}; {SAME_END}")


def test_a_folder_that_cannot_be_written(command, fault_seed, outcome):
    ended = run(command(f"/sys/bert_tf_{fault_seed}"))
    assert_clear_error(ended, f"/sys/bert_tf_{fault_seed}")
    outcome("generation: read-only output", CLEAR_ERROR)


@pytest.mark.long
def test_a_clock_that_jumps(command, whole, tmp_path, fault_seed, outcome):
    run_whole(under_fault(command(tmp_path / "out"), "clock_jumps", fault_seed))
    assert contents(tmp_path / "out") == whole
    outcome("generation: the clock jumps", "the same end")
