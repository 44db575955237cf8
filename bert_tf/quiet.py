"""What programs set before TensorFlow is imported, and an end without a message if a pipe is closed."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if platform.machine() in ("x86_64", "AMD64"):
    # TensorFlow's default without AVX-512 VNNI is 0, with which batches take 1.4 times as long there.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


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
