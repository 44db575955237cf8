"""Recipes of pre-training: processor time until a held-out masked-LM loss, flag by flag.

    python benchmarks/recipes.py --output_dir=recipes
    python benchmarks/recipes.py --output_dir=recipes --rows=published,2026 --seeds=1,2,3

Pre-trains the mini size (4 layers, hidden size 256) on 64 tokens of English Wikipedia in ../shared/data;
every twentieth article is held out. `published` is the run of docs/pretraining.md. Each row is a command
of run_pretraining that differs from it in the flags of ROWS. Prints the steps and the processor minutes
until --loss, by straight lines between the evaluations. Run again with the same --output_dir to resume.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from fine_tuning_runs import ROOT, execute, read_results, seconds_of_children

TOKENS = 64
PUBLISHED = {
    "max_seq_length": TOKENS,
    "max_predictions_per_seq": 10,
    "train_batch_size": 64,
    "num_train_steps": 8000,
    "num_warmup_steps": 800,
    "learning_rate": 7e-4,
    "optimizer": "adamw",
    "adam_beta2": 0.98,
    "precision": "mixed_bfloat16",
}
NO_DROPOUT = {"hidden_dropout": 0, "attention_dropout": 0}
MUON = {"optimizer": "muon", "num_warmup_steps": 200}
ROWS: dict[str, dict[str, object]] = {
    "published": {},
    "no_dropout": NO_DROPOUT,
    "muon": MUON,
    "muon_no_dropout": {**MUON, **NO_DROPOUT},
    "2026": {**MUON, **NO_DROPOUT, "num_train_steps": 4500},
    "2026_faster": {**MUON, **NO_DROPOUT, "num_train_steps": 4500, "learning_rate": 1.5e-3},
}


def make_data(text: str, folder: Path) -> dict[str, Path]:
    """Write records without masks of the articles to train on and of those held out."""
    vocab_file = ROOT / "vocab" / "uncased_30522" / "vocab.txt"
    articles = [part for part in Path(text).read_text("utf-8").split("\n\n") if part.strip()]
    parts = {
        "train": [article for i, article in enumerate(articles) if i % 20],
        "held": articles[::20],
    }
    paths = {name: folder / f"{name}.tf_record" for name in parts}
    for name, part in parts.items():
        if paths[name].exists():
            continue
        (folder / f"{name}.txt").write_text("\n\n".join(part) + "\n", encoding="utf-8")
        flags = {
            "input_file": folder / f"{name}.txt",
            "output_file": paths[name],
            "vocab_file": vocab_file,
            "masking": "none",
            "dupe_factor": 1,
            "max_seq_length": TOKENS,
        }
        execute("create_pretraining_data", flags)
    return paths | {"vocab_file": vocab_file}


def pretrain(flags: Mapping[str, object], data: Mapping[str, Path], folder: Path) -> None:
    """Train, and note the processor seconds and steps of this process in cpu.jsonl."""
    config = folder.parent / "mini.json"
    if not config.exists():
        sizes = {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4}
        config.write_text(json.dumps({**sizes, "intermediate_size": 1024, "vocab_size": 30522}))
    before, steps = seconds_of_children(), _last_step(folder)
    try:
        execute(
            "run_pretraining",
            {
                **{"input_file": data["train"], "eval_file": data["held"]},
                **{"do_train": True, "do_eval": True, "evaluate_steps": 250},
                **{"eval_batch_size": 64, "max_eval_steps": 60, "save_checkpoints_steps": 250},
                **{"bert_config_file": config, "vocab_file": data["vocab_file"]},
                **{"output_dir": folder, "keep_checkpoint_max": 1},
                **PUBLISHED,
                **flags,
            },
        )
    finally:
        spent = {"seconds": seconds_of_children() - before, "steps": _last_step(folder) - steps}
        with open(folder / "cpu.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(spent) + "\n")


def result(folder: Path, loss: float) -> dict[str, float | None]:
    """Return what a run took until the loss; None where it was not reached."""
    spent = [json.loads(line) for line in (folder / "cpu.jsonl").read_text().splitlines()]
    seconds = sum(part["seconds"] for part in spent) / sum(part["steps"] for part in spent)
    held = {line["step"]: line["masked_lm_loss"] for line in _lines(folder, "eval")}
    last = read_results(folder)  # of the last step
    held[int(last["global_step"])] = last["masked_lm_loss"]
    points, reached = sorted(held.items()), None
    for (step, above), (next_step, below) in pairwise(points):
        if above > loss >= below:
            reached = step + (next_step - step) * (above - loss) / (above - below)
            break
    speeds = [line["tokens_per_second"] for line in _lines(folder, "train")]
    return {
        "steps": points[-1][0],
        "last loss": round(points[-1][1], 3),
        "steps to loss": reached and round(reached),
        "cpu ms per step": round(1000 * seconds, 1),
        "cpu minutes to loss": reached and round(reached * seconds / 60, 1),
        "tokens per second": round(sorted(speeds)[len(speeds) // 2]),
    }


def _lines(folder: Path, kind: str) -> list[dict]:
    path = folder / "metrics.jsonl"
    lines = map(json.loads, path.read_text("utf-8").splitlines()) if path.exists() else ()
    return [line for line in lines if line["kind"] == kind]


def _last_step(folder: Path) -> int:
    return max((line["step"] for line in _lines(folder, "train")), default=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--text", default=str(ROOT.parent / "shared/data/text/enwiki_30mb.txt"))
    parser.add_argument("--rows", default=",".join(ROWS), help="comma list of ROWS")
    parser.add_argument("--seeds", default="1", help="comma list")
    parser.add_argument("--loss", type=float, default=4.97)
    parser.add_argument("--stop_step", type=int, help="of each run, to compare beginnings")
    args = parser.parse_args()
    folder = Path(args.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    data = make_data(args.text, folder)
    stop = {} if args.stop_step is None else {"stop_step": args.stop_step}
    for row in args.rows.split(","):
        for seed in map(int, args.seeds.split(",")):
            run = folder / f"{row}_{seed}"
            run.mkdir(exist_ok=True)
            pretrain({**ROWS[row], "seed": seed, **stop}, data, run)
            print(json.dumps({"row": row, "seed": seed, **result(run, args.loss)}), flush=True)


if __name__ == "__main__":
    main()
