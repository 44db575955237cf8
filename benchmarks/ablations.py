"""The paper's ablations at a small scale: effect of each part of the pre-training on fine-tuning.

    python benchmarks/ablations.py --output_dir=ablations --minutes=60
    python benchmarks/ablations.py --output_dir=ablations --tables=masking --minutes=20 --size=4,128,2

Pre-trains a model per row on the first --megabytes of English Wikipedia and fine-tunes it on data in
../shared/data. Prints three tables with the paper's metrics and ours:

    objectives   table 5: without next sentence; left-to-right; left-to-right with a BiLSTM on top
    sizes        table 6: layers, hidden size, heads, each with the same processor time
    masking      table 8: fractions of [MASK], the same word, a random word

Models are pre-trained with `--recipe=2026` and half of the steps with half of the tokens, because they
then learn more than the frequencies of words within an hour. --minutes are processor minutes of each
pre-training. They become a number of steps by the speed of a row on the short records, which is
measured first for a minute or 1,000 steps. In `objectives` and `masking` all rows take the steps of the
first. The column "processor minutes" has what the row took, with start-up.

Held-out losses and perplexities of all rows are those of the masked words in the same records of single
sequences. SQuAD is its first 3,000 training and 2,000 dev questions. Each metric has its spread over
the seeds of the pre-training and of the fine-tuning. Run again with the same --output_dir to resume.
Tables of other --minutes or --size can have the same folder.

The paper's models have 110 million parameters and saw 128,000 million tokens. These have a few million
and see a few million. Differences of a point or two are noise.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fine_tuning_runs import execute, read_results
from pretraining_runs import (
    DATA_DIR,
    TASKS,
    TEXT,
    check_arguments,
    digest,
    fine_tune,
    is_finished,
    make_data,
    parse_size,
    read_times,
    spread,
    table,
    write_config,
)

VOCAB_SIZE = 8000
MOST_WARMUP_STEPS = 200
# A row's speed is measured over the first number of steps, then over more until this time or number.
FIRST_TIMED_STEPS, TIMED_SECONDS, MOST_TIMED_STEPS = 100, 60, 1000
NO_NSP = {"objective": "mlm"}
LEFT_TO_RIGHT = {**NO_NSP, "attention": "left_to_right"}
# With the 3 epochs of the other tasks a small model gives each word the label O.
NER = {"num_train_epochs": 10}
FEATURE_BASED = {**NER, "feature_based": True, "feature_layers": "last_hidden", "bilstm_units": 64}


@dataclass(frozen=True)
class Row:
    """One model of a table.

    Args:
        name: from the paper.
        paper: its metrics, in the order of the table's columns; None if it has none.
        pretraining: flags of run_pretraining (`objective` also chooses the records).
        fine_tuning: flags of the fine-tuning scripts.
        size: (layers, hidden, heads); None means --size.
    """

    name: str
    paper: tuple[float | None, ...]
    pretraining: Mapping[str, object] = field(default_factory=dict)
    fine_tuning: Mapping[str, object] = field(default_factory=dict)
    size: tuple[int, int, int] | None = None


def masking_row(mask: int, same: int, random: int, *paper: float) -> Row:
    shares = {"mask_token_prob": mask / 100, "random_token_prob": random / 100}
    return Row(f"{mask} / {same} / {random}", (None, *paper), shares)  # None: the paper's loss


Columns = dict[str, tuple[str, dict[str, object]]]  # name -> task, flags
# Table -> its columns (task and flags) and its rows. The paper's metrics are those of its dev sets:
# MRPC and SST-2 accuracy, SQuAD 1.1 F1, perplexity, span F1 of CoNLL-2003.
TABLES: dict[str, tuple[Columns, tuple[Row, ...]]] = {
    "objectives": (
        {
            "masked-LM loss": ("masked_lm_loss", {}),
            "MRPC": ("mrpc", {}),
            "SST-2": ("sst-2", {}),
            "STS-B": ("sts-b", {}),
            "SQuAD": ("squad", {}),
        },
        (
            Row("BERT", (None, 86.7, 92.7, None, 88.5)),
            Row("no NSP", (None, 86.5, 92.6, None, 87.9), NO_NSP),
            Row("LTR and no NSP", (None, 77.5, 92.1, None, 77.8), LEFT_TO_RIGHT),
            Row(
                "+ BiLSTM", (None, 75.7, 91.6, None, 84.9), LEFT_TO_RIGHT, {"num_bilstm_layers": 2}
            ),
        ),
    ),
    "sizes": (
        {
            "perplexity": ("masked_lm_perplexity", {}),
            "MRPC": ("mrpc", {}),
            "SST-2": ("sst-2", {}),
        },
        (
            Row("3, 768, 12", (5.84, 79.8, 88.4), size=(2, 64, 2)),
            Row("6, 768, 12", (4.68, 84.8, 91.3), size=(2, 128, 2)),
            Row("12, 768, 12", (3.99, 86.7, 92.9), size=(4, 128, 2)),
            Row("12, 1024, 16", (3.54, 86.9, 93.3), size=(4, 256, 4)),
        ),
    ),
    "masking": (
        {
            "masked-LM loss": ("masked_lm_loss", {}),
            "NER": ("ner", NER),
            "NER, feature-based": ("ner", FEATURE_BASED),
        },
        (
            masking_row(80, 10, 10, 95.4, 94.9),
            masking_row(100, 0, 0, 94.9, 94.0),
            masking_row(80, 0, 20, 95.2, 94.6),
            masking_row(80, 20, 0, 95.2, 94.7),
            masking_row(0, 20, 80, 94.8, 94.6),
            masking_row(0, 0, 100, 94.9, 94.6),
        ),
    ),
}


def pretrain(
    row: Row, seed: int, num_train_steps: int, args: argparse.Namespace, folder: Path
) -> Path:
    """Return the folder of the model. Train it and evaluate it on masked words, if missing."""
    output_dir = folder / f"{_name(row, args)}_{num_train_steps}_seed_{seed}"
    flags = pretraining_flags(row, num_train_steps, args, folder)
    if not is_finished(output_dir, num_train_steps):
        given = {"do_train": True, "do_eval": True, "output_dir": output_dir, "seed": seed}
        execute("run_pretraining", {**flags, **given}, is_timed=True)
    held_out = output_dir / "held_out"
    if not read_results(held_out):
        kept = ("max_seq_length", "eval_batch_size", "precision", "vocab_file")
        given = {
            **{name: flags[name] for name in kept},
            "input_file": folder / f"mlm_held-{args.max_seq_length}.tf_record",
            "objective": "mlm",
            "do_eval": True,
            "init_checkpoint": output_dir,
            "output_dir": held_out,
            "report": False,
        }
        execute("run_pretraining", given)
    return output_dir


def num_steps(row: Row, args: argparse.Namespace, folder: Path) -> int:
    """Return how many steps of a row take --minutes of processor time. The first call measures it."""
    file = folder / f"{_name(row, args)}.steps.json"
    if not file.exists():
        flags = pretraining_flags(row, 10_000, args, folder)
        del flags["eval_file"]
        stop_step = FIRST_TIMED_STEPS
        with tempfile.TemporaryDirectory() as output_dir:
            given = {"do_train": True, "output_dir": output_dir, "report": False}
            while True:  # each time resumes the one before
                execute(
                    "run_pretraining", {**flags, **given, "stop_step": stop_step}, is_timed=True
                )
                times = read_times(Path(output_dir))
                assert times is not None  # there are several calls of the loop
                seconds = times.per_step
                if seconds * stop_step >= TIMED_SECONDS or stop_step >= MOST_TIMED_STEPS:
                    break
                needed = round(1.1 * TIMED_SECONDS / seconds)
                stop_step = min(MOST_TIMED_STEPS, max(needed, stop_step + 1))
        measured = {"seconds": seconds, "steps": stop_step}
        temporary = file.with_suffix(".tmp")
        temporary.write_text(json.dumps(measured), encoding="utf-8")
        temporary.rename(file)
    return max(1, round(args.minutes * 60 / json.loads(file.read_text())["seconds"]))


def pretraining_flags(
    row: Row, num_train_steps: int, args: argparse.Namespace, folder: Path
) -> dict[str, object]:
    """Return flags of run_pretraining. Write the configuration of the model."""
    vocab_file = folder / "vocab.txt"
    size = row.size or parse_size(args.size)
    positions = {"max_position_embeddings": args.max_seq_length}
    flags = {"objective": "mlm_nsp", **row.pretraining}
    records = folder / f"{flags['objective']}_%s-{{length}}.tf_record"
    return flags | {
        "input_file": str(records) % "train",
        "eval_file": str(records) % "held",
        "bert_config_file": write_config(folder, size, vocab_file, positions),
        "vocab_file": vocab_file,
        "recipe": "2026",
        "phases": ",".join(f"{length}:0.5" for length in lengths(args)),
        "scale_phase_batches": True,
        "max_seq_length": args.max_seq_length,
        "train_batch_size": args.batch_size,
        "eval_batch_size": args.batch_size,
        "num_train_steps": num_train_steps,
        "num_warmup_steps": min(MOST_WARMUP_STEPS, num_train_steps // 5),
        "learning_rate": args.learning_rate,
        "precision": args.precision,
    }


def lengths(args: argparse.Namespace) -> list[int]:
    """Return the lengths of the two halves of a pre-training."""
    return [args.max_seq_length // 2, args.max_seq_length]


def _name(row: Row, args: argparse.Namespace) -> str:
    size = ",".join(map(str, row.size)) if row.size else args.size
    flags = (f"{key}={value}" for key, value in sorted(row.pretraining.items()))
    return "_".join([f"L{size}", *flags])


def run_table(name: str, args: argparse.Namespace, folder: Path) -> Iterator[str]:
    """Yield the lines of a table in Markdown, each after its runs."""
    columns, rows = TABLES[name]
    header = [f"{column}, {whose}" for column in columns for whose in ("paper", "here")]
    lines = (run_row(row, name, args, folder) for row in rows)
    yield from table(["", "steps", "processor minutes", *header], lines)


def run_row(row: Row, name: str, args: argparse.Namespace, folder: Path) -> list[object]:
    """Return the cells of a row of a table."""
    columns, rows = TABLES[name]
    steps = num_steps(row if row.size else rows[0], args, folder)
    models = [
        pretrain(row, int(seed), steps, args, folder) for seed in args.pretraining_seeds.split(",")
    ]
    times = [found for model in models if (found := read_times(model))]
    minutes = spread([found.total / 60 for found in times], 1)
    size = "" if row.size is None else f"; here {', '.join(map(str, row.size))}"
    cells: list[object] = [f"{row.name}{size}", steps, minutes]
    for (task, flags), paper in zip(columns.values(), row.paper, strict=True):
        cells.append("" if paper is None else paper)
        if task not in TASKS:
            cells.append(spread([read_results(model / "held_out")[task] for model in models], 2))
            continue
        values = [
            fine_tune(
                model,
                task,
                int(seed),
                data_dir=args.data_dir,
                max_seq_length=args.max_seq_length,
                precision=args.precision,
                flags={**row.fine_tuning, **flags},
            )
            for model in models
            for seed in args.seeds.split(",")
        ]
        cells.append(spread(values, 1))
        about = {"table": name, "row": row.name, "task": task, "values": values}
        print(json.dumps(about | {"flags": flags}), file=sys.stderr, flush=True)
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output_dir", required=True, help="kept; several gigabytes")
    parser.add_argument("--tables", default=",".join(TABLES), help="comma list")
    parser.add_argument("--text", default=str(TEXT))
    parser.add_argument("--data_dir", default=str(DATA_DIR))
    parser.add_argument("--megabytes", type=float, default=30.0, help="of the text")
    parser.add_argument("--size", default="4,256,4", help="layers, hidden size, heads")
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="of a processor, for each model"
    )
    parser.add_argument("--learning_rate", type=float, default=1.5e-3, help="of the pre-training")
    parser.add_argument("--precision", default="mixed_bfloat16")
    parser.add_argument("--seeds", default="1,2,3", help="of the fine-tuning, comma list")
    parser.add_argument("--pretraining_seeds", default="1", help="comma list")
    args = parser.parse_args()
    if unknown := {*args.tables.split(",")} - {*TABLES}:
        parser.error(f"--tables has {', '.join(unknown)}, but may have {', '.join(TABLES)}")
    folder = Path(args.output_dir)
    noted = ("megabytes", "max_seq_length", "batch_size", "learning_rate", "precision")
    arguments = {name: getattr(args, name) for name in noted}
    arguments |= {"text": digest(args.text), "data_dir": str(Path(args.data_dir).resolve())}
    arguments["lengths"] = lengths(args)
    check_arguments(folder, arguments)
    objectives = ("mlm_nsp", "mlm")
    make_data(args.text, folder, lengths(args), objectives, args.megabytes, VOCAB_SIZE)
    for name in args.tables.split(","):
        print(f"\n{name}", flush=True)
        for line in run_table(name, args, folder):
            print(line, flush=True)


if __name__ == "__main__":
    main()
