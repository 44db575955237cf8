"""Models, data and trainers of a few numbers, for the tests of the training loop."""

from types import SimpleNamespace

import keras
import numpy as np
import tensorflow as tf
from tiny_config import tiny_config

from bert_tf.config import BertConfig
from bert_tf.pretraining.task import PretrainingTask
from bert_tf.training.loop import CheckpointHook, EvaluationHook, LogHook, TrainLoop
from bert_tf.training.losses import Loss
from bert_tf.training.optimizers import AdamWeightDecay
from bert_tf.training.progress import MetricsLog
from bert_tf.training.schedules import WarmupDecay
from bert_tf.training.strategy import mirrored_strategy

ONE, TWO = 1, 2  # devices

B, S, P, V = 5, 9, 3, 29  # batch, sequence, predictions, vocabulary


def bert_config(dropout: float = 0.0, **changes) -> BertConfig:
    sizes = {"vocab_size": V, "intermediate_size": 12, "max_position_embeddings": 11}
    sizes |= {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return tiny_config(**sizes | changes)


def pretraining_batches(num_batches: int = 4, seed: int = 0) -> dict[str, np.ndarray]:
    """[num_batches, B, ...]; the numbers of masked positions differ much between the examples."""
    rng = np.random.default_rng(seed)
    shape = (num_batches, B)
    num_masked = np.array([3, 3, 1, 1, 0])
    return {
        "input_ids": rng.integers(V, size=(*shape, S)).astype("int32"),
        "input_mask": (np.arange(S) < rng.integers(4, S + 1, size=(*shape, 1))).astype("int32"),
        "segment_ids": rng.integers(2, size=(*shape, S)).astype("int32"),
        "masked_lm_positions": rng.integers(S, size=(*shape, P)).astype("int32"),
        "masked_lm_ids": rng.integers(V, size=(*shape, P)).astype("int32"),
        "masked_lm_weights": np.broadcast_to(
            (np.arange(P) < num_masked[:, None]).astype("float32"), (*shape, P)
        ),
        "next_sentence_labels": rng.integers(2, size=shape).astype("int32"),
    }


def endless(batches: dict[str, np.ndarray]):
    """`dataset_from` of `TrainLoop.train`: the batches, again and again."""
    return lambda step: tf.data.Dataset.from_tensor_slices(dict(batches)).repeat().skip(step)


def train(loop, batches, num_steps, folder, steps_per_call=1000, evaluate=None, **saving):
    """Train with the hooks of a program. `evaluate`: arguments of `EvaluationHook`."""
    log = MetricsLog(str(folder))
    hooks = [LogHook(log), CheckpointHook(str(folder), **saving)]
    if evaluate:
        hooks.append(EvaluationHook(log, *evaluate))
    loop.train(batches, num_steps, hooks, max_steps_per_call=steps_per_call)


def offers(**changes):
    """Return what stands for a `BestCheckpoint`."""
    values = {"is_new_run": True, "is_over": False, "offer": lambda *_: None, **changes}
    return SimpleNamespace(**values)


def strategy_on(num_devices: int) -> tf.distribute.Strategy:
    """On CPU devices, whatever else the machine has."""
    names = [device.name for device in tf.config.list_logical_devices("CPU")]
    if num_devices == 1:
        return tf.distribute.OneDeviceStrategy(names[0])
    return mirrored_strategy(tuple(names[:num_devices]))


def pretrainer(
    devices=ONE, dropout=0.0, init_seed=1, rate=None, sizes=None, dtype=None, **kwargs
) -> TrainLoop:
    """Return a trainer of a tiny BERT. `sizes` replaces fields of its configuration.

    `rate` is by default a schedule of 25 steps. Not compiled, because that takes longer than the
    training; test_step.py compares.
    """
    kwargs = {"jit_compile": "false", **kwargs}
    task = PretrainingTask(S, P)
    keras.utils.set_random_seed(init_seed)
    strategy = strategy_on(devices)
    with strategy.scope():
        model = task.build_model(bert_config(dropout, **(sizes or {})), dtype=dtype)
        optimizer = AdamWeightDecay(rate or WarmupDecay(0.01, 25, 3))
    return TrainLoop(
        model,
        task.losses,
        strategy=strategy,
        input_names=task.input_names,
        optimizer=optimizer,
        **kwargs,
    )


def float16_pretrainer(devices=ONE, **kwargs):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        trainer = pretrainer(devices, **kwargs)
    finally:
        keras.config.set_dtype_policy("float32")
    assert trainer.model.dtype_policy.name == "mixed_float16"
    trainer.optimizer.skip_nonfinite = True
    return trainer


class Linear(keras.Model):
    """y = w . x"""

    def __init__(self):
        super().__init__(name="linear")
        self.kernel = keras.Variable(np.ones(3, np.float32), name="kernel")
        self.built = True

    def call(self, inputs, training=None):
        return {"y": tf.cast(tf.linalg.matvec(inputs["x"], self.kernel.value), "float32")}


def linear_trainer(devices=ONE, rate=0.1, error=lambda y, t: tf.abs(y - t), **kwargs) -> TrainLoop:
    """Of `Linear` with the mean error of y and target; traced in a moment."""
    loss = Loss(
        "loss",
        total=lambda outputs, features: tf.reduce_sum(error(outputs["y"], features["target"])),
        weight=lambda features: tf.cast(tf.size(features["target"]), tf.float32),
    )
    strategy = strategy_on(devices)
    with strategy.scope():
        model, optimizer = Linear(), AdamWeightDecay(rate, **kwargs)
    return TrainLoop(
        model,
        [loss],
        strategy=strategy,
        input_names=["x"],
        optimizer=optimizer,
        jit_compile="false",
    )


def linear_rows(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.normal(size=(count, 3)).astype("float32"),
        "target": rng.normal(size=count).astype("float32"),
        "number": np.arange(count, dtype="int32"),
    }


def linear_batches(batch_size: int, num_batches: int = 4) -> dict[str, np.ndarray]:
    rows = linear_rows(batch_size * num_batches)
    return {n: v.reshape(num_batches, batch_size, *v.shape[1:]) for n, v in rows.items()}
