"""Latency and throughput of a served BERT classifier and its peers.

    pip install -e .[bench,onnx,openvino]
    python benchmarks/inference.py                       # BERT-Base: 1 x 32, 1 x 128, 32 x 128
    python benchmarks/inference.py --size=minilm --shapes=1x32,8x64
    python benchmarks/inference.py --texts=../shared/data/glue/MRPC --shapes=1,32 --rounds=3

All sides have the same random weights and get the same ids in rows of full length: our SavedModels, ONNX
and OpenVINO files through their `tokens` signature, `transformers` in PyTorch. Int8 is calibrated on
random words, so only its speed compares; torch-int8 is PyTorch's dynamic quantization. Each side has
its own process, with a thread for each processor, and takes turns with the first, a few calls each.
Prints medians. "apart" is the difference of its first logit from that of our float32 SavedModel. Ours
run with TF_ONEDNN_ASSUME_FROZEN_WEIGHTS=1, as docs/serving.md recommends and `predict` does; "unset"
without.

With --texts (the folder of a GLUE set) a call answers the first --num_texts rows of its dev.tsv, with
their real lengths. Batches of --shapes rows are padded to the longest row. Ours have rows of similar
length, like `predict`, padded to a multiple of 8, like signatures that take text. The others use the
original order, as their libraries do. Sides named "sorted" sort the rows first, as a user could.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from fine_tuning_runs import ROOT, execute, missing_packages, processors
from finetuning import TASKS, read_rows
from side_by_side import answer_turns, take_turns
from training import SIZES, VOCAB_SIZE

EXPORTS = {
    "bert_tf-float32": ("saved_model", "float32"),
    "bert_tf-bfloat16": ("saved_model", "bfloat16"),
    "onnxruntime-float32": ("onnx", "float32"),
    "bert_tf-int8": ("saved_model", "int8"),
    "openvino-float32": ("openvino", "float32"),
    "openvino-bfloat16": ("openvino", "bfloat16"),
    "openvino-int8": ("openvino", "int8"),
}
# INFERENCE_PRECISION_HINT of each side of OpenVINO; in int8 that of everything but the products.
OPENVINO = {"openvino-float32": "f32", "openvino-bfloat16": "bf16", "openvino-int8": "bf16"}
UNSET = "-unset"  # without KEEP_PACKED
LENGTH_STEP = 8  # of signatures that take text
KEEP_PACKED = "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"
SIDES = (
    "bert_tf-bfloat16",
    "bert_tf-bfloat16-unset",
    "bert_tf-int8",
    "bert_tf-float32",
    "bert_tf-float32-unset",
    "torch-float32",
    "torch-float32-compile",
    "torch-bfloat16",
    "torch-bfloat16-compile",
    "torch-int8",
    "onnxruntime-float32",
    *OPENVINO,
)
SORTED = ("torch-bfloat16-sorted", "torch-bfloat16-compile-sorted")
MAKE_PEER = """
import sys, torch
from transformers import BertConfig, BertForSequenceClassification
layers, hidden, heads, folder = *map(int, sys.argv[1:4]), sys.argv[4]
torch.manual_seed(0)
BertForSequenceClassification(BertConfig(
    num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads, intermediate_size=4 * hidden
)).save_pretrained(folder)
"""


def make_models(folder: Path, size: str, sides: Iterable[str]) -> None:
    """Make the peer's model with random weights, convert it to ours and export it."""
    peer, ours = folder / "huggingface", folder / "model"
    numbers = [str(number) for number in SIZES[size]]
    subprocess.run([sys.executable, "-c", MAKE_PEER, *numbers, str(peer)], check=True)
    special = ["[PAD]", *(f"[unused{i}]" for i in range(99)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *(f"t{i}" for i in range(VOCAB_SIZE - len(special)))]
    (peer / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    flags = {"init_checkpoint": peer, "output_dir": ours, "output_format": "tf1"}
    execute("convert_checkpoint", flags)
    numbers_of_words = np.random.default_rng(0).integers(0, VOCAB_SIZE - len(special), (40, 30))
    lines = (" ".join(f"t{number}" for number in row) + "\n" for row in numbers_of_words)
    (folder / "texts.txt").write_text("".join(lines), encoding="utf-8")
    for name in sorted({model_of(side) for side in sides} & EXPORTS.keys()):
        format_, precision = EXPORTS[name]
        flags = {"model_dir": ours, "export_dir": folder / name, "signature": "tokens"}
        if precision == "int8":
            flags["calibration_file"] = folder / "texts.txt"
        execute("export_saved_model", flags | {"format": format_, "precision": precision})


def model_of(side: str) -> str:
    """Return the name of the model that a side runs."""
    return side.removesuffix("-sorted").removesuffix(UNSET)


def make_requests(
    shape: str, texts: str | None, num_texts: int, side: str
) -> list[dict[str, np.ndarray]]:
    """Return the inputs of each request of a call."""
    if not texts:
        return [make_inputs([int(shape.split("x")[1])] * int(shape.split("x")[0]))]
    lengths, batch_size, step = real_lengths(texts, num_texts), int(shape), 1
    if side.startswith("bert_tf") or side.endswith("sorted"):
        lengths.sort()
    if side.startswith("bert_tf"):
        step = LENGTH_STEP
    starts = range(0, len(lengths), batch_size)
    return [make_inputs(lengths[i : i + batch_size], step) for i in starts]


def real_lengths(folder: str, num_texts: int) -> list[int]:
    """Count the tokens of the first rows of dev.tsv, with [CLS] and [SEP], at most 128 each."""
    from bert_tf import FullTokenizer

    columns = next(task for task in TASKS.values() if task.folder == Path(folder).name)
    tokenizer = FullTokenizer(str(ROOT / "vocab" / "uncased_30522" / "vocab.txt"))
    rows = read_rows(Path(folder) / "dev.tsv", columns)[:num_texts]
    counts = [[len(tokenizer.tokenize(text)) + 1 for text in row] for row, _ in rows]
    return [min(1 + sum(row), 128) for row in counts]


def make_inputs(lengths: list[int], step: int = 1) -> dict[str, np.ndarray]:
    """Return random ids, padded to the longest row, or to the next multiple of `step`."""
    mask = np.arange(-(-max(lengths) // step) * step) < np.array(lengths)[:, None]
    ids = np.random.default_rng(0).integers(1000, VOCAB_SIZE, mask.shape) * mask
    return {
        "input_ids": ids.astype("int32"),
        "input_mask": mask.astype("int32"),
        "segment_ids": np.zeros_like(ids, "int32"),
    }


Answer = Callable[[dict], float]  # the first logit of a prepared request


def saved_model(folder: Path) -> tuple[Callable, Answer]:
    import tensorflow as tf

    model = tf.saved_model.load(str(folder))
    serve = model.signatures["tokens"]

    def prepare(inputs: dict[str, np.ndarray]) -> dict:
        return {name: tf.constant(value) for name, value in inputs.items()}

    def answer(tensors: dict) -> float:
        return float(serve(**tensors)["logits"].numpy()[0, 0])

    answer.model = model  # a signature does not keep its model alive
    return prepare, answer


def onnx(folder: Path) -> tuple[Callable, Answer]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = processors()
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
    return dict, lambda inputs: float(session.run(["logits"], inputs)[0][0, 0])


def openvino(folder: Path, precision: str) -> tuple[Callable, Answer]:
    import openvino

    hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
    hints |= {"INFERENCE_NUM_THREADS": processors(), "ENABLE_HYPER_THREADING": True}
    model = openvino.Core().compile_model(str(folder / "model.xml"), "CPU", hints)
    return dict, lambda inputs: float(model(inputs)["logits"][0, 0])


def pytorch(folder: Path, side: str, dynamic: bool | None) -> tuple[Callable, Answer]:
    import torch
    from transformers import BertForSequenceClassification

    torch.set_num_threads(processors())
    model = BertForSequenceClassification.from_pretrained(folder / "huggingface").eval()
    if "bfloat16" in side:
        model = model.to(torch.bfloat16)
    if "int8" in side:
        model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, torch.qint8)
    if "compile" in side:
        model = torch.compile(model, dynamic=dynamic)
    names = {"input_ids": "input_ids", "attention_mask": "input_mask"}
    names["token_type_ids"] = "segment_ids"

    def prepare(inputs: dict[str, np.ndarray]) -> dict:
        return {theirs: torch.tensor(inputs[ours]).long() for theirs, ours in names.items()}

    def answer(tensors: dict) -> float:
        with torch.inference_mode():
            return float(model(**tensors).logits[0, 0])

    return prepare, answer


def work(side: str, arguments: argparse.Namespace) -> None:
    folder, name = Path(arguments.folder), model_of(side)
    if side.startswith("bert_tf"):
        os.environ[KEEP_PACKED] = str(int(not side.endswith(UNSET)))
        prepare, answer = saved_model(folder / name)
    elif side.startswith("onnx"):
        prepare, answer = onnx(folder / name)
    elif side in OPENVINO:
        prepare, answer = openvino(folder / name, OPENVINO[side])
    else:
        prepare, answer = pytorch(folder, name, dynamic=True if arguments.texts else None)
    requests = [
        prepare(one)
        for one in make_requests(arguments.shape, arguments.texts, arguments.num_texts, side)
    ]

    def call() -> float:
        logits = [answer(request) for request in requests]
        return logits[0]

    first = call()
    for _ in range(1 if arguments.texts else 3):
        call()
    answer_turns(call, first)


def describe(shape: str, texts: str, num_texts: int) -> None:
    """Print the fraction of padding in sorted and unsorted batches."""
    for kind, side in (("sorted", "bert_tf"), ("as they come", "torch")):
        masks = [request["input_mask"] for request in make_requests(shape, texts, num_texts, side)]
        real, computed = sum(mask.sum() for mask in masks), sum(mask.size for mask in masks)
        print(f"batches of {shape}, {kind}: {computed:,} tokens, {1 - real / computed:.0%} padding")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--shapes", default="1x32,1x128,32x128", help="rows x tokens, comma list")
    parser.add_argument("--texts", help="folder of a GLUE set; --shapes are then rows of a batch")
    parser.add_argument("--num_texts", type=int, default=408, help="408: all of MRPC's")
    parser.add_argument("--sides", help=f"comma list of {', '.join((*SIDES, *SORTED))}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--calls", type=int, default=0, help="per round; default: 640 tokens or more"
    )
    for name in ("worker", "shape", "folder"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.worker, arguments)
        return
    sides = arguments.sides.split(",") if arguments.sides else list(SIDES)
    if arguments.texts and not arguments.sides:
        sides += SORTED
    if missing := missing_packages("bench"):
        parser.error(f"transformers makes the model; {missing}")
    for side in list(sides):
        format_, _ = EXPORTS.get(model_of(side), ("", ""))
        if missing := missing_packages(format_):
            print(f"{side}: left out; {missing}")
            sides.remove(side)
    if not sides:
        parser.error("none of the sides is installed")
    print(f"{platform.machine()}, {processors()} processors; {arguments.size}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        make_models(Path(folder), arguments.size, sides)
        for shape in arguments.shapes.split(","):
            requests = make_requests(shape, arguments.texts, arguments.num_texts, sides[0])
            num_tokens = sum(request["input_ids"].size for request in requests)
            calls = arguments.calls or max(1, 640 // num_tokens)
            flags = (f"--shape={shape}", f"--folder={folder}")
            results = take_turns(sides, arguments.rounds, calls, *flags)
            base = next((r.first for r in results if r.side == "bert_tf-float32"), results[0].first)
            if arguments.texts:
                describe(shape, arguments.texts, arguments.num_texts)
            print(f"\n{shape:30}{'ms':>9}{f'times {sides[0]}':>26}{'peak GB':>9}{'apart':>10}")
            for turns in sorted(results, key=lambda turns: turns.median):
                # Rows in another order have another first logit, so it is not compared.
                apart = "" if arguments.texts else f"{abs(turns.first - base):.1e}"
                print(
                    f"{turns.side:30}{1000 * turns.median:9.1f}{turns.ratio:26.2f}"
                    f"{turns.peak_gb:9.1f}{apart:>10}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
