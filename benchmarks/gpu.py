"""Pre-training on one GPU: ours on TensorFlow and JAX, and compiled `transformers`, in one call.

    python benchmarks/gpu.py --output=gpu.jsonl                    # stops after 9 minutes
    python benchmarks/gpu.py --output=gpu.jsonl                    # goes on with what is missing
    python benchmarks/gpu.py --sizes=tiny --lengths=24 --batch_size=2 --reads=1 --output=tiny.jsonl

Needs keras, numpy, and tensorflow or jax; torch with transformers, and flash_attn, if they are there.
Every job is a process of its own and writes one line of JSON when it ends, so nothing is lost if the
time is over. The most important come first:

    probe     cuDNN's attention against the formula, and a small model against the NumPy BERT
    step      seconds and peak memory of a step: each size, attention dropout 0.1 and 0 on all sides
    losses    of 20 steps, on the GPU and on the CPU of the same machine
    lengths   a step of a classifier with MRPC's lengths: padded, packed rows, attention without padding

A step has random examples (20 predictions each, hidden dropout 0.1, AdamW, gradients clipped to norm 1).
Losses are read after 5 steps, as trainings do. Jobs compile at the same time (--processes, as many as
--memory_gb hold), but are timed one after the other. At the end comes a table for docs/results.md. The
exit status is 1 if one of our jobs failed.

MFU, the model FLOP utilization, is the FLOPs of the matrix products divided by --peak_tflops (dense
bfloat16, one card). Products in float32 do not use TF32.
"""

import argparse
import contextlib
import fcntl
import functools
import importlib.util
import itertools
import json
import os
import resource
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
os.environ["KERAS_BACKEND"] = "jax" if '"framework": "jax"' in " ".join(sys.argv) else "tensorflow"
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
if '"framework": "tensorflow"' in " ".join(sys.argv):  # with Triton the first step takes minutes
    os.environ.setdefault("XLA_FLAGS", "--xla_gpu_enable_triton_gemm=false")

import numpy as np  # noqa: E402
import training  # noqa: E402

PACKAGES = {
    "tensorflow": ("tensorflow", "keras"),
    "jax": ("jax", "keras"),
    "torch": ("torch", "transformers"),
}
TOLERANCES = {"float32": 1e-4, "mixed_bfloat16": 0.2}  # precision policy -> of outputs of size 1
STEPS_PER_READ = 5
LOSSES = 20
# Size and length -> GB of a step of 32,768 tokens with scores in memory; half without them.
MEMORY_GB = {("large", 512): 74, ("large", 128): 50, ("base", 512): 28, ("base", 128): 20}

Job = dict[str, Any]


def plan(sizes: list[str], lengths: list[int], tokens: int, batch_size: int, reads: int):
    """Return all jobs, the most important first."""
    frameworks = [
        name
        for name, packages in PACKAGES.items()
        if all(importlib.util.find_spec(package) for package in packages)
    ]
    jobs: list[Job] = [
        {"work": "probe", "framework": name, "lengths": lengths}
        for name in frameworks
        if name != "torch"
    ]
    shapes = [
        {"size": size, "length": length, "batch_size": batch_size or tokens // length}
        for size, length in itertools.product(reversed(sizes), reversed(lengths))
    ]
    kinds = [("tensorflow", "cudnn", 0.0), ("jax", "cudnn", 0.0), ("torch", "sdpa", 0.0)]
    kinds += [("torch", "sdpa", 0.1), ("jax", "plain", 0.1), ("tensorflow", "plain", 0.1)]
    if importlib.util.find_spec("flash_attn"):
        kinds += [("torch", "flash_attention_2", 0.0), ("torch", "flash_attention_2", 0.1)]
    later = [("tensorflow", "plain", 0.0), ("jax", "plain", 0.0), ("tensorflow", "recompute", 0.0)]
    steps = [
        {"work": "step", "framework": framework, "attention": attention, "dropout": dropout}
        | {**shape, "precision": "bf16", "reads": reads}
        for some in (kinds, later)
        for shape in shapes
        for framework, attention, dropout in some
    ]
    small = {"size": "mini" if tokens > 1000 else "tiny", "length": lengths[0], "batch_size": 32}
    losses = [
        {"work": "losses", "framework": "tensorflow", "device": device, "attention": attention}
        | {**small, "dropout": 0.0, "precision": precision}
        for precision, attention in (("fp32", "plain"), ("bf16", "plain"), ("bf16", "cudnn"))
        for device in (("gpu", "cpu") if attention == "plain" else ("gpu",))
    ]
    real = [
        {"work": "lengths", "framework": framework, "attention": attention, "dropout": 0.0}
        | {**shapes[-1], "precision": "bf16", "reads": reads}
        for framework, attention in (
            *(("tensorflow", "plain"), ("tensorflow", "packed"), ("torch", "sdpa")),
            *((kind[0], kind[1]) for kind in kinds if "flash" in kind[1] and not kind[2]),
        )
    ]
    half = len(kinds) * len(lengths)  # the largest size
    jobs += [*steps[:half], *losses, *steps[half:], *real]
    return [job for job in jobs if job["framework"] in frameworks]


# ---- The steps: functions of a number of steps that return the last loss


def tensorflow_step(job: Job):
    import keras
    import tensorflow as tf

    from bert_tf.data.batching import PACKED_FEATURES, pack_batch
    from bert_tf.data.features import trim_padding
    from bert_tf.pretraining.task import PretrainingTask
    from bert_tf.tasks.classification import ClassificationTask
    from bert_tf.training.loop import TrainLoop
    from bert_tf.training.optimizers import AdamW
    from bert_tf.training.strategy import distribute, make_strategy

    tf.config.experimental.enable_tensor_float_32_execution(False)
    keras.utils.set_random_seed(0)
    length, is_real = job["length"], job["work"] == "lengths"
    task = PretrainingTask(length, training.PREDICTIONS)
    if is_real:
        task = ClassificationTask(("0", "1"), length)
    strategy = make_strategy()
    config = training.config_of(job["size"], attention_probs_dropout_prob=job["dropout"])
    with strategy.scope():
        model, optimizer = task.build_model(config, dtype=policy_of(job)), AdamW(1e-4)
    loop = TrainLoop(
        model,
        task.losses,
        strategy=strategy,
        input_names=(*task.input_names, *PACKED_FEATURES),
        optimizer=optimizer,
        jit_compile="cudnn" if job["attention"] == "cudnn" else "auto",
        recompute_grads=job["attention"] == "recompute",
    )
    name = "classification" if is_real else "pretraining"
    batch = training.make_batch(name, job["batch_size"], length)
    batch = {name: tf.constant(value) for name, value in batch.items()}
    if is_real:
        batch = trim_padding(batch, task.features)
    if job["attention"] == "packed":
        batch = pack_batch(batch, length)
    iterator = iter(distribute(strategy, tf.data.Dataset.from_tensors(batch).repeat()))
    return lambda count: loop.take_steps(iterator, count).values["loss"]


def jax_step(job: Job):
    import jax
    import keras
    from keras import ops

    from bert_tf.modeling.attention_kernels import cudnn_attention
    from bert_tf.modeling.dropout import dropout_seed
    from bert_tf.modeling.models import BertForPreTraining
    from bert_tf.training.optimizers import AdamW

    keras.utils.set_random_seed(0)
    config = training.config_of(job["size"], attention_probs_dropout_prob=job["dropout"])
    model = BertForPreTraining(config, dtype=policy_of(job))
    optimizer = AdamW(1e-4, global_clipnorm=1.0)
    optimizer.build(model.trainable_variables)
    batch = training.make_batch("pretraining", job["batch_size"], job["length"])
    batch = {name: jax.numpy.asarray(value) for name, value in batch.items()}
    names = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions")
    inputs = {name: batch[name] for name in names}

    def loss_of(trained, others, seed):
        kernel = cudnn_attention(padding_is_last=True)
        with (
            dropout_seed(seed),
            kernel if job["attention"] == "cudnn" else contextlib.nullcontext(),
        ):
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


def torch_step(job: Job):
    import torch

    arguments = SimpleNamespace(
        size=job["size"],
        batch_size=job["batch_size"],
        max_seq_length=job["length"],
        task="classification" if job["work"] == "lengths" else "pretraining",
        attention=job["attention"],
        attention_dropout=job["dropout"],
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    step = training.torch_step("torch-bf16-compile", arguments, device)

    def take(count: int) -> float:
        for _ in range(count):
            loss = step()
        return float(loss)

    return take


def policy_of(job: Job) -> str:
    return "mixed_bfloat16" if job["precision"] == "bf16" else "float32"


def peak_gb(framework: str) -> float:
    """Return the peak memory of the GPU, or of the process without one."""
    if framework == "torch":
        import torch

        if torch.cuda.is_available():
            return torch.cuda.max_memory_allocated() / 1e9
    elif framework == "jax":
        import jax

        if statistics := jax.devices()[0].memory_stats():
            return statistics["peak_bytes_in_use"] / 1e9
    else:
        import tensorflow as tf

        if tf.config.list_logical_devices("GPU"):
            return tf.config.experimental.get_memory_info("GPU:0")["peak"] / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


# ---- The jobs, each in its own process


def time_steps(job: Job) -> dict[str, Any]:
    """Return the median time of a step, and what else is to be known of it."""
    make = {"tensorflow": tensorflow_step, "jax": jax_step, "torch": torch_step}
    with open(__file__, "rb") as lock:  # a file that all processes have
        fcntl.flock(lock, fcntl.LOCK_SH)
        started, seconds = time.perf_counter(), []
        take = make[job["framework"]](job)
        losses = [take(1), take(STEPS_PER_READ)]  # compiles
        first_steps = time.perf_counter() - started
        fcntl.flock(lock, fcntl.LOCK_UN)
        fcntl.flock(lock, fcntl.LOCK_EX)  # waits until no other process compiles or is timed
        take(STEPS_PER_READ)
        for _ in range(job["reads"]):
            start = time.perf_counter()
            losses.append(take(STEPS_PER_READ))
            seconds.append((time.perf_counter() - start) / STEPS_PER_READ)
    if not np.isfinite(losses).all():
        raise ValueError(f"The losses are {losses}.")
    results = {"seconds": median(seconds), "first_steps": first_steps, "losses": losses}
    return results | {"peak_gb": peak_gb(job["framework"]), "kernel": kernel_problem(job)}


def kernel_problem(job: Job) -> str | None:
    """Return why a job that asks for cuDNN's attention has none; None without a reason."""
    if job["attention"] != "cudnn":
        return None
    from bert_tf.modeling import attention_kernels

    _, hidden, heads = training.SIZES[job["size"]]
    dtype = "bfloat16" if job["precision"] == "bf16" else "float32"
    return attention_kernels.kernel_problem(job["length"], hidden // heads, dtype, True)


def losses_of_steps(job: Job) -> dict[str, Any]:
    take = tensorflow_step(job)
    return {"losses": [take(1) for _ in range(LOSSES)], "kernel": kernel_problem(job)}


def probe(job: Job) -> dict[str, Any]:
    """Compare the kernel with the formula, and a small model with the NumPy BERT of the tests."""
    import keras

    from bert_tf.config import BertConfig
    from bert_tf.modeling.attention_kernels import kernel_problem
    from bert_tf.modeling.bert import BertModel
    from reference import numpy_bert

    device, problems = device_without_tf32(), {}
    for length, dtype in itertools.product(job["lengths"], ("bfloat16", "float16")):
        for by_lengths in (True, False) if keras.config.backend() == "jax" else (True,):
            name = f"{length} {dtype} {'lengths' if by_lengths else 'bias'}"
            problems[name] = kernel_problem(length, 64, dtype, by_lengths)
    config = BertConfig.from_name("mini", vocab_size=1000, type_vocab_size=2)
    variables = numpy_bert.random_variables(config, seed=1)
    batch = training.make_batch("classification", 4, 64)
    inputs = {n: batch[n] for n in ("input_ids", "input_mask", "segment_ids")}
    inputs["input_ids"] %= config.vocab_size
    expected = numpy_bert.encode(config, variables, *inputs.values()).sequence_output
    differences = {}
    for policy, limit in TOLERANCES.items():
        model = BertModel(config, dtype=policy)
        for variable in model.weights:
            variable.assign(variables[variable.path])
        outputs = model(inputs)["sequence_output"]
        outputs = keras.ops.convert_to_numpy(keras.ops.cast(outputs, "float32"))
        difference = float(np.abs(outputs - expected)[inputs["input_mask"] == 1].max())
        if not difference <= limit:
            raise ValueError(f"{policy}: {difference} from the NumPy BERT, limit {limit}.")
        differences[policy] = difference
    versions = {name: version(name) for name in PACKAGES[job["framework"]]}
    return {"device": device, "kernel": problems, "differences": differences, "versions": versions}


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


WORK = {"probe": probe, "step": time_steps, "losses": losses_of_steps, "lengths": time_steps}


# ---- All jobs


class Runner:
    """Runs jobs until a time is over, as many at a time as the GPU's memory holds.

    Args:
        output: path; a line of JSON is added for each job that ends.
        deadline: by `time.monotonic`.
    """

    def __init__(self, output: str, deadline: float, memory_gb: float):
        self._output, self._deadline = output, deadline
        self._free_gb = self._memory_gb = memory_gb
        self._changed = threading.Condition()

    def __call__(self, job: Job) -> None:
        needed = min(self._memory_gb, memory_of(job))
        with self._changed:
            self._changed.wait_for(lambda: self._free_gb >= needed)
            self._free_gb -= needed
        try:
            seconds = self._deadline - time.monotonic()
            if seconds > 15:  # less is not enough for any
                self._run(job, seconds)
        finally:
            with self._changed:
                self._free_gb += needed
                self._changed.notify_all()

    def _run(self, job: Job, seconds: float) -> None:
        command = [sys.executable, __file__, f"--worker={json.dumps(job)}"]
        environment = {**os.environ}
        if job.get("device") == "cpu":
            environment["CUDA_VISIBLE_DEVICES"] = "-1"
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                timeout=seconds,
                env=environment,
            )
        except subprocess.TimeoutExpired:
            print("not ended:", job, flush=True)
            return
        result = {"error": done.stderr.strip().splitlines()[-5:]}
        if done.returncode == 0:
            result = json.loads(done.stdout.splitlines()[-1])
        line = json.dumps({"job": job, **result})
        with self._changed, open(self._output, "a", encoding="utf-8") as file:
            file.write(line + "\n")
        print(line[:600], flush=True)


def memory_of(job: Job) -> float:
    """Return about how many GB a job needs."""
    if job.get("device") == "cpu" or "size" not in job:
        return 1.0
    has_scores = job["attention"] in ("plain", "recompute", "packed")
    return MEMORY_GB.get((job["size"], job["length"]), 2.0) / (1 if has_scores else 1.4)


def read_results(path: str) -> list[dict[str, Any]]:
    """Return the last result of each job."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        results = [json.loads(line) for line in file]
    return list({json.dumps(result["job"]): result for result in results}.values())


def report(results: list[dict[str, Any]], peak_tflops: float) -> None:
    """Print tables of the steps, and the largest differences of losses from those of the CPU."""
    from bert_tf.modeling.bert import flops_per_token

    print("\n| size | batch x length | side | dropout | ms | MFU | peak GB | times best PyTorch |")
    print("|---|---|---|---|---|---|---|---|")
    timed = [result for result in results if "seconds" in result]
    for result in sorted(timed, key=lambda result: str([*result["job"].values()])):
        job, seconds = result["job"], result["seconds"]
        shared = ("work", "size", "length", "batch_size", "dropout")
        peers = [
            other["seconds"]
            for other in timed
            if other["job"]["framework"] == "torch"
            and all(other["job"][name] == job[name] for name in shared)
        ]
        config = training.config_of(job["size"])
        flops = flops_per_token(config, job["length"], training.PREDICTIONS / job["length"])
        flops *= job["batch_size"] * job["length"]
        is_full = job["work"] == "step"
        mfu = f"{flops / peak_tflops / 1e10 / seconds:.1f} %" if is_full else "MRPC's lengths"
        side = f"{job['framework']}, {job['attention']}"
        if result["kernel"]:
            side += " (not used)"
        print(
            f"| {job['size']} | {job['batch_size']} x {job['length']} | {side} | {job['dropout']} | "
            f"{1000 * seconds:.1f} | {mfu} | {result['peak_gb']:.1f} | "
            f"{f'{min(peers) / seconds:.2f}' if peers else '-'} |"
        )
    losses = {
        tuple(result["job"][name] for name in ("precision", "attention", "device")): np.array(
            result["losses"]
        )
        for result in results
        if result["job"]["work"] == "losses" and "losses" in result
    }
    for (precision, attention, device), values in losses.items():
        expected = losses.get((precision, "plain", "cpu"))
        if device == "gpu" and expected is not None:
            distance = np.abs(values - expected).max()
            print(f"losses, {precision}, {attention}: {distance:.1e} from those of the CPU")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output", default="gpu.jsonl", help="jobs with a result in it are not run"
    )
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--sizes", default="base,large", help="comma list")
    parser.add_argument("--lengths", default="128,512", help="tokens, comma list")
    parser.add_argument("--batch_size", type=int, default=0, help="default: 32,768 tokens")
    parser.add_argument("--reads", type=int, default=6, help=f"of {STEPS_PER_READ} steps each")
    parser.add_argument("--processes", type=int, default=5, help="that compile at the same time")
    parser.add_argument("--memory_gb", type=float, default=135.0, help="of the GPU")
    parser.add_argument("--peak_tflops", type=float, default=989.0, help="default: H100, H200")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        job = json.loads(arguments.worker)
        print(json.dumps(WORK[job["work"]](job)))
        return
    deadline = time.monotonic() + 60 * arguments.minutes
    lengths = [int(length) for length in arguments.lengths.split(",")]
    tokens = 32768 if not arguments.batch_size else arguments.batch_size * lengths[0]
    jobs = plan(arguments.sizes.split(","), lengths, tokens, arguments.batch_size, arguments.reads)
    ended = [result["job"] for result in read_results(arguments.output) if "error" not in result]
    runner = Runner(arguments.output, deadline, arguments.memory_gb)
    with ThreadPoolExecutor(arguments.processes) as pool:
        list(pool.map(runner, [job for job in jobs if job not in ended]))
    results = read_results(arguments.output)
    report(results, arguments.peak_tflops)
    ended = [result["job"] for result in results]
    print(f"{len([job for job in jobs if job in ended])} of {len(jobs)} jobs ended")
    errors = [result["job"] for result in results if "error" in result]
    if any(job["framework"] != "torch" for job in errors):
        sys.exit(1)


if __name__ == "__main__":
    main()
