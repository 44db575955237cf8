"""Two processes cannot train in one folder, and a killed one leaves it free."""

import errno
import fcntl
import os
import signal
import subprocess
import sys

import pytest

from bert_tf.training.checkpoints import LOCK_FILE, folder_lock

HOLDER = """\
import sys, time
from bert_tf.training.checkpoints import folder_lock
with folder_lock(sys.argv[1]):
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of `tmp_path`."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.wait()


def test_a_second_process_is_told_who_the_first_is_and_refused_until_that_is_killed(
    tmp_path, holder
):
    path = tmp_path / LOCK_FILE
    refused = pytest.raises(ValueError, match=f"process {holder.pid} ")
    with refused, folder_lock(str(tmp_path)):
        raise AssertionError("both hold the lock")
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert path.exists()
    with folder_lock(str(tmp_path)):
        assert path.read_text() == str(os.getpid())


def test_a_remote_folder_is_not_locked():
    with folder_lock("gs://bucket/folder"):
        pass


def test_a_file_system_without_locks_is_not_locked(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with folder_lock(str(tmp_path)), folder_lock(str(tmp_path)):
        pass


def test_a_file_that_its_holder_removed_meanwhile_is_made_anew(tmp_path, monkeypatch):
    flock, removed = fcntl.flock, []

    def remove_first(file, how):
        if not removed:
            removed.append((tmp_path / LOCK_FILE).unlink())
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with folder_lock(str(tmp_path)):
        assert removed and (tmp_path / LOCK_FILE).read_text() == str(os.getpid())
