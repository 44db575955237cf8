"""One optimizer step on one replica: forward, backward, the sum over replicas, clipping, the update.

In float16, whose smallest number is 6e-8, the loss is scaled to keep small gradients above zero.
bfloat16 has the exponents of float32. Source: Micikevicius et al. 2018, arXiv 1710.03740, section 3.2;
the rule is that of `keras.optimizers.LossScaleOptimizer`.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from bert_tf.modeling.attention_kernels import cudnn_attention, padding_is_last
from bert_tf.modeling.dropout import dropout_seed, fold_in
from bert_tf.modeling.fused import fused_parts
from bert_tf.modeling.transformer import recomputed_blocks
from bert_tf.training.losses import Loss
from bert_tf.training.optimizers import AdamByPath
from bert_tf.training.strategy import gpu_compiler_problem

logger = logging.getLogger(__name__)

# auto: compile the element-wise parts on CPUs (modeling/fused.py), forward and backward on other
# devices, and the optimizer's update everywhere.
# false: compile nothing.
# cudnn: as auto; on GPUs also use the kernel of modeling/attention_kernels.py.
COMPILATIONS = ("auto", "true", "false", "cudnn")
MAX_GRADIENT_NORM = 1.0  # over all variables, as in the reference

Tensors = Mapping[str, Any]


@dataclass(frozen=True)
class Compilation:
    """What XLA compiles in a training step.

    `elementwise`: the parts of modeling/fused.py, one by one. `whole`: forward and backward as one
    function. With one of both also dropout. `update`: the optimizer's, see `AdamByPath.apply_compiled`.
    `step`: all in one function, without micro-batches and a loss scale, maybe with cuDNN's attention.
    """

    elementwise: bool = False
    whole: bool = False
    update: bool = False
    update_by_shape: bool = False
    step: bool = False
    attention_kernel: bool = False

    @classmethod
    def choose(cls, jit_compile: str, strategy: tf.distribute.Strategy) -> Compilation:
        """Return what `jit_compile`, one of `COMPILATIONS`, means on the devices of the strategy."""
        devices = strategy.extended.worker_devices
        kinds = {tf.DeviceSpec.from_string(device).device_type for device in devices}
        is_gpu, is_auto = kinds == {"GPU"}, jit_compile in ("auto", "cudnn")
        if is_auto and is_gpu and (problem := gpu_compiler_problem()):
            logger.warning("%s. The training runs without XLA.", problem)
            jit_compile = "false"
        if jit_compile == "false" or kinds == {"TPU"}:  # TPUs compile everything they run
            return cls()
        is_one_device = isinstance(strategy, tf.distribute.OneDeviceStrategy)
        return cls(
            elementwise=is_auto and kinds == {"CPU"},
            whole=jit_compile == "true" or is_gpu,
            update=is_one_device,
            update_by_shape=kinds == {"CPU"},
            step=is_one_device and is_gpu,
            attention_kernel=is_gpu and jit_compile == "cudnn",
        )


class TrainStep:
    """The training step of one replica; call `take` within `strategy.run`. See `TrainLoop`."""

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
        recompute_grads: bool = False,
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
        self._recompute_grads = recompute_grads
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
        if self._is_one_function:
            return self._compile(self._take)(dict(features))
        return self._take(features)

    @property
    def _is_one_function(self) -> bool:
        # The number of rows of a micro-batch may be known only when the step runs, and an integer
        # variable of the loss scale is not on the GPU; XLA supports neither.
        has_parts = self._num_micro_batches > 1 or self._losses[0].whole_batch
        return self.compilation.step and not has_parts and self.loss_scale is None

    def _take(self, features: Tensors) -> dict[str, tf.Tensor]:
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

        In float16 an overflow has norm 0; at the lowest loss scale it is infinite or NaN, and an error.
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

        `weights` are the sums over the global batch, by name of the loss.
        """
        if self._losses[0].whole_batch:
            return self._over_whole_batch(self._losses[0], features, weights, seed)
        differentiate = self._differentiate
        if self.compilation.whole and not self._is_one_function:
            differentiate = self._compile(differentiate)
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
        """Do `_gradients_and_terms` for a loss that compares examples; see `output_gradients`."""
        inputs, num_micro_batches = self._inputs(features), self._num_micro_batches
        labels = {name: value for name, value in features.items() if name not in inputs}

        def forward(inputs, seed):
            with self._scope(seed):
                outputs = self._model(inputs, training=True)
            return {name: outputs[name] for name in loss.whole_batch}

        if self.compilation.whole:
            forward = self._compile(forward)
        if num_micro_batches == 1:
            with tf.GradientTape() as tape:
                outputs = forward(inputs, seed)
            upstream, term = output_gradients(outputs, labels, loss, weights[loss.name])
            return self._backward(tape, outputs, upstream), {loss.name: term}

        def forward_one(index):
            return forward(micro_batch(inputs, index, num_micro_batches), fold_in(seed, index))

        outputs = concat_outputs(forward_one, num_micro_batches)
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
            dropout_seed(seed, self.compilation.elementwise or self.compilation.whole),
            fused_parts(self.compilation.elementwise),
            recomputed_blocks(self._recompute_grads),
        ):
            yield

    def _compile(self, function: Callable) -> Callable:
        """Compile a function whose first argument is the features, with the kernel if there is one."""
        compiled = tf.function(function, jit_compile=True, autograph=False)
        if not self.compilation.attention_kernel:
            return compiled

        @functools.partial(tf.function, jit_compile=True, autograph=False)
        def with_kernel(*args):
            with cudnn_attention(padding_is_last=True):
                return function(*args)

        def choose(features, *args):
            with tf.device("CPU:0"):  # where the features are
                is_last = padding_is_last(features)
            args = (features, *args)
            return tf.cond(is_last, lambda: with_kernel(*args), lambda: compiled(*args))

        return choose

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


# ---- Micro-batches, for `gradient_accumulation_steps`
#
# The function of a micro-batch must not be inlined into the loop. Otherwise TensorFlow's graph optimizer
# on CPUs computes sums of three or more large tensors in temporary variables, and one of them remains
# after the loop. The second call of the step then fails with "Resource __per_step_0/.../tmp_var"
# (TensorFlow 2.21, vocabulary of 30,522). Other devices do not need this.


def micro_batch(
    values: Mapping[str, tf.Tensor], index, num_micro_batches: int
) -> dict[str, tf.Tensor]:
    """Return micro-batch `index` of tensors [B, ...] -> [b, ...]; b is static if B divides evenly."""
    rows = {}
    for name, value in values.items():
        size = value.shape[0]
        if size is None or size % num_micro_batches:
            size = tf.shape(value)[0]
        first, end = (number * size // num_micro_batches for number in (index, index + 1))
        count = size // num_micro_batches if isinstance(size, int) else end - first
        rows[name] = _rows(value, first, count)
    return rows


def accumulate_gradients(
    differentiate: Callable[[tf.Tensor], tuple[dict, dict]], num_micro_batches: int
) -> tuple[dict, dict]:
    """Return the sums of `differentiate(index)`, gradients and loss terms, over all micro-batches."""
    differentiate = _not_inlined(differentiate)
    _, sums = tf.while_loop(
        lambda index, _: index < num_micro_batches,
        lambda index, sums: (index + 1, tf.nest.map_structure(tf.add, sums, differentiate(index))),
        (tf.constant(1), differentiate(tf.constant(0))),
        parallel_iterations=1,  # one micro-batch in memory at a time
    )
    return sums


def concat_outputs(
    forward: Callable[[tf.Tensor], Mapping[str, Any]], num_micro_batches: int
) -> dict[str, tf.Tensor]:
    """Return the outputs of all micro-batches: `forward(index)` -> name -> [b, ...]."""
    forward = _not_inlined(forward)
    parts: list[Mapping[str, Any]] = []
    for index in range(num_micro_batches):
        with tf.control_dependencies(tf.nest.flatten(parts[-1:])):  # one in memory at a time
            parts.append(forward(tf.constant(index)))
    return {name: tf.concat([part[name] for part in parts], axis=0) for name in parts[0]}


def _not_inlined(function: Callable) -> Callable:
    return tf.function(function, autograph=False, experimental_attributes={"_noinline": True})


def output_gradients(
    outputs: Tensors, features: Tensors, loss: Loss, weight: tf.Tensor
) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Return the gradient of the loss by this replica's outputs [B, ...], and its part of the loss."""
    replica = tf.distribute.get_replica_context()
    num_replicas = replica.num_replicas_in_sync
    if num_replicas > 1:
        first, count = _own_rows(replica, outputs)
        outputs, features = (
            {name: _all_gather(replica, value) for name, value in tensors.items()}
            for tensors in (outputs, features)
        )
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        total = loss.total(outputs, features) / (weight + loss.epsilon)
    gradients = tape.gradient(total, dict(outputs))
    if num_replicas > 1:
        gradients = {name: _rows(g, first, count) for name, g in gradients.items()}
        total = total / num_replicas  # every replica computes the same loss
    return gradients, total


def _own_rows(replica: tf.distribute.ReplicaContext, outputs: Tensors) -> tuple[Any, Any]:
    """Return the first row of this replica in the global batch, and the number of its rows."""
    value = next(iter(outputs.values()))
    replica_id = replica.replica_id_in_sync_group  # known only at run time, on a TPU
    if value.shape[0] is not None:
        return replica_id * value.shape[0], value.shape[0]
    count = tf.shape(value)[0]
    sizes = replica.all_gather(count[None], axis=0)
    return tf.reduce_sum(sizes[:replica_id]), count


def _all_gather(replica: tf.distribute.ReplicaContext, value: tf.Tensor) -> tf.Tensor:
    """Return the rows of all replicas, in the order of the replicas."""
    rows = replica.all_gather(tf.identity(value), axis=0)
    size = value.shape[0]
    total = None if size is None else size * replica.num_replicas_in_sync
    return tf.ensure_shape(rows, [total, *value.shape[1:]])


def _rows(value: tf.Tensor, first: Any, count: Any) -> tf.Tensor:
    """Return `count` rows from row `first` on; of a static shape if `count` is an int."""
    rest = value.shape.rank - 1
    rows = tf.slice(value, [first, *[0] * rest], [count, *[-1] * rest])
    return tf.ensure_shape(rows, [count if isinstance(count, int) else None, *value.shape[1:]])


# ---- Loss scale, in float16

_INITIAL_LOSS_SCALE = 2.0**15
_MIN_LOSS_SCALE = 1.0
_STEPS_UNTIL_DOUBLED = 2000


class LossScale:
    """Factor of the loss, halved when gradients overflow and doubled after 2000 steps without overflow.

    A step whose gradients overflow changes no weight, but its batch is used up and the step counts.
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
