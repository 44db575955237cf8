"""SIGTERM and Ctrl-C during a training."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SAVING = b"\nFinishing and saving this step. Ctrl-C again ends at once, without saving.\n"


@contextmanager
def noticing_signals() -> Iterator[list[int]]:
    """Record SIGTERM and the first SIGINT (Ctrl-C) within the block, and yield the list of them.

    Outside the main thread Python allows no handlers, and the signals keep their usual effect.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def notice(number: int, _: object) -> None:
        if number == signal.SIGINT:
            if number in received:
                raise KeyboardInterrupt
            os.write(2, _SAVING)  # `print` and `logging` are not safe here
        received.append(number)

    before = {number: signal.signal(number, notice) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
