"""A folder that one process trains in and no other."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NAME = ".training.lock"


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
    if fcntl is None or "://" in folder:
        yield
        return
    path = os.path.join(folder, NAME)
    with _locked(path, folder) as file:
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                os.remove(path)


def _locked(path: str, folder: str) -> IO[str]:
    """The file at `path`, open and locked."""
    while True:
        file = open(path, "a+", encoding="ascii")  # noqa: SIM115, the caller closes it
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "?"
            file.close()
            raise ValueError(
                f"{folder} is in use: process {holder} is training in it, and two would overwrite each "
                "other's checkpoints. Wait for it or end it, or use another --output_dir."
            ) from None
        except OSError:  # a file system without locks
            return file
        # The one before us may have removed the file between our opening and our locking it.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        file.close()
