"""Embeddings from the MiniLM checkpoint: bert_tf and sentence-transformers.

    pip install -e .[bench] sentence-transformers datasets
    python benchmarks/embeddings.py --task=squad --side=bert_tf --data_dir=../shared/data
    python benchmarks/embeddings.py --task=squad --side=bert_tf --precision=mixed_bfloat16
    python benchmarks/embeddings.py --task=squad --side=sentence_transformers
    python benchmarks/embeddings.py --task=sts-b --side=sentence_transformers --bf16

squad: questions with their passages, of a part of SQuAD 1.1's training set; evaluated on the whole dev
set, 10,539 different questions over 2,067 passages. sts-b: pairs of sentences with a score, CoSENT.

Both sides have the same steps, batch size, peak rate and longest text. Warm-up takes 10 % of the steps,
weight decay is 0.01, gradients are clipped to norm 1. bert_tf makes batches by length, and leaves equal
passages of a batch out of the negatives; sentence-transformers shuffles, with its sampler without
duplicates for squad. Prints a JSON line per seed: the metrics on the dev set, and seconds and processor
seconds of the training and the evaluation. Ours are those of a new process, with imports, reading and
compilation; sentence-transformers' exclude imports and reading. Unknown flags are passed to
run_embeddings.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

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
from squad import read_paragraphs

sys.path.insert(0, str(ROOT))

DATA = {
    "squad": ("squad/train-subset-44articles.json", "squad/dev-v1.1.json"),
    "sts-b": ("glue/STS-B/train.tsv", "glue/STS-B/dev.tsv"),
}
_MOST_SCORE = 5.0


def read(task: str, path: Path) -> list[tuple[str, str, float]]:
    """Return pairs of texts with their score (0.0 in squad)."""
    if task == "squad":
        paragraphs = read_paragraphs(path)
        return [(qa["question"], p["context"], 0.0) for p in paragraphs for qa in p["qas"]]
    with open(path, encoding="utf-8", newline="") as lines:
        rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    return [(row[7], row[8], float(row[9]) / _MOST_SCORE) for row in rows]


def run_bert_tf(args: argparse.Namespace, seed: int) -> Mapping[str, float]:
    train, dev = (Path(args.data_dir) / name for name in DATA[args.task])
    flags: dict[str, object] = {
        "do_train": True,
        "do_eval": True,
        "max_seq_length": args.max_seq_length,
        "train_batch_size": args.batch_size,
        "eval_batch_size": args.batch_size,
        "learning_rate": args.learning_rate,
        "num_train_epochs": args.num_epochs,
        "optimizer": "adamw",
    }
    if args.task == "squad":
        flags |= {"train_file": train, "eval_file": dev}
    else:
        flags |= {"task_name": "sts-b", "data_dir": train.parent}
    return run_script("run_embeddings", flags, args, seed)


def run_sentence_transformers(args: argparse.Namespace, seed: int) -> Mapping[str, float]:
    import datasets
    import sentence_transformers as st
    import torch
    import transformers
    from sentence_transformers import evaluation, losses

    torch.set_num_threads(processors())
    transformers.set_seed(seed)
    train, dev = (read(args.task, Path(args.data_dir) / name) for name in DATA[args.task])
    start, start_cpu = time.time(), time.process_time()
    model = st.SentenceTransformer(init_checkpoint(args), device="cpu")
    model.max_seq_length = args.max_seq_length
    columns = dict(zip(("anchor", "positive", "score"), zip(*train, strict=True), strict=True))
    sampler = "batch_sampler"
    if args.task == "squad":
        del columns["score"]
        loss = losses.MultipleNegativesRankingLoss(model)
        sampler = "no_duplicates"
    else:
        loss = losses.CoSENTLoss(model)
    steps = int(len(train) / args.batch_size * args.num_epochs)
    with tempfile.TemporaryDirectory() as folder:
        st.SentenceTransformerTrainer(
            model,
            st.SentenceTransformerTrainingArguments(
                output_dir=folder,
                per_device_train_batch_size=args.batch_size,
                learning_rate=args.learning_rate,
                max_steps=steps,
                warmup_steps=int(WARMUP_PROPORTION * steps),
                weight_decay=WEIGHT_DECAY,
                max_grad_norm=MAX_GRADIENT_NORM,
                bf16=args.bf16,
                use_cpu=True,
                batch_sampler=sampler,
                save_strategy="no",
                report_to=[],
                seed=seed,
            ),
            train_dataset=datasets.Dataset.from_dict({n: list(v) for n, v in columns.items()}),
            loss=loss,
        ).train()
    if args.task == "squad":
        judge = evaluation.InformationRetrievalEvaluator(
            *retrieval(dev), batch_size=args.batch_size
        )
    else:
        pairs = (list(values) for values in zip(*dev, strict=True))
        judge = evaluation.EmbeddingSimilarityEvaluator(*pairs, batch_size=args.batch_size)
    found = judge(model)
    wanted = ("cosine_mrr@10", "cosine_ndcg@10", "cosine_recall@1", "spearman_cosine")
    return {
        "seconds": round(time.time() - start, 1),
        "cpu_seconds": round(time.process_time() - start_cpu, 1),
        **{name: value for name, value in found.items() if name.endswith(wanted)},
    }


def retrieval(
    pairs: Sequence[tuple[str, str, float]],
) -> tuple[dict[str, str], dict[str, str], dict[str, set[str]]]:
    """Return queries and documents by id, and the relevant documents of each query.

    Equal questions are one query, and all of their passages are relevant, as in run_embeddings.
    """
    queries = {text: f"q{n}" for n, text in enumerate(dict.fromkeys(pair[0] for pair in pairs))}
    documents = {text: f"p{n}" for n, text in enumerate(dict.fromkeys(pair[1] for pair in pairs))}
    relevant: dict[str, set[str]] = {}
    for question, passage, _ in pairs:
        relevant.setdefault(queries[question], set()).add(documents[passage])
    texts_of_queries = {name: text for text, name in queries.items()}
    return texts_of_queries, {name: text for text, name in documents.items()}, relevant


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--task", choices=tuple(DATA), default="sts-b")
    parser.add_argument("--side", choices=("bert_tf", "sentence_transformers"), default="bert_tf")
    parser.add_argument("--data_dir", default=str(ROOT.parent / "shared/data"))
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--max_seq_length", type=int, default=256)
    parser.add_argument("--learning_rate", type=float, default=2e-5)
    parser.add_argument("--num_epochs", type=float, default=1.0)
    parser.add_argument("--bf16", action="store_true", help="of sentence-transformers")
    args = parse_sides(parser, ("bf16",))
    run = run_bert_tf if args.side == "bert_tf" else run_sentence_transformers
    settings = {name: getattr(args, name) for name in ("task", "side", "num_epochs")}
    if args.side == "bert_tf":
        settings["flags"] = " ".join(args.script_flags)
    else:
        settings["bf16"] = args.bf16
    run_seeds(run, args, settings)


if __name__ == "__main__":
    main()
