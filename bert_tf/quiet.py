"""Programs without foreign messages: TensorFlow's at its start, Python's if a pipe is closed."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_SEVERITY = re.compile(r"(?:\d{4}-\d\d-\d\d [\d:.]+: )?([IWEF])(?:\d{4} | )")


def import_tensorflow(*, find_devices: bool = True) -> None:
    """Import TensorFlow and hide startup messages below TF_CPP_MIN_LOG_LEVEL.

    TensorFlow writes some of them before it reads that variable, so standard error is redirected
    meanwhile. The default of 3 hides all messages. 2 shows errors, 1 also warnings, 0 everything.
    Child processes inherit the value.

    Args:
        find_devices: also look for devices, which writes more messages.
    """
    level = os.environ.setdefault(_LEVEL, "3")
    if level not in ("1", "2", "3"):
        return
    sys.stderr.flush()
    standard_error = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            import tensorflow as tf

            if find_devices:
                tf.config.list_physical_devices()
        except BaseException:
            level = "0"
            raise
        finally:
            os.dup2(standard_error, 2)
            os.close(standard_error)
            file.seek(0)
            sys.stderr.write(messages_from(file.read().decode(errors="replace"), int(level)))


def messages_from(text: str, level: int) -> str:
    """Return the log lines of severity `level` (0 to 3) or higher, with their continuation lines.

    >>> messages_from("I0000 00:00:1 1 port.cc:1] on\\nE0000 00:00:1 1 cuda.cc:2] failed\\n", level=2)
    'E0000 00:00:1 1 cuda.cc:2] failed\\n'
    """
    shown, lines = level == 0, []
    for line in text.splitlines(keepends=True):
        if found := _SEVERITY.match(line):
            shown = "IWEF".index(found[1]) >= level
        elif line.startswith("WARNING: All log messages before absl::InitializeLog()"):
            shown = level == 0
        if shown:
            lines.append(line)
    return "".join(lines)


@contextmanager
def until_reader_stops() -> Iterator[None]:
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
