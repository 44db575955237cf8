"""Files of tf-models-official and its TF Hub exporter, read by bert_tf, and the other way round.

    python3 -m venv env-tfmodels && env-tfmodels/bin/pip install tf-models-official==2.20.0
    python benchmarks/tf_models_files.py --python=env-tfmodels/bin/python

1. Here: `convert_checkpoint --output_format=tf1` writes a tiny BERT with random values everywhere.
2. There (--python, tf_models_peer.py): its converter makes object-based checkpoints of that file. Its
   TF Hub exporter, its models and its trainer write other files with random values. Each file comes with
   the arrays and the outputs of the live model.
3. Here: `read_checkpoint` reads each file. Every array of the live model must be found bit for bit, and
   our model must give the same outputs. The names of the converted files must have the values of step 1.

A head may have a pooler of its own. Then the encoder's pooler is unused, and this script reports it.
Everything is float32 on the CPU. The exit status is 1 if an array differs, or if an output differs by
more than 1e-5, times the largest value if that is above 1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from tf_models_peer import CASES, NUM_LABELS, SIZES, TOKENS, randomize

PEER = Path(__file__).resolve().with_name("tf_models_peer.py")
TOLERANCE = 1e-5


def write_tf1(folder: Path) -> None:
    """Write a random model as `tf1`, and the ids on which all models are run as `batch.npz`."""
    import bert_tf

    config = bert_tf.BertConfig(**SIZES)
    model = bert_tf.BertForPreTraining(config)
    randomize(model.weights)
    model.save_pretrained(folder / "source", bert_tf.FullTokenizer(TOKENS), format="tf1")
    bert_tf.convert(folder / "source", folder / "tf1", format="tf1")
    ids = np.random.default_rng(0).integers(0, config.vocab_size, (3, 48), np.int32)
    mask = (np.arange(48) < np.array([[48], [24], [9]])).astype(np.int32)
    segments = np.random.default_rng(1).integers(0, 2, ids.shape, np.int32)
    np.savez(folder / "batch.npz", input_ids=ids, input_mask=mask, segment_ids=segments)


def check(case: str, folder: Path) -> bool:
    """Print one line of the table and return True if the file was read exactly."""
    from bert_tf.checkpoints.heads import HEADS
    from bert_tf.checkpoints.read import read_checkpoint

    head = CASES[case]
    written = dict(np.load(folder / f"{list(CASES).index(case)}.npz"))
    arrays, outputs = (
        {name.removeprefix(start): v for name, v in written.items() if name.startswith(start)}
        for start in ("array ", "output ")
    )
    checkpoint = read_checkpoint(str(written["path"]))
    found = {
        bits for array in checkpoint.arrays.values() for bits in (_bits(array), _bits(array.T))
    }
    missing = [name for name, array in arrays.items() if _bits(array) not in found]
    unused = [name for name in missing if "pooler_transform/" in name]
    exact = missing == unused and (not unused or any("pooler" in note for note in checkpoint.notes))
    if case.startswith("converter:"):
        exact &= _same_names(checkpoint, read_checkpoint(folder / "tf1"), head)
    if case.startswith("TF Hub:"):
        text = Path(checkpoint.tokenizer.vocab_file).read_text(encoding="utf-8")
        exact &= text.split() == list(TOKENS) and checkpoint.tokenizer.do_lower_case is True
    batch = dict(np.load(folder / "batch.npz"))
    ours = _outputs(checkpoint, HEADS[head], batch)
    real = batch["input_mask"] == 1
    difference = magnitude = 0.0
    for name, value in ours.items():
        theirs, per_token = outputs[name], value.shape[:2] == real.shape
        gaps = np.abs(value - theirs)[real] if per_token else np.abs(value - theirs)
        difference, magnitude = max(difference, gaps.max()), max(magnitude, np.abs(value).max())
    exact &= set(ours) == set(outputs) and difference <= TOLERANCE * max(1.0, magnitude)
    unused_words = f"{len(unused)}" if unused else ""
    count = f"{len(arrays) - len(missing)} of {len(arrays)}"
    others = f"{' '.join(name for name in missing if name not in unused)}"
    row = (case, count, unused_words, ", ".join(ours), f"{difference:.1e} of {magnitude:.1f}")
    print("|", " | ".join(row), "|", "" if exact else f"DIFFERENT {others}")
    return exact


def _outputs(checkpoint: Any, head: Any, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the outputs of our model with the checkpoint; every position counts as masked."""
    from bert_tf.checkpoints.initial import initialize
    from bert_tf.modeling import bert, models

    model_class = getattr(models, head.architecture, models.BertForPreTraining)
    labels = {"num_labels": NUM_LABELS} if head.has_labels else {}
    model = (bert.BertModel if head.name == "encoder" else model_class)(checkpoint.config, **labels)
    if hasattr(model, "masked_lm"):
        every = np.tile(np.arange(batch["input_ids"].shape[1], dtype=np.int32), (3, 1))
        batch = {**batch, "masked_lm_positions": every}
    initialize(model, checkpoint)
    outputs = {name: np.asarray(value) for name, value in model(batch).items()}
    has_pooler = "bert/pooler/dense/kernel" in checkpoint.arrays
    names = head.outputs or tuple(outputs)
    return {name: outputs[name] for name in names if has_pooler or name != "pooled_output"}


def _bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array, np.float32).tobytes()


def _same_names(checkpoint: Any, source: Any, head: str) -> bool:
    """Return True if each array of the source for this head has its name and bits."""
    starts = ("bert/", "cls/predictions/") if head == "masked_lm" else ("bert/",)
    names = [name for name in source.arrays if name.startswith(starts)]
    return bool(names) and all(
        name in checkpoint.arrays
        and _bits(source.arrays[name]) == _bits(checkpoint.arrays[name])
        and source.arrays[name].shape == checkpoint.arrays[name].shape
        for name in names
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", help="of an environment with tf-models-official")
    args = parser.parse_args()
    if not args.python:
        parser.error("--python is missing. It must be of an environment with tf-models-official.")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    with tempfile.TemporaryDirectory() as folder:
        write_tf1(Path(folder))
        command = [args.python, str(PEER), folder]
        environment = {n: v for n, v in os.environ.items() if n != "PYTHONPATH"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{args.python} failed:\n{done.stderr[-3000:]}")
        print(done.stdout.splitlines()[-1])
        print(
            "| file | arrays found | unused | outputs | largest difference |\n|---|---|---|---|---|"
        )
        exact = [check(case, Path(folder)) for case in CASES]
    print(f"{sum(exact)} of {len(exact)} files were read exactly")
    sys.exit(not all(exact))


if __name__ == "__main__":
    main()
