"""One optimizer step on one replica.

A step runs forward and backward on the replica's part of the global batch and sums over all replicas.
It then clips by the global norm and updates once. The loss is the mean over the global batch
(losses.py). Dropout is a function of (seed, step, replica), so only the step has to be saved.

In float16, whose smallest number is 6e-8, the loss is scaled to keep small gradients above zero.
bfloat16 has the exponents of float32. Source: Micikevicius et al. 2018, arXiv 1710.03740, section 3.2;
the rule is that of `keras.optimizers.LossScaleOptimizer`.
"""

from __future__ import annotations

import contextlib
import logging
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import keras
import tensorflow as tf

from bert_tf.modeling.dropout import dropout_seed, fold_in
from bert_tf.modeling.fused import fused_parts
from bert_tf.training.losses import Loss
from bert_tf.training.micro_batches import (
    accumulate_gradients,
    concat_outputs,
    micro_batch,
    output_gradients,
)
from bert_tf.training.optimizers import AdamByPath
from bert_tf.training.strategy import gpu_compiler_problem

logger = logging.getLogger(__name__)

# auto: compile the element-wise parts on CPUs (modeling/fused.py), forward and backward on other
# devices, and the optimizer's update everywhere.
# false: compile nothing.
COMPILATIONS = ("auto", "true", "false")
MAX_GRADIENT_NORM = 1.0  # over all variables, as in the reference

Tensors = Mapping[str, Any]


@dataclass(frozen=True)
class Compilation:
    """What XLA compiles in a training step.

    Args:
        dropout: the masks; True if anything is compiled.
        elementwise: the element-wise parts of forward and backward, one by one.
        whole: forward and backward as one function.
        update: the optimizer's update.
        update_by_shape: see `AdamByPath.apply_compiled`.
    """

    dropout: bool = False
    elementwise: bool = False
    whole: bool = False
    update: bool = False
    update_by_shape: bool = False

    @classmethod
    def choose(cls, jit_compile: str, strategy: tf.distribute.Strategy) -> Compilation:
        """Return what `jit_compile`, one of `COMPILATIONS`, means on the devices of the strategy."""
        devices = strategy.extended.worker_devices
        kinds = {tf.DeviceSpec.from_string(device).device_type for device in devices}
        if jit_compile == "auto" and kinds == {"GPU"} and (problem := gpu_compiler_problem()):
            logger.warning("%s. The training runs without XLA.", problem)
            jit_compile = "false"
        if jit_compile == "false" or kinds == {"TPU"}:  # TPUs compile everything they run
            return cls()
        return cls(
            dropout=True,
            elementwise=jit_compile == "auto" and kinds == {"CPU"},
            whole=jit_compile == "true" or kinds == {"GPU"},
            update=isinstance(strategy, tf.distribute.OneDeviceStrategy),
            update_by_shape=kinds == {"CPU"},
        )


class TrainStep:
    """The training step of one replica; call `take` within `strategy.run`.

    Args:
        model: Keras model, dict of tensors in, dict of tensors out.
        losses: terms whose sum is minimised.
        optimizer: built.
        input_names: features that the model takes. Absent ones are skipped; the other features are
            labels and weights.
        compilation: what XLA compiles.
        num_micro_batches: of a replica, computed one after the other.
        seed: of dropout.

    Attributes:
        loss_scale: None unless the model computes in float16.

    Raises:
        ValueError: a loss with `whole_batch` is not the only one.
    """

    def __init__(
        self,
        model: keras.Model,
        losses: Sequence[Loss],
        optimizer: AdamByPath,
        input_names: Sequence[str],
        compilation: Compilation,
        *,
        num_micro_batches: int,
        seed: int,
    ):
        if len(losses) > 1 and any(loss.whole_batch for loss in losses):
            names = ", ".join(loss.name for loss in losses)
            raise ValueError(
                f"The losses are {names}, but one with `whole_batch` must be the only loss."
            )
        self._model = model
        self._losses = tuple(losses)
        self._optimizer = optimizer
        self._input_names = tuple(input_names)
        self.compilation = compilation
        self._num_micro_batches = num_micro_batches
        self._seed = seed % 2**32
        is_float16 = model.dtype_policy.compute_dtype == "float16"
        self.loss_scale = LossScale() if is_float16 else None

    @property
    def reported(self) -> tuple[str, ...]:
        """Names of the values that a step returns: float32 scalars, the same on each replica."""
        names = ["loss"] + [loss.name for loss in self._losses if loss.name != "loss"]
        names += [loss.accuracy for loss in self._losses if loss.accuracy]
        names += ["gradient_norm", "learning_rate", "tokens"]
        return (*names, "loss_scale") if self.loss_scale else tuple(names)

    def take(self, features: Tensors) -> dict[str, tf.Tensor]:
        """Take the step on the replica's examples and return the values to report."""
        replica = tf.distribute.get_replica_context()
        seed = fold_in(
            fold_in(tf.constant(self._seed, tf.uint32), self._optimizer.iterations.value),
            replica.replica_id_in_sync_group,
        )
        weights = {loss.name: sum_of_replicas(loss.weight(features)) for loss in self._losses}
        by_path, terms = self._gradients_and_terms(features, weights, seed)
        used = [v for v in self._model.trainable_variables if v.path in by_path]
        gradients = [sum_of_replicas(by_path[variable.path]) for variable in used]
        values = {name: sum_of_replicas(term) for name, term in terms.items()}
        values["loss"] = tf.add_n([values[loss.name] for loss in self._losses])
        values["tokens"] = sum_of_replicas(number_of_tokens(features))
        # Read before the step is counted.
        values["learning_rate"] = tf.convert_to_tensor(self._optimizer.learning_rate)
        norm, scale = self._clipping(gradients, values)
        values["gradient_norm"] = norm
        if self.compilation.update:
            by_shape = self.compilation.update_by_shape
            self._optimizer.apply_compiled(gradients, used, scale, by_shape)
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
        reported = tf.where(fits | (factor <= _MIN_LOSS_SCALE), norm, 0.0)
        return reported, tf.where(fits, scale, float("nan"))

    def _gradients_and_terms(self, features: Tensors, weights: Tensors, seed) -> tuple[dict, dict]:
        """Return the replica's gradients by path, and its contribution to each loss and accuracy.

        A variable that the losses do not depend on has no gradient.

        Args:
            weights: sums over the global batch, by name of the loss.
        """
        if self._losses[0].whole_batch:
            return self._over_whole_batch(self._losses[0], features, weights, seed)
        differentiate = self._whole_function(self._differentiate)
        if self._num_micro_batches == 1:
            return differentiate(dict(features), weights, seed)

        def differentiate_one(index):
            examples = micro_batch(features, index, self._num_micro_batches)
            return differentiate(examples, weights, fold_in(seed, index))

        return accumulate_gradients(differentiate_one, self._num_micro_batches)

    def _differentiate(self, features: Tensors, weights: Tensors, seed) -> tuple[dict, dict]:
        with tf.GradientTape() as tape:
            with self._scope(seed):
                outputs = self._model(self._inputs(features), training=True)
                terms = self._terms(outputs, features, weights)
            objective = tf.add_n([terms[loss.name] for loss in self._losses])
        return self._backward(tape, objective, tf.ones(())), terms

    def _over_whole_batch(self, loss: Loss, features: Tensors, weights: Tensors, seed):
        """Do `_gradients_and_terms` for a loss that compares examples; see micro_batches.py."""
        inputs, num_micro_batches = self._inputs(features), self._num_micro_batches
        labels = {name: value for name, value in features.items() if name not in inputs}

        def forward(inputs, seed):
            with self._scope(seed):
                outputs = self._model(inputs, training=True)
            return {name: outputs[name] for name in loss.whole_batch}

        forward = self._whole_function(forward)
        if num_micro_batches == 1:
            with tf.GradientTape() as tape:
                outputs = forward(inputs, seed)
            upstream, term = output_gradients(outputs, labels, loss, weights[loss.name])
            return self._backward(tape, outputs, upstream), {loss.name: term}

        def forward_one(index):
            return forward(micro_batch(inputs, index, num_micro_batches), fold_in(seed, index))

        size = next(iter(inputs.values())).shape[0]
        outputs = concat_outputs(forward_one, num_micro_batches, size)
        upstream, term = output_gradients(outputs, labels, loss, weights[loss.name])

        def backward(index):
            with tf.GradientTape() as tape:
                outputs = forward_one(index)
            return self._backward(
                tape, outputs, micro_batch(upstream, index, num_micro_batches)
            ), {}

        return accumulate_gradients(backward, num_micro_batches)[0], {loss.name: term}

    def _inputs(self, features: Tensors) -> dict[str, Any]:
        return {name: features[name] for name in self._input_names if name in features}

    @contextlib.contextmanager
    def _scope(self, seed) -> Iterator[None]:
        """Make the layers that are called inside draw from `seed`, and compile their parts."""
        with (
            dropout_seed(seed, self.compilation.dropout),
            fused_parts(self.compilation.elementwise),
        ):
            yield

    def _whole_function(self, function: Callable) -> Callable:
        if not self.compilation.whole:
            return function
        return tf.function(function, jit_compile=True, autograph=False)

    def _backward(self, tape: tf.GradientTape, target: Any, upstream: Any) -> dict[str, tf.Tensor]:
        """Return path -> gradient for the variables that the target depends on."""
        if self.loss_scale is not None:
            scale = self.loss_scale.value
            upstream = tf.nest.map_structure(lambda gradient: gradient * scale, upstream)
        values = {variable.path: variable.value for variable in self._model.trainable_variables}
        gradients = tape.gradient(target, values, output_gradients=upstream)
        # Sums the rows of word embeddings that several tokens use, before they are squared.
        return {n: tf.convert_to_tensor(g) for n, g in gradients.items() if g is not None}

    def _terms(self, outputs: Tensors, features: Tensors, weights: Tensors) -> dict[str, Any]:
        """Return these examples' contribution to each loss and accuracy of the global batch."""
        terms = {}
        for loss in self._losses:
            total = loss.total(outputs, features)
            weight = weights[loss.name] + loss.epsilon
            if loss.accuracy is None:
                terms[loss.name] = total / weight
            else:
                terms[loss.name], terms[loss.accuracy] = (value / weight for value in total)
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


_INITIAL_LOSS_SCALE = 2.0**15
_MIN_LOSS_SCALE = 1.0
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
            _INITIAL_LOSS_SCALE, dtype="float32", name="loss_scale", **kwargs
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
        self._value.assign(tf.where(fits, grown, tf.maximum(value / 2.0, _MIN_LOSS_SCALE)))
        self._good.assign(tf.where(tf.logical_and(fits, ~full), good + 1, 0))


# ---- Failures: no memory, or XLA cannot compile the step

_COMPILER = re.compile(
    r"XLA|\bHLO|PTX|ptxas|nvlink|libdevice|LLVM|JIT|[Aa]utotun|[Cc]ompil(e|ation)"
)
_TRACE = re.compile(
    r"\s*(Graph execution error:|Detected at node |<stack trace|Stack trace |The op is created|File \")"
)
_OUT_OF_MEMORY = re.compile(r"\bOOM\b|[Oo]ut of memory|OUT_OF_MEMORY|ALLOC_FAILED|memory limit")


def raise_with_remedy(
    error: tf.errors.OpError, step: int, settings: Mapping[str, Any], compiles: bool
) -> NoReturn:
    """Raise the error of a step, with what to try if memory is short or XLA cannot compile it.

    Args:
        step: in whose call the error was raised, from 1.
        settings: name -> value of what the memory depends on.
        compiles: True if XLA compiles a part of the step.
    """
    text = summary(error)
    # XLA reports a full memory with other types of errors too.
    if isinstance(error, tf.errors.ResourceExhaustedError) or _OUT_OF_MEMORY.search(text):
        used = ", ".join(f"{name}={value}" for name, value in settings.items())
        raise tf.errors.ResourceExhaustedError(
            None,
            None,
            f"The memory of the device is too small for step {step} with {used}. Raise "
            "gradient_accumulation_steps, which takes the same steps, or try "
            f"precision=mixed_bfloat16 or a lower max_seq_length. TensorFlow's message: {text}",
        ) from error
    if compiles and _COMPILER.search(text):
        raise ValueError(
            f"XLA cannot compile the training step ({text}). Use jit_compile=false."
        ) from error
    raise error


def summary(error: tf.errors.OpError) -> str:
    """Return the beginning of a message, without names of operations and where they were made."""
    lines = [line for line in error.message.splitlines() if not _TRACE.match(line)]
    text = re.sub(r"{{[^}]*}}|\[\[.*?\]\]|\[Op:\w+\]", "", " ".join(lines))
    return textwrap.shorten(text, 300, placeholder=" ...")
