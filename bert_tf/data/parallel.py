"""Parallel map over parts of work, in this process or in several, with results in order."""

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

from bert_tf.quiet import import_tensorflow

Part = TypeVar("Part")
Result = TypeVar("Result")

_AHEAD = 4  # parts per worker that are running, or done and not yet consumed


def map_in_order(
    function: Callable[[Part], Result], parts: Iterable[Part], num_workers: int
) -> Iterator[Result]:
    """Yield `function(part)` in the order of the parts, for any number of workers.

    Args:
        function: picklable, sent to each worker once. Workers import its module, which takes seconds
            if that imports TensorFlow. They cannot import `__main__`.
        parts: picklable, consumed as needed.
        num_workers: processes; 1 is this one.

    Raises:
        Exception: raised by `function`.
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
    """As `map_in_order`, with results as they come, messages, and TensorFlow in the workers.

    Args:
        function: of a part and a function that sends a message (it can be pickled) to this process.
            TensorFlow is loaded first, without the messages of its start.
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
    """The results of the workers: in order without `on_message`, else as they come."""
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
    """Hide `__main__`, which multiprocessing would import in new processes, with TensorFlow."""
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
    except AttributeError:  # missing on macOS and Windows
        return os.cpu_count() or 1


messages: Any = None  # in a worker, the queue for its reports


def start_worker(queue: Any) -> None:
    """Set up a worker that needs TensorFlow: keep the queue for reports, and import it quietly."""
    global messages
    messages = queue
    end_with_parent()
    import_tensorflow(find_devices=False)


def end_with_parent() -> None:
    """Make a worker ignore Ctrl-C and exit whenever the first process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if messages is not None:
        import_tensorflow(find_devices=False)
        _send = messages.put
    _function = pickle.loads(pickled)  # noqa: S301


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        wait_for_process([parent.sentinel])
        os._exit(1)


_function: Any = None  # in a worker, set by `_keep`


def _keep(function: Callable[[Any], Any]) -> None:
    global _function
    end_with_parent()
    _function = function


def _call(part: Any) -> Any:
    return _function(part) if _send is None else _function(part, _send)
