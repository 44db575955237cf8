"""Workers that fail, or lose the process that started them."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from helpers import cause_of
from tiny_groups import command_with_small_groups, contents, corpus_of, run_groups, write_inputs

from bert_tf.pretraining.manifest import Manifest

pytestmark = pytest.mark.night


def test_what_a_worker_finds_wrong_is_raised_here_and_what_is_done_stays(tmp_path):
    write_inputs(tmp_path, {"a.txt": corpus_of(40), "b.txt": b"the dog\n" * 200 + b"\xff\n"})
    assert cause_of(run_groups, tmp_path, "out", num_workers=2) == f"{tmp_path}/b.txt:201"
    manifest = Manifest.read(f"{tmp_path}/out/x.manifest.json")
    assert manifest.num_groups == 4 and set(manifest.groups) == {0, 1, 2}
    assert not (tmp_path / "out/x-00003-of-00004").exists()


def test_a_run_that_is_killed_takes_its_workers_along_and_goes_on_when_started_again(tmp_path):
    flags = {"max_seq_length": 24, "dupe_factor": 60}
    run_groups(tmp_path, "whole", **flags)
    command = command_with_small_groups(
        1500,
        input_file=f"{tmp_path}/a.txt,{tmp_path}/b.txt",
        vocab_file=f"{tmp_path}/vocab.txt",
        output_file=f"{tmp_path}/out/x,{tmp_path}/out/y",
        num_workers=2,
        **flags,
    )
    process = subprocess.Popen(**command, stderr=subprocess.PIPE, start_new_session=True)
    path = f"{tmp_path}/out/x.manifest.json"
    deadline = time.monotonic() + 120
    while not (Path(path).exists() and Manifest.read(path).groups):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline, "no group after two minutes"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    while group_is_alive(process.pid):
        assert time.monotonic() < deadline, "a worker outlived the run"
        time.sleep(0.05)
    process.stderr.close()
    run_groups(tmp_path, "out", **flags)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def group_is_alive(leader):
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    return True
