"""Questions of SQuAD files, for training and prediction. Malformed ones are logged."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence

from bert_tf.characters import is_blank
from bert_tf.data.parallel import workers_for
from bert_tf.data.question_answering import (
    Findings,
    SquadExample,
    examples_to_train,
    read_squad,
)
from bert_tf.finetuning.question_answering_options import SquadOptions
from bert_tf.tasks.labeled_questions import LabeledQuestion, TokenizedPassages, label
from bert_tf.tasks.question_answering import AskedQuestions, QuestionAnsweringTask
from bert_tf.tokenization import FullTokenizer

logger = logging.getLogger(__name__)

_SENTENCES_PER_PASSAGE = 8  # with about the same tokenization time
_SHUFFLE_SEED = 12345  # the reference's, for the order of the questions in train.tf_record


def read_training_set(
    options: SquadOptions, task: QuestionAnsweringTask, tokenizer: FullTokenizer
) -> list[LabeledQuestion]:
    """Return the training questions in the reference's random order. Log the skipped ones.

    Raises:
        ValueError: the file cannot be read, or has no usable question.
    """
    findings = Findings()
    examples = read_squad(options.train_file)
    chosen = examples_to_train(examples, task.version_2_with_negative, findings)
    workers = _workers_for(examples)
    questions = label(chosen, tokenizer, findings, workers, task.answer_spans)
    _log_findings(options.train_file, len(examples), findings, options)
    if not questions:
        raise ValueError(
            f"{options.train_file}: none of its {len(examples)} questions is usable; see the warnings "
            "above. Fix them, or give another train_file."
        )
    random.Random(_SHUFFLE_SEED).shuffle(questions)
    return questions


def read_questions(
    options: SquadOptions, task: QuestionAnsweringTask, tokenizer: FullTokenizer
) -> AskedQuestions:
    """Return the questions of --predict_file with their windows. Log the malformed ones.

    Raises:
        ValueError: the file cannot be read, lacks answers for an evaluation, or has only empty passages.
    """
    examples = read_squad(options.predict_file)
    check_answers(examples, options, task.version_2_with_negative)
    passages, findings = _passages_of(examples, options, tokenizer), Findings()
    for example in examples:
        if not passages[example.passage].ids:
            findings.add("have an empty passage and get no answer", example.qas_id)
        if is_blank(example.question_text):
            findings.add("are empty texts", example.qas_id)
        if example.is_impossible and not task.version_2_with_negative:
            matter = "have no answer but get one, because --version_2_with_negative is not set"
            findings.add(matter, example.qas_id)
    _log_findings(options.predict_file, len(examples), findings, options)
    questions = [(example, passages[example.passage], None) for example in examples]
    if not any(passage.ids for _, passage, _ in questions):
        raise ValueError(
            f"{options.predict_file}: every `context` is empty, so no answer can be found. Fix them, "
            "or give another `predict_file`."
        )
    return AskedQuestions(
        questions,
        task,
        tokenizer,
        options.answer_settings(task.version_2_with_negative, task.answer_spans),
        report=logger.info if options.verbose_logging else None,
    )


def _passages_of(
    examples: Sequence[SquadExample], options: SquadOptions, tokenizer: FullTokenizer
) -> TokenizedPassages:
    passages = TokenizedPassages(tokenizer)
    passages.add((example.passage for example in examples), _workers_for(examples))
    return passages


def _workers_for(examples: Sequence[SquadExample]) -> int:
    passages = {example.passage for example in examples}
    return workers_for(_SENTENCES_PER_PASSAGE * len(passages))


def check_answers(
    examples: Sequence[SquadExample], options: SquadOptions, version_2_with_negative: bool
) -> None:
    """Raise ValueError if the options want metrics, but answers of --predict_file are unknown."""
    wanted = "do_eval" if options.do_eval else "evaluate_steps"
    if getattr(options, wanted) and not has_answers(examples, version_2_with_negative):
        raise ValueError(
            f"{wanted}: {options.predict_file} does not contain an answer to each question, so no "
            "metrics can be computed. Use do_predict; for SQuAD 2.0 add version_2_with_negative."
        )


def has_answers(examples: Sequence[SquadExample], version_2_with_negative: bool) -> bool:
    """Return True if the official metrics can be computed."""
    if any(example.answers is None for example in examples):
        return False
    return version_2_with_negative or all(example.answers for example in examples)


def _log_findings(path: str, total: int, findings: Findings, options: SquadOptions) -> None:
    for line in findings.describe(most_named=None if options.verbose_logging else 5):
        logger.warning("%s: of %d questions, %s", path, total, line)
