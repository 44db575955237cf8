"""run_squad: fine-tune on questions about passages, answer other questions, and score the answers.

Source: google-research/bert, run_squad.py.
"""

from __future__ import annotations

import functools
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.data.files import write_text
from bert_tf.data.question_answering import SquadExample, read_squad
from bert_tf.finetuning import loop
from bert_tf.finetuning.output_folder import check_output_folder
from bert_tf.finetuning.question_answering_data import (
    check_answers,
    has_answers,
    read_questions,
    read_training_set,
)
from bert_tf.finetuning.question_answering_options import SquadOptions
from bert_tf.finetuning.run import Program, Run, Splits, fine_tune
from bert_tf.finetuning.setup import Setup
from bert_tf.options import OptionError
from bert_tf.report.page import Command, write_report
from bert_tf.report.question_answering import answer_sections
from bert_tf.tasks.answer_decoding import Prediction
from bert_tf.tasks.answer_ensemble import NBEST_FILE, combine, read_nbest
from bert_tf.tasks.question_answering import (
    AskedQuestions,
    QuestionAnsweringTask,
    official_metrics,
)

logger = logging.getLogger(__name__)

_MAX_SEQ_LENGTH = 384  # the reference's default

SquadRun = Run[QuestionAnsweringTask, SquadOptions]


def run_squad(options: SquadOptions) -> dict[str, float]:
    """Train and answer, as the options set. Return the official metrics if the answers are known.

    Write `train.tf_record`, `eval.tf_record`, `model.ckpt-N`, `metrics.jsonl`, `predictions.json`,
    `nbest_predictions.json`, `null_odds.json` (SQuAD 2.0), `eval_results.txt`, `report.html` and the
    files that model_files.py lists.
    """
    if options.predictions:
        return combine_runs(options)
    return fine_tune(QuestionAnswering(), options)


def version_of(options: SquadOptions, setup: Setup) -> bool:
    """Return True if questions may have no answer: the option, else what the model was trained for."""
    if options.version_2_with_negative is not None:
        return options.version_2_with_negative
    return setup.trained is not None and setup.trained.version_2_with_negative


class QuestionAnswering(Program[QuestionAnsweringTask, SquadOptions]):
    """Questions about passages. An epoch counts questions, not windows, as in the reference."""

    task_type = "question_answering"
    default_length = _MAX_SEQ_LENGTH
    examples = "questions"
    asked: AskedQuestions

    def read(self, options: SquadOptions, setup: Setup):
        trained = setup.trained
        task = QuestionAnsweringTask(
            setup.max_seq_length,
            options.doc_stride,
            options.max_query_length,
            version_of(options, setup),
            options.answer_spans or (trained.answer_spans if trained else "words"),
        )
        splits = {}
        if options.asks:
            self.asked = read_questions(options, task.unlabeled(), setup.tokenizer)
            splits["dev"] = self.asked.questions
        if options.do_train:
            splits["train"] = read_training_set(options, task, setup.tokenizer)
        return task, splits

    def metrics_while_training(self, run: SquadRun) -> Callable[[], dict[str, float]] | None:
        if run.options.asks:
            # Written before the training, so that a full disk is found early.
            run.records(self.asked.questions, "eval", self.asked.task)
            if has_answers(self.asked.examples, run.task.version_2_with_negative):
                return functools.partial(self.metrics, run)
        return None

    def metric_keys(self, task: QuestionAnsweringTask, splits: Splits) -> list[str]:
        nothing = Prediction("", (), "")
        return list(self.asked.metrics({each.qas_id: nothing for each in self.asked.examples}))

    def metrics(self, run: SquadRun) -> dict[str, float]:
        return self.asked.metrics(self._predictions(run, run.options.eval_batch_size, "eval"))

    def finish(self, run: SquadRun) -> dict[str, float]:
        return self.evaluate(run) if run.options.asks else {}

    def evaluate(self, run: SquadRun) -> dict[str, float]:
        examples, options = self.asked.examples, run.options
        logger.info("***** Running predictions *****")
        logger.info("  %d questions", len(examples))
        predictions = self._predictions(run, options.predict_batch_size, "predict")
        about = {"global_step": run.trainer.step}
        version_2 = run.task.version_2_with_negative
        return write_answers(examples, predictions, options, version_2, about, run.folder)

    predict = evaluate

    def _predictions(self, run: SquadRun, batch_size: int, label: str) -> dict[str, Prediction]:
        questions, task = self.asked.questions, self.asked.task
        return self.asked.predict(run.outputs(questions, "eval", batch_size, task, label))


def combine_runs(options: SquadOptions) -> dict[str, float]:
    """Combine the answers of the runs in `predictions`, and write them like those of one run."""
    examples = read_squad(options.predict_file)
    names = [example.qas_id for example in examples]
    folders = [folder for folder in map(str.strip, options.predictions.split(",")) if folder]
    if not folders:
        raise OptionError("predictions", "must be a comma list of output folders of runs.")
    for path in folders:
        folder = path if tf.io.gfile.isdir(path) else os.path.dirname(path)
        if os.path.abspath(folder) == os.path.abspath(options.output_dir):
            raise OptionError("output_dir", "is one of `predictions`. Use another.")
    check_output_folder(options.output_dir)
    version_2 = bool(options.version_2_with_negative)
    check_answers(examples, options, version_2)
    runs = [read_nbest(path, names, version_2) for path in folders]
    logger.info("An ensemble of %d runs on %d questions", len(runs), len(names))
    predictions = combine(runs, names, options.answer_settings(version_2))
    about = {"num_runs": len(runs)}
    return write_answers(examples, predictions, options, version_2, about, options.output_dir)


def write_answers(
    examples: Sequence[SquadExample],
    predictions: Mapping[str, Prediction],
    options: SquadOptions,
    version_2_with_negative: bool,
    about: Mapping[str, Any],
    folder: str,
) -> dict[str, float]:
    """Write the reference's three files. Return {} unless the answers are known.

    With known answers, write and return the metrics in `eval_results.txt`, and write the report.
    """
    files = {
        "predictions.json": {name: p.text for name, p in predictions.items()},
        NBEST_FILE: {name: [c.as_json() for c in p.nbest] for name, p in predictions.items()},
    }
    if version_2_with_negative:
        files["null_odds.json"] = {name: p.null_odds for name, p in predictions.items()}
    for name, values in files.items():
        path = os.path.join(folder, name)
        write_text(path, json.dumps(values, indent=4) + "\n")
        logger.info("Wrote %s", path)
    if not has_answers(examples, version_2_with_negative):
        logger.info("%s lacks answers, so there are no metrics.", options.predict_file)
        return {}
    metrics = official_metrics(examples, predictions, version_2_with_negative)
    results = {**about, **metrics}
    path = os.path.join(folder, "eval_results.txt")
    loop.write_results(path, results, "Eval results")
    sections = answer_sections(examples, predictions, version_2_with_negative)
    title = f"Answers to {os.path.basename(options.predict_file)}"
    shown: dict[str, float] = {"questions": len(examples)}
    if version_2_with_negative:
        shown["exact_of_no_answer"] = 100.0 * sum(not e.answers for e in examples) / len(examples)
    path, command = os.path.join(folder, "report.html"), Command("run_squad", options)
    write_report(path, title, results | shown, sections, command)
    return results
