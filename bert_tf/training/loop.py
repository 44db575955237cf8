"""The training loop, built on `strategy.run`.

step.py defines one step, batch_runner.py runs a model over data without training it. This file runs many
steps per call, and handles checkpoints, logs and early ends.

Keras' `fit` is not used: under `tf.distribute` it breaks with gradient accumulation, several steps per
call and several workers. The models are ordinary Keras models that notebooks can compile and fit.
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
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.modeling.inference_layout import check_no_kept_kernels
from bert_tf.training import checkpoints, failures
from bert_tf.training.adam_by_path import AdamByPath
from bert_tf.training.batch_runner import BatchRunner
from bert_tf.training.checkpoints import folder_lock
from bert_tf.training.losses import Loss
from bert_tf.training.progress import MetricsLog, Progress, Speed, values_to_show
from bert_tf.training.step import LossScale, TrainStep, sum_of_replicas
from bert_tf.training.strategy import distribute, is_chief, is_multi_worker

logger = logging.getLogger(__name__)

_SECONDS_PER_CALL = 2.0
_STEPS_OF_WORKERS = 10  # per call, if several processes train
_LAST_VALUES = ("learning_rate", "loss_scale")  # of the last step of a call, not the mean

Tensors = Mapping[str, Any]


class StopTraining(Exception):
    """Raised by an evaluation to end training; `results` are its metrics."""

    def __init__(self, results: Mapping[str, float]):
        super().__init__("Training ends early.")
        self.results = results


class TrainLoop:
    """Training and evaluation of one model.

    Args:
        model: Keras model, dict of tensors in, dict of tensors out. Made under `strategy.scope()`.
        losses: terms whose sum is minimised.
        input_names: features that the model takes. Absent ones are skipped; the other features are
            labels and weights.
        optimizer: None for a model that is only evaluated. Made under `strategy.scope()`.
        gradient_accumulation_steps: parts that a replica computes one after the other, to save memory.
            The step is the same as that of the whole batch.
        seed: of dropout.
        jit_compile: "auto" compiles the element-wise parts on CPUs, and forward and backward as a
            whole on GPUs; "true": as a whole everywhere; "false": nothing.

    Raises:
        ValueError: environment variables make TensorFlow treat weights as constants; see also
            `TrainStep`.
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
    ):
        check_no_kept_kernels()
        self.model = model
        self.losses = tuple(losses)
        self.strategy = strategy
        self.optimizer: Any = optimizer
        self._step: Any = None  # a TrainStep, if there is an optimizer
        if optimizer is not None:
            with strategy.scope():
                optimizer.build(model.trainable_variables)
                self._step = TrainStep(
                    model,
                    losses,
                    optimizer,
                    strategy,
                    input_names=input_names,
                    gradient_accumulation_steps=gradient_accumulation_steps,
                    seed=seed,
                    jit_compile=jit_compile,
                )
        self._train_steps = tf.function(self._loop)
        self._runner = BatchRunner(model, strategy, input_names)
        self._restored_step = 0

    @property
    def step(self) -> int:
        """Optimizer steps taken."""
        if self.optimizer is None:
            return self._restored_step
        return int(self.optimizer.iterations.numpy())

    def resume(self, source: str) -> int | None:
        """Restore a checkpoint; return its step, or None without one.

        Args:
            source: folder, for its latest checkpoint, or the path of a `model.ckpt-N`.
        """
        prefix = checkpoints.find_checkpoint(source)
        if prefix is None:
            return None
        named = self._variables()
        checkpoints.restore_checkpoint(prefix, named, optional=LossScale.NAMES)
        self._restored_step = checkpoints.checkpoint_step(prefix)
        what = "Loaded step" if self.optimizer is None else "Resumed at step"
        logger.info("%s %d from %s", what, self.step, prefix)
        return self.step

    def _variables(self) -> dict[str, Any]:
        """Return the content of a checkpoint, by name."""
        named = checkpoints.training_variables(self.model, self.optimizer)
        if self._step is not None and self._step.loss_scale is not None:
            named |= self._step.loss_scale.variables
        return named

    @property
    def is_chief(self) -> bool:
        """True if this process writes files; exactly one of several workers does."""
        return is_chief(self.strategy)

    def save(self, directory: str, keep_max: int = 5) -> str | None:
        """Write `model.ckpt-<step>` into `directory` if chief; return its prefix, else None."""
        if not self.is_chief:
            return None
        return checkpoints.save_checkpoint(directory, self._variables(), self.step, keep_max)

    def train(
        self,
        dataset_from: Callable[[int], tf.data.Dataset],
        num_train_steps: int,
        *,
        output_dir: str,
        save_checkpoints_steps: int = 1000,
        max_steps_per_loop: int = 1000,
        keep_checkpoint_max: int = 5,
        evaluate: Callable[[], Mapping[str, float]] | None = None,
        evaluate_steps: int = 0,
        evaluate_first: bool = False,
        tensorboard: bool = False,
        speed: Speed | None = None,
    ) -> None:
        """Train up to `num_train_steps`, from the current step.

        Args:
            dataset_from: step -> endless dataset of global batches from that step on.
            num_train_steps: total optimizer steps, including those before a resume.
            output_dir: for `model.ckpt-N` and `metrics.jsonl`.
            save_checkpoints_steps: optimizer steps between checkpoints, which are written while training
                continues. The last step is always saved.
            max_steps_per_loop: most steps per call. A call takes about two seconds, so that the loss is
                seen often.
            keep_checkpoint_max: number of checkpoints to keep; 0 keeps all.
            evaluate: called without arguments every `evaluate_steps`. Its metrics go to `metrics.jsonl`.
                It may raise `StopTraining`.
            evaluate_steps: optimizer steps between evaluations; 0 means never. The last step is not
                evaluated.
            evaluate_first: also evaluate the current step, because an earlier process ended before it
                had. All workers do if it is True in one of them.
            tensorboard: also write the content of `metrics.jsonl` as events for TensorBoard.
            speed: converts seconds per step into the speeds to log.

        Raises:
            FloatingPointError: the loss is not finite.
            ResourceExhaustedError: a step needs more memory.
            SystemExit: this process or another worker received SIGTERM. The current step is saved.
            KeyboardInterrupt: the same after Ctrl-C; at once after a second one.
            ValueError: another process trains in `output_dir`.
        """
        if self.step >= num_train_steps:
            is_beyond = self.step > num_train_steps  # another folder or other data, by mistake
            logger.log(
                logging.WARNING if is_beyond else logging.INFO,
                "Nothing to train: the checkpoint has step %d, and the training ends at %d",
                *(self.step, num_train_steps),
            )
            return
        iterator = self._iterator(dataset_from)
        progress = Progress("train", num_train_steps)
        pauses = [save_checkpoints_steps, *([evaluate_steps] if evaluate_steps else [])]
        together = is_multi_worker(self.strategy)
        loop_size = 1
        with (
            self._output(output_dir, tensorboard, keep_checkpoint_max) as (log, saver),
            noticing_signals() as received,
        ):
            if self._is_any(evaluate_first) and self._ends_with(evaluate, log):
                num_train_steps = self.step
            while self.step < num_train_steps:
                until_pause = min(period - self.step % period for period in pauses)
                steps = min(loop_size, until_pause, num_train_steps - self.step)
                start, first = time.monotonic(), self.step + 1
                try:
                    values, lost_at, is_told = self.take_steps(iterator, steps, bool(received))
                except tf.errors.OpError as error:
                    self._step.raise_with_remedy(error, first, speed and speed.batch_size)
                seconds_per_step = (time.monotonic() - start) / steps
                loop_size = max(
                    1, int(min(max_steps_per_loop, _SECONDS_PER_CALL / seconds_per_step))
                )
                if together:  # all workers need the same calls, but their clocks differ
                    loop_size = min(max_steps_per_loop, _STEPS_OF_WORKERS)
                if lost_at is not None:
                    failures.raise_lost_weights(values, lost_at, saver)
                if log is not None:
                    if speed is not None:
                        values |= speed.values(seconds_per_step, values["tokens"])
                    log.write("train", self.step, values, self._step.rates(first))
                    progress.update(self.step, values_to_show(values))
                is_last = self.step == num_train_steps
                is_saved = is_last or self.step % save_checkpoints_steps == 0
                if saver is not None and is_saved:
                    saver.save(self._variables(), self.step)
                is_due = evaluate_steps and self.step % evaluate_steps == 0
                if is_due and not is_last and self._ends_with(evaluate, log):
                    num_train_steps = self.step
                    if saver is not None and not is_saved:
                        saver.save(self._variables(), self.step)
                    is_saved = True
                if is_told or (received and not together):
                    if saver is not None:
                        if not is_saved:
                            saver.save(self._variables(), self.step)
                        saver.wait()
                    self._end(output_dir, received)
        # Waits for the chief, which may still be writing a checkpoint.
        if self._is_any(bool(received)):
            self._end(output_dir, received)

    def _end(self, output_dir: str, received: Sequence[int]) -> None:
        """End the process after these signals to it, or to another worker."""
        saved: str | None = f"the checkpoint of worker 0 at step {self.step}"
        if self.is_chief:
            saved = checkpoints.latest_checkpoint(output_dir)
        remedy = f"Run the same command again to resume from {saved}."
        if signal.SIGINT in received:
            raise KeyboardInterrupt(remedy)
        logger.warning("Ended. %s", remedy)
        raise SystemExit(128 + signal.SIGTERM)

    def _ends_with(
        self, evaluate: Callable[[], Mapping[str, float]] | None, log: MetricsLog | None
    ) -> bool:
        """Evaluate the current step and log the metrics. Return True if training ends with it."""
        if evaluate is None:
            return False
        is_end = False
        try:
            results = evaluate()
        except StopTraining as stop:
            results, is_end = stop.results, True
        if log is not None:
            log.write("eval", self.step, results)
        _return_freed_memory()
        return is_end

    def _iterator(self, dataset_from: Callable[[int], tf.data.Dataset]) -> Iterator:
        return iter(distribute(self.strategy, dataset_from(self.step)))

    @contextmanager
    def _output(self, output_dir: str, tensorboard: bool, keep_checkpoint_max: int):
        """Yield the log and the checkpoint writer, or None and None if not chief."""
        if not self.is_chief:
            yield None, None
            return
        tf.io.gfile.makedirs(output_dir)
        with folder_lock(output_dir):
            saver = checkpoints.BackgroundSaver(output_dir, keep_checkpoint_max)
            try:
                yield MetricsLog(output_dir, tensorboard), saver
            finally:
                saver.wait()

    def take_steps(
        self, iterator, steps: int, is_terminated: bool = False
    ) -> tuple[dict[str, float], int | None, bool]:
        """Take `steps` steps in one call of the compiled function, without the other work of `train`.

        Args:
            iterator: of a distributed data set.
            is_terminated: True if this worker received a signal to end; the other workers learn of it.

        Returns:
            The means of the reported values (of rate and loss scale the last value); the first step
            whose loss or gradient was not finite, or None; whether any worker received a signal.
        """
        values, lost_at, told = self._train_steps(
            iterator, tf.constant(steps), tf.constant(float(is_terminated))
        )
        values = {name: float(value) for name, value in values.items()}
        return values, int(lost_at) if lost_at >= 0 else None, bool(told > 0)

    def predict(self, dataset: tf.data.Dataset, outputs_of, batch_size: int, **kwargs):
        """Concatenate the batches of `BatchRunner.batches`: name -> array [examples, ...]."""
        parts: dict[str, list[np.ndarray]] = {}
        for batch in self._runner.batches(dataset, outputs_of, batch_size, **kwargs):
            for name, value in batch.items():
                parts.setdefault(name, []).append(value)
        return {name: np.concatenate(arrays) for name, arrays in parts.items()}

    def _loop(self, iterator, num_steps, told_to_end):
        """Take `num_steps` steps; see `take_steps`."""
        optimizer: Any = self.optimizer
        # Nothing in a step is Python that AutoGraph must translate, which takes seconds.
        take = tf.autograph.experimental.do_not_convert(self._step.take)
        sums = {name: tf.constant(0.0) for name in self._step.reported}
        lost_at = tf.constant(-1, tf.int64)
        for _ in tf.range(num_steps):
            values = self.strategy.run(take, args=(next(iterator),))
            first = {
                name: self.strategy.experimental_local_results(value)[0]
                for name, value in values.items()
            }
            is_lost = ~tf.math.is_finite(first["loss"] + first["gradient_norm"])
            step = tf.cast(optimizer.iterations.value, tf.int64)
            lost_at = tf.where(tf.logical_and(lost_at < 0, is_lost), step, lost_at)
            sums = {n: first[n] if n in _LAST_VALUES else sums[n] + first[n] for n in sums}
        told = told_to_end
        if is_multi_worker(self.strategy):
            told = self.strategy.run(lambda: sum_of_replicas(tf.identity(told_to_end)))
            told = self.strategy.experimental_local_results(told)[0]
        count = tf.cast(num_steps, tf.float32)
        means = {n: total if n in _LAST_VALUES else total / count for n, total in sums.items()}
        return means, lost_at, told

    def _is_any(self, flag: bool) -> bool:
        """Return True if `flag` is True in any of the processes; wait for all of them."""
        if not is_multi_worker(self.strategy):
            return flag

        @tf.function
        def meet():
            return self.strategy.run(lambda: sum_of_replicas(tf.constant(float(flag))))

        return bool(self.strategy.experimental_local_results(meet())[0] > 0)


def _return_freed_memory() -> None:
    """Return freed memory to the system, if the C library is glibc.

    glibc keeps freed tensors of up to 32 MB, in pieces that later tensors seldom fit. Without this
    call, the resident memory grows with each evaluation.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


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
