"""A function over many parts of work, in this process or in several."""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Any, TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")

_AHEAD = 4  # parts per worker whose results are not taken yet


def map_in_order(
    function: Callable[[Part], Result], parts: Iterable[Part], num_workers: int
) -> Iterator[Result]:
    """Yield `function(part)` in input order, regardless of `num_workers`.

    Args:
        function: picklable; each worker loads it once and imports its module, which takes seconds if
            that imports TensorFlow.
        parts: picklable; taken when they are needed.
        num_workers: processes; 1 is this one. They end when this process ends for any reason, when a
            part fails, and when no more results are taken. Python imports the main script in each of
            them, so it needs `if __name__ == "__main__":`.

    Raises:
        Exception: an exception of `function`.
        RuntimeError: a worker was killed, for example because memory ran out.
    """
    if num_workers <= 1:
        yield from map(function, parts)
        return
    context = multiprocessing.get_context("spawn")  # TensorFlow does not survive a fork
    ours, theirs = context.Pipe()
    pool = ProcessPoolExecutor(num_workers, context, _start, (theirs,))
    pickled = pickle.dumps(function)
    parts, waiting = iter(parts), deque[Future]()
    try:
        while True:
            for part in itertools.islice(parts, _AHEAD * num_workers - len(waiting)):
                waiting.append(pool.submit(_call, pickled, part))
            if not waiting:
                return
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise RuntimeError(
            "A worker process ended: use fewer num_workers if memory ran out. A script needs "
            '`if __name__ == "__main__":`.'
        ) from error
    finally:
        ours.close()  # ends the workers, also within a part
        pool.shutdown(cancel_futures=True)


def usable_cores() -> int:
    """Return the number of processor cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


def _start(parent: Connection) -> None:
    """Start a worker: leave Ctrl-C to the parent, and end when it closes the connection or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Connection) -> None:
    parent.poll(None)
    os._exit(1)


def _call(pickled: bytes, part: Any) -> Any:
    return _load(pickled)(part)


@functools.lru_cache(maxsize=1)
def _load(pickled: bytes) -> Callable[[Any], Any]:
    """Load a function once in each worker, with its caches."""
    return pickle.loads(pickled)  # noqa: S301


_SEQUENCES_PER_WORKER = 100_000  # with fewer, starting a process takes longer than it saves


def workers_for(num_sequences: int) -> int:
    """Return the number of processes that make records: at most one per core."""
    return max(1, min(usable_cores(), num_sequences // _SEQUENCES_PER_WORKER))
