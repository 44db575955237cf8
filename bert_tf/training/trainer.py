"""One loop for everything that trains, on `strategy.run`.

A step: forward and backward on each replica's part of the global batch, sums over all replicas,
clipping by the global norm, one optimizer update. The loss is the mean over the global batch
(losses.py). Dropout is a function of (seed, step, replica), so only the step has to be saved.

Keras' `fit` is not used, because under `tf.distribute` it breaks with gradient accumulation, several
steps per call and several workers; the models are ordinary Keras models all the same, and can be
compiled and fitted in a notebook.
"""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.modeling.dropout import dropout_seed, fold_in
from bert_tf.modeling.fused import fused_parts
from bert_tf.training import checkpoints
from bert_tf.training.losses import Loss
from bert_tf.training.progress import MetricsLog, Progress
from bert_tf.training.strategy import is_chief, is_multi_worker

logger = logging.getLogger(__name__)

_SECONDS_PER_CALL = 2.0
_STEPS_OF_WORKERS = 10  # of a call, where several processes train

Tensors = Mapping[str, Any]


class Trainer:
    """Trains one model, and evaluates it.

    Args:
        model: Keras model, dict of tensors in, dict of tensors out. Made under `strategy.scope()`.
        losses: terms whose sum is minimised.
        strategy: where it runs.
        input_names: features that the model takes; the others are labels and weights.
        optimizer: None for a model that is only evaluated. Made under `strategy.scope()`.
        max_gradient_norm: gradients are scaled down to this global norm; the reference's is 1.0.
        gradient_accumulation_steps: parts into which a replica cuts its share of the batch, one after
            the other in memory. The step is that of the whole batch all the same.
        seed: of dropout.
    """

    def __init__(
        self,
        model: keras.Model,
        losses: Sequence[Loss],
        *,
        strategy: tf.distribute.Strategy,
        input_names: Sequence[str],
        optimizer: keras.optimizers.Optimizer | None = None,
        max_gradient_norm: float = 1.0,
        gradient_accumulation_steps: int = 1,
        seed: int = 0,
        fused: bool = True,
    ):
        if gradient_accumulation_steps < 1:
            raise ValueError(
                f"`gradient_accumulation_steps` is {gradient_accumulation_steps}, but must be 1 or "
                "more."
            )
        self.model = model
        self.losses = tuple(losses)
        self.strategy = strategy
        self.input_names = tuple(input_names)
        self.optimizer = optimizer
        self.max_gradient_norm = max_gradient_norm
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.seed = seed % 2**32
        self.fused = fused
        if optimizer is not None:
            with strategy.scope():
                optimizer.build(model.trainable_variables)
        self._train_steps = tf.function(self._loop)
        self._predict_steps: dict[Callable, Callable] = {}
        self._restored_step = 0

    @property
    def step(self) -> int:
        """Optimizer steps taken."""
        if self.optimizer is None:
            return self._restored_step
        return int(self.optimizer.iterations.numpy())

    def resume(self, directory: str) -> int | None:
        """Restores the latest checkpoint of `directory`; its step, or None if there is none."""
        prefix = checkpoints.latest_checkpoint(directory)
        if prefix is None:
            return None
        named = checkpoints.training_variables(self.model, self.optimizer)
        checkpoints.restore_checkpoint(prefix, named)
        self._restored_step = checkpoints.checkpoint_step(prefix)
        logger.info("Resumed at step %d from %s", self.step, prefix)
        return self.step

    @property
    def is_chief(self) -> bool:
        """Whether this process writes files; with several workers one does."""
        return is_chief(self.strategy)

    def save(self, directory: str, keep_max: int = 5) -> str | None:
        """Writes `model.ckpt-<step>` into `directory`; its prefix. Only the chief does."""
        if not self.is_chief:
            return None
        named = checkpoints.training_variables(self.model, self.optimizer)
        return checkpoints.save_checkpoint(directory, named, self.step, keep_max)

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
        tensorboard: bool = False,
    ) -> None:
        """Trains up to `num_train_steps`, from the current step.

        Args:
            dataset_from: step -> endless dataset of global batches from that step on.
            num_train_steps: optimizer steps in all, those before a resume included.
            output_dir: for `model.ckpt-N` and `metrics.jsonl`.
            save_checkpoints_steps: optimizer steps between checkpoints; the last is always saved.
            max_steps_per_loop: several steps run in one call, as many as take about two seconds, so
                that the loss is seen often; never more than this.
            keep_checkpoint_max: checkpoints that stay.
            evaluate: called without arguments every `evaluate_steps`; its figures go to
                `metrics.jsonl`.
            evaluate_steps: optimizer steps between evaluations while there is more to train; 0 means
                never.
            tensorboard: write what goes to `metrics.jsonl` as events for TensorBoard as well.

        Raises:
            FloatingPointError: the loss is no longer finite; the message names the step.
            SystemExit: the process was told to end (SIGTERM); the step it had come to is saved.
        """
        if self.step >= num_train_steps:
            logger.info("Nothing to train: %d of %d steps are done", self.step, num_train_steps)
            return
        iterator = iter(self.strategy.experimental_distribute_dataset(dataset_from(self.step)))
        progress = Progress("train", num_train_steps)
        log = None
        if self.is_chief:
            tf.io.gfile.makedirs(output_dir)
            log = MetricsLog(output_dir, tensorboard)
        together = is_multi_worker(self.strategy)
        loop_size = 1
        with _noticing_sigterm(ignored=together) as is_terminated:
            while self.step < num_train_steps:
                pauses = [period for period in (save_checkpoints_steps, evaluate_steps) if period]
                until_pause = min(period - self.step % period for period in pauses)
                steps = min(loop_size, until_pause, num_train_steps - self.step)
                start = time.monotonic()
                values = self._train_steps(iterator, tf.constant(steps))
                values = {name: float(value) for name, value in values.items()}
                seconds_per_step = (time.monotonic() - start) / steps
                loop_size = max(
                    1, int(min(max_steps_per_loop, _SECONDS_PER_CALL / seconds_per_step))
                )
                if together:  # the same calls from all, whose clocks differ
                    loop_size = min(max_steps_per_loop, _STEPS_OF_WORKERS)
                self._refuse_lost_weights(values, output_dir)
                if log is not None:
                    log.write("train", self.step, values)
                    progress.update(self.step, values)
                if self.step % save_checkpoints_steps == 0 or self.step == num_train_steps:
                    self.save(output_dir, keep_checkpoint_max)
                if self.step == num_train_steps:
                    break
                if evaluate_steps and self.step % evaluate_steps == 0:
                    results = evaluate()
                    if log is not None:
                        log.write("eval", self.step, results)
                if is_terminated():
                    prefix = self.save(output_dir, keep_checkpoint_max)
                    logger.warning("Terminated. The same command goes on from %s.", prefix)
                    raise SystemExit(128 + signal.SIGTERM)
        if together:
            self._wait_for_workers()

    def _refuse_lost_weights(self, values: Mapping[str, float], output_dir: str) -> None:
        """A finite loss may have a gradient that is not, and then the new weights are lost."""
        if math.isfinite(values["loss"] + values["gradient_norm"]):
            return
        saved = checkpoints.latest_checkpoint(output_dir)
        before = f"{saved} is from before." if saved else "No checkpoint was written before."
        raise FloatingPointError(
            f"The loss is {values['loss']} and the norm of its gradient {values['gradient_norm']} at "
            f"step {self.step}. Lower --learning_rate, or raise the number of warm-up steps. {before}"
        )

    def predict(self, dataset: tf.data.Dataset, outputs_of, batch_size: int, **kwargs):
        """What `predict_batches` yields, concatenated: name -> array [examples, ...]."""
        parts: dict[str, list[np.ndarray]] = {}
        for batch in self.predict_batches(dataset, outputs_of, batch_size, **kwargs):
            for name, value in batch.items():
                parts.setdefault(name, []).append(value)
        return {name: np.concatenate(arrays) for name, arrays in parts.items()}

    def predict_batches(
        self,
        dataset: tf.data.Dataset,
        outputs_of: Callable[[Tensors, Tensors], Tensors],
        batch_size: int,
        label: str = "eval",
        max_batches: int | None = None,
    ) -> Iterator[dict[str, np.ndarray]]:
        """Runs the model over `dataset` once.

        Args:
            dataset: of known cardinality; batches of at most `batch_size` examples.
            outputs_of: (model outputs, features) -> tensors [B, ...] to keep.
            batch_size: every batch is filled up to a multiple of the number of replicas that is at
                least this, so that shapes are static; what was filled in is left out of the result.
            label: of the progress line.
            max_batches: stop after so many.

        Yields:
            name -> array [examples of the batch, ...], in the order of the dataset.
        """
        if max_batches is not None:
            dataset = dataset.take(max_batches)
        replicas = self.strategy.num_replicas_in_sync
        filled_size = -(-batch_size // replicas) * replicas
        filled = dataset.map(lambda features: _fill(features, filled_size))

        predict_step = self._predict_step(outputs_of)
        progress = Progress(label, int(dataset.cardinality()), unit="batches")
        batches = self.strategy.experimental_distribute_dataset(filled)
        for number, (features, is_real) in enumerate(batches, start=1):
            outputs, is_real = predict_step(features, is_real)
            keep = self._gather(is_real).astype(bool)
            yield {name: self._gather(value)[keep] for name, value in outputs.items()}
            if self.is_chief:
                progress.update(number)

    def _predict_step(self, outputs_of: Callable[[Tensors, Tensors], Tensors]) -> Callable:
        """The compiled step of `predict_batches`, kept so that each evaluation does not trace anew."""
        if outputs_of not in self._predict_steps:

            def replica(features, is_real):
                outputs = self.model(self._inputs(features), training=False)
                # Numbers, because workers cannot exchange truth values.
                kept = dict(outputs_of(outputs, features)), tf.cast(is_real, tf.int32)
                if not is_multi_worker(self.strategy):
                    return kept
                workers = tf.distribute.get_replica_context()
                return tf.nest.map_structure(lambda part: workers.all_gather(part, axis=0), kept)

            self._predict_steps[outputs_of] = tf.function(
                lambda *args: self.strategy.run(replica, args=args), reduce_retracing=True
            )
        return self._predict_steps[outputs_of]

    def _gather(self, value) -> np.ndarray:
        """The parts of all replicas, in order."""
        parts = self.strategy.experimental_local_results(value)
        if is_multi_worker(self.strategy):
            parts = parts[:1]  # each holds those of all already
        return np.concatenate([part.numpy() for part in parts])

    def _inputs(self, features: Tensors) -> dict[str, Any]:
        return {name: features[name] for name in self.input_names}

    def _loop(self, iterator, num_steps):
        """`num_steps` steps; the means of what each of them says."""
        names = ["loss"] + [loss.name for loss in self.losses if loss.name != "loss"]
        names += [loss.accuracy for loss in self.losses if loss.accuracy]
        names += ["gradient_norm", "learning_rate"]
        sums = {name: tf.constant(0.0) for name in names}
        for _ in tf.range(num_steps):
            values = self.strategy.run(self._replica_step, args=(next(iterator),))
            first = {
                name: self.strategy.experimental_local_results(value)[0]
                for name, value in values.items()
            }
            sums = {name: sums[name] + first[name] for name in names}
        return {name: total / tf.cast(num_steps, tf.float32) for name, total in sums.items()}

    def _replica_step(self, features: Tensors) -> dict[str, tf.Tensor]:
        replica = tf.distribute.get_replica_context()
        seed = fold_in(
            fold_in(tf.constant(self.seed, tf.uint32), self.optimizer.iterations.value),
            replica.replica_id_in_sync_group,
        )
        weights = {loss.name: self._sum(loss.weight(features)) for loss in self.losses}
        gradients, terms, used = self._accumulate(features, weights, seed)
        gradients = [self._sum(gradient) for gradient in gradients]
        norm = global_norm(gradients)
        scale = self.max_gradient_norm / tf.maximum(norm, self.max_gradient_norm)
        rate = tf.convert_to_tensor(self.optimizer.learning_rate)  # before the step is counted
        if isinstance(self.strategy, tf.distribute.OneDeviceStrategy):
            self.optimizer.apply_at_once(gradients, used, scale)
        else:
            # Keras' optimizers add up the replicas' gradients once more; each holds the whole sum.
            share = scale / replica.num_replicas_in_sync
            self.optimizer.apply([g * share for g in gradients], used)
        values = {name: self._sum(term) for name, term in terms.items()}
        loss = tf.add_n([values[loss.name] for loss in self.losses])
        return {"loss": loss, **values, "gradient_norm": norm, "learning_rate": rate}

    def _accumulate(self, features: Tensors, weights: Tensors, seed) -> tuple[list, dict, list]:
        """`_gradients` of all examples of a replica, in as many parts as were asked for."""
        parts = self.gradient_accumulation_steps
        if parts == 1:
            return self._gradients(features, weights, seed)

        def part(index):
            piece = {name: _part_of(value, index, parts) for name, value in features.items()}
            return self._gradients(piece, weights, fold_in(seed, index))

        gradients, terms, used = part(tf.constant(0))

        def add_part(index, sums):
            return index + 1, tf.nest.map_structure(tf.add, sums, part(index)[:2])

        _, (gradients, terms) = tf.while_loop(
            lambda index, _: index < parts,
            add_part,
            (tf.constant(1), (gradients, terms)),
            parallel_iterations=1,  # one part in memory at a time
        )
        return gradients, terms, used

    def _gradients(self, features: Tensors, weights: Tensors, seed) -> tuple[list, dict, list]:
        """Gradients of some examples' share of the loss, its terms, and the variables it depends on.

        Args:
            weights: name of the loss -> sum of the weights over the global batch.
        """
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape, dropout_seed(seed), fused_parts(self.fused):
            outputs = self.model(self._inputs(features), training=True)
            terms = self._terms(outputs, features, weights)
            objective = tf.add_n([terms[loss.name] for loss in self.losses])
        gradients = tape.gradient(objective, [variable.value for variable in variables])
        found = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]
        # A row of the word embeddings that several tokens share is summed before it is squared.
        return [tf.convert_to_tensor(g) for g, _ in found], terms, [v for _, v in found]

    def _terms(self, outputs: Tensors, features: Tensors, weights: Tensors) -> dict[str, Any]:
        """What these examples add to each loss, and to each accuracy, of the global batch."""
        terms = {}
        for loss in self.losses:
            total = loss.total(outputs, features)
            weight = weights[loss.name] + loss.epsilon
            if loss.accuracy is None:
                terms[loss.name] = total / weight
            else:
                terms[loss.name], terms[loss.accuracy] = (part / weight for part in total)
        return terms

    def _wait_for_workers(self) -> None:
        """Returns when every process has come here: the chief may still be writing a checkpoint."""

        @tf.function
        def meet():
            return self.strategy.run(lambda: self._sum(tf.constant(1.0)))

        meet()

    @staticmethod
    def _sum(value):
        """Over all replicas."""
        replica = tf.distribute.get_replica_context()
        if replica.num_replicas_in_sync == 1:
            return value
        return replica.all_reduce(tf.distribute.ReduceOp.SUM, value)


@contextmanager
def _noticing_sigterm(ignored: bool) -> Iterator[Callable[[], bool]]:
    """Within the block SIGTERM only raises a flag, which the yielded function reads.

    Args:
        ignored: leave the signal as it is. So it is outside the main thread, where Python allows no
            handlers; and with several workers, who would wait for this one for ever.
    """
    if ignored or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    received = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: received.set())
    try:
        yield received.is_set
    finally:
        signal.signal(signal.SIGTERM, before)


def global_norm(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Euclidean norm of all values together; twice as fast on CPUs as `tf.linalg.global_norm`."""
    return tf.sqrt(2.0 * tf.add_n([tf.nn.l2_loss(tf.cast(g, tf.float32)) for g in gradients]))


def _part_of(value, index, parts: int):
    """Part `index` of `parts` of a tensor [B, ...], of a static size where B is known to allow it."""
    if value.shape[0] is None or value.shape[0] % parts:
        size = tf.shape(value)[0]
        return value[index * size // parts : (index + 1) * size // parts]
    shape = tf.shape(value)
    rest = [shape[i] if n is None else n for i, n in enumerate(value.shape[1:], start=1)]
    return tf.reshape(value, [parts, value.shape[0] // parts, *rest])[index]


def _fill(features: Tensors, batch_size: int) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """The batch with examples of zeros up to `batch_size`, and which of them are real, bool [B]."""
    size = tf.shape(next(iter(features.values())))[0]
    filled = {}
    for name, value in features.items():
        paddings = [[0, batch_size - size]] + [[0, 0]] * (value.shape.rank - 1)
        filled[name] = tf.ensure_shape(tf.pad(value, paddings), [batch_size, *value.shape[1:]])
    return filled, tf.range(batch_size) < size
