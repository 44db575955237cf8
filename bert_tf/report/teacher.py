"""The part of report.html that compares a student with its teacher."""

from __future__ import annotations

import os
from collections.abc import Mapping

import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.interop.initial import folder_of, read_checkpoint
from bert_tf.model_folder import read_task
from bert_tf.modeling.flops import flops_per_token
from bert_tf.report.charts import Part, line_chart, table
from bert_tf.tasks.pretraining import PretrainingTask

_LENGTH = 128  # tokens of a text, for the operations
_NAMES = ("teacher", "student")


def student_and_teacher(teacher: str, folder: str, results: Mapping[str, float]) -> list[Part]:
    """Return a table of sizes, operations and metrics, and a chart of the best metric by operations.

    The teacher's metrics are those of its own `eval_results.txt`. Without it there are sizes only.

    Args:
        teacher: flag of the training.
        folder: of the student.
        results: metrics of the student.
    """
    configs = [read_checkpoint(path).config for path in (teacher, folder)]
    metrics = [_results(folder_of(teacher)), results]
    work = [_millions_per_token(config) for config in configs]
    rows = [
        ["layers", *(config.num_hidden_layers for config in configs)],
        ["hidden size", *(config.hidden_size for config in configs)],
        ["million operations per token", *work],
    ]
    common = [name for name in sorted(results) if name in metrics[0] and name != "global_step"]
    rows += [[name, *(found[name] for found in metrics)] for name in common]
    parts = [table(["", *_NAMES], rows)]
    task = read_task(folder)
    best = PretrainingTask.best_metric if task is None else task.best_metric
    if best in common:
        values = [found[best] for found in metrics]
        points = {name: [(x, y)] for name, x, y in zip(_NAMES, work, values, strict=True)}
        axis = "million operations per token"
        parts.append(line_chart(points, axis, best.removeprefix("eval_"), dots=True))
    return parts


def _millions_per_token(config: BertConfig) -> float:
    return flops_per_token(config, _LENGTH) / 3 / 1e6  # forward only


def _results(folder: str) -> dict[str, float]:
    path = os.path.join(folder, "eval_results.txt")
    if not tf.io.gfile.exists(path):
        return {}
    with tf.io.gfile.GFile(path) as file:
        lines = [line.rstrip("\n").split(" = ", 1) for line in file if " = " in line]
    return {name: float(value) for name, value in lines}
