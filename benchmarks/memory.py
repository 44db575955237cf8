"""Peak memory of a pre-training step on the CPU, and the estimate of `--auto_batch`.

    python benchmarks/memory.py
    python benchmarks/memory.py --sizes=mini --shapes=16x128,64x128

Each row has its own process, which takes two steps on random examples with 15 % of the tokens masked,
with AdamW. Prints a table in MiB: the peak of the process without what it had before the model was made,
and the estimate (bert_tf/training/memory.py).
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import training
from training import SIZES, bert_tf_step, config_of

PRECISIONS = {"float32": "bert_tf-fp32", "mixed_bfloat16": "bert_tf-bf16"}


def mebibytes(field: str) -> float:
    """Return a field of /proc/self/status, such as VmHWM, the peak."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def measure(size: str, batch_size: int, length: int, precision: str) -> dict[str, float]:
    """Return the peak of two steps in this process, and the estimate."""
    from bert_tf.pretraining.settings import most_predictions
    from bert_tf.training.memory import step_bytes

    predictions = training.PREDICTIONS = most_predictions(length, 0.15)
    arguments = argparse.Namespace(
        size=size, batch_size=batch_size, max_seq_length=length, task="pretraining"
    )
    import tensorflow  # noqa: F401, with its memory

    before = mebibytes("VmRSS")
    step = bert_tf_step(PRECISIONS[precision], arguments)
    for _ in range(2):
        float(step())
    estimate = step_bytes(config_of(size), batch_size, length, predictions, precision)
    return {"peak": mebibytes("VmHWM") - before, "estimate": estimate / 2**20}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="base", help=f"comma list of {', '.join(SIZES)}")
    parser.add_argument(
        "--shapes", default="1x128,8x128,1x512,4x512", help="comma list of examples x tokens"
    )
    parser.add_argument("--precisions", default=",".join(PRECISIONS), help="comma list")
    parser.add_argument("--row", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.row:
        size, batch_size, length, precision = arguments.row
        print(json.dumps(measure(size, int(batch_size), int(length), precision)))
        return
    print(
        "| size | examples x tokens | precision | peak, MiB | estimate, MiB |\n|---|---|---|---|---|"
    )
    for size in arguments.sizes.split(","):
        for shape in arguments.shapes.split(","):
            for precision in arguments.precisions.split(","):
                row = [size, *shape.split("x"), precision]
                command = [sys.executable, __file__, "--row", *row]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                found = json.loads(done.stdout.splitlines()[-1])
                peak, estimate = (f"{found[name]:.0f}" for name in ("peak", "estimate"))
                print(f"| {size} | {shape} | {precision} | {peak} | {estimate} |", flush=True)


if __name__ == "__main__":
    main()
