"""SQuAD from the MiniLM checkpoint: the same recipe in bert_tf and in Hugging Face transformers.

    D=../shared/data/squad
    python benchmarks/squad.py --side=bert_tf      --train_file=$D/train-subset-44articles.json \
        --predict_file=$D/dev-v1.1.json
    python benchmarks/squad.py --side=transformers --train_file=$D/train-subset-44articles.json \
        --predict_file=$D/dev-v1.1.json
    ... --train_file=$D/train-v2.0-subset.json --predict_file=$D/dev-v2.0-half.json \
        --version_2_with_negative

Each side runs in an environment with its packages (`pip install -e .[bench]` has both). Prints one JSON
line per seed: the official metrics after training, steps, seconds, and seconds of processor time. Our
seconds are those of a new process, with imports and compilation; transformers' exclude its imports.
--num_train and --num_predict limit the number of questions (to whole paragraphs). Unknown flags are
passed to run_squad.

The recipe is that of the reference's README: batch 12, 2 epochs (counted in questions, on both sides).
AdamW has weight decay 0.01, none on biases and LayerNorm. The learning rate warms up over 10 % of the
steps and decays linearly to 0. Gradients are clipped to a global norm of 1.0, dropout is 0.1, and
windows are 128 tokens apart. The learning rate is higher, because small models need it.

These differences remain: transformers' AdamW corrects the bias of its moments (epsilon 1e-8). The decay
of our rate begins at step 0, so after the warm-up ours is 0.9 of theirs. Its training batches are
random, ours have windows of similar length. Padding competes with the tokens in its loss. Its answers
are extracted by character offsets, without max context.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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

N_BEST_SIZE, MAX_ANSWER_LENGTH, MAX_QUERY_LENGTH = 20, 30, 64


def read_paragraphs(file: str | Path, most_questions: int = 0) -> list[dict]:
    """Read paragraphs of a SQuAD file until `most_questions` are reached (0: all)."""
    data = json.loads(Path(file).read_text(encoding="utf-8"))["data"]
    paragraphs, count = [], 0
    for paragraph in (paragraph for entry in data for paragraph in entry["paragraphs"]):
        if most_questions and count >= most_questions:
            break
        paragraphs.append(paragraph)
        count += len(paragraph["qas"])
    return paragraphs


def squad_texts(file: str | Path) -> Iterator[str]:
    """Yield the contexts and questions of a SQuAD file."""
    for paragraph in read_paragraphs(file):
        yield paragraph["context"]
        for question in paragraph["qas"]:
            yield question["question"]


class TorchWindow(NamedTuple):
    """A window of transformers' tokenizer; `offsets` has None outside the context."""

    qas_id: str
    inputs: dict[str, list[int]]
    offsets: list[tuple[int, int] | None]
    start: int
    end: int


def torch_windows(
    paragraphs: Sequence[dict], tokenizer: Any, args: argparse.Namespace
) -> Iterator[TorchWindow]:
    """Yield the reference's windows, `doc_stride` apart."""
    for paragraph in paragraphs:
        context = paragraph["context"]
        for qa in paragraph["qas"]:
            query = tokenizer(qa["question"], add_special_tokens=False)["input_ids"]
            question = qa["question"]
            if len(query) > MAX_QUERY_LENGTH:
                question = tokenizer.decode(query[:MAX_QUERY_LENGTH])
            room = args.max_seq_length - 3 - min(len(query), MAX_QUERY_LENGTH)
            encoded = tokenizer(
                question,
                context,
                truncation="only_second",
                max_length=args.max_seq_length,
                stride=max(0, room - args.doc_stride),  # transformers' stride is the overlap
                return_overflowing_tokens=True,
                return_offsets_mapping=True,
            )
            answers = [] if qa.get("is_impossible") else qa["answers"]
            for number, offsets in enumerate(encoded["offset_mapping"]):
                kinds = encoded.sequence_ids(number)
                kept = [o if kind == 1 else None for o, kind in zip(offsets, kinds, strict=True)]
                start, end = positions(kept, answers[0]) if answers else (0, 0)
                names = ("input_ids", "attention_mask", "token_type_ids")
                inputs = {name: encoded[name][number] for name in names}
                yield TorchWindow(qa["id"], inputs, kept, start, end)


def positions(offsets: Sequence[tuple[int, int] | None], answer: dict) -> tuple[int, int]:
    """Return first and last token of an answer; (0, 0) if it is not wholly in the window."""
    first, last = answer["answer_start"], answer["answer_start"] + len(answer["text"])
    inside = [i for i, o in enumerate(offsets) if o and o[0] < last and o[1] > first]
    if not inside or offsets[inside[0]][0] > first or offsets[inside[-1]][1] < last:
        return 0, 0
    return inside[0], inside[-1]


def run_transformers(args: argparse.Namespace, seed: int) -> dict:
    """Fine-tune once in PyTorch, as in transformers' run_qa."""
    import torch
    import transformers

    torch.set_num_threads(processors())
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model_dir = init_checkpoint(args)
    random.seed(seed)
    torch.manual_seed(seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir)
    model = transformers.BertForQuestionAnswering.from_pretrained(model_dir)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device)
    autocast = torch.autocast(device, dtype=torch.bfloat16, enabled=args.bf16)

    start_time, start_cpu = time.time(), time.process_time()
    paragraphs = read_paragraphs(args.train_file, args.num_train)
    train = list(torch_windows(paragraphs, tokenizer, args))
    num_questions = sum(len(paragraph["qas"]) for paragraph in paragraphs)
    num_train_steps = int(num_questions / args.batch_size * args.num_epochs)

    def batch_of(windows: Sequence[TorchWindow]):
        padded = tokenizer.pad([w.inputs for w in windows], padding="longest", return_tensors="pt")
        return padded.to(device)

    undecayed = ("bias", "LayerNorm.weight")
    named = list(model.named_parameters())
    groups = [
        {
            "params": [p for n, p in named if not n.endswith(undecayed)],
            "weight_decay": WEIGHT_DECAY,
        },
        {"params": [p for n, p in named if n.endswith(undecayed)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=args.learning_rate)
    schedule = transformers.get_linear_schedule_with_warmup(
        optimizer, int(WARMUP_PROPORTION * num_train_steps), num_train_steps
    )
    model.train()
    order: list[TorchWindow] = []
    steps = min(num_train_steps, args.max_steps or num_train_steps)
    for step in range(1, steps + 1):
        while len(order) < args.batch_size:
            order += random.sample(train, len(train))
        some, order = order[: args.batch_size], order[args.batch_size :]
        starts, ends = (torch.tensor([w[i] for w in some], device=device) for i in (3, 4))
        with autocast:
            loss = model(**batch_of(some), start_positions=starts, end_positions=ends).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            print(f"step {step}/{num_train_steps} loss {loss.item():.4f}", file=sys.stderr)
    train_seconds = time.time() - start_time
    if args.max_steps:
        return {"global_step": steps, "train_seconds": train_seconds}

    model.eval()
    asked = read_paragraphs(args.predict_file, args.num_predict)
    windows = sorted(torch_windows(asked, tokenizer, args), key=lambda w: len(w.offsets))
    logits = []
    with torch.no_grad():
        for first in range(0, len(windows), args.predict_batch_size):
            with autocast:
                found = model(**batch_of(windows[first : first + args.predict_batch_size]))
            pairs = zip(found.start_logits, found.end_logits, strict=True)
            logits += [(start.float().cpu(), end.float().cpu()) for start, end in pairs]
    metrics = score(asked, windows, logits, args.version_2_with_negative)
    seconds = {
        "train_seconds": train_seconds,
        "seconds": time.time() - start_time,
        "cpu_seconds": time.process_time() - start_cpu,
    }
    return metrics | {"global_step": steps} | seconds


def score(
    paragraphs: Sequence[dict], windows: Sequence[TorchWindow], logits: list, version_2: bool
) -> dict[str, float]:
    """Return the official metrics of the best spans."""
    from bert_tf.tasks.squad_metrics import evaluate_v1, evaluate_v2

    best: dict[str, tuple[float, str]] = {}
    null: dict[str, float] = {}
    contexts = {qa["id"]: p["context"] for p in paragraphs for qa in p["qas"]}
    for window, (starts, ends) in zip(windows, logits, strict=True):
        name, offsets = window.qas_id, window.offsets
        null[name] = min(null.get(name, 1e6), (starts[0] + ends[0]).item())
        count = min(N_BEST_SIZE, len(offsets))
        for first in starts[: len(offsets)].topk(count).indices.tolist():
            for last in ends[: len(offsets)].topk(count).indices.tolist():
                if not (offsets[first] and offsets[last]):
                    continue
                if not first <= last < first + MAX_ANSWER_LENGTH:
                    continue
                value = (starts[first] + ends[last]).item()
                if value > best.get(name, (-1e6, ""))[0]:
                    best[name] = value, contexts[name][offsets[first][0] : offsets[last][1]]
    answers = {
        qa["id"]: [answer["text"] for answer in qa["answers"]]
        for paragraph in paragraphs
        for qa in paragraph["qas"]
    }
    texts = {name: best.get(name, (0.0, ""))[1] for name in answers}
    if not version_2:
        return evaluate_v1(answers, texts)
    odds = {name: null[name] - best[name][0] if name in best else 1e6 for name in answers}
    given = {name: "" if odds[name] > 0 else text for name, text in texts.items()}
    return evaluate_v2(answers, given, texts, odds)


def run_bert_tf(args: argparse.Namespace, seed: int) -> dict:
    """Fine-tune once with run_scripts/run_squad.py and return the metrics that it writes."""
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name in ("train", "predict"):
            most = getattr(args, f"num_{name}")
            paragraphs = read_paragraphs(getattr(args, f"{name}_file"), most)
            files[name] = Path(folder) / f"{name}.json"
            files[name].write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
        flags = {
            "do_train": True,
            "train_file": files["train"],
            "do_predict": True,
            "predict_file": files["predict"],
            "max_seq_length": args.max_seq_length,
            "doc_stride": args.doc_stride,
            "train_batch_size": args.batch_size,
            "predict_batch_size": args.predict_batch_size,
            "learning_rate": args.learning_rate,
            "num_train_epochs": args.num_epochs,
            "warmup_proportion": WARMUP_PROPORTION,
            "version_2_with_negative": args.version_2_with_negative,
        }
        return run_script("run_squad", flags, args, seed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--side", choices=("transformers", "bert_tf"), required=True)
    parser.add_argument("--train_file", required=True)
    parser.add_argument("--predict_file", required=True)
    parser.add_argument("--version_2_with_negative", action="store_true")
    parser.add_argument("--num_train", type=int, default=0, help="questions; 0 is all")
    parser.add_argument("--num_predict", type=int, default=0, help="questions; 0 is all")
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--num_epochs", type=float, default=2.0)
    parser.add_argument("--batch_size", type=int, default=12)
    parser.add_argument("--predict_batch_size", type=int, default=32)
    parser.add_argument("--max_seq_length", type=int, default=384)
    parser.add_argument("--doc_stride", type=int, default=128)
    parser.add_argument("--bf16", action="store_true", help="transformers side: bfloat16 autocast")
    parser.add_argument(
        "--max_steps", type=int, default=0, help="transformers side: stop early, to measure speed"
    )
    args = parse_sides(parser, ("bf16", "max_steps"))
    run = {"transformers": run_transformers, "bert_tf": run_bert_tf}[args.side]
    settings = {"side": args.side, "learning_rate": args.learning_rate}
    if args.side == "transformers":
        settings["bf16"] = args.bf16
    else:
        settings["flags"] = " ".join(args.script_flags)
    run_seeds(run, args, settings)


if __name__ == "__main__":
    main()
