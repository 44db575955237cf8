"""One optimizer step on one replica.

A step runs forward and backward on the replica's part of the global batch and sums over all replicas.
It then clips by the global norm and updates once. The loss is the mean over the global batch
(losses.py). Dropout is a function of (seed, step, replica), so only the step has to be saved.

In float16, whose smallest number is 6e-8, the loss is scaled to keep small gradients above zero.
bfloat16 has the exponents of float32. Source: Micikevicius et al. 2018, arXiv 1710.03740, section 3.2;
the rule is that of `keras.optimizers.LossScaleOptimizer`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import keras
import tensorflow as tf

from bert_tf.modeling.dropout import dropout_seed, fold_in
from bert_tf.modeling.fused import fused_parts
from bert_tf.training.adam_by_path import AdamByPath
from bert_tf.training.failures import raise_with_remedy
from bert_tf.training.losses import Loss
from bert_tf.training.parts import (
    gradients_of_outputs,
    gradients_over_parts,
    outputs_over_parts,
    part_of,
)
from bert_tf.training.schedules import WarmupDecay
from bert_tf.training.strategy import gpu_compiler_problem

logger = logging.getLogger(__name__)

# auto: compile the element-wise parts on CPUs (modeling/fused.py), forward and backward on other
# devices, and the optimizer's update everywhere.
# false: compile nothing.
COMPILATIONS = ("auto", "true", "false")
MAX_GRADIENT_NORM = 1.0  # over all variables, as in the reference

Tensors = Mapping[str, Any]


class TrainStep:
    """The training step of one replica; call `take` within `strategy.run`.

    Args:
        model, losses, input_names, gradient_accumulation_steps: see `TrainLoop`.
        optimizer: built.
        seed: of dropout.
        strategy: whose replicas take the step.
        jit_compile: one of `COMPILATIONS`. "true": forward and backward are one XLA function.

    Raises:
        ValueError: a loss with `whole_batch` is not the only one.
    """

    def __init__(
        self,
        model: keras.Model,
        losses: Sequence[Loss],
        optimizer: AdamByPath,
        strategy: tf.distribute.Strategy,
        *,
        input_names: Sequence[str],
        gradient_accumulation_steps: int,
        seed: int,
        jit_compile: str = "auto",
    ):
        if len(losses) > 1 and any(loss.whole_batch for loss in losses):
            names = ", ".join(loss.name for loss in losses)
            raise ValueError(
                f"The losses are {names}, but one with `whole_batch` must be the only loss."
            )
        self._model = model
        self._losses = tuple(losses)
        self._optimizer = optimizer
        self._strategy = strategy
        self._input_names = tuple(input_names)
        self._num_parts = gradient_accumulation_steps
        self._seed = seed % 2**32
        self._compile(jit_compile)
        self.loss_scale = LossScale() if _computes_in_float16(model) else None

    def raise_with_remedy(
        self, error: tf.errors.OpError, step: int, batch_size: int | None
    ) -> NoReturn:
        """Raise the error of the call that begins with `step`; see failures.py.

        Args:
            batch_size: over all devices; None if unknown.
        """
        settings = {
            "train_batch_size": batch_size,
            "devices": self._strategy.num_replicas_in_sync,
            "gradient_accumulation_steps": self._num_parts,
            "precision": self._model.dtype_policy.name,
        }
        raise_with_remedy(error, step, settings, self._compiled)

    def _compile(self, jit_compile: str) -> None:
        """Set which parts are compiled when a step is traced."""
        devices = self._strategy.extended.worker_devices
        kinds = {tf.DeviceSpec.from_string(device).device_type for device in devices}
        if jit_compile == "auto" and kinds == {"GPU"} and (problem := gpu_compiler_problem()):
            logger.warning("%s. The training runs without XLA.", problem)
            jit_compile = "false"
        if kinds == {"TPU"}:
            jit_compile = "false"  # TPUs compile everything they run
        self._compiled = jit_compile != "false"
        self._on_cpu = kinds == {"CPU"}
        self._fused = jit_compile == "auto" and self._on_cpu
        self._whole = jit_compile == "true" or (jit_compile == "auto" and kinds == {"GPU"})
        is_single = isinstance(self._strategy, tf.distribute.OneDeviceStrategy)
        self._compiles_update = self._compiled and is_single

    @property
    def reported(self) -> tuple[str, ...]:
        """Names of the values that a step returns: float32 scalars, the same on each replica."""
        names = ["loss"] + [loss.name for loss in self._losses if loss.name != "loss"]
        names += [loss.accuracy for loss in self._losses if loss.accuracy]
        names += ["gradient_norm", "learning_rate", "tokens"]
        return (*names, "loss_scale") if self.loss_scale else tuple(names)

    def rates(self, first: int) -> dict[int, float]:
        """Return `WarmupDecay.points` from step `first` until now; {} for a rate of another type."""
        schedule = self._optimizer.schedule
        is_ours = isinstance(schedule, WarmupDecay)
        return schedule.points(first, int(self._optimizer.iterations.numpy())) if is_ours else {}

    def take(self, features: Tensors) -> dict[str, tf.Tensor]:
        """Take the step on the replica's examples and return the values to report."""
        replica = tf.distribute.get_replica_context()
        seed = fold_in(
            fold_in(tf.constant(self._seed, tf.uint32), self._optimizer.iterations.value),
            replica.replica_id_in_sync_group,
        )
        weights = {loss.name: sum_of_replicas(loss.weight(features)) for loss in self._losses}
        gradients, terms, used = self._accumulate(features, weights, seed)
        gradients = [sum_of_replicas(gradient) for gradient in gradients]
        values = {name: sum_of_replicas(term) for name, term in terms.items()}
        values["loss"] = tf.add_n([values[loss.name] for loss in self._losses])
        values["tokens"] = sum_of_replicas(number_of_tokens(features))
        # Read before the step is counted.
        values["learning_rate"] = tf.convert_to_tensor(self._optimizer.learning_rate)
        norm, scale = self._clipping(gradients, values)
        values["gradient_norm"] = norm
        if self._compiles_update:
            self._optimizer.apply_compiled(gradients, used, scale, by_shape=self._on_cpu)
        else:
            # Keras' optimizers sum over the replicas again, but each already has the whole sum.
            scale = scale / replica.num_replicas_in_sync
            self._optimizer.apply([gradient * scale for gradient in gradients], used)
        return values

    def _clipping(self, gradients: list, values: dict[str, tf.Tensor]) -> tuple[Any, Any]:
        """Return the global norm of the gradients and the factor to multiply them with.

        In float16 an overflow has norm 0. At the lowest loss scale the norm stays infinite or NaN, and
        the training ends with an error.
        """
        norm = global_norm(gradients)
        if self.loss_scale is None:
            return norm, MAX_GRADIENT_NORM / tf.maximum(norm, MAX_GRADIENT_NORM)
        factor = self.loss_scale.value
        values["loss_scale"] = factor
        norm = norm / factor
        fits = tf.math.is_finite(norm)
        self.loss_scale.update(fits)
        scale = MAX_GRADIENT_NORM / tf.maximum(norm, MAX_GRADIENT_NORM) / factor
        # The optimizer skips nonfinite gradients. NaN makes it skip all of them.
        shown = tf.where(fits | (factor <= _LOWEST_LOSS_SCALE), norm, 0.0)
        return shown, tf.where(fits, scale, float("nan"))

    def _accumulate(self, features: Tensors, weights: Tensors, seed) -> tuple[list, dict, list]:
        """Return `_gradients` of all examples of a replica, in `gradient_accumulation_steps` parts."""
        loss, num_parts = self._losses[0], self._num_parts
        if loss.whole_batch:
            return self._over_whole_batch(loss, features, weights[loss.name], seed)
        if num_parts == 1:
            return self._gradients(features, weights, seed)

        def part(index):
            examples = part_of(features, index, num_parts)
            return self._gradients(examples, weights, fold_in(seed, index))

        return gradients_over_parts(part, num_parts)

    def _over_whole_batch(self, loss: Loss, features: Tensors, weight, seed):
        """Do `_accumulate` for a loss that compares examples with each other; see parts.py."""

        def forward(inputs, seed):
            with dropout_seed(seed, self._compiled), fused_parts(self._fused):
                outputs = self._model(inputs, training=True)
            return {name: outputs[name] for name in loss.whole_batch}

        if self._whole:
            forward = tf.function(forward, jit_compile=True, autograph=False)
        inputs = {name: features[name] for name in self._input_names if name in features}
        others = {name: value for name, value in features.items() if name not in inputs}
        num_parts = self._num_parts
        if num_parts == 1:
            with tf.GradientTape() as tape:
                outputs = forward(inputs, seed)
            upstream, term = gradients_of_outputs(outputs, others, loss, weight)
            gradients, used = self._backward(tape, outputs, upstream)
            return gradients, {loss.name: term}, used

        def forward_part(index):
            return forward(part_of(inputs, index, num_parts), fold_in(seed, index))

        size = next(iter(inputs.values())).shape[0]
        is_even = size is not None and size % num_parts == 0
        outputs = outputs_over_parts(forward_part, num_parts, is_even)
        upstream, term = gradients_of_outputs(outputs, others, loss, weight)

        def part(index):
            with tf.GradientTape() as tape:
                outputs = forward_part(index)
            gradients, used = self._backward(tape, outputs, part_of(upstream, index, num_parts))
            return gradients, {}, used

        gradients, _, used = gradients_over_parts(part, num_parts)
        return gradients, {loss.name: term}, used

    def _backward(self, tape: tf.GradientTape, target: Any, upstream: Any) -> tuple[list, list]:
        """Return the gradients of the variables that the target depends on, and those variables."""
        variables = self._model.trainable_variables
        if self.loss_scale is not None:
            scale = self.loss_scale.value
            upstream = tf.nest.map_structure(lambda gradient: gradient * scale, upstream)
        values = [variable.value for variable in variables]
        gradients = tape.gradient(target, values, output_gradients=upstream)
        found = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]
        # Sums the rows of word embeddings that several tokens use, before they are squared.
        return [tf.convert_to_tensor(g) for g, _ in found], [v for _, v in found]

    def _gradients(self, features: Tensors, weights: Tensors, seed) -> tuple[list, dict, list]:
        """Return the gradients of these examples, their loss terms, and the variables used.

        `weights` are sums over the global batch, by name of the loss.
        """
        used: list[keras.Variable] = []

        def forward_and_backward(features, weights, seed):
            gradients, terms, found = self._differentiate(features, weights, seed)
            used[:] = found  # a tf.function cannot return variables
            return gradients, terms

        if self._whole:
            forward_and_backward = tf.function(
                forward_and_backward, jit_compile=True, autograph=False
            )
        gradients, terms = forward_and_backward(dict(features), weights, seed)
        return gradients, terms, used

    def _differentiate(self, features: Tensors, weights: Tensors, seed) -> tuple[list, dict, list]:
        inputs = {name: features[name] for name in self._input_names if name in features}
        with (
            tf.GradientTape() as tape,
            dropout_seed(seed, self._compiled),
            fused_parts(self._fused),
        ):
            outputs = self._model(inputs, training=True)
            terms = self._terms(outputs, features, weights)
            objective = tf.add_n([terms[loss.name] for loss in self._losses])
        gradients, used = self._backward(tape, objective, tf.ones(()))
        return gradients, terms, used

    def _terms(self, outputs: Tensors, features: Tensors, weights: Tensors) -> dict[str, Any]:
        """Return these examples' contribution to each loss and accuracy of the global batch."""
        terms = {}
        for loss in self._losses:
            total = loss.total(outputs, features)
            weight = weights[loss.name] + loss.epsilon
            if loss.accuracy is None:
                terms[loss.name] = total / weight
            else:
                terms[loss.name], terms[loss.accuracy] = (part / weight for part in total)
        return terms


def sum_of_replicas(value):
    """Return the sum over all replicas, on each of them."""
    replica = tf.distribute.get_replica_context()
    if replica.num_replicas_in_sync == 1:
        return value
    return replica.all_reduce(tf.distribute.ReduceOp.SUM, value)


def global_norm(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the Euclidean norm of all values; on CPUs twice as fast as `tf.linalg.global_norm`."""
    return tf.sqrt(2.0 * tf.add_n([tf.nn.l2_loss(tf.cast(g, tf.float32)) for g in gradients]))


def number_of_tokens(features: Tensors) -> tf.Tensor:
    """Count the tokens, without padding where there is a mask; float32 scalar."""
    total = tf.zeros(())
    for ids, mask in (("input_ids", "input_mask"), ("anchor_ids", "anchor_mask")):
        if mask in features:
            total += tf.cast(tf.reduce_sum(features[mask]), tf.float32)
        elif ids in features:
            total += tf.cast(tf.size(features[ids]), tf.float32)
    return total


def _computes_in_float16(model: keras.Model) -> bool:
    return model.dtype_policy.compute_dtype == "float16"


_FIRST_LOSS_SCALE = 2.0**15
_LOWEST_LOSS_SCALE = 1.0
_STEPS_UNTIL_DOUBLED = 2000


class LossScale:
    """Factor of the loss, halved when gradients overflow and doubled after 2000 steps without overflow.

    A step whose gradients overflow changes no weight, but its batch is used up and the step counts. The
    scale never falls below 1. If gradients overflow there, the training ends with an error.
    """

    NAMES = ("loss_scale/value", "loss_scale/good_steps")  # in a checkpoint

    def __init__(self) -> None:
        kwargs = {"trainable": False, "aggregation": "only_first_replica"}
        self._value = keras.Variable(
            _FIRST_LOSS_SCALE, dtype="float32", name="loss_scale", **kwargs
        )
        self._good = keras.Variable(0, dtype="int32", name="good_steps", **kwargs)

    @property
    def value(self) -> tf.Tensor:
        """float32 scalar."""
        return tf.convert_to_tensor(self._value)

    @property
    def variables(self) -> dict[str, keras.Variable]:
        """Variables by their names in a checkpoint."""
        return dict(zip(self.NAMES, (self._value, self._good), strict=True))

    def update(self, fits) -> None:
        """Count a step; `fits` is true if its gradients were finite."""
        value, good = self.value, tf.convert_to_tensor(self._good)
        full = good + 1 >= _STEPS_UNTIL_DOUBLED
        grown = tf.where(full, value * 2.0, value)
        self._value.assign(tf.where(fits, grown, tf.maximum(value / 2.0, _LOWEST_LOSS_SCALE)))
        self._good.assign(tf.where(tf.logical_and(fits, ~full), good + 1, 0))
