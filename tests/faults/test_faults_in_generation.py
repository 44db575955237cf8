"""create_pretraining_data is killed, has no room, or a clock that jumps: the same bytes in the end."""

import random

import pytest
from fault_runs import (
    assert_clear_error,
    contents,
    generation_command,
    run,
    run_whole,
    under_fault,
    write_corpus,
)

pytestmark = pytest.mark.night

SECONDS_OF_WORK = 1.0  # about; a kill after the end is no fault, and a test says so


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.txt", num_documents=1200)


@pytest.fixture(scope="module")
def command(toy_text, corpus):
    """Output folder -> the command. The groups are small, so that there are several."""
    return lambda folder, **changes: generation_command(toy_text, corpus, folder, **changes)


@pytest.fixture(scope="module")
def whole(command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("generated") / "whole"
    run_whole(command(folder))
    return contents(folder)


@pytest.mark.weekly
def test_no_room_for_a_file(command, whole, tmp_path, fault_seed):
    folder = tmp_path / "out"
    limit = random.Random(fault_seed).randint(2_000, 40_000)
    ended = run(under_fault(command(folder), "file_size_limit", limit))
    assert_clear_error(ended, str(folder))
    assert not [name for name in contents(folder) if name.endswith(".tmp")]
    run_whole(command(folder))
    assert contents(folder) == whole
