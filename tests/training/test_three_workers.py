"""Three processes on 127.0.0.1, one of them slow, or ended and started again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tiny_runs import free_addresses
from tiny_training import endless, pretrainer, pretraining_batches

from bert_tf.training.schedules import WarmupDecay

pytestmark = pytest.mark.slow
STEPS, COUNT = 20, 3

# Five examples are two, two and one. The pauses are evaluations.
WORKER = """
import sys, time
import keras, numpy as np
from bert_tf.training.strategy import make_strategy
strategy = make_strategy("auto")
from tiny_training import P, S, bert_config, endless, pretraining_batches
from bert_tf.tasks.pretraining import PretrainingTask
from bert_tf.training.batch_trainer import BatchTrainer
from bert_tf.training.optimization import AdamWeightDecay
from bert_tf.training.schedules import WarmupDecay

folder, steps = sys.argv[1], int(sys.argv[2])
task = PretrainingTask(S, P)
keras.utils.set_random_seed(1)
with strategy.scope():
    model = task.build_model(bert_config())
    optimizer = AdamWeightDecay(WarmupDecay(0.01, 25, 3))
trainer = BatchTrainer(
    model, task.losses, strategy=strategy, input_names=task.input_names, optimizer=optimizer,
    jit_compile="false",
)
resumed = trainer.resume(folder)
trainer.train(
    endless(pretraining_batches()), steps, output_dir=folder, save_checkpoints_steps=5,
    evaluate=lambda: time.sleep(0.3) or {}, evaluate_steps=2,
)
np.savez(f"{folder}/worker-{strategy.cluster_resolver.task_id}.npz", resumed=resumed or 0,
         **{v.path: v.numpy() for v in model.weights})
"""


class Workers:
    """Started together; ended with the test."""

    def __init__(self, folder):
        folder.mkdir(exist_ok=True)
        self.folder = folder
        addresses = free_addresses(COUNT)
        self.processes = [self._start(addresses, index) for index in range(COUNT)]

    def _start(self, addresses, index):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = {
            **os.environ,
            "TF_CONFIG": json.dumps(task),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
        }
        command = [sys.executable, "-c", WORKER, str(self.folder), str(STEPS)]
        return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()

    def wait_for(self, step):
        """Until this step is logged."""
        log, deadline = self.folder / "metrics.jsonl", time.monotonic() + 200
        while not log.exists() or self.last_step() < step:
            assert time.monotonic() < deadline, "no step"
            assert all(process.poll() is None for process in self.processes)
            time.sleep(0.02)

    def last_step(self):
        lines = (self.folder / "metrics.jsonl").read_text().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]
        return json.loads(whole[-1])["step"] if whole else 0

    def ends(self):
        """Codes and messages."""
        words = [process.communicate(timeout=240)[1] for process in self.processes]
        return [process.returncode for process in self.processes], words

    def results(self):
        return [np.load(self.folder / f"worker-{index}.npz") for index in range(COUNT)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run in which one process stands still for a while."""
    with Workers(tmp_path_factory.mktemp("three") / "whole") as workers:
        workers.wait_for(4)
        workers.processes[1].send_signal(signal.SIGSTOP)
        time.sleep(2)
        assert workers.last_step() < STEPS  # the others wait for it
        workers.processes[1].send_signal(signal.SIGCONT)
        codes, words = workers.ends()
        assert codes == [0] * COUNT, words[0][-3000:]
    return workers.results()


def test_three_processes_one_of_them_slow_take_the_steps_of_one_device(whole, tmp_path):
    trainer = pretrainer(rate=WarmupDecay(0.01, 25, 3))
    trainer.train(endless(pretraining_batches()), STEPS, output_dir=str(tmp_path))
    for found in whole:
        for variable in trainer.model.weights:
            np.testing.assert_allclose(
                found[variable.path], variable, rtol=2e-3, atol=3e-5, err_msg=variable.path
            )
            np.testing.assert_array_equal(found[variable.path], whole[0][variable.path])


@pytest.mark.parametrize(
    "how, victim",
    [(signal.SIGKILL, 0), pytest.param(signal.SIGTERM, 2, marks=pytest.mark.long)],
)
def test_one_of_three_ends_and_all_come_back_to_the_same_bits(whole, tmp_path, how, victim):
    with Workers(tmp_path / "run") as workers:
        workers.wait_for(8)
        workers.processes[victim].send_signal(how)
        codes, words = workers.ends()
    if how == signal.SIGTERM:  # all save this step
        assert codes == [143] * COUNT, words[0][-3000:]
    else:
        assert codes[victim] == -signal.SIGKILL and 0 not in codes
    with Workers(tmp_path / "run") as workers:
        codes, words = workers.ends()
        assert codes == [0] * COUNT, words[0][-3000:]
    for found, expected in zip(workers.results(), whole, strict=True):
        assert found["resumed"] >= 5
        for name in set(expected.files) - {"resumed"}:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
