"""Peak memory of a pre-training step by size, length, precision and micro-batch.

    python benchmarks/memory.py
    python benchmarks/memory.py --sizes=base --lengths=128 --precisions=mixed_bfloat16 --batches=8

Each cell is a process of its own, which takes two steps with 15 % masked words. Prints what
`modeling/memory.py` expects beside the peak resident memory.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys

import numpy as np

NAMES = ("size", "length", "precision", "batch")


def take_steps(size: str, length: int, precision: str, batch: int) -> dict[str, float]:
    """Take two steps in this process, and return gigabytes."""
    import tensorflow as tf

    from bert_tf.config import BertConfig
    from bert_tf.modeling.memory import training_bytes
    from bert_tf.tasks.pretraining import PretrainingTask
    from bert_tf.training.batch_trainer import BatchTrainer
    from bert_tf.training.optimization import AdamWeightDecay
    from bert_tf.training.strategy import make_strategy

    config = BertConfig.from_name(size, vocab_size=30522)
    most = -(-length * 15 // 100)
    task, strategy = PretrainingTask(length, most), make_strategy("one_device", num_gpus=0)
    tf.zeros(()).numpy()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with strategy.scope():
        model = task.build_model(config, dtype=precision)
        optimizer = AdamWeightDecay(1e-4)
    trainer = BatchTrainer(
        model, task.losses, strategy=strategy, input_names=task.input_names, optimizer=optimizer
    )
    rng = np.random.default_rng(0)
    features = {
        "input_ids": rng.integers(1000, 30000, (batch, length), np.int32),
        "input_mask": np.ones((batch, length), np.int32),
        "segment_ids": np.zeros((batch, length), np.int32),
        "masked_lm_positions": rng.integers(0, length, (batch, most), np.int32),
        "masked_lm_ids": rng.integers(1000, 30000, (batch, most), np.int32),
        "masked_lm_weights": np.ones((batch, most), np.float32),
        "next_sentence_labels": np.zeros(batch, np.int32),
    }
    dataset = tf.data.Dataset.from_tensors(features).repeat()
    trainer.take_steps(iter(strategy.experimental_distribute_dataset(dataset)), 2)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    expected = training_bytes(config, length, most, batch, precision)
    return {"GB": round((after - before) / 2**20, 2), "expected": round(expected / 2**30, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="mini,base,large")
    parser.add_argument("--lengths", default="128,512")
    parser.add_argument("--precisions", default="float32,mixed_bfloat16")
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--cell", help="one cell, in this process")
    args = parser.parse_args()
    if args.cell:
        size, length, precision, batch = args.cell.split(",")
        print(json.dumps(take_steps(size, int(length), precision, int(batch))))
        return
    columns = (args.sizes, args.lengths, args.precisions, args.batches)
    for cell in itertools.product(*(column.split(",") for column in columns)):
        command = [sys.executable, __file__, f"--cell={','.join(cell)}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        found = json.loads(done.stdout) if done.returncode == 0 else {"ended with": done.returncode}
        print(json.dumps(dict(zip(NAMES, cell, strict=True)) | found), flush=True)


if __name__ == "__main__":
    main()
