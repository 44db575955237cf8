"""The part of report.html that compares a student with its teacher."""

from __future__ import annotations

import os
from collections.abc import Mapping

import tensorflow as tf

from bert_tf.interop.checkpoint import num_values
from bert_tf.interop.read import folder_of, read_checkpoint
from bert_tf.modeling.flops import forward_flops_per_token
from bert_tf.report.charts import Part, line_chart, table

_LENGTH = 128  # tokens of a text, for the operations
_NAMES = ("teacher", "student")
NOTE = f"Operations are of a forward pass, for a text of {_LENGTH} tokens. Fewer are faster."


def student_and_teacher(
    teacher: str, folder: str, results: Mapping[str, float], metric: str
) -> list[Part]:
    """Return a table of sizes, operations and metrics, and a chart of one metric by operations.

    The teacher's metrics are those of its own `eval_results.txt`. Without it there are sizes only.

    Args:
        teacher: flag of the training.
        folder: of the student.
        results: metrics of the student.
        metric: of the chart.
    """
    models = [read_checkpoint(path) for path in (teacher, folder)]
    configs = [model.config for model in models]
    metrics = [_results(folder_of(teacher)), results]
    work = [forward_flops_per_token(config, _LENGTH) / 1e6 for config in configs]
    rows = [
        ["layers", *(config.num_hidden_layers for config in configs)],
        ["hidden size", *(config.hidden_size for config in configs)],
        ["million parameters", *(num_values(model.arrays) / 1e6 for model in models)],
        ["million operations per token", *work],
    ]
    common = [name for name in sorted(results) if name in metrics[0] and name != "global_step"]
    rows += [[name, *(found[name] for found in metrics)] for name in common]
    parts = [table(["", *_NAMES], rows)]
    if metric in common:
        values = [found[metric] for found in metrics]
        points = {name: [(x, y)] for name, x, y in zip(_NAMES, work, values, strict=True)}
        axis = "million operations per token"
        parts.append(line_chart(points, axis, metric.removeprefix("eval_"), dots=True))
    return parts


def _results(folder: str) -> dict[str, float]:
    """Return the numbers of `eval_results.txt`; {} without the file. Other lines are ignored."""
    path, found = os.path.join(folder, "eval_results.txt"), {}
    if tf.io.gfile.exists(path):
        with tf.io.gfile.GFile(path, "rb") as file:
            lines = file.read().decode("utf-8", "replace").splitlines()
        for name, _, value in (line.partition(" = ") for line in lines):
            try:
                found[name] = float(value)
            except ValueError:
                continue
    return found
