"""run_squad: fine-tune on questions about passages, answer other questions, and score the answers.

Source: google-research/bert, run_squad.py.
"""

from __future__ import annotations

import json
import logging
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bert_tf.characters import is_blank
from bert_tf.data.question_answering import Findings, SquadExample, examples_to_train, read_squad
from bert_tf.files import write_text
from bert_tf.limits import DataError
from bert_tf.options import ModelOptions, OptionError, changes, option, require_files
from bert_tf.report.question_answering import ScoredAnswer, answer_sections
from bert_tf.tasks import answer_decoding
from bert_tf.tasks.answer_decoding import ANSWER_SPANS, AnswerSettings, Prediction
from bert_tf.tasks.question_answering import (
    LabeledQuestion,
    QuestionAnsweringTask,
    QuestionSet,
    label_questions,
    tokenize_passages,
)
from bert_tf.tasks.run import Run, start_fine_tuning
from bert_tf.tasks.setup import FineTuningOptions, resolve
from bert_tf.tasks.squad_metrics import score_v1, score_v2
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.options import DeviceOptions, TrainingOptions

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SquadOptions:
    devices: DeviceOptions
    training: TrainingOptions
    model: ModelOptions = changes(
        max_seq_length={
            "help": "Tokens of a question and a window of its passage. Default: that of the model in "
            "--output_dir, else 384 (or the model's number of positions, if lower)."
        }
    )
    fine_tuning: FineTuningOptions = changes(
        do_predict={
            "help": "Answer --predict_file. If it contains answers, exact match and F1 are written too."
        },
        predict_batch_size={"help": "Windows per prediction batch."},
        train_file={"help": "SQuAD JSON to train on."},
        predict_file={"help": "SQuAD JSON to answer."},
        eval_file=None,
    )
    doc_stride: int = option(
        "Tokens from one window of a passage to the next. An evaluation alone also takes this value, "
        "not the model's.",
        group="Model",
        default=128,
        min=1,
        on_resume="model",
    )
    max_query_length: int = option(
        "Longer questions are truncated to this many tokens. An evaluation alone also takes this "
        "value, not the model's.",
        default=64,
        min=1,
        on_resume="warn",
    )
    n_best_size: int = option("Answers in nbest_predictions.json.", default=20, min=1)
    max_answer_length: int = option("Longest answer, in tokens.", group="Model", default=30, min=1)
    verbose_logging: bool = option("Log every malformed question.", default=False)
    answer_spans: str | None = option(
        "WordPieces of an answer. words: those of its text inside its words, else all of its words, as "
        "in the reference. characters: the fewest pieces that contain it, for answers inside words as "
        "in Thai and Arabic; predictions.json is cut by characters too. Default: that of the model in "
        "--output_dir, else words.",
        default=None,
        choices=ANSWER_SPANS,
        on_resume="model",
    )
    version_2_with_negative: bool | None = option(
        "Questions may have no answer (SQuAD 2.0). Default: that of the model in --output_dir or, "
        "without --do_train, of --init_checkpoint; else false.",
        group="Data",
        default=None,
    )
    null_score_diff_threshold: float = option(
        "The answer is empty if its value in null_odds.json exceeds this.",
        default=0.0,
        infinite=True,
    )

    def __post_init__(self) -> None:
        needed = {"do_train": "train_file", "do_eval": "predict_file", "do_predict": "predict_file"}
        require_files(self, needed)


_MAX_SEQ_LENGTH = 384  # the reference's default

SquadRun = Run[QuestionAnsweringTask, SquadOptions]


def run_squad(options: SquadOptions) -> dict[str, float]:
    """Train and answer, as the options set. Return the official metrics if the answers are known.

    Write `train.tf_record`, `eval.tf_record`, `model.ckpt-N`, `metrics.jsonl`, `predictions.json`,
    `nbest_predictions.json`, `null_odds.json` (SQuAD 2.0), `eval_results.txt`, `report.html` and the
    files of checkpoints/write.py.
    """
    setup = resolve(options, "question_answering", _MAX_SEQ_LENGTH)
    trained, version_2 = setup.trained, options.version_2_with_negative
    if version_2 is None:
        version_2 = trained is not None and trained.version_2_with_negative
    task = QuestionAnsweringTask(
        setup.max_seq_length,
        options.doc_stride,
        options.max_query_length,
        version_2,
        options.answer_spans or (trained.answer_spans if trained else "words"),
    )
    dev: Any = None
    splits = {}
    if options.fine_tuning.do_predict or options.training.do_eval:
        dev = read_questions(options, task.unlabeled(), setup.tokenizer)
        splits["dev"] = dev.questions
    if options.training.do_train:
        splits["train"] = read_training_set(options, task, setup.tokenizer)
    run: SquadRun = start_fine_tuning(setup, task, splits)

    def predict(batch_size: int) -> dict[str, Prediction]:
        return dev.predict(run.outputs(dev.questions, "eval", batch_size, dev.task))

    def dev_metrics() -> dict[str, float]:
        return dev.metrics(predict(options.training.eval_batch_size))

    if options.training.do_train:
        if dev is not None:  # now, so that a full disk is found early
            run.records(dev.questions, "eval", dev.task)
        is_scored = dev is not None and dev.has_answers
        run.train(splits["train"], dev_metrics if is_scored else None)
    if dev is None:
        return {}
    logger.info("***** Running prediction on %d questions *****", len(dev.examples))
    predictions = predict(options.fine_tuning.predict_batch_size)
    write_answers(run.output_dir, predictions, version_2)
    if not dev.has_answers:
        logger.info("The questions lack answers, so there are no metrics.")
        return {}
    results = run.write_results("eval", dev.metrics(predictions))
    facts: dict[str, float] = {"questions": len(dev.examples)}
    if version_2:
        share = sum(not example.answers for example in dev.examples) / len(dev.examples)
        facts["exact_of_no_answer"] = 100.0 * share
    sections = answer_sections(_score_answers(dev.examples, predictions, version_2))
    title = f"Answers to {os.path.basename(str(options.fine_tuning.predict_file))}"
    run.write_report(title, results | facts, sections)
    return results


def write_answers(
    folder: str, predictions: Mapping[str, Prediction], version_2_with_negative: bool
) -> None:
    """Write the reference's two files, or three for SQuAD 2.0."""
    files = {
        "predictions.json": {name: p.text for name, p in predictions.items()},
        "nbest_predictions.json": {
            name: [candidate.as_json() for candidate in p.nbest] for name, p in predictions.items()
        },
    }
    if version_2_with_negative:
        files["null_odds.json"] = {name: p.null_odds for name, p in predictions.items()}
    for name, values in files.items():
        path = os.path.join(folder, name)
        write_text(path, json.dumps(values, indent=4) + "\n")
        logger.info("Wrote %s", path)


def _score_answers(
    examples: Sequence[SquadExample], predictions: Mapping[str, Prediction], version_2: bool
) -> list[ScoredAnswer]:
    """Return the questions with their answers and scores, for the report."""
    answers = {e.qas_id: [answer.text for answer in e.answers or ()] for e in examples}
    score = score_v2 if version_2 else score_v1
    scores = score(answers, {name: p.text for name, p in predictions.items()})
    best = score(answers, {name: p.best_answer for name, p in predictions.items()})
    return [
        ScoredAnswer(
            id=name,
            question=example.question_text,
            passage=example.passage.text,
            answers=answers[name],
            predicted=predictions[name].text,
            probability=predictions[name].probability,
            f1=scores[name].f1,
            is_exact=scores[name].exact_match == 1,
            null_odds=(predictions[name].null_odds or 0.0) if version_2 else None,
            best_f1=best[name].f1,
        )
        for name, example in zip(answers, examples, strict=True)
    ]


_SHUFFLE_SEED = 12345  # the reference's, for the order of the questions in train.tf_record


def read_training_set(
    options: SquadOptions, task: QuestionAnsweringTask, tokenizer: FullTokenizer
) -> list[LabeledQuestion]:
    """Return the training questions in the reference's random order. Log the skipped ones."""
    path, findings = str(options.fine_tuning.train_file), Findings()
    examples = read_squad(path)
    usable = examples_to_train(examples, task.version_2_with_negative, findings)
    questions = label_questions(usable, tokenizer, findings, task.answer_spans)
    _log_findings(path, len(examples), findings, options)
    random.Random(_SHUFFLE_SEED).shuffle(questions)
    return questions


def read_questions(
    options: SquadOptions, task: QuestionAnsweringTask, tokenizer: FullTokenizer
) -> QuestionSet:
    """Return the questions of --predict_file. Log the malformed ones."""
    path, findings = str(options.fine_tuning.predict_file), Findings()
    examples = read_squad(path)
    passages = tokenize_passages(examples, tokenizer)
    for example in examples:
        if not passages[example.passage].ids:
            findings.add("have an empty passage and get no answer", example.qas_id)
        if is_blank(example.question_text):
            findings.add("are empty texts", example.qas_id)
        if example.is_impossible and not task.version_2_with_negative:
            problem = "have no answer but get one, because --version_2_with_negative is not set"
            findings.add(problem, example.qas_id)
    _log_findings(path, len(examples), findings, options)
    if not any(passage.ids for passage in passages.values()):
        raise DataError(path, "every `context` is empty, so no answer can be found.")
    if options.verbose_logging:
        logging.getLogger(answer_decoding.__name__).setLevel(logging.DEBUG)
    settings = AnswerSettings(
        options.n_best_size,
        options.max_answer_length,
        task.version_2_with_negative,
        options.null_score_diff_threshold,
        task.answer_spans,
    )
    questions = [(example, passages[example.passage], None) for example in examples]
    dev = QuestionSet(questions, task, tokenizer, settings)
    for flag in ("do_eval", "evaluate_steps"):
        if getattr(options.training, flag) and not dev.has_answers:
            text = f"{path} does not contain an answer to each question. Use do_predict; for SQuAD "
            raise OptionError(flag, f"{text}2.0 add version_2_with_negative.")
    return dev


def _log_findings(path: str, total: int, findings: Findings, options: SquadOptions) -> None:
    for line in findings.describe(max_names=None if options.verbose_logging else 5):
        logger.warning("%s: of %d questions, %s", path, total, line)
