"""Latency and throughput of a served BERT classifier, beside `transformers` and ONNX Runtime.

    pip install -e .[bench,onnx]
    python benchmarks/inference.py                       # BERT-Base: 1 x 32, 1 x 128, 32 x 128
    python benchmarks/inference.py --size=minilm --shapes=1x32,8x64

All sides have the same random weights and get the same ids, every row of full length: our SavedModel
(float32 and bfloat16) and ONNX files through their `tokens` signature, `transformers` in PyTorch. Each
is a process of its own and takes turns with the first, a few calls each; medians. "apart" is how far its
first logit is from that of our float32 SavedModel.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from fine_tuning_runs import execute
from side_by_side import answer_turns, take_turns
from training import SIZES, VOCAB_SIZE

EXPORTS = {
    "bert_tf-float32": ("saved_model", "float32"),
    "bert_tf-bfloat16": ("saved_model", "bfloat16"),
    "onnxruntime-float32": ("onnx", "float32"),
    "onnxruntime-int8": ("onnx", "int8"),
}
SIDES = (
    "bert_tf-bfloat16",
    "bert_tf-float32",
    "torch-float32",
    "torch-float32-compile",
    "torch-bfloat16",
    "torch-bfloat16-compile",
    "onnxruntime-float32",
    "onnxruntime-int8",
)
MAKE_PEER = """
import sys, torch
from transformers import BertConfig, BertForSequenceClassification
layers, hidden, heads, folder = *map(int, sys.argv[1:4]), sys.argv[4]
torch.manual_seed(0)
BertForSequenceClassification(BertConfig(
    num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads, intermediate_size=4 * hidden
)).save_pretrained(folder)
"""


def make_models(folder: Path, size: str, sides: list[str]) -> None:
    """The peer's model with random weights, converted to ours and exported."""
    peer, ours = folder / "huggingface", folder / "model"
    numbers = [str(number) for number in SIZES[size]]
    subprocess.run([sys.executable, "-c", MAKE_PEER, *numbers, str(peer)], check=True)
    special = ["[PAD]", *(f"[unused{i}]" for i in range(99)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *(f"t{i}" for i in range(VOCAB_SIZE - len(special)))]
    (peer / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    flags = {"init_checkpoint": peer, "output_dir": ours, "output_format": "tf1"}
    execute("convert_checkpoint", flags)
    for side in sides:
        if side in EXPORTS:
            format_, precision = EXPORTS[side]
            flags = {"model_dir": ours, "export_dir": folder / side, "signature": "tokens"}
            execute("export_saved_model", flags | {"format": format_, "precision": precision})


def make_inputs(shape: str) -> dict[str, np.ndarray]:
    batch_size, length = map(int, shape.split("x"))
    ids = np.random.default_rng(0).integers(1000, VOCAB_SIZE, (batch_size, length))
    return {
        "input_ids": ids.astype("int32"),
        "input_mask": np.ones_like(ids, "int32"),
        "segment_ids": np.zeros_like(ids, "int32"),
    }


def saved_model_call(folder: Path, inputs: dict[str, np.ndarray]):
    import tensorflow as tf

    model = tf.saved_model.load(str(folder))
    serve = model.signatures["tokens"]
    tensors = {name: tf.constant(value) for name, value in inputs.items()}

    def call() -> float:
        return float(serve(**tensors)["logits"].numpy()[0, 0])

    call.model = model  # a signature does not keep it
    return call


def onnx_call(folder: Path, inputs: dict[str, np.ndarray]):
    import onnxruntime

    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    return lambda: float(session.run(["logits"], inputs)[0][0, 0])


def torch_call(folder: Path, inputs: dict[str, np.ndarray], side: str):
    import torch
    from transformers import BertForSequenceClassification

    model = BertForSequenceClassification.from_pretrained(folder / "huggingface").eval()
    if "bfloat16" in side:
        model = model.to(torch.bfloat16)
    if "compile" in side:
        model = torch.compile(model)
    tensors = {
        theirs: torch.tensor(inputs[ours]).long()
        for theirs, ours in (
            ("input_ids", "input_ids"),
            ("attention_mask", "input_mask"),
            ("token_type_ids", "segment_ids"),
        )
    }

    def call() -> float:
        with torch.inference_mode():
            return float(model(**tensors).logits[0, 0])

    return call


def work(side: str, arguments: argparse.Namespace) -> None:
    folder, inputs = Path(arguments.folder), make_inputs(arguments.shape)
    if side.startswith("bert_tf"):
        call = saved_model_call(folder / side, inputs)
    elif side.startswith("onnx"):
        call = onnx_call(folder / side, inputs)
    else:
        call = torch_call(folder, inputs, side)
    first = call()
    for _ in range(3):
        call()
    answer_turns(call, first)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--shapes", default="1x32,1x128,32x128", help="rows x tokens, comma list")
    parser.add_argument("--sides", default=",".join(SIDES), help="comma list")
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
    sides = arguments.sides.split(",")
    print(f"{platform.machine()}, {os.cpu_count()} cores; {arguments.size}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        make_models(Path(folder), arguments.size, sides)
        for shape in arguments.shapes.split(","):
            batch_size, length = map(int, shape.split("x"))
            calls = arguments.calls or max(1, 640 // (batch_size * length))
            flags = (f"--shape={shape}", f"--folder={folder}")
            results = take_turns(sides, arguments.rounds, calls, *flags)
            base = next((r.first for r in results if r.side == "bert_tf-float32"), results[0].first)
            print(f"\n{shape:26}{'ms':>9}{f'times {sides[0]}':>26}{'peak GB':>9}{'apart':>10}")
            for turns in sorted(results, key=lambda turns: turns.median):
                print(
                    f"{turns.side:26}{1000 * turns.median:9.1f}{turns.ratio:26.2f}"
                    f"{turns.peak_gb:9.1f}{abs(turns.first - base):10.1e}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
