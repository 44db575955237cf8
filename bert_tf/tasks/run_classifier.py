"""run_classifier: fine-tune, evaluate and predict on sentences and pairs of sentences.

Source: google-research/bert, run_classifier.py.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bert_tf.checkpoints.heads import split_labels
from bert_tf.data.tables import TableOptions
from bert_tf.limits import DataError, join_names
from bert_tf.options import ModelOptions, OptionError, changes, option
from bert_tf.report.classification import Example, evaluation_sections
from bert_tf.report.page import Section
from bert_tf.tasks.classification import PROBLEM_TYPES, ClassificationTask, InputExample
from bert_tf.tasks.glue import (
    GLUE_TASKS,
    GlueTask,
    find_glue_task,
    format_submission,
    list_splits,
    read_glue,
)
from bert_tf.tasks.metrics import largest_class
from bert_tf.tasks.run import Run, start_fine_tuning
from bert_tf.tasks.setup import FineTuningOptions, check_data, resolve, select_files
from bert_tf.tasks.tables import drop_unlabeled, infer_labels, read_examples, split_label_columns
from bert_tf.training.options import DeviceOptions, TrainingOptions

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ClassifierOptions:
    devices: DeviceOptions
    training: TrainingOptions
    model: ModelOptions
    fine_tuning: FineTuningOptions = changes(
        train_file={"help": "Table to train on: .tsv, .csv or .jsonl."},
        predict_file={"help": "Table to predict; labels are optional."},
    )
    table: TableOptions = changes(
        text_a_column={"help": "Column of the (first) sentence.", "default": "text_a"},
        text_b_column={"help": "Column of the second sentence of a pair."},
        choices_column=None,
    )
    data_dir: str | None = option(
        "Folder of a GLUE data set, for --task_name.", group="Data", default=None
    )
    task_name: str | None = option(
        f"Name of a data set: {', '.join(GLUE_TASKS)}. For your own data give --train_file instead.",
        group="Data",
        default=None,
    )
    language: str = option("For --task_name=xnli: language of the data.", default="zh")
    label_column: str = option(
        "Column of the label. With --problem_type=multi_label also a comma list of columns that "
        "contain 0 or 1.",
        group="Data",
        default="label",
    )
    problem_type: str | None = option(
        "single_label: one of several labels. multi_label: any number of them. regression: a number. "
        "Default: that of --task_name or of the model in --output_dir, else single_label.",
        default=None,
        choices=tuple(PROBLEM_TYPES),
    )
    labels: str | None = option(
        "Comma list of all labels of --train_file, in the order of the outputs and of the columns of "
        "test_results.tsv. Default: those of the model in --output_dir, else of the table, sorted.",
        default=None,
    )
    doc_stride: int | None = option(
        "Inputs beyond --max_seq_length are read in windows, which start this many tokens apart. Their "
        "logits are averaged. Default: that of the model in --output_dir, else inputs are truncated.",
        group="Model",
        default=None,
        min=1,
        on_resume="model",
    )

    def __post_init__(self) -> None:
        check_data(self, self.task_name)

    @property
    def glue_task(self) -> GlueTask | None:
        return find_glue_task(self.task_name) if self.task_name else None


ClassifierRun = Run[ClassificationTask, ClassifierOptions]
Splits = dict[str, list[InputExample]]


def run_classifier(options: ClassifierOptions) -> dict[str, float]:
    """Train, evaluate and predict, as the options set. Return the metrics of the evaluation, if any.

    Write `train.tf_record`, `eval.tf_record`, `predict.tf_record`, `model.ckpt-N`, `metrics.jsonl`,
    `eval_results.txt`, `report.html`, `test_results.tsv` and `labels.txt`. Write a file for the GLUE
    leaderboard, and the files of checkpoints/write.py.
    """
    setup = resolve(options, "classification")
    labels = setup.checkpoint_labels("classification")
    task, splits = read_data(options, setup.trained, setup.max_seq_length, labels)
    num_windows = task.count_records(splits.get("train", ()), setup.tokenizer)
    label_names = options.glue_task.label_names if options.glue_task else ()
    run: ClassifierRun = start_fine_tuning(
        setup, task, splits, num_windows, label_names=label_names
    )

    def dev_metrics() -> dict[str, float]:
        return task.metrics(run.outputs(splits["dev"], "eval", options.training.eval_batch_size))

    if options.training.do_train:
        run.train(splits["train"], dev_metrics if options.training.do_eval else None)
    results = evaluate(run, splits) if options.training.do_eval else {}
    for split, examples in splits.items():
        if split.startswith("test"):
            predict(run, examples, split)
    return results


def evaluate(run: ClassifierRun, splits: Splits) -> dict[str, float]:
    """Return and write the metrics of the dev sets, those of "dev_mismatched" as "..._mismatched"."""
    task = run.task
    results: dict[str, float] = {}
    facts: dict[str, float] = {}  # only in the report
    sections: list[Section] = []
    for split, examples in splits.items():
        if not split.startswith("dev"):
            continue
        suffix = split.removeprefix("dev")
        logger.info("***** Running evaluation%s on %d examples *****", suffix, len(examples))
        batch_size = run.options.training.eval_batch_size
        outputs = run.outputs(examples, f"eval{suffix}", batch_size)
        metrics = task.metrics(outputs)
        results |= {f"{name}{suffix}": value for name, value in metrics.items()}
        facts[f"examples{suffix}"] = len(examples)
        if "eval_accuracy" in metrics:
            facts[f"eval_accuracy_of_largest_class{suffix}"] = largest_class(outputs["label_ids"])
        rows = [Example(tuple(filter(None, (e.text_a, e.text_b))), e.location) for e in examples]
        scores = task.kind.scores(outputs["logits"])
        sections += evaluation_sections(
            task.problem_type, task.labels, rows, scores, outputs["label_ids"], suffix
        )
    results = run.write_results("eval", results)
    title = run.options.task_name or os.path.basename(str(run.options.fine_tuning.eval_file))
    run.write_report(title, results | facts, sections)
    return results


def predict(run: ClassifierRun, examples: Sequence[InputExample], split: str = "test") -> None:
    """Write `test_results.tsv`: a line per example, without a header.

    A line has the probability of each label, or the number. For a GLUE task, write a second file in the
    format of the leaderboard.
    """
    suffix, task, glue_task = split.removeprefix("test"), run.task, run.options.glue_task
    logger.info("***** Running prediction%s on %d examples *****", suffix, len(examples))
    batch_size = run.options.fine_tuning.predict_batch_size
    logits = run.outputs(examples, f"predict{suffix}", batch_size)["logits"]
    rows = task.kind.scores(logits).tolist()
    run.write_lines(f"test_results{suffix}.tsv", ("\t".join(map(str, row)) + "\n" for row in rows))
    if task.labels:
        logger.info("  its columns: %s", ", ".join(task.labels))
    if glue_task and (submission := glue_task.splits[split].submission):
        predictions = task.kind.predictions(logits).tolist()
        lines = format_submission(glue_task, predictions)
        run.write_lines(submission, (f"{line}\n" for line in lines))


def read_data(
    options: ClassifierOptions,
    trained: ClassificationTask | None = None,
    max_seq_length: int = 128,
    known_labels: Sequence[str] = (),
) -> tuple[ClassificationTask, Splits]:
    """Return the task and the examples of the splits: "train", "dev", "test" and, for MNLI, others."""
    files, glue_task = select_files(options), options.glue_task
    known_type = "single_label" if trained is None else trained.problem_type
    problem_type = glue_task.problem_type if glue_task else options.problem_type or known_type
    if trained is not None and problem_type != known_type:
        text = f"{problem_type}, but the model was trained for {known_type}."
        raise OptionError("problem_type", text)
    if glue_task:
        settings, splits = _read_glue_data(options, glue_task, files)
    else:
        known_labels = known_labels if trained is None else trained.labels
        settings, splits = _read_tables(options, problem_type, files, known_labels)
    for split, examples in splits.items():
        if not examples:
            source = options.data_dir or str(files[split])
            raise DataError(source, f"the {split} set has no examples.")
    settings |= {"max_seq_length": max_seq_length, "problem_type": problem_type}
    settings["doc_stride"] = options.doc_stride or (trained.doc_stride if trained else None)
    task = ClassificationTask(**settings)
    for split, examples in splits.items():
        if not split.startswith("test"):
            task.check_examples(examples)
    if trained is not None and trained.is_pair not in (None, task.is_pair):
        text = f"the model was trained with is_pair={trained.is_pair}, unlike the data."
        raise OptionError("output_dir", text)
    if "train" in splits and task.labels:
        counts = Counter(name for example in splits["train"] for name in set(example.names))
        text = join_names([f"{label} ({counts[label]})" for label in task.labels])
        positive = f"; f1 is that of {task.labels[1]}" if len(task.labels) == 2 else ""
        logger.info("Classes, with training examples: %s%s", text, positive)
    return task, splits


def _read_glue_data(
    options: ClassifierOptions, glue_task: GlueTask, files: Mapping[str, Any]
) -> tuple[dict[str, Any], Splits]:
    folder = str(options.data_dir)
    splits = {
        split: list(read_glue(glue_task, folder, split, options.language))
        for name in files
        for split in list_splits(glue_task, folder, name)
    }
    settings = {"labels": glue_task.labels, "is_pair": glue_task.is_pair}
    return {**settings, "metric_names": glue_task.metrics}, splits


def _read_tables(
    options: ClassifierOptions,
    problem_type: str,
    files: Mapping[str, str | None],
    known_labels: Sequence[str],
) -> tuple[dict[str, Any], Splits]:
    def read(file: str | None, with_labels: bool = True) -> list[InputExample]:
        column = options.label_column if with_labels else None
        return list(read_examples(str(file), options.table, column, problem_type))

    splits = {split: read(file, split != "test") for split, file in files.items()}
    labels: Sequence[str] = ()
    if PROBLEM_TYPES[problem_type].has_labels:
        columns = split_label_columns(options.label_column, problem_type)
        if options.labels:
            labels = split_labels(options.labels)
        elif columns and ("train" in splits or not known_labels):
            labels = columns
        elif known_labels and "train" not in splits:
            labels = known_labels
        elif not options.fine_tuning.train_file:
            raise OptionError("labels", "names the model's outputs in their order.")
        else:
            rows = splits.get("train") or read(options.fine_tuning.train_file)
            labels = infer_labels(rows)
        splits = {split: drop_unlabeled(rows, labels, split) for split, rows in splits.items()}
    return {"labels": labels, "is_pair": options.table.text_b_column is not None}, splits
