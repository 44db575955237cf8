"""Workers that fail, are killed, or lose the process that started them."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tiny_groups import contents, corpus_of, run_groups, write_inputs
from tiny_runs import script_command

from bert_tf.pretraining import runners
from bert_tf.pretraining.manifest import read_manifest


def kill_this_process(settings, job, send):
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_worker_finds_wrong_is_raised_here_and_what_is_done_stays(tmp_path):
    write_inputs(tmp_path, {"a.txt": corpus_of(40), "b.txt": b"the dog\n" * 200 + b"\xff\n"})
    with pytest.raises(ValueError, match=r"b\.txt:201: .*UTF-8.*offset 1600"):
        run_groups(tmp_path, "out", num_workers=2)
    manifest = read_manifest(f"{tmp_path}/out/x.manifest.json")
    assert manifest.num_groups == 4 and 3 not in manifest.groups
    assert not (tmp_path / "out/x-00003-of-00004").exists()


def test_a_worker_that_is_killed_ends_the_run_with_a_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(runners, "_work", kill_this_process)
    with pytest.raises(RuntimeError, match=r"killed, perhaps because memory.* fewer .*num_workers"):
        run_groups(tmp_path, "out", num_workers=2)


def test_a_run_that_is_killed_takes_its_workers_along_and_goes_on_when_started_again(tmp_path):
    flags = {"max_seq_length": 24, "dupe_factor": 60, "max_group_bytes": 1500}
    run_groups(tmp_path, "whole", **flags)
    output = f"{tmp_path}/out/x,{tmp_path}/out/y"
    arguments = {
        "input_file": f"{tmp_path}/a.txt,{tmp_path}/b.txt",
        "vocab_file": f"{tmp_path}/vocab.txt",
        "output_file": output,
        "num_workers": 2,
        **flags,
    }
    process = subprocess.Popen(
        **script_command("create_pretraining_data", **arguments),
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    path = f"{tmp_path}/out/x.manifest.json"
    deadline = time.monotonic() + 120
    while not (Path(path).exists() and read_manifest(path).groups):
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline, "no group after two minutes"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    while group_is_alive(process.pid):
        assert time.monotonic() < deadline, "a worker outlived the run"
        time.sleep(0.05)
    process.stderr.close()
    run_groups(tmp_path, "out", **flags)
    left = [path for path in (tmp_path / "out").iterdir() if path.name.endswith(".tmp")]
    found = contents(tmp_path / "out")
    assert not left
    assert found == contents(tmp_path / "whole")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_second_run_into_the_same_files_is_rejected(tmp_path, monkeypatch, overwrite):
    make_group, second = runners.make_group, []

    def during_the_first_run(*args):
        if not second:
            with pytest.raises(ValueError, match=r"records of .*/x\.manifest\.json") as caught:
                run_groups(tmp_path, "out", overwrite=overwrite)
            second.append(str(caught.value))
        return make_group(*args)

    monkeypatch.setattr(runners, "make_group", during_the_first_run)
    run_groups(tmp_path, "out")
    assert f"process {os.getpid()} is" in second[0]
    run_groups(tmp_path, "other")
    assert contents(tmp_path / "out") == contents(tmp_path / "other")


def group_is_alive(leader):
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    return True
