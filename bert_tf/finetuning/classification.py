"""run_classifier: fine-tune, evaluate and predict on sentences and pairs of sentences.

Source: google-research/bert, run_classifier.py.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.data.files import write_text
from bert_tf.finetuning import loop
from bert_tf.finetuning.classification_data import read_data
from bert_tf.finetuning.classification_options import ClassifierOptions
from bert_tf.finetuning.run import Program, Run, fine_tune
from bert_tf.finetuning.setup import Setup
from bert_tf.metrics.basic import largest_class
from bert_tf.report.classification import evaluation_sections
from bert_tf.report.page import Command, Section, write_report
from bert_tf.tasks.classification import ClassificationTask, InputExample
from bert_tf.tasks.glue import find_glue_task, submission_lines

logger = logging.getLogger(__name__)


ClassifierRun = Run[ClassificationTask, ClassifierOptions]


def run_classifier(options: ClassifierOptions) -> dict[str, float]:
    """Train, evaluate and predict, as the options set. Return the metrics of the evaluation, if any.

    Write `train.tf_record`, `eval.tf_record`, `predict.tf_record`, `model.ckpt-N`, `metrics.jsonl`,
    `eval_results.txt`, `report.html`, `test_results.tsv` and `labels.txt`. Write a file for the GLUE
    leaderboard, and the files that model_files.py lists.
    """
    return fine_tune(Classification(), options, options.make_strategy())


class Classification(Program[ClassificationTask, ClassifierOptions]):
    """Sentences and pairs of sentences."""

    task_type = "classification"

    def read(self, options: ClassifierOptions, setup: Setup):
        known_labels = setup.labels_of(self.task_type)
        return read_data(options, setup.trained, setup.max_seq_length, known_labels)

    def count(self, task: ClassificationTask, examples: Sequence[Any], setup: Setup) -> int:
        return task.count_records(examples, setup.tokenizer)  # with doc_stride: windows

    def label_names(self, options: ClassifierOptions) -> Sequence[str]:
        return find_glue_task(options.task_name).label_names if options.task_name else ()

    def metrics(self, run: ClassifierRun) -> dict[str, float]:
        kept = outputs_of(run, run.splits["dev"], "eval", run.options.eval_batch_size)
        return run.task.metrics_of(kept["logits"], kept["label_ids"])

    def evaluate(self, run: ClassifierRun) -> dict[str, float]:
        return evaluate(run)

    def predict(self, run: ClassifierRun) -> None:
        for split, examples in run.splits.items():
            if split.startswith("test"):
                predict(run, examples, split)


def evaluate(run: ClassifierRun) -> dict[str, float]:
    """Return the metrics of the dev set. Write them to `eval_results.txt` and `report.html`.

    The keys of "dev_mismatched" end in "_mismatched".
    """
    results: dict[str, float] = {"global_step": run.trainer.step}
    shown: dict[str, float] = {}  # only in the report
    sections: list[Section] = []
    for split, examples in run.splits.items():
        if not split.startswith("dev"):
            continue
        logger.info("***** Running evaluation *****")
        logger.info("  Num examples = %d", len(examples))
        suffix = split.removeprefix("dev")
        kept = outputs_of(run, examples, f"eval{suffix}", run.options.eval_batch_size)
        predictions = run.task.kind.predictions(kept["logits"])
        if len(np.unique(predictions, axis=0)) == 1 < len(np.unique(kept["label_ids"], axis=0)):
            logger.warning(
                "All %d predictions are equal: train with another seed", len(predictions)
            )
        values = run.task.metrics_of(kept["logits"], kept["label_ids"])
        results |= {f"{name}{suffix}": value for name, value in values.items()}
        shown[f"examples{suffix}"] = len(examples)
        if "eval_accuracy" in values:
            largest = largest_class(kept["label_ids"])
            shown[f"eval_accuracy_of_largest_class{suffix}"] = largest
        sections += evaluation_sections(run.task, examples, kept, suffix)
    loop.write_results(run.path("eval_results.txt"), results, "Eval results")
    command = Command("run_classifier", run.options)
    title = run.options.task_name or os.path.basename(str(run.options.eval_file))
    write_report(run.path("report.html"), title, results | shown, sections, command)
    return results


def outputs_of(
    run: ClassifierRun, examples: Sequence[InputExample], name: str, batch_size: int
) -> dict[str, np.ndarray]:
    """Return `logits` and `label_ids` of each example."""
    return run.task.per_example(run.outputs(examples, name, batch_size))


def predict(run: ClassifierRun, examples: Sequence[InputExample], split: str = "test") -> None:
    """Write `test_results.tsv`: a line per example, without a header.

    A line has the probability of each label, or the number. For a GLUE task, write a second file in the
    format of the leaderboard.
    """
    logger.info("***** Running prediction *****")
    logger.info("  Num examples = %d", len(examples))
    suffix, options = split.removeprefix("test"), run.options
    logits = outputs_of(run, examples, f"predict{suffix}", options.predict_batch_size)["logits"]
    rows = ("\t".join(str(float(p)) for p in row) + "\n" for row in run.task.kind.shown(logits))
    path = run.path(f"test_results{suffix}.tsv")
    write_text(path, "".join(rows))
    logger.info("Wrote %d predictions to %s", len(examples), path)
    if run.task.labels:
        logger.info("columns of %s: %s", os.path.basename(path), ", ".join(run.task.labels))
    glue_task = find_glue_task(options.task_name) if options.task_name else None
    if glue_task is not None and glue_task.splits[split].submission:
        lines = submission_lines(glue_task, run.task.kind.predictions(logits).tolist())
        path = run.path(glue_task.splits[split].submission)
        write_text(path, "".join(f"{line}\n" for line in lines))
        logger.info("Wrote %s, in the format of the GLUE leaderboard", path)
