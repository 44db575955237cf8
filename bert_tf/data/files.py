"""Text files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import tensorflow as tf

TEMPORARY_SUFFIX = ".tmp"


@contextmanager
def open_whole(path: str | os.PathLike) -> Iterator[TextIO]:
    """Opens a UTF-8 text file for writing; it gets its name when the block ends without an exception.

    Until then it is `path` + ".tmp" in the same folder, which is made if missing. Remote paths go
    through `tf.io.gfile`.
    """
    path = os.fspath(path)
    temporary = path + TEMPORARY_SUFFIX
    tf.io.gfile.makedirs(os.path.dirname(path) or ".")
    complete = False
    try:
        with tf.io.gfile.GFile(temporary, "w") as file:
            yield file
        tf.io.gfile.rename(temporary, path, overwrite=True)
        complete = True
    finally:
        if not complete and tf.io.gfile.exists(temporary):
            tf.io.gfile.remove(temporary)


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes a whole text file."""
    with open_whole(path) as file:
        file.write(text)
