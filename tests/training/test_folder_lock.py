"""Two runs cannot train in one folder, and one that was killed leaves it free."""

import errno
import fcntl

import pytest

from bert_tf.training.checkpoints import LOCK_FILE, folder_lock

# A lock is of an open file, so that two in one process exclude each other as two processes do.


def test_folder_lock_is_refused_to_a_second_run_and_free_after_a_kill(tmp_path):
    path = tmp_path / LOCK_FILE
    path.write_text("12345")  # the system has released the lock of a killed process
    with (
        folder_lock(str(tmp_path)),
        pytest.raises(ValueError, match="output_dir"),
        folder_lock(str(tmp_path)),
    ):
        raise AssertionError("both hold the lock")
    assert not path.exists()


def test_folder_lock_of_a_remote_folder_locks_nothing():
    with folder_lock("ram://bucket/folder"):
        pass


def test_folder_lock_on_a_file_system_without_locks_locks_nothing(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with folder_lock(str(tmp_path)), folder_lock(str(tmp_path)):
        pass
