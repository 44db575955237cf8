"""Protection of files in --output_dir that other programs wrote."""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Collection, Mapping

import tensorflow as tf

from bert_tf.interop.checkpoint import read_json
from bert_tf.model_files import TASK_FILE
from bert_tf.report.model_card import FACTS_FILE
from bert_tf.tasks.glue import GLUE_TASKS
from bert_tf.training.options import TrainingOptions
from bert_tf.training.unfinished import TRAINING_FILE

logger = logging.getLogger(__name__)

# Flag -> names of files that a program writes with it, in addition to those of model_files.py.
WRITTEN = {
    "do_train": (
        *("train.tf_record", TRAINING_FILE, "metrics.jsonl", FACTS_FILE),
        *("train_taught.tf_record", "unlabelled.tf_record", "unlabelled_taught.tf_record"),
    ),
    "do_eval": (
        *("eval.tf_record", "eval_mismatched.tf_record", "eval_results.txt", "eval_report.txt"),
        *("eval_predictions.txt", "eval_predictions.jsonl", "report.html"),
        *("eval_queries.tf_record", "eval_documents.tf_record"),
        *("predictions.json", "nbest_predictions.json", "null_odds.json"),
    ),
    "do_predict": (
        *("eval.tf_record", "predict.tf_record", "predict_mismatched.tf_record", "test.tf_record"),
        *("test_results.tsv", "test_results_mismatched.tsv", "test_results.txt", "test_report.txt"),
        *("test_predictions.txt", "test_predictions.jsonl"),
        *("test_queries.tf_record", "test_documents.tf_record"),
        *("predictions.json", "nbest_predictions.json", "null_odds.json"),
        *(split.submission for task in GLUE_TASKS.values() for split in task.splits.values()),
    ),
}

# Signs of a run of bert_tf or of the original: names of files, and keys in JSON files.
_RUN_FILES = ("model.ckpt-*.index", "*.tf_record.json", "nbest_predictions.json")
_RUN_KEYS = {TASK_FILE: "task", TRAINING_FILE: "optimizer"}


def check_output_folder(options: TrainingOptions, contents: Mapping[str, str]) -> None:
    """Raise ValueError if the actions of `options` would overwrite files of another program.

    Args:
        contents: name -> text of extra files to write. An existing file with the same lines is allowed.
    """
    cache = getattr(options, "feature_cache_dir", None)
    if cache and not options.do_train:  # leaves no sign of a run
        return
    names = _names_written(options)
    if cache:
        names = {name for name in names if not name.endswith(".tf_record")}
    check_foreign_files(options.output_dir, names, contents)


def warn_of_old_results(options: TrainingOptions) -> None:
    """Warn of results in the folder of a training that its run does not write again."""
    results = {*WRITTEN["do_eval"], *WRITTEN["do_predict"]} - _names_written(options)
    old = sorted(
        name
        for name in results.intersection(_names_in(options.output_dir))
        if not name.endswith(".tf_record")
    )
    if old:
        logger.warning(
            "%s contains results of earlier weights, not of this training: %s. Write them again with "
            "--do_eval or --do_predict.",
            options.output_dir,
            ", ".join(old),
        )


def _names_written(options: TrainingOptions) -> set[str]:
    flags = [flag for flag in WRITTEN if getattr(options, flag, False)]
    if getattr(options, "asks", False):  # run_squad also evaluates its predictions
        flags.append("do_eval")
    return {name for flag in flags for name in WRITTEN[flag]}


def check_foreign_files(folder: str, names: Collection[str], contents: Mapping[str, str]) -> None:
    """Raise ValueError if files would be overwritten in a folder without a sign of a bert_tf run.

    Args:
        names: files to write.
        contents: name -> text of extra files to write. An existing file with the same lines is allowed.
    """
    there = _names_in(folder)
    if _is_of_a_run(folder, there):
        return
    foreign = [name for name in there if name in names and name not in contents]
    for name in set(there) & contents.keys():
        if _text(folder, name).splitlines() != contents[name].splitlines():
            foreign.append(name)
    if foreign:
        raise ValueError(
            f"output_dir={folder} contains {', '.join(sorted(foreign))}, which a run would "
            "overwrite, but no sign that bert_tf wrote them. Use another output_dir, or move these "
            "files."
        )


def _is_of_a_run(folder: str, there: list[str]) -> bool:
    if any(fnmatch.filter(there, pattern) for pattern in _RUN_FILES):
        return True
    for name, key in _RUN_KEYS.items():
        try:
            if name in there and key in read_json(tf.io.gfile.join(folder, name)):
                return True
        except ValueError:  # invalid JSON
            continue
    return False


def _names_in(folder: str) -> list[str]:
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    return [name.rstrip("/") for name in names]


def _text(folder: str, name: str) -> str:
    with tf.io.gfile.GFile(tf.io.gfile.join(folder, name), "rb") as file:
        return file.read().decode("utf-8", errors="replace")
