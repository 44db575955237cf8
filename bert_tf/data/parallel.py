"""A function over many parts of work, in this process or in several, with the results in order."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait as wait_for_process
from types import ModuleType
from typing import Any, TypeVar

from bert_tf.quiet import import_tensorflow

Part = TypeVar("Part")
Result = TypeVar("Result")

_AHEAD = 4  # parts per worker that are under way or done and not yet asked for


def map_in_order(
    function: Callable[[Part], Result], parts: Iterable[Part], num_workers: int
) -> Iterator[Result]:
    """`function` of each part, in the order of the parts, whatever the number of workers.

    Args:
        function: can be pickled; it is sent to each worker once. Each imports the module that it is
            from, which takes seconds if that imports TensorFlow. Not from the program itself
            (`__main__`), which workers do not import.
        parts: can be pickled; taken as they are needed.
        num_workers: processes; 1 is this one.

    Raises:
        Exception: what `function` raised.
        RuntimeError: a worker was killed, for example because memory ran out.
    """
    if num_workers <= 1:
        yield from map(function, parts)
        return
    context = multiprocessing.get_context("spawn")  # TensorFlow does not survive a fork
    pool = ProcessPoolExecutor(
        num_workers, mp_context=context, initializer=_keep, initargs=(function,)
    )
    try:
        waiting: deque = deque()
        for part in parts:
            with _main_not_imported():
                waiting.append(pool.submit(_call, part))
            if len(waiting) >= _AHEAD * num_workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise RuntimeError(
            "A worker process was killed, perhaps because memory ran out. Use fewer num_workers."
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _main_not_imported() -> Iterator[None]:
    """Processes that begin here do not import the program that began them, and with it TensorFlow.

    multiprocessing looks up what `__main__` is, to import it again.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def usable_cores() -> int:
    """Processor cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows do not say
        return os.cpu_count() or 1


messages: Any = None  # of a worker: the queue for its reports


def start_worker(queue: Any) -> None:
    """In a worker that imports TensorFlow for its first part: do so without messages.

    Args:
        queue: for reports to the first process; `messages`.
    """
    global messages
    messages = queue
    end_with_parent()
    import_tensorflow(find_devices=False)


def end_with_parent() -> None:
    """In a worker: leave Ctrl-C to the first process, and end when that ends, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        wait_for_process([parent.sentinel])
        os._exit(1)


_function: Any = None  # of a worker, once `_keep` has it


def _keep(function: Callable[[Any], Any]) -> None:
    global _function
    end_with_parent()
    _function = function


def _call(part: Any) -> Any:
    return _function(part)
