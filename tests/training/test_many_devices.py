"""Four and eight devices take the steps of one, whatever remains for each; so does every evaluation."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # of two devices: test_batch_trainer.py
_OTHERS = ((8, 1, "false"), (4, 1, "auto"))

# Eight CPU devices, in a process of their own because their number is fixed once TensorFlow computes.
PROGRAM = """
import json, sys, tempfile
import numpy as np
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 8)
from tiny_training import (
    endless, linear_batches, linear_rows, linear_trainer, pretrainer, pretraining_batches
)

def trained(trainer, batches, steps, **kwargs):
    with tempfile.TemporaryDirectory() as folder:
        trainer.train(endless(batches), steps, output_dir=folder, max_steps_per_loop=1, **kwargs)
        lines = [json.loads(line) for line in open(f"{folder}/metrics.jsonl")]
    weights = {v.path: v.numpy() for v in trainer.model.weights}
    return weights, [line["loss"] for line in lines]

def distance(found, expected):
    return max(
        float(np.max(np.abs(found[name] - value) / (1e-2 + np.abs(value))))
        for name, value in expected.items()
    )

if sys.argv[1] == "pretraining":
    devices, parts, kind = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    batches = pretraining_batches()  # of 5: eight devices get one example or none
    expected, losses = trained(pretrainer(1), batches, 6)
    trainer = pretrainer(devices, jit_compile=kind, gradient_accumulation_steps=parts)
    weights, theirs = trained(trainer, batches, 6)
    difference = float(np.abs(np.subtract(theirs, losses)).max())
    json.dump({"weights": distance(weights, expected), "losses": difference}, sys.stdout)
    sys.exit()

found = {"linear": {}, "evaluation": {}}
numbers_of_devices = [int(number) for number in sys.argv[2:]]
for batch_size in (1, 13):
    batches = linear_batches(batch_size)
    expected, _ = trained(linear_trainer(1), batches, 6)
    for devices in numbers_of_devices:
        weights, _ = trained(linear_trainer(devices), batches, 6)
        found["linear"][f"{batch_size} {devices}"] = distance(weights, expected)

def keep_all(outputs, features):
    return {"y": outputs["y"], "number": features["number"]}

for devices in numbers_of_devices:
    trainer = linear_trainer(devices)
    for count, batch_size in ((1, 3), (7, 3), (17, 16)):
        rows = linear_rows(count)
        data = tf.data.Dataset.from_tensor_slices(rows).batch(batch_size)
        kept = trainer.predict(data, keep_all, batch_size)
        same = kept["number"].tolist() == list(range(count))
        found["evaluation"][f"{devices} {count} {batch_size}"] = same and bool(
            np.allclose(kept["y"], rows["x"].sum(axis=1), rtol=1e-5)
        )
json.dump(found, sys.stdout)
"""


def run(*arguments):
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    return json.loads(process.stdout)


@pytest.mark.parametrize(
    "devices, parts, kind",
    [(4, 2, "false"), *(pytest.param(*case, marks=pytest.mark.long) for case in _OTHERS)],
)
def test_many_devices_pretrain_as_one_does(devices, parts, kind):
    found = run("pretraining", devices, parts, kind)
    assert found["losses"] < 1e-5
    assert found["weights"] < 1e-3


@pytest.mark.parametrize(
    "numbers_of_devices", [(4, 8), pytest.param((1, 2, 3, 5, 6, 7), marks=pytest.mark.long)]
)
def test_batches_and_evaluations_of_any_size_are_dealt_out_to_any_number_of_devices(
    numbers_of_devices,
):
    found = run("linear", *numbers_of_devices)
    assert len(found["linear"]) == 2 * len(numbers_of_devices)
    assert {how: error for how, error in found["linear"].items() if not error < 1e-4} == {}
    assert len(found["evaluation"]) == 3 * len(numbers_of_devices)
    assert [how for how, is_right in found["evaluation"].items() if not is_right] == []
