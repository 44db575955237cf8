"""Cost of writing a checkpoint while training continues.

    python benchmarks/checkpoints.py --size=base --steps=20

Trains on random examples, alternately without and with a checkpoint at the first step of the turn. The
checkpoint is written by the thread of `TrainLoop.train`, or, for comparison, while training waits.
Give enough --steps: a turn that is shorter than the writing does not contain its whole cost.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tensorflow as tf
from training import PREDICTIONS, SIZES, config_of, make_batch

from bert_tf.pretraining.task import PretrainingTask
from bert_tf.training.checkpoints import BackgroundSaver
from bert_tf.training.loop import TrainLoop
from bert_tf.training.optimizers import AdamW
from bert_tf.training.strategy import distribute, make_strategy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20, help="of a turn")
    parser.add_argument("--turns", type=int, default=2)
    arguments = parser.parse_args()

    task = PretrainingTask(arguments.max_seq_length, PREDICTIONS)
    strategy = make_strategy()
    config = config_of(arguments.size)
    with strategy.scope():
        model, optimizer = task.build_model(config, dtype="mixed_bfloat16"), AdamW(1e-4)
    trainer = TrainLoop(
        model, task.losses, strategy=strategy, input_names=task.input_names, optimizer=optimizer
    )
    batch = make_batch("pretraining", arguments.batch_size, arguments.max_seq_length)
    iterator = iter(distribute(strategy, tf.data.Dataset.from_tensors(batch).repeat()))
    trainer.take_steps(iterator, 2)
    seconds: dict[str, list[float]] = {"without": [], "in the background": [], "waiting": []}
    for _ in range(arguments.turns):
        for kind, turns in seconds.items():
            with tempfile.TemporaryDirectory() as folder:
                saver = BackgroundSaver(folder)
                start = time.perf_counter()
                if kind != "without":
                    saver.save(trainer.variables, trainer.step)
                if kind == "waiting":
                    saver.wait()
                for _ in range(arguments.steps):
                    trainer.take_steps(iterator, 1)
                turns.append(time.perf_counter() - start)
                saver.wait()
    plain = median(seconds["without"])
    for kind, turns in seconds.items():
        extra = median(turns) - plain
        print(
            f"{kind:18} {median(turns):7.2f} s for {arguments.steps} steps, {extra:5.2f} s more: "
            f"{extra / plain * arguments.steps:.1f} steps"
        )


if __name__ == "__main__":
    main()
