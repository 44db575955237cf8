"""A training that is killed again and again ends with the bits of one that was not.

    python benchmarks/kill_training.py --records=train.tf_record --vocab_file=vocab.txt --kills=20

starts `run_pretraining` with a tiny BERT on these records (128 tokens, with or without masks), once
undisturbed and once with SIGKILLs at random moments, each after at least one more checkpoint, and
compares every array of the last checkpoints: weights, moments, step.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from bert_tf.config import BertConfig  # noqa: E402
from bert_tf.tokenization import load_vocab  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--records", required=True)
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=7, help="of the moments")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = BertConfig.from_name("tiny", vocab_size=len(load_vocab(arguments.vocab_file)))
        config.to_json_file(f"{folder}/bert_config.json")
        whole, killed = Path(folder, "whole"), Path(folder, "killed")
        subprocess.run(command(arguments, folder, whole), check=True, stderr=subprocess.DEVNULL)
        rng = random.Random(arguments.seed)
        kills = 0
        while kills < arguments.kills and kill_once(
            command(arguments, folder, killed), killed, rng
        ):
            kills += 1
        subprocess.run(command(arguments, folder, killed), check=True, stderr=subprocess.DEVNULL)
        compare(whole, killed, arguments.steps)
    print(f"killed {kills} times: every bit is the same")


def command(arguments: argparse.Namespace, folder: str, output_dir: Path) -> list[str]:
    return [
        sys.executable,
        str(ROOT / "run_scripts/run_pretraining.py"),
        f"--input_file={arguments.records}",
        f"--vocab_file={arguments.vocab_file}",
        f"--bert_config_file={folder}/bert_config.json",
        f"--output_dir={output_dir}",
        "--do_train",
        "--train_batch_size=8",
        "--learning_rate=1e-3",
        f"--num_train_steps={arguments.steps}",
        f"--num_warmup_steps={arguments.steps // 10}",
        "--save_checkpoints_steps=10",
    ]


def kill_once(arguments: list[str], folder: Path, rng: random.Random) -> bool:
    """Kills a run some time after its next checkpoint; False if it came to its end before."""
    before = set(folder.glob("model.ckpt-*.index"))
    process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
    while process.poll() is None and not set(folder.glob("model.ckpt-*.index")) - before:
        time.sleep(0.005)
    time.sleep(rng.random() * 0.15)
    ended = process.poll() is not None
    process.kill()
    process.wait()
    return not ended


def compare(whole: Path, killed: Path, steps: int) -> None:
    first, second = (
        tf.train.load_checkpoint(str(folder / f"model.ckpt-{steps}")) for folder in (whole, killed)
    )
    names = set(first.get_variable_to_shape_map())
    if names != set(second.get_variable_to_shape_map()):
        raise SystemExit("the checkpoints hold different variables")
    for name in sorted(names):
        if not np.array_equal(first.get_tensor(name), second.get_tensor(name)):
            raise SystemExit(f"{name} differs")


if __name__ == "__main__":
    main()
