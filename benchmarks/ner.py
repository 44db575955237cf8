"""Named entities of WNUT-17 from the MiniLM checkpoint, with run_scripts/run_ner.py.

    python benchmarks/ner.py --data_dir=../shared/data/ner/wnut17
    python benchmarks/ner.py --data_dir=../shared/data/ner/wnut17 --feature_layers=last_hidden

Prints one JSON line per seed: precision, recall and F1 of conlleval on the dev and the test set, total
seconds, and seconds of processor time. Unknown flags are passed to run_ner. The first command
fine-tunes. The second trains the BiLSTM of the paper on layers of the unchanged encoder.
"""

from __future__ import annotations

import argparse

from fine_tuning_runs import ROOT, add_arguments, run_script, run_seeds

FIGURES = ("precision", "recall", "f1")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--data_dir", default=str(ROOT.parent / "shared/data/ner/wnut17"))
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--num_epochs", type=float, default=3.0)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--max_seq_length", type=int, default=64)
    parser.add_argument("--feature_layers", help="a choice of run_ner's; default: fine-tuning")
    args, args.script_flags = parser.parse_known_args()
    flags = {
        "train_file": f"{args.data_dir}/wnut17train.conll",
        "eval_file": f"{args.data_dir}/emerging.dev.conll",
        "predict_file": f"{args.data_dir}/emerging.test.annotated",
        "do_train": True,
        "do_eval": True,
        "do_predict": True,
        "max_seq_length": args.max_seq_length,
        "train_batch_size": args.batch_size,
        "num_train_epochs": args.num_epochs,
    }
    if args.feature_layers:
        flags |= {"feature_based": True, "feature_layers": args.feature_layers}
    else:
        flags["learning_rate"] = args.learning_rate
    names = [f"{split}_{figure}" for split in ("eval", "test") for figure in FIGURES]
    names += ["global_step", "seconds", "cpu_seconds"]

    def run(args: argparse.Namespace, seed: int) -> dict[str, float]:
        results = run_script("run_ner", flags, args, seed)
        return {name: results[name] for name in names}

    run_seeds(run, args, {"feature_layers": args.feature_layers})


if __name__ == "__main__":
    main()
