"""Two processes on 127.0.0.1 train one model: the steps of one device, files from one of them."""

import json
import socket
import subprocess

import numpy as np
import pytest
import tensorflow as tf
from helpers import python, read_json_lines
from tiny_training import P, S, endless, pretrainer, pretraining_batches, train

from bert_tf.pretraining.task import PretrainingTask
from bert_tf.training.schedules import WarmupDecay

pytestmark = pytest.mark.night

STEPS = 8

WORKER = """
import json, sys
import keras, numpy as np, tensorflow as tf
from bert_tf.training.strategy import make_strategy
strategy = make_strategy("auto")
from tiny_training import B, bert_config, endless, pretraining_batches, train, P, S
from bert_tf.pretraining.task import PretrainingTask
from bert_tf.training.optimizers import AdamWeightDecay
from bert_tf.training.schedules import WarmupDecay
from bert_tf.training.loop import TrainLoop

folder, steps = sys.argv[1], int(sys.argv[2])
task = PretrainingTask(S, P)
even = {name: value[:, :4] for name, value in pretraining_batches().items()}

def trainer_of(seed):
    keras.utils.set_random_seed(seed)
    with strategy.scope():
        model = task.build_model(bert_config())
        optimizer = AdamWeightDecay(WarmupDecay(0.01, 20, 3))
    return TrainLoop(model, task.losses, strategy=strategy, input_names=task.input_names,
                        optimizer=optimizer, jit_compile="false")

trainer, resumed = trainer_of(1), trainer_of(2)
train(trainer, endless(even), steps, folder, every=steps // 2)
assert resumed.resume(f"{folder}/model.ckpt-{steps // 2}") == resumed.step == steps // 2
train(resumed, endless(even), steps, f"{folder}/resumed")
rows = {name: value.reshape(-1, *value.shape[2:]) for name, value in pretraining_batches().items()}
examples = tf.data.Dataset.from_tensor_slices(rows).batch(3)

def outputs_of(outputs, features):
    return {**task.eval_outputs(outputs, features), "input_ids": features["input_ids"]}

kept = trainer.predict(examples, outputs_of, 3)
np.savez(f"{folder}/worker-{strategy.cluster_resolver.task_id}.npz", **kept,
         **{f"variable {v.path}": v.numpy() for v in trainer.model.weights},
         **{f"resumed {v.path}": v.numpy() for v in resumed.model.weights})
print("chief" if trainer.is_chief else "other")
"""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for opened in sockets:
        opened.bind(("127.0.0.1", 0))
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory):
    """The folder of two processes, and what each printed."""
    folder = tmp_path_factory.mktemp("workers")
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = []
    for index in range(2):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        variables = {"TF_CONFIG": json.dumps(task), "CUDA_VISIBLE_DEVICES": "-1"}
        command = python("-c", WORKER, folder, STEPS, **variables)
        processes.append(subprocess.Popen(**command, **pipes))
    try:
        ended = [process.communicate(timeout=240) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, ended, strict=True):
        assert process.returncode == 0, errors[-3000:]
    return folder, [output.strip() for output, _ in ended]


def test_two_processes_train_and_evaluate_as_one_device_does(two_workers, tmp_path):
    trainer = pretrainer(rate=WarmupDecay(0.01, 20, 3))
    batches = pretraining_batches()
    even = {name: value[:, :4] for name, value in batches.items()}
    train(trainer, endless(even), STEPS, tmp_path)
    found = [np.load(two_workers[0] / f"worker-{index}.npz") for index in range(2)]
    for variable in trainer.model.weights:
        name, value = f"variable {variable.path}", variable.numpy()
        for each in found:
            np.testing.assert_allclose(each[name], value, rtol=2e-3, atol=3e-5, err_msg=name)
    features = {n: tf.constant(v.reshape(-1, *v.shape[2:])) for n, v in batches.items()}
    task = PretrainingTask(S, P)
    outputs = trainer.model({name: features[name] for name in task.input_names}, training=False)
    expected = {**task.eval_outputs(outputs, features), "input_ids": features["input_ids"]}
    for name, value in expected.items():  # every example once and in order
        np.testing.assert_allclose(found[1][name], value, rtol=5e-3, atol=1e-3, err_msg=name)


def test_both_hold_the_same_bits_also_if_resumed_and_only_the_chief_writes(two_workers):
    folder, printed = two_workers
    assert printed == ["chief", "other"]
    first, second = (np.load(folder / f"worker-{index}.npz") for index in range(2))
    for name in first.files:
        expected = second[name.replace("resumed ", "variable ")]
        np.testing.assert_array_equal(first[name], expected, err_msg=name)
    lines = read_json_lines(folder / "metrics.jsonl")
    steps = [line["step"] for line in lines]
    assert steps == sorted(set(steps)) and steps[-1] == STEPS
