"""Records per second of the training reader, to compare with the needs of training.

    python benchmarks/input_pipeline.py --text=../shared/data/text/enwiki_30mb.txt

Makes records of the first --megabytes of the text, with static masks and without (masked while reading).
Reads shuffled batches as `run_pretraining` does, without training. Prints records per second of wall
time and per second of processor time ("per core").
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from fine_tuning_runs import ROOT, execute

sys.path.insert(0, str(ROOT))

VOCAB_FILE = ROOT.parent / "shared/data/vocab/bert-base-uncased.vocab.txt"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", default=str(ROOT.parent / "shared/data/text/enwiki_30mb.txt"))
    parser.add_argument("--megabytes", type=float, default=4.0)
    parser.add_argument("--vocab_file", default=str(VOCAB_FILE))
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--batches", type=int, default=2000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        whole = Path(args.text).read_text(encoding="utf-8")
        text.write_text(whole[: int(1e6 * args.megabytes)], encoding="utf-8")
        for masking in ("static", "none"):
            records = Path(folder) / f"{masking}.tf_record"
            flags = {
                "input_file": text,
                "output_file": records,
                "vocab_file": args.vocab_file,
                "masking": masking,
                "dupe_factor": 1,
                "max_seq_length": args.max_seq_length,
            }
            execute("create_pretraining_data", flags)
            seconds, processor = measure(records, args)
            count = args.batches * args.batch_size
            name = {"static": "with masks", "none": "masked on the way"}[masking]
            print(
                f"{name:18} {count / seconds:9,.0f} records/s, {count / processor:9,.0f} per core",
                flush=True,
            )


def measure(records: Path, args: argparse.Namespace) -> tuple[float, float]:
    """Return the seconds, and the seconds of processor time, of --batches batches."""
    from bert_tf.config import BertConfig
    from bert_tf.options import make_options
    from bert_tf.pretraining.run_pretraining import PretrainingOptions, make_tasks, read_record_set
    from bert_tf.tasks.batches import training_batches

    options = make_options(
        PretrainingOptions,
        input_file=str(records),
        output_dir=str(records.parent),
        vocab_file=args.vocab_file,
        do_train=True,
        max_seq_length=args.max_seq_length,
        train_batch_size=args.batch_size,
    )
    record_set = read_record_set(str(records))
    tokens = Path(args.vocab_file).read_text(encoding="utf-8").splitlines()
    task = make_tasks(options, {"train": record_set}, tokens, args.max_seq_length)["train"]
    # The ids of each record are checked, as in training.
    id_limits = task.id_limits(BertConfig.from_name("base", len(tokens)))
    batches = iter(
        training_batches(task, record_set.files, options.training, "trimmed", id_limits=id_limits)
    )
    for _ in range(50):
        next(batches)
    start, processor = time.perf_counter(), time.process_time()
    for _ in range(args.batches):
        next(batches)
    return time.perf_counter() - start, time.process_time() - processor


if __name__ == "__main__":
    main()
