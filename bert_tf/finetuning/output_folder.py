"""Protection of files in --output_dir that other programs wrote."""

from __future__ import annotations

import fnmatch

import tensorflow as tf

# Files of a run of bert_tf or of the original.
_OF_A_RUN = (
    *("training.json", "model.ckpt-*.index", "*.tf_record*", "eval_results.txt"),
    "nbest_predictions.json",
)
_WRITTEN = (
    *("bert_config.json", "vocab.txt", "tokenizer_config.json", "task.json", "labels.txt"),
    *("metrics.jsonl", "report.html", "predictions.json", "test_results.tsv"),
)


def check_output_folder(folder: str) -> None:
    """Raise ValueError if a folder without a run has files that a run would overwrite."""
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    overwritten = sorted(set(names) & set(_WRITTEN))
    if overwritten and not any(fnmatch.filter(names, pattern) for pattern in _OF_A_RUN):
        raise ValueError(
            f"output_dir={folder} has {', '.join(overwritten)}, but no run: use a new folder."
        )
