"""Programs without foreign messages: most of TensorFlow's at its start, Python's if a pipe is closed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

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
            with suppress(BrokenPipeError):
                sys.stdout.close()  # or Python would flush it again at its exit, and report the error
