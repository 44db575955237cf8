"""The training loop, built on `strategy.run`: take steps, then log, save and evaluate, and again.

Keras' `fit` is not used: under `tf.distribute` it breaks with gradient accumulation, several steps per
call and several workers.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from bert_tf.checkpoints.tf1 import latest_checkpoint
from bert_tf.modeling.inference import check_no_kept_kernels
from bert_tf.training import checkpoints
from bert_tf.training.losses import Loss
from bert_tf.training.optimizers import AdamByPath
from bert_tf.training.predict_step import PredictStep
from bert_tf.training.progress import MetricsLog, Progress, values_to_show
from bert_tf.training.step import Compilation, LossScale, TrainStep, sum_of_replicas
from bert_tf.training.strategy import distribute, is_chief, is_multi_worker

logger = logging.getLogger(__name__)

_SECONDS_PER_CALL = 2.0
_STEPS_OF_WORKERS = 10  # per call, if several processes train
_LAST_VALUES = ("learning_rate", "loss_scale")  # of the last step of a call, not the mean


@dataclass(frozen=True)
class Call:
    """What one call of the compiled steps has done, up to the step `last`.

    `values` are means of `TrainStep.reported`; of rate and loss scale the last ones.
    """

    last: int
    values: dict[str, float]
    seconds_per_step: float
    stop_requested: bool = False


class Hook:
    """What happens between the calls of `TrainLoop.train`.

    `every`: steps after which a call ends, because the hook has something to do; 0: whenever.
    """

    every = 0

    @contextmanager
    def running(self, loop: TrainLoop) -> Iterator[None]:
        """Begin before the first step; end after the last one, or after an error."""
        yield

    def after(self, loop: TrainLoop, call: Call) -> None:
        """Do the work after a call."""


class TrainLoop:
    """Training of one model, and its predictions.

    Args:
        model: dict of tensors in, dict of tensors out. Made under `strategy.scope()`, as the optimizer.
        gradient_accumulation_steps: parts that a replica computes one after the other, to save memory.
        recompute_grads: keep only the inputs of each layer for the gradients, to save memory. The steps
            are the same and take up to a third longer.

    Attributes:
        last_step: of the training; a hook may lower it to the current step, to end early.
    """

    def __init__(
        self,
        model: keras.Model,
        losses: Sequence[Loss],
        *,
        strategy: tf.distribute.Strategy,
        input_names: Sequence[str],
        optimizer: AdamByPath | None = None,
        gradient_accumulation_steps: int = 1,
        seed: int = 0,
        jit_compile: str = "auto",
        recompute_grads: bool = False,
    ):
        check_no_kept_kernels()
        self.model = model
        self.strategy = strategy
        self.optimizer: Any = optimizer
        self.train_step: Any = None  # a TrainStep, if there is an optimizer
        self.checkpoint: str | None = None
        self.last_step = 0
        if optimizer is not None:
            with strategy.scope():
                optimizer.build(model.trainable_variables)
                self.train_step = TrainStep(
                    model,
                    losses,
                    optimizer,
                    input_names,
                    Compilation.choose(jit_compile, strategy),
                    num_micro_batches=gradient_accumulation_steps,
                    seed=seed,
                    recompute_grads=recompute_grads,
                )
        self._train_steps = tf.function(self._loop)
        self.predict = PredictStep(model, strategy, input_names).run

    @property
    def step(self) -> int:
        """Optimizer steps taken; without an optimizer the step of the checkpoint."""
        if self.optimizer is not None:
            return int(self.optimizer.iterations.numpy())
        return 0 if self.checkpoint is None else checkpoints.checkpoint_step(self.checkpoint)

    @property
    def is_chief(self) -> bool:
        """True if this process writes files; exactly one of several workers does."""
        return is_chief(self.strategy)

    @property
    def variables(self) -> dict[str, Any]:
        """Content of a checkpoint, by name."""
        named = checkpoints.training_variables(self.model, self.optimizer)
        scale = self.train_step and self.train_step.loss_scale
        return named | scale.variables if scale else named

    def resume(self, source: str) -> int | None:
        """Restore a checkpoint, of a folder the latest; return its step, or None without one."""
        is_prefix = tf.io.gfile.exists(source + ".index")
        prefix = source if is_prefix else latest_checkpoint(source)
        if prefix is None:
            return None
        checkpoints.restore_checkpoint(prefix, self.variables, optional=LossScale.NAMES)
        self.checkpoint = prefix
        logger.info("Loaded step %d from %s", self.step, prefix)
        return self.step

    def train(
        self,
        dataset_from: Callable[[int], tf.data.Dataset],
        num_train_steps: int,
        hooks: Sequence[Hook],
        *,
        max_steps_per_call: int = 1000,
    ) -> None:
        """Train up to `num_train_steps`, those before a resume included.

        SIGTERM and Ctrl-C end the process after the current step is saved.

        Args:
            dataset_from: step -> endless dataset of global batches from that step on.
        """
        if self.step >= num_train_steps:
            logger.info("Nothing to train: step %d of %d", self.step, num_train_steps)
            return
        iterator = iter(distribute(self.strategy, dataset_from(self.step)))
        together = is_multi_worker(self.strategy)
        self.last_step, call_size, stop_requested = num_train_steps, 1, False
        with record_signals() as received, contextlib.ExitStack() as stack:
            for hook in hooks:
                stack.enter_context(hook.running(self))
            while self.step < self.last_step and not stop_requested:
                pauses = [hook.every - self.step % hook.every for hook in hooks if hook.every]
                steps = min(call_size, self.last_step - self.step, *pauses)
                call = self.take_steps(iterator, steps, bool(received))
                for hook in hooks:
                    hook.after(self, call)
                call_size = max(1, int(_SECONDS_PER_CALL / call.seconds_per_step))
                if together:  # all workers need the same calls, but their clocks differ
                    call_size = _STEPS_OF_WORKERS
                call_size = min(call_size, max_steps_per_call)
                stop_requested = call.stop_requested or (bool(received) and not together)
        # Waits for the chief, which may still be writing a checkpoint.
        if self.is_any(bool(received)):
            self._end(received)

    def take_steps(self, iterator, steps: int, is_terminated: bool = False) -> Call:
        """Take `steps` steps in one call; tell the other workers if this one `is_terminated`."""
        start = time.monotonic()
        values, first_nonfinite_step, num_stops = self._train_steps(
            iterator, tf.constant(steps), tf.constant(float(is_terminated))
        )
        values = {name: float(value) for name, value in values.items()}
        seconds = (time.monotonic() - start) / steps
        if first_nonfinite_step >= 0:
            raise FloatingPointError(
                f"The loss is {values['loss']} and the norm of its gradient {values['gradient_norm']} "
                f"at step {int(first_nonfinite_step)}. Lower learning_rate, or raise the number of "
                f"warm-up steps. The last checkpoint is {self.checkpoint}."
            )
        return Call(self.step, values, seconds, bool(num_stops > 0))

    def _loop(self, iterator, num_steps, stop_flag):
        """Take steps. Return their values, the first nonfinite step or -1, and whether to stop."""
        # Nothing in a step is Python that AutoGraph must translate, which takes seconds.
        take = tf.autograph.experimental.do_not_convert(self.train_step.take)
        sums = {name: tf.constant(0.0) for name in self.train_step.reported}
        nonfinite = tf.constant(-1, tf.int64)
        for _ in tf.range(num_steps):
            values = self.strategy.run(take, args=(next(iterator),))
            first = {
                name: self.strategy.experimental_local_results(value)[0]
                for name, value in values.items()
            }
            is_finite = tf.math.is_finite(first["loss"] + first["gradient_norm"])
            step = tf.cast(self.optimizer.iterations.value, tf.int64)
            nonfinite = tf.where(tf.logical_and(nonfinite < 0, ~is_finite), step, nonfinite)
            sums = {n: first[n] if n in _LAST_VALUES else sums[n] + first[n] for n in sums}
        num_stops = self._sum_of_workers(stop_flag)
        count = tf.cast(num_steps, tf.float32)
        means = {n: total if n in _LAST_VALUES else total / count for n, total in sums.items()}
        return means, nonfinite, num_stops

    def _sum_of_workers(self, value: tf.Tensor) -> tf.Tensor:
        if not is_multi_worker(self.strategy):
            return value
        total = self.strategy.run(lambda: sum_of_replicas(tf.identity(value)))
        return self.strategy.experimental_local_results(total)[0]

    def is_any(self, flag: bool) -> bool:
        """Return True if `flag` is True in any of the processes; wait for all of them."""
        if not is_multi_worker(self.strategy):
            return flag
        meet = tf.function(lambda: self._sum_of_workers(tf.constant(float(flag))))
        return bool(meet() > 0)

    def _end(self, received: Sequence[int]) -> None:
        """End the process after these signals to it, or to another worker."""
        remedy = f"Run the same command again to resume from step {self.step}."
        if signal.SIGINT in received:
            raise KeyboardInterrupt(remedy)
        logger.warning("Ended. %s", remedy)
        raise SystemExit(128 + signal.SIGTERM)


# ---- What happens between the calls, in this order: log, save, evaluate


class LogHook(Hook):
    """Append each call to `metrics.jsonl`, and show it in the progress line.

    With a `batch_size` the speed too; FLOPs are those of modeling/bert.py.
    """

    def __init__(self, log: MetricsLog, batch_size: int = 0, flops_per_token: float = 0.0):
        self._log, self._batch_size, self._flops_per_token = log, batch_size, flops_per_token

    @contextmanager
    def running(self, loop: TrainLoop) -> Iterator[None]:
        self._progress = Progress("train", loop.last_step)
        yield

    def after(self, loop: TrainLoop, call: Call) -> None:
        if not loop.is_chief:
            return
        values = dict(call.values)
        if self._batch_size:
            per_second = values["tokens"] / call.seconds_per_step
            values["sequences_per_second"] = self._batch_size / call.seconds_per_step
            values["tokens_per_second"] = per_second
            values["gflops_per_second"] = per_second * self._flops_per_token / 1e9
        self._log.write("train", call.last, values)
        self._progress.update(call.last, values_to_show(values))


class CheckpointHook(Hook):
    """Write `model.ckpt-N` at every multiple of `every` and at the end, while training continues."""

    def __init__(self, folder: str, every: int = 1000, keep_max: int = 5):
        self.every = every
        self._folder = folder
        self._saver = checkpoints.BackgroundSaver(folder, keep_max)

    @contextmanager
    def running(self, loop: TrainLoop) -> Iterator[None]:
        self._saved_step = loop.step
        if not loop.is_chief:
            yield
            return
        with checkpoints.folder_lock(self._folder):
            try:
                yield
                self._save(loop)
            finally:
                self._saver.wait()

    def after(self, loop: TrainLoop, call: Call) -> None:
        if loop.is_chief and call.last % self.every == 0:
            self._save(loop)

    def _save(self, loop: TrainLoop) -> None:
        if loop.step != self._saved_step:
            loop.checkpoint = self._saver.save(loop.variables, loop.step)
            self._saved_step = loop.step


class EvaluationHook(Hook):
    """Evaluate at multiples of `every`, but not at the last step; keep the best weights; maybe end."""

    def __init__(
        self,
        log: MetricsLog,
        evaluate: Callable[[], Mapping[str, float]] | None = None,
        every: int = 0,
        best: Any = None,
    ):
        self.every = every
        self._log = log
        self._evaluate: Any = evaluate
        self._best = best
        self._last: tuple[int, Mapping[str, float]] | None = None

    @contextmanager
    def running(self, loop: TrainLoop) -> Iterator[None]:
        """Evaluate first if an earlier process ended before it had; all workers if one finds that."""
        best, step = self._best, loop.step
        is_due = best is not None and not best.is_new_run and step % self.every == 0
        if loop.is_any(is_due and not best.has_seen(step)):
            self._take(loop)
        yield

    def after(self, loop: TrainLoop, call: Call) -> None:
        if self.every and call.last % self.every == 0 and call.last < loop.last_step:
            self._take(loop)

    def _take(self, loop: TrainLoop) -> None:
        results = self._evaluate()
        self._last = loop.step, results
        self._best.offer(results, loop)
        if loop.is_chief:
            self._log.write("eval", loop.step, results)
        if self._best.is_over:
            logger.warning(
                "Training ends at step %d: the last %d evaluations were not better than the best one, "
                "whose weights are in %s",
                *(loop.step, self._best.patience, self._best.folder),
            )
            loop.last_step = loop.step
        _return_freed_memory()

    def finish(self, loop: TrainLoop) -> Mapping[str, float] | None:
        """Return the metrics of the last step, None without any; evaluate if it can be the best."""
        if self._last is not None and self._last[0] == loop.step:
            return self._last[1]
        if self._best is None:
            return None
        results, is_new = self._evaluate(), not self._best.has_seen(loop.step)
        self._best.offer(results, loop)
        if is_new and loop.is_chief:
            self._log.write("eval", loop.step, results)
        return results


def _return_freed_memory() -> None:
    """Return freed memory to the system: glibc keeps tensors of up to 32 MB, in pieces."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


_SAVING = b"\nFinishing and saving this step. Ctrl-C again ends at once, without saving.\n"


@contextmanager
def record_signals() -> Iterator[list[int]]:
    """Record SIGTERM and the first Ctrl-C within the block, if this is the main thread."""
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
