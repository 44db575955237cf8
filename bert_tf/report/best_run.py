"""Note on the best of several runs. finetuning/sweep.py writes it."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from bert_tf.interop.checkpoint import read_json

BEST_RUN_FILE = os.path.join("runs", "best.json")


def read_best_run(output_dir: str) -> dict[str, Any]:
    """Return the note, or {} if it is missing."""
    path = os.path.join(output_dir, BEST_RUN_FILE)
    return read_json(path) if tf.io.gfile.exists(path) else {}


def best_of_runs(folder: str, step: float) -> str:
    """Return a text on the runs whose best model is that of `step`; "" for a single run."""
    best = read_best_run(folder)
    if best.get("step") != step:
        return ""
    text = (
        f"These metrics are of {best['name']}, the best of {best['runs']} runs by {best['metric']}."
    )
    if best["seeds"] > 1:
        listed = ", ".join(f"{name} {m:.4g} ± {d:.2g}" for name, (m, d) in best["mean_std"].items())
        text += f" Mean and standard deviation over {best['seeds']} seeds: {listed}."
    return f"{text} The best run's metrics are optimistic."
