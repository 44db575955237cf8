"""A folder that one process trains in and no other."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_NAME = ".training.lock"


@contextlib.contextmanager
def folder_lock(folder: str) -> Iterator[None]:
    """Within the block no other process can take the same lock.

    The operating system drops it when the process ends, however it ends. Remote folders (gs://) and
    Windows have no such locks; there nothing happens.

    Args:
        folder: exists.

    Raises:
        ValueError: another process trains in this folder.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    if "://" in folder:
        yield
        return
    with open(os.path.join(folder, _NAME), "a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise ValueError(
                f"{folder} is in use: process {file.read().strip() or '?'} of this run is training in "
                "it, and two would overwrite each other's checkpoints. Wait for it or end it, or use "
                "another --output_dir."
            ) from None
        except OSError:  # a file system without locks
            yield
            return
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
