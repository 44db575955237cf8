"""run_swag: fine-tune, evaluate and predict on multiple-choice questions.

Source: Devlin et al. 2019, section 4.4. The reference has no such program.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bert_tf.data.multiple_choice import Question, read_questions
from bert_tf.files import json_line
from bert_tf.limits import DataError
from bert_tf.options import ModelOptions
from bert_tf.report.classification import Choices, choice_sections
from bert_tf.tasks.metrics import largest_class, softmax
from bert_tf.tasks.multiple_choice import MultipleChoiceTask
from bert_tf.tasks.run import Run, start_fine_tuning
from bert_tf.tasks.setup import FineTuningOptions, check_files, resolve, select_files
from bert_tf.training.options import DeviceOptions, TrainingOptions

logger = logging.getLogger(__name__)

Splits = dict[str, list[Question]]


@dataclass(frozen=True, kw_only=True)
class SwagOptions:
    """The flags of run_swag. Files: .csv (as SWAG) or .jsonl."""

    devices: DeviceOptions
    training: TrainingOptions
    model: ModelOptions
    fine_tuning: FineTuningOptions

    def __post_init__(self) -> None:
        check_files(self)


SwagRun = Run[MultipleChoiceTask, SwagOptions]


def run_swag(options: SwagOptions) -> dict[str, float]:
    """Train, evaluate and predict, as the options set. Return the metrics of the evaluation, if any.

    Write `train.tf_record`, `eval.tf_record`, `test.tf_record`, `model.ckpt-N`, `metrics.jsonl`, the
    files of checkpoints/write.py, and

        eval_results.txt           "key = value" lines: accuracy and loss
        report.html                confidence and errors of the model
        eval_predictions.jsonl     {"id", "prediction": index from 0, "probabilities": [one per choice]}
        test_predictions.jsonl     the same for --predict_file
        test_results.txt           if every question of --predict_file has an answer
    """
    setup = resolve(options, "multiple_choice")
    splits = read_data(options)
    num_choices = max(len(q.choices) for questions in splits.values() for q in questions)
    task = MultipleChoiceTask(num_choices, setup.max_seq_length)
    run: SwagRun = start_fine_tuning(setup, task, splits)

    def dev_metrics() -> dict[str, float]:
        return task.metrics(run.outputs(splits["dev"], "eval", options.training.eval_batch_size))

    if options.training.do_train:
        run.train(splits["train"], dev_metrics if options.training.do_eval else None)
    results = {}
    if options.training.do_eval:
        results = answer(run, splits["dev"], "eval", options.training.eval_batch_size)
    if options.fine_tuning.do_predict:
        answer(run, splits["test"], "test", options.fine_tuning.predict_batch_size)
    return results


def read_data(options: SwagOptions) -> Splits:
    splits = {}
    for split, file in select_files(options).items():
        questions = read_questions(str(file))
        unknown = [question for question in questions if question.label is None]
        if unknown and split != "test":
            text = f"no answer, as {len(unknown)} of {len(questions)}; the {split} set needs all."
            raise DataError(unknown[0].location, text)
        splits[split] = questions
    return splits


def answer(
    run: SwagRun, questions: Sequence[Question], name: str, batch_size: int
) -> dict[str, float]:
    """Answer the set "eval" or "test". Return its metrics, or {} if an answer is unknown."""
    action = "evaluation" if name == "eval" else "prediction"
    logger.info("***** Running %s on %d questions *****", action, len(questions))
    outputs = run.outputs(questions, name, batch_size)
    run.write_lines(f"{name}_predictions.jsonl", format_predictions(questions, outputs["logits"]))
    if any(question.label is None for question in questions):
        return {}
    results = run.write_results(name, run.task.metrics(outputs))
    if name == "eval":
        rows = [Choices(q.text_a, q.choices, int(q.label or 0), q.location) for q in questions]
        sections = choice_sections(rows, softmax(outputs["logits"]))
        title = f"Choices of {os.path.basename(str(run.options.fine_tuning.eval_file))}"
        largest = largest_class(np.array([question.label for question in questions]))
        facts = {"examples": len(questions), "eval_accuracy_of_largest_class": largest}
        run.write_report(title, results | facts, sections)
    return results


def format_predictions(questions: Sequence[Question], logits: np.ndarray) -> Iterator[str]:
    """Yield one line of JSON per question. `logits` [questions, K] may have padding."""
    for question, row in zip(questions, softmax(logits), strict=True):
        probabilities = row[: len(question.choices)].tolist()
        prediction = int(np.argmax(probabilities))
        yield json_line(
            {"id": question.guid, "prediction": prediction, "probabilities": probabilities}
        )
