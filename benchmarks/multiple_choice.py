"""ARC (easy) from the MiniLM checkpoint, with run_scripts/run_swag.py.

    python benchmarks/multiple_choice.py --data_dir=../shared/data/multiple_choice/ARC

Prints one JSON line per seed: accuracy on the held-out questions, total seconds, and seconds of
processor time. Chance is about 25 %. Rows without two choices or a right one are left out.
Unknown flags are passed to run_swag.
"""

from __future__ import annotations

import argparse
import csv
import json
import string
import tempfile
from pathlib import Path

from fine_tuning_runs import ROOT, add_arguments, run_script, run_seeds


def usable_rows(file: Path, folder: Path) -> Path:
    """Write the rows of ARC with two or more choices, one of which is the answer, as JSON lines."""
    path = folder / f"{file.stem}.jsonl"
    with open(file, encoding="utf-8", newline="") as rows, open(path, "w") as output:
        for question, *choices, key in csv.reader(rows):
            choices = list(filter(None, choices))
            keys = {f"{n}": n - 1 for n in range(1, len(choices) + 1)}
            keys |= {string.ascii_uppercase[n]: n for n in range(len(choices))}
            if len(choices) > 1 and key in keys:
                row = {"text_a": question, "choices": choices, "label": keys[key]}
                output.write(json.dumps(row) + "\n")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--data_dir", default=str(ROOT.parent / "shared/data/multiple_choice/ARC"))
    parser.add_argument("--part", default="easy", choices=("easy", "challenge"))
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--num_epochs", type=float, default=3.0)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--max_seq_length", type=int, default=64)
    args, args.script_flags = parser.parse_known_args()
    data, folder = Path(args.data_dir), Path(tempfile.mkdtemp())
    flags = {
        # The larger of the two files is called dev. It serves as the training set.
        "train_file": usable_rows(data / f"arc_{args.part}_dev.csv", folder),
        "eval_file": usable_rows(data / f"arc_{args.part}_test.csv", folder),
        "do_train": True,
        "do_eval": True,
        "max_seq_length": args.max_seq_length,
        "train_batch_size": args.batch_size,
        "learning_rate": args.learning_rate,
        "num_train_epochs": args.num_epochs,
    }
    names = ("eval_accuracy", "eval_loss", "global_step", "seconds", "cpu_seconds")

    def run(args: argparse.Namespace, seed: int) -> dict[str, float]:
        results = run_script("run_swag", flags, args, seed)
        return {name: results[name] for name in names}

    run_seeds(run, args, {"part": args.part})


if __name__ == "__main__":
    main()
