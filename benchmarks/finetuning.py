"""Classification of GLUE from the MiniLM checkpoint: bert_tf and Hugging Face transformers.

    python benchmarks/finetuning.py --task=mrpc --side=bert_tf
    python benchmarks/finetuning.py --task=mrpc --side=bert_tf --precision=mixed_bfloat16
    python benchmarks/finetuning.py --task=mrpc --side=transformers
    python benchmarks/finetuning.py --task=mrpc --side=transformers --dynamic_padding --bf16

Each side runs in an environment with its packages (`pip install -e .[bench]` has both). Prints one JSON
line per seed: the official metrics on dev.tsv after training, total seconds, and processor seconds,
which other programs disturb less. Our seconds are those of a new process, with imports and compilation;
transformers' exclude its imports. Unknown flags are passed to run_classifier.

transformers' side is its `Trainer` with the defaults of run_glue: every example padded to
--max_seq_length, float32, AdamW. Both sides use the recipe of its README and of BERT: batch 32, 3
epochs, at most 128 tokens. Weight decay is 0.01, dropout 0.1. The learning rate warms up over 10 % of
the steps and decays linearly to 0. Gradients are clipped to a global norm of 1.0, and every parameter is
trained.

These differences remain: transformers' AdamW corrects the bias of its moments (epsilon 1e-8) and counts
the last short batch of an epoch. bert_tf follows the reference's optimizer (no bias correction, epsilon
1e-6) and schedule, whose decay begins at step 0: the rate after the warm-up is 0.9 of transformers'.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from fine_tuning_runs import (
    MAX_GRADIENT_NORM,
    ROOT,
    WARMUP_PROPORTION,
    WEIGHT_DECAY,
    add_arguments,
    init_checkpoint,
    parse_sides,
    processors,
    run_script,
    run_seeds,
)

sys.path.insert(0, str(ROOT))


class TaskColumns(NamedTuple):
    """Columns of the texts and the label of a GLUE set."""

    folder: str
    text_columns: tuple[int, ...]
    label_column: int
    has_header: bool = True
    is_regression: bool = False


TASKS = {
    "cola": TaskColumns("CoLA", (3,), 1, has_header=False),
    "mrpc": TaskColumns("MRPC", (3, 4), 0),
    "sst-2": TaskColumns("SST-2", (0,), 1),
    "sts-b": TaskColumns("STS-B", (7, 8), 9, is_regression=True),
}


def read_rows(tsv_file: Path, columns: TaskColumns) -> list[tuple[tuple[str, ...], float]]:
    """Return the texts and the label of each row; quotes are ordinary characters."""
    with open(tsv_file, encoding="utf-8-sig", newline="") as lines:
        rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [
        (tuple(row[i] for i in columns.text_columns), float(row[columns.label_column]))
        for row in rows[columns.has_header :]
    ]


def official_metrics(task: str, logits, labels) -> dict[str, float]:
    """Return GLUE's metrics of a task, named as in `eval_results.txt`."""
    import numpy as np
    from scipy import stats
    from sklearn import metrics

    if task == "sts-b":
        scores = logits[:, 0].astype(np.float64)
        pearson, spearman = stats.pearsonr(scores, labels)[0], stats.spearmanr(scores, labels)[0]
        return {"eval_pearson": pearson, "eval_spearman": spearman}
    predictions = np.argmax(logits, axis=-1)
    if task == "cola":
        return {"eval_matthews_correlation": metrics.matthews_corrcoef(labels, predictions)}
    found = {"eval_accuracy": metrics.accuracy_score(labels, predictions)}
    if task == "mrpc":
        found["eval_f1"] = metrics.f1_score(labels, predictions)
    return found


def run_transformers(args: argparse.Namespace, seed: int) -> dict[str, float]:
    """Fine-tune once with transformers' Trainer."""
    import torch
    import transformers

    torch.set_num_threads(processors())
    transformers.utils.logging.set_verbosity_error()
    columns, model_dir = TASKS[args.task], init_checkpoint(args)
    data_dir = Path(args.data_dir) / columns.folder
    start, start_cpu = time.time(), time.process_time()
    transformers.set_seed(seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir)
    model = transformers.BertForSequenceClassification.from_pretrained(
        model_dir, num_labels=1 if columns.is_regression else 2
    )

    def features(name: str) -> list[dict]:
        rows = read_rows(data_dir / f"{name}.tsv", columns)
        texts = zip(*(row[0] for row in rows), strict=True)
        encoded = tokenizer(
            *(list(column) for column in texts),
            truncation=True,
            max_length=args.max_seq_length,
            padding=False if args.dynamic_padding else "max_length",
        )
        labels = [row[1] if columns.is_regression else int(row[1]) for row in rows]
        return [
            {**{key: values[i] for key, values in encoded.items()}, "label": label}
            for i, label in enumerate(labels)
        ]

    train = features("train")
    steps = math.ceil(len(train) / args.batch_size) * args.num_epochs
    with tempfile.TemporaryDirectory() as folder:
        trainer = transformers.Trainer(
            model=model,
            args=transformers.TrainingArguments(
                output_dir=folder,
                per_device_train_batch_size=args.batch_size,
                per_device_eval_batch_size=args.batch_size,
                learning_rate=args.learning_rate,
                num_train_epochs=args.num_epochs,
                max_steps=args.max_steps or -1,
                warmup_steps=math.ceil(WARMUP_PROPORTION * steps),
                weight_decay=WEIGHT_DECAY,
                max_grad_norm=MAX_GRADIENT_NORM,
                bf16=args.bf16,
                bf16_full_eval=False,
                use_cpu=True,
                seed=seed,
                save_strategy="no",
                report_to=[],
                logging_steps=100,
                disable_tqdm=True,
            ),
            train_dataset=train,
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
        )
        trainer.train()
        figures = {"train_seconds": time.time() - start}
        if not args.max_steps:
            predicted = trainer.predict(features("dev"))
            figures |= official_metrics(args.task, predicted.predictions, predicted.label_ids)
    figures |= {"seconds": time.time() - start, "cpu_seconds": time.process_time() - start_cpu}
    return figures | {"global_step": trainer.state.global_step}


def run_bert_tf(args: argparse.Namespace, seed: int) -> dict[str, float]:
    """Fine-tune once with run_scripts/run_classifier.py and return the results in its files."""
    flags = {
        "task_name": args.task,
        "data_dir": Path(args.data_dir) / TASKS[args.task].folder,
        "do_train": True,
        "do_eval": True,
        "max_seq_length": args.max_seq_length,
        "train_batch_size": args.batch_size,
        "learning_rate": args.learning_rate,
        "num_train_epochs": args.num_epochs,
        "warmup_proportion": WARMUP_PROPORTION,
    }
    return run_script("run_classifier", flags, args, seed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--task", choices=TASKS, default="mrpc")
    parser.add_argument("--side", choices=("transformers", "bert_tf"), required=True)
    parser.add_argument("--data_dir", default=str(ROOT.parent / "shared/data/glue"))
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--num_epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--max_seq_length", type=int, default=128)
    peer = parser.add_argument_group("transformers side only")
    peer.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    peer.add_argument("--dynamic_padding", action="store_true", help="to the batch's longest")
    peer.add_argument("--max_steps", type=int, default=0, help="stop early, to measure speed")
    args = parse_sides(parser, ("bf16", "dynamic_padding", "max_steps"))
    run = {"transformers": run_transformers, "bert_tf": run_bert_tf}[args.side]
    settings = {"task": args.task, "side": args.side, "learning_rate": args.learning_rate}
    if args.side == "transformers":
        settings |= {"bf16": args.bf16, "dynamic_padding": args.dynamic_padding}
    else:
        settings["flags"] = " ".join(args.script_flags)
    run_seeds(run, args, settings)


if __name__ == "__main__":
    main()
