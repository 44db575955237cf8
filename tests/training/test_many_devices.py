"""Four devices take the steps of one, whatever remains for each; so does every evaluation."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.weekly  # of two devices: test_batch_trainer.py

# Four CPU devices, in a process of their own because their number is fixed once TensorFlow computes.
PROGRAM = """
import json, sys, tempfile
import numpy as np
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
from tiny_training import endless, linear_rows, linear_trainer, pretrainer, pretraining_batches

def trained(trainer, batches, steps):
    with tempfile.TemporaryDirectory() as folder:
        trainer.train(endless(batches), steps, output_dir=folder, max_steps_per_loop=1)
        lines = [json.loads(line) for line in open(f"{folder}/metrics.jsonl")]
    weights = {v.path: v.numpy() for v in trainer.model.weights}
    return weights, [line["loss"] for line in lines]

def distance(found, expected):
    return max(
        float(np.max(np.abs(found[name] - value) / (1e-2 + np.abs(value))))
        for name, value in expected.items()
    )

batches = pretraining_batches()  # of 5: a device gets two examples, one or none
expected, losses = trained(pretrainer(1), batches, 3)
weights, found = trained(pretrainer(4, gradient_accumulation_steps=2), batches, 3)
rows = linear_rows(7)
data = tf.data.Dataset.from_tensor_slices(rows).batch(3)
kept = linear_trainer(4).predict(data, lambda outputs, features: {"y": outputs["y"]}, 3)
json.dump(
    {
        "weights": distance(weights, expected),
        "losses": float(np.abs(np.subtract(found, losses)).max()),
        "evaluation": float(np.abs(kept["y"] - rows["x"].sum(axis=1)).max()),
    },
    sys.stdout,
)
"""


def test_four_devices_pretrain_and_evaluate_as_one_does():
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", PROGRAM]
    process = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    found = json.loads(process.stdout)
    assert found["losses"] < 1e-5
    assert found["weights"] < 1e-3
    assert found["evaluation"] < 1e-5
