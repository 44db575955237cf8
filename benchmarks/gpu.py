"""Pre-training step on a GPU: TensorFlow, the Keras layers on JAX, and `transformers` on PyTorch.

    python benchmarks/gpu.py                                # BERT-Base and -Large, 128 and 512 tokens
    python benchmarks/gpu.py --sizes=tiny --lengths=24 --batch_size=2 --reads=1 --peak_tflops=1

Needs keras, numpy, and tensorflow or jax. Sides whose packages are missing are omitted; those of
PyTorch need torch and transformers. First compares our outputs in float32 and bfloat16 with the NumPy
BERT of the tests. If a difference is too large, it exits with status 1. Then each side trains in its own
process on the same random examples (20 predictions each, dropout 0.1, AdamW, gradients clipped to norm
1). It reads the loss after 5 steps, as trainings do, so that the GPU does not wait for Python. Several
processes can compile at the same time (--processes), but are timed one after the other. Last is a table
for docs/results.md. The exit status is 1 if one of our sides failed.

MFU, the model FLOP utilization, is the FLOPs of the matrix products divided by --peak_tflops (dense
bfloat16, one card). No side uses TF32.
"""

import argparse
import fcntl
import functools
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
os.environ["KERAS_BACKEND"] = "jax" if "--worker=jax" in " ".join(sys.argv) else "tensorflow"
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

import numpy as np  # noqa: E402
import training  # noqa: E402

from bert_tf.config import BertConfig  # noqa: E402
from bert_tf.modeling.bert import flops_per_token  # noqa: E402

PACKAGES = {  # framework, the first part of a side's name -> what it needs
    "tensorflow": ("tensorflow", "keras"),
    "jax": ("jax", "keras"),
    "torch": ("torch", "transformers"),
}
SIDES = (
    *("tensorflow-bf16", "tensorflow-fp32", "jax-bf16", "jax-fp32"),
    *("torch-bf16-compile", "torch-bf16", "torch-fp32"),
)
TOLERANCES = {"float32": 1e-4, "mixed_bfloat16": 0.2}  # precision policy -> of outputs of size 1
STEPS_PER_READ = 5

HEADER = (
    "| size | batch x length | side | ms | MFU | times as fast as the best PyTorch |",
    "|---|---|---|---|---|---|",
)


def jax_step(side: str, arguments: argparse.Namespace):
    """Return a function that takes some steps and returns the last loss."""
    import jax
    import keras
    from keras import ops

    from bert_tf.modeling.dropout import dropout_seed
    from bert_tf.modeling.models import BertForPreTraining
    from bert_tf.training.optimizers import AdamW

    keras.utils.set_random_seed(0)
    policy = "mixed_bfloat16" if "bf16" in side else "float32"
    if policy == "float32":
        jax.config.update("jax_default_matmul_precision", "highest")
    model = BertForPreTraining(training.config_of(arguments.size), dtype=policy)
    optimizer = AdamW(1e-4, global_clipnorm=1.0)
    optimizer.build(model.trainable_variables)
    batch = training.make_batch("pretraining", arguments.batch_size, arguments.max_seq_length)
    batch = {name: jax.numpy.asarray(value) for name, value in batch.items()}
    inputs = {n: batch[n] for n in ("input_ids", "input_mask", "segment_ids")}
    inputs["masked_lm_positions"] = batch["masked_lm_positions"]

    def loss_of(trained, others, seed):
        with dropout_seed(seed):
            outputs, others = model.stateless_call(trained, others, inputs, training=True)
        pairs = (
            (batch["masked_lm_ids"], outputs["masked_lm_logits"]),
            (batch["next_sentence_labels"], outputs["next_sentence_logits"]),
        )
        loss = sum(
            ops.mean(ops.sparse_categorical_crossentropy(labels, logits, from_logits=True))
            for labels, logits in pairs
        )
        return loss, others

    @functools.partial(jax.jit, donate_argnums=(0, 1, 2))
    def update(trained, others, slots, seed):
        gradients_of = jax.value_and_grad(loss_of, has_aux=True)
        (loss, others), gradients = gradients_of(trained, others, seed)
        trained, slots = optimizer.stateless_apply(slots, gradients, trained)
        return loss, trained, others, slots

    state = [
        [variable.value for variable in variables]
        for variables in (
            model.trainable_variables,
            model.non_trainable_variables,
            optimizer.variables,
        )
    ]

    seeds = itertools.count()

    def take(count: int) -> float:
        for _ in range(count):
            loss, *state[:] = update(*state, np.uint32(next(seeds)))
        return float(loss)

    return take


def tensorflow_step(side: str, arguments: argparse.Namespace):
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(False)
    return training.bert_tf_step(side, arguments)


def torch_step(side: str, arguments: argparse.Namespace):
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    step = training.torch_step(side, arguments, device)

    def take(count: int) -> float:
        for _ in range(count):
            loss = step()
        return float(loss)

    return take


def compare_with_numpy() -> dict[str, Any]:
    """Return the device, and a small model's differences from the NumPy BERT by precision policy."""
    import keras

    from bert_tf.modeling.bert import BertModel
    from reference import numpy_bert

    config = BertConfig.from_name("mini", vocab_size=1000, type_vocab_size=2)
    variables = numpy_bert.random_variables(config, seed=1)
    batch = training.make_batch("classification", 4, 64)
    inputs = {n: batch[n] for n in ("input_ids", "input_mask", "segment_ids")}
    inputs["input_ids"] %= config.vocab_size
    expected = numpy_bert.encode(config, variables, *inputs.values()).sequence_output
    device = device_without_tf32()
    differences = {}
    for policy in TOLERANCES:
        model = BertModel(config, dtype=policy)
        for variable in model.weights:
            variable.assign(variables[variable.path])
        outputs = model(inputs)["sequence_output"]
        outputs = keras.ops.convert_to_numpy(keras.ops.cast(outputs, "float32"))
        is_real = inputs["input_mask"] == 1
        differences[policy] = float(np.abs(outputs - expected)[is_real].max())
    return {"device": device, "differences": differences}


def device_without_tf32() -> str:
    """Make products in float32 exact, and return the name of the device."""
    if os.environ["KERAS_BACKEND"] == "jax":
        import jax

        jax.config.update("jax_default_matmul_precision", "highest")
        return jax.devices()[0].device_kind
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(False)
    gpus = tf.config.list_physical_devices("GPU")
    details = tf.config.experimental.get_device_details(gpus[0]) if gpus else {}
    return details.get("device_name", "cpu")


def work(side: str, arguments: argparse.Namespace) -> None:
    """Run one side in its own process and print one line of JSON."""
    framework, _, name = side.partition("-")
    if name == "numbers":
        print(json.dumps(compare_with_numpy()))
        return
    make = {"tensorflow": tensorflow_step, "jax": jax_step, "torch": torch_step}[framework]
    arguments.task = "pretraining"
    with open(__file__, "rb") as lock:  # a file that all processes have
        fcntl.flock(lock, fcntl.LOCK_SH)
        started, seconds = time.perf_counter(), []
        take = make(side, arguments)  # a function of the number of steps
        losses = [take(1), take(STEPS_PER_READ)]  # compiles
        first_steps = time.perf_counter() - started
        fcntl.flock(lock, fcntl.LOCK_UN)
        fcntl.flock(lock, fcntl.LOCK_EX)  # waits until no other process compiles or is timed
        take(STEPS_PER_READ)
        for _ in range(arguments.reads):
            start = time.perf_counter()
            losses.append(take(STEPS_PER_READ))
            seconds.append((time.perf_counter() - start) / STEPS_PER_READ)
    if not np.isfinite(losses).all():
        raise ValueError(f"The losses are {losses}.")
    found = {"seconds": median(seconds), "first_steps": first_steps}
    print(json.dumps({**found, "first": losses[0], "last": losses[-1]}))


def run(side: str, *flags: str) -> dict[str, Any] | None:
    """Return the output of the process of a side; None if it fails, with its error printed."""
    command = [sys.executable, __file__, f"--worker={side}", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{side} failed:", *done.stderr.strip().splitlines()[-5:], sep="\n", flush=True)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def time_side(side: str, flags: Iterable[str]) -> float | None:
    """Print the times of a side, and return the seconds of a step; None if the side fails."""
    found = run(side, *flags)
    if found is None:
        return None
    print(
        f"  {side:20}{1000 * found['seconds']:10.1f} ms, until the sixth step "
        f"{found['first_steps']:.0f} s, loss {found['first']:.3f} -> {found['last']:.3f}",
        flush=True,
    )
    return found["seconds"]


def check_differences(framework: str, differences: dict[str, float]) -> bool:
    """Print each difference, and return True if all are within their tolerances."""
    are_small = True
    for policy, difference in differences.items():
        limit = TOLERANCES[policy]
        is_small = difference <= limit  # False for NaN
        are_small &= is_small
        words = "ok" if is_small else "too large"
        about = f"{framework}, {policy}: {difference:.1e} from the NumPy BERT, limit {limit}"
        print(f"{about}: {words}", flush=True)
    return are_small


def table_rows(about: str, seconds: dict[str, float], at_peak: float) -> list[str]:
    """Return the rows of one size; `at_peak` is the time of a step in seconds at an MFU of 100 %."""
    best = min((each for side, each in seconds.items() if "torch" in side), default=None)
    return [
        f"| {about} | {side} | {1000 * each:.1f} | {100 * at_peak / each:.1f} % | "
        f"{f'{best / each:.2f}' if best else '-'} |"
        for side, each in seconds.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="base,large", help="comma list")
    parser.add_argument("--lengths", default="128,512", help="tokens, comma list")
    parser.add_argument("--batch_size", type=int, default=0, help="default: 32,768 tokens")
    parser.add_argument("--reads", type=int, default=6, help=f"of {STEPS_PER_READ} steps each")
    parser.add_argument("--processes", type=int, default=1, help="that compile at the same time")
    parser.add_argument("--sides", default=",".join(SIDES), help="comma list")
    parser.add_argument("--peak_tflops", type=float, default=989.0, help="default: H100, H200")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--size", help=argparse.SUPPRESS)
    parser.add_argument("--max_seq_length", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.worker, arguments)
        return
    packages = {
        framework: names
        for framework, names in PACKAGES.items()
        if all(importlib.util.find_spec(name) for name in names)
    }
    sides = [side for side in arguments.sides.split(",") if side.partition("-")[0] in packages]
    frameworks = dict.fromkeys(side.partition("-")[0] for side in sides)
    device = "a device that PyTorch chose"
    for framework in frameworks:
        if framework == "torch":
            continue
        numbers = run(f"{framework}-numbers")
        if numbers is None or not check_differences(framework, numbers["differences"]):
            sys.exit(1)
        device = numbers["device"]
    rows, failed = [], []
    for size in arguments.sizes.split(","):
        for length in map(int, arguments.lengths.split(",")):
            batch_size = arguments.batch_size or 32768 // length
            flags = (
                *(f"--size={size}", f"--max_seq_length={length}"),
                *(f"--batch_size={batch_size}", f"--reads={arguments.reads}"),
            )
            print(f"{size}, {batch_size} x {length}", flush=True)
            with ThreadPoolExecutor(arguments.processes) as pool:
                times = list(pool.map(functools.partial(time_side, flags=flags), sides))
            seconds = {side: each for side, each in zip(sides, times, strict=True) if each}
            failed += [side for side in sides if side not in seconds]
            flops = batch_size * length
            config = training.config_of(size)
            flops *= flops_per_token(config, length, training.PREDICTIONS / length)
            at_peak = flops / arguments.peak_tflops / 1e12
            rows += table_rows(f"{size} | {batch_size} x {length}", seconds, at_peak)
    used = {name: version(name) for framework in frameworks for name in packages[framework]}
    versions = ", ".join(f"{name} {number}" for name, number in used.items())
    print(f"\n{device}, {versions}:\n", *HEADER, *rows, sep="\n")
    if any(not side.startswith("torch") for side in failed):
        sys.exit(1)


if __name__ == "__main__":
    main()
