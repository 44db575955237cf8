"""Groups one after the other, or in processes of their own."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from bert_tf.data import parallel
from bert_tf.workflows.pretraining_group import GroupJob, GroupResult, RecordSettings, make_group

logger = logging.getLogger(__name__)

# Number of the group, share that is done, instances made.
Report = Callable[[int, float, int], None]

_SECONDS_BETWEEN_REPORTS = 0.2


def run_in_turn(
    jobs: Sequence[GroupJob], settings: RecordSettings, report: Report
) -> Iterator[GroupResult]:
    """One group at a time, in this process."""
    for job in jobs:
        result = make_group(job, settings, _throttled(job.number, report))
        report(job.number, 1.0, result.done.counts.instances)
        yield result


def run_in_processes(
    jobs: Sequence[GroupJob], settings: RecordSettings, report: Report, num_workers: int
) -> Iterator[GroupResult]:
    """`num_workers` groups at a time, in new processes; results in the order in which they end.

    When the first fails, the others are stopped. The workers end with this process, however it ends.

    Raises:
        Exception: what a worker raised.
        RuntimeError: a worker was killed, for example because memory ran out.
    """
    context = multiprocessing.get_context("spawn")  # TensorFlow does not survive a fork
    messages = context.Queue()
    pool = ProcessPoolExecutor(
        num_workers, mp_context=context, initializer=parallel.start_worker, initargs=(messages,)
    )
    try:
        waiting = {pool.submit(_work, job, settings) for job in jobs}
        while waiting:
            done, _ = wait(waiting, _SECONDS_BETWEEN_REPORTS, FIRST_COMPLETED)
            while not messages.empty():
                report(*messages.get())
            for future in done:
                waiting.remove(future)
                result = future.result()
                report(result.done.number, 1.0, result.done.counts.instances)
                yield result
    except BrokenProcessPool as error:
        raise RuntimeError(
            "A worker process was killed, perhaps because memory ran out. What is complete stays: run "
            "the same command again, with fewer --num_workers."
        ) from error
    finally:
        for process in list((pool._processes or {}).values()):
            process.kill()
        pool.shutdown(wait=True, cancel_futures=True)


def _work(job: GroupJob, settings: RecordSettings) -> GroupResult:
    return make_group(
        job, settings, _throttled(job.number, lambda *values: parallel.messages.put(values))
    )


def _throttled(number: int, report: Report) -> Callable[[float, int], None]:
    """Reports of one group, at most a few per second."""
    last = 0.0

    def on_progress(share: float, instances: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _SECONDS_BETWEEN_REPORTS:
            last = now
            report(number, share, instances)

    return on_progress
