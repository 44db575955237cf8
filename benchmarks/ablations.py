"""The paper's ablations at a small scale: effect of each part of the pre-training on fine-tuning.

    python benchmarks/ablations.py --output_dir=ablations --minutes=60
    python benchmarks/ablations.py --output_dir=ablations --tables=masking --minutes=30 --size=4,128,2

Pre-trains a model per row on the first --megabytes of English Wikipedia and fine-tunes it on data in
../shared/data. Prints three tables with the paper's metrics and ours:

    objectives   table 5: without next sentence; left-to-right; left-to-right with a BiLSTM on top
    sizes        table 6: layers, hidden size, heads, each with the same processor time
    masking      table 8: fractions of [MASK], the same word, a random word

Models are pre-trained with `--recipe=2026`, because they then learn more than the frequencies of words
within an hour. --minutes are processor minutes of each pre-training. They become a number of steps by
the speed of a row's first steps; in `objectives` and `masking` all rows take the steps of the first.
SQuAD is its first 3,000 training and 2,000 dev questions. Each metric has its spread over the seeds of
the fine-tuning. Run again with the same --output_dir to resume.

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
from statistics import mean, stdev

from fine_tuning_runs import ROOT, execute, read_results, seconds_of_children
from squad import read_paragraphs

VOCAB_SIZE, HELD_OUT_SHARE = 8000, 0.05
SQUAD_QUESTIONS = {"train-subset-44articles": 3000, "dev-v1.1": 2000}
TIMED_STEPS = (20, 120)  # the processor time between them gives the speed of a row
NO_NSP = {"objective": "mlm"}
LEFT_TO_RIGHT = {**NO_NSP, "attention": "left_to_right"}
FEATURE_BASED = {"feature_based": True, "feature_layers": "last_hidden", "bilstm_units": 64}


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
    return Row(f"{mask} / {same} / {random}", paper, shares)


# Table -> its columns (task and flags) and its rows. The paper's metrics are those of its dev sets:
# MRPC and SST-2 accuracy, SQuAD 1.1 F1, perplexity, span F1 of CoNLL-2003.
TABLES = {
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
        {"NER": ("ner", {}), "NER, feature-based": ("ner", FEATURE_BASED)},
        (
            masking_row(80, 10, 10, 95.4, 94.9),
            masking_row(100, 0, 0, 94.9, 94.0),
            masking_row(80, 0, 20, 95.2, 94.6),
            masking_row(80, 20, 0, 95.2, 94.7),
            masking_row(0, 20, 80, 94.8, 94.6),
            masking_row(0, 0, 100, 94.6, 94.6),
        ),
    ),
}
# Task -> program, metric, flags for files below --data_dir, other flags. Other metrics are of the
# pre-training.
TASKS: Mapping[str, tuple[str, str, Mapping[str, str], Mapping[str, object]]] = {
    "mrpc": ("run_classifier", "eval_accuracy", {"data_dir": "glue/MRPC"}, {"task_name": "mrpc"}),
    "sst-2": (
        "run_classifier",
        "eval_accuracy",
        {"data_dir": "glue/SST-2"},
        {"task_name": "sst-2", "num_train_epochs": 1},
    ),
    "sts-b": ("run_classifier", "eval_pearson", {"data_dir": "glue/STS-B"}, {"task_name": "sts-b"}),
    "ner": ("run_ner", "eval_f1", {"data_dir": "ner/wnut17"}, {}),
    "squad": ("run_squad", "f1", {}, {"doc_stride": 64, "num_train_epochs": 2}),
}


def make_data(args: argparse.Namespace, folder: Path) -> None:
    """Write the vocabulary, and the records of both objectives, without masks."""
    text = Path(args.text).read_text(encoding="utf-8")[: int(args.megabytes * 1e6)]
    documents = text.split("\n\n")[:-1]  # the last one is truncated
    num_held_out = max(1, int(HELD_OUT_SHARE * len(documents)))
    parts = {"held": documents[:num_held_out], "train": documents[num_held_out:]}
    for name, part in parts.items():
        (folder / f"{name}.txt").write_text("\n\n".join(part) + "\n", encoding="utf-8")
    vocab_file = folder / "vocab.txt"
    if not vocab_file.exists():
        flags = {"input_file": folder / "train.txt", "output_dir": folder}
        execute("create_vocab", flags | {"vocab_size": VOCAB_SIZE})
    for objective in ("mlm_nsp", "mlm"):
        for name in parts:
            output_file = folder / f"{objective}_{name}.tf_record"
            if not output_file.exists():
                flags = {
                    "input_file": folder / f"{name}.txt",
                    "output_file": output_file,
                    "vocab_file": vocab_file,
                    "objective": objective,
                    "masking": "none",
                    "dupe_factor": 1,
                    "max_seq_length": args.max_seq_length,
                }
                execute("create_pretraining_data", flags)


def pretrain(row: Row, num_train_steps: int, args: argparse.Namespace, folder: Path) -> Path:
    """Return the folder of the model; train it if missing."""
    output_dir = folder / f"{_name(row, args)}_{num_train_steps}"
    if not read_results(output_dir):
        flags = {"do_eval": True, "num_train_steps": num_train_steps, "output_dir": output_dir}
        execute("run_pretraining", {**pretraining_flags(row, args, folder), **flags})
    return output_dir


def num_steps(row: Row, args: argparse.Namespace, folder: Path) -> int:
    """Return how many steps of a row take --minutes of processor time. The first call measures it."""
    file = folder / f"{_name(row, args)}.steps.json"
    if not file.exists():
        flags = {**pretraining_flags(row, args, folder), "num_train_steps": 10_000, "report": False}
        seconds = []
        for stop_step in TIMED_STEPS:
            with tempfile.TemporaryDirectory() as output_dir:
                before = seconds_of_children()
                execute(
                    "run_pretraining", {**flags, "stop_step": stop_step, "output_dir": output_dir}
                )
                seconds.append(seconds_of_children() - before)
        first, last = TIMED_STEPS
        file.write_text(json.dumps({"seconds": (seconds[1] - seconds[0]) / (last - first)}))
    return round(args.minutes * 60 / json.loads(file.read_text())["seconds"])


def pretraining_flags(row: Row, args: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Return flags of run_pretraining. Write the configuration of the model."""
    from bert_tf.config import BertConfig

    vocab_file = folder / "vocab.txt"
    layers, hidden, heads = row.size or tuple(map(int, args.size.split(",")))
    config = BertConfig(
        vocab_size=len(vocab_file.read_text(encoding="utf-8").splitlines()),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        max_position_embeddings=args.max_seq_length,
        type_vocab_size=2,
    )
    config_file = folder / f"L{layers}_H{hidden}_A{heads}.json"
    config.to_json_file(config_file)
    flags = {"objective": "mlm_nsp", **row.pretraining}
    return flags | {
        "input_file": folder / f"{flags['objective']}_train.tf_record",
        "eval_file": folder / f"{flags['objective']}_held.tf_record",
        "bert_config_file": config_file,
        "vocab_file": vocab_file,
        "do_train": True,
        "recipe": "2026",
        "max_seq_length": args.max_seq_length,
        "max_predictions_per_seq": args.max_seq_length * 15 // 100 + 1,
        "train_batch_size": args.batch_size,
        "eval_batch_size": args.batch_size,
        "num_warmup_steps": 200,
        "learning_rate": args.learning_rate,
        "precision": args.precision,
    }


def _name(row: Row, args: argparse.Namespace) -> str:
    size = ",".join(map(str, row.size)) if row.size else args.size
    flags = (f"{key}={value}" for key, value in sorted(row.pretraining.items()))
    return "_".join([f"L{size}", *flags])


def fine_tune(
    model_dir: Path, task: str, flags: Mapping[str, object], args: argparse.Namespace, seed: int
) -> float:
    """Return the metric of a task on its dev set, in percent."""
    output_dir = model_dir / "_".join([task, *map(str, flags.values()), f"seed_{seed}"])
    program, metric, files, others = TASKS[task]
    if metric not in read_results(output_dir):
        data = {name: Path(args.data_dir) / path for name, path in files.items()}
        if task == "squad":
            data |= squad_files(Path(args.data_dir), model_dir.parent)
        given = {
            "init_checkpoint": model_dir,
            "output_dir": output_dir,
            "do_train": True,
            "do_eval": True,
            "max_seq_length": args.max_seq_length,
            "train_batch_size": 32,
            "learning_rate": 3e-4,
            "num_train_epochs": 3,
            "seed": seed,
            "precision": args.precision,
            "report": False,
        }
        execute(program, {**given, **data, **others, **flags})
    return read_results(output_dir)[metric] * (1 if task == "squad" else 100)


def squad_files(data_dir: Path, folder: Path) -> dict[str, Path]:
    """Write the first questions of SQuAD. Return the flags of run_squad."""
    for name, most in SQUAD_QUESTIONS.items():
        paragraphs = read_paragraphs(str(data_dir / "squad" / f"{name}.json"), most)
        text = json.dumps({"version": "1.1", "data": [{"title": name, "paragraphs": paragraphs}]})
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    train, dev = (folder / f"{name}.json" for name in SQUAD_QUESTIONS)
    return {"train_file": train, "predict_file": dev}


def run_table(table: str, args: argparse.Namespace, folder: Path) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    columns, rows = TABLES[table]
    header = [f"{name}, {whose}" for name in columns for whose in ("paper", "here")]
    yield f"| | {' | '.join(header)} |"
    yield "|---" * (len(header) + 1) + "|"
    for row in rows:
        timed = row if row.size else rows[0]
        model_dir = pretrain(row, num_steps(timed, args, folder), args, folder)
        cells = []
        for (task, flags), paper in zip(columns.values(), row.paper, strict=True):
            cells.append("" if paper is None else str(paper))
            if task not in TASKS:
                cells.append(f"{read_results(model_dir)[task]:.2f}")
                continue
            values = [
                fine_tune(model_dir, task, {**row.fine_tuning, **flags}, args, seed)
                for seed in map(int, args.seeds.split(","))
            ]
            spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
            cells.append(f"{mean(values):.1f}{spread}")
            about = {"table": table, "row": row.name, "task": task, "values": values}
            print(json.dumps(about | {"flags": flags}), file=sys.stderr)
        name = row.name if row.size is None else f"{row.name}; here {', '.join(map(str, row.size))}"
        yield f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output_dir", required=True, help="kept; several gigabytes")
    parser.add_argument("--tables", default=",".join(TABLES), help="comma list")
    parser.add_argument("--text", default=str(ROOT.parent / "shared/data/text/enwiki_30mb.txt"))
    parser.add_argument("--data_dir", default=str(ROOT.parent / "shared/data"))
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
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    folder = Path(args.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    make_data(args, folder)
    for table in args.tables.split(","):
        print(f"\n{table}", flush=True)
        for line in run_table(table, args, folder):
            print(line, flush=True)


if __name__ == "__main__":
    main()
