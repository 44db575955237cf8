"""Programs without foreign messages: most of TensorFlow's at its start, Python's if a pipe is closed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported


@contextmanager
def ignore_broken_pipe() -> Iterator[None]:
    """End without an error if the reader of standard output, such as `head`, has stopped."""
    try:
        yield
    except BrokenPipeError:
        pass
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
