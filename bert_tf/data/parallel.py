"""A function over many parts of work, in this process or in several."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait as wait_for_process
from types import ModuleType
from typing import Any, TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")

Send = Callable[[Any], None]

_AHEAD = 4  # parts per worker whose results are not taken yet
_SECONDS_BETWEEN_LOOKS = 0.2  # at the messages of workers
_REMEDY = "Use fewer num_workers."


def map_in_order(
    function: Callable[[Part], Result], parts: Iterable[Part], num_workers: int
) -> Iterator[Result]:
    """Yield `function` of each part, in the order of the parts for any number of workers.

    Args:
        function: picklable; sent to each worker once. Each worker imports its module, which takes
            seconds if that imports TensorFlow. Workers do not import the program (`__main__`), so
            the function must not be from there.
        parts: picklable; taken when they are needed.
        num_workers: processes; 1 is this one. They end when this process ends for any reason, when a
            part fails, and when no more results are taken.

    Raises:
        Exception: an exception of `function`.
        RuntimeError: a worker was killed, for example because memory ran out.
    """
    if num_workers <= 1:
        return map(function, parts)
    return _run_pool(function, parts, num_workers, None, _REMEDY)


def map_as_done(
    function: Callable[[Part, Send], Result],
    parts: Iterable[Part],
    num_workers: int,
    on_message: Send,
    remedy: str = _REMEDY,
) -> Iterator[Result]:
    """Yield `function` of each part as soon as it is done, with messages from the workers.

    Args:
        function: takes a part and a function that sends a picklable message to this process. Workers
            import TensorFlow first, without the messages of its start.
        parts: as in `map_in_order`.
        num_workers: as in `map_in_order`.
        on_message: called in this process with each message.
        remedy: the end of the error about a worker that was killed.

    Raises:
        Exception: as in `map_in_order`.
        RuntimeError: as in `map_in_order`.
    """
    if num_workers <= 1:
        return (function(part, on_message) for part in parts)
    return _run_pool(function, parts, num_workers, on_message, remedy)


def _run_pool(
    function: Callable, parts: Iterable, num_workers: int, on_message: Send | None, remedy: str
) -> Iterator:
    """Yield the results of the workers: in order without `on_message`, else as soon as done."""
    context = multiprocessing.get_context("spawn")  # TensorFlow does not survive a fork
    messages: Any = context.Queue() if on_message else None
    with _main_not_imported():
        pickled = pickle.dumps(function)
    pool = ProcessPoolExecutor(
        num_workers, mp_context=context, initializer=_start, initargs=(pickled, messages)
    )
    parts, waiting = iter(parts), deque[Future]()
    try:
        while True:
            for part in itertools.islice(parts, _AHEAD * num_workers - len(waiting)):
                with _main_not_imported():
                    waiting.append(pool.submit(_call, part))
            if not waiting:
                return
            if on_message is None:
                yield waiting.popleft().result()
                continue
            done, _ = wait(waiting, _SECONDS_BETWEEN_LOOKS, FIRST_COMPLETED)
            while not messages.empty():
                on_message(messages.get())
            for future in done:
                waiting.remove(future)
                yield future.result()
    except BrokenProcessPool as error:
        raise RuntimeError(
            f"A worker process was killed, perhaps because memory ran out. {remedy}"
        ) from error
    finally:
        for process in list((pool._processes or {}).values()):
            process.kill()
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _main_not_imported() -> Iterator[None]:
    """Keep processes that start here from importing the program, and with it TensorFlow.

    multiprocessing looks up `__main__` to import it again.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def usable_cores() -> int:
    """Return the number of processor cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


_function: Any = None  # of a worker, set by `_start`
_send: Send | None = None  # of a worker of `map_as_done`


def _start(pickled: bytes, messages: Any) -> None:
    """Start a worker: leave Ctrl-C to the parent, end with the parent, load the function."""
    global _function, _send
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if messages is not None:
        _send = messages.put
    _function = pickle.loads(pickled)  # noqa: S301


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        wait_for_process([parent.sentinel])
        os._exit(1)


def _call(part: Any) -> Any:
    return _function(part) if _send is None else _function(part, _send)
