"""predict: lines of text in, JSON lines out."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TextIO

import tensorflow as tf

from bert_tf.data.files import open_whole
from bert_tf.data.readers import read_lines
from bert_tf.model_folder import read_task
from bert_tf.predictor import (
    MaskFiller,
    QuestionAnswerer,
    SavedAnswerer,
    is_saved_model,
    load_saved_model,
)
from bert_tf.tasks.multiple_choice import MultipleChoiceTask
from bert_tf.tasks.question_answering import QuestionAnsweringTask
from bert_tf.tasks.token_classification import TokenClassificationTask
from bert_tf.word_and_choice_predictors import ChoicePredictor, EntityRecognizer
from bert_tf.workflows.options import option

logger = logging.getLogger(__name__)

Answerer = Callable[[list[str]], list[dict[str, Any]]]  # lines -> one answer each


@dataclass(frozen=True, kw_only=True)
class PredictionOptions:
    """The flags of predict."""

    model_dir: str = option(
        "A SavedModel of export_saved_model, which says the label or the answer; or the --output_dir of "
        "run_squad, which answers the question before the tab from the text behind it, of run_ner, "
        "which finds the entities of each line, of run_swag, which chooses, or of run_pretraining, "
        "which fills the [MASK] of each line."
    )
    input_file: str | None = option(
        "One text per line; a tab separates the sentences of a pair, and choices. Default: standard "
        "input.",
        default=None,
    )
    output_file: str | None = option("JSON lines. Default: standard output.", default=None)
    batch_size: int = option(
        "Lines per batch; lines that are typed are answered at once.", default=32
    )
    top_k: int = option("How many tokens to name for a [MASK].", default=5)

    def __post_init__(self) -> None:
        for name in ("batch_size", "top_k"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} is {getattr(self, name)}, but must be 1 or more.")


def predict(options: PredictionOptions) -> None:
    """Answers every line with one JSON object.

    A line that cannot be answered gets {"text": line, "error": why}, so that one of a million does
    not cost the others.
    """
    if options.input_file and not tf.io.gfile.exists(options.input_file):
        raise ValueError(f"There is no --input_file={options.input_file}.")
    answer = answerer(options.model_dir, options.top_k)
    if options.input_file:
        lines, batch_size = read_lines(options.input_file), options.batch_size
    else:
        typed = sys.stdin.isatty()
        lines, batch_size = _standard_input(), 1 if typed else options.batch_size
        if typed:
            print("Type a text and Enter; end with Ctrl-D.", file=sys.stderr)
    if options.output_file:
        with open_whole(options.output_file) as file:
            num_errors = answer_lines(lines, answer, batch_size, file)
    else:
        num_errors = answer_lines(lines, answer, batch_size, sys.stdout)
    if num_errors:
        logger.warning('%d lines could not be answered; "error" says why.', num_errors)


def answerer(model_dir: str, top_k: int) -> Answerer:
    """Loads what lies in `model_dir`, once, as a function on batches of lines.

    Raises:
        ValueError: neither a SavedModel nor a model that answers questions or fills masks lies there.
    """
    if is_saved_model(model_dir):
        saved = load_saved_model(model_dir)
        split = split_question if isinstance(saved, SavedAnswerer) else split_pair
        return lambda lines: saved.predict([split(line) for line in lines])
    task = read_task(model_dir)
    if isinstance(task, TokenClassificationTask):
        recognizer = EntityRecognizer(model_dir)
        return lambda lines: [{"entities": found} for found in recognizer.predict(lines)]
    if isinstance(task, MultipleChoiceTask):
        chooser = ChoicePredictor(model_dir)
        return lambda lines: chooser.predict([split_choices(line) for line in lines])
    if task is None:
        inside = tf.io.gfile.glob(os.path.join(model_dir, "*", "saved_model.pb"))
        hint = f" Did you mean {os.path.dirname(max(inside))}?" if inside else ""
        raise ValueError(
            f"--model_dir={model_dir} holds neither a SavedModel (saved_model.pb) nor what "
            f"run_pretraining or run_squad write (task.json).{hint}"
        )
    if isinstance(task, QuestionAnsweringTask):
        reader = QuestionAnswerer(model_dir)
        return lambda lines: reader.predict([split_question(line) for line in lines])
    filler = MaskFiller(model_dir)
    return lambda lines: [fill(filler, line, top_k) for line in lines]


def answer_lines(
    lines: Iterable[str],
    answer: Answerer,
    batch_size: int,
    output: TextIO,
) -> int:
    """Writes {"text": line, ...answer} for each line, batch by batch; the number of errors."""
    lines, num_errors = iter(lines), 0
    while batch := list(islice(lines, batch_size)):
        for line, values in zip(batch, _answers(batch, answer), strict=True):
            output.write(json.dumps({"text": line, **values}, ensure_ascii=False) + "\n")
            num_errors += "error" in values
        output.flush()
    return num_errors


def _answers(lines: list[str], answer: Answerer) -> list[dict[str, Any]]:
    """The answers of a batch; where one line spoils it, line by line."""
    try:
        return answer(lines)
    except ValueError as error:
        if len(lines) == 1:
            return [{"error": str(error)}]
    return [values for line in lines for values in _answers([line], answer)]


def split_pair(line: str) -> tuple[str, str | None]:
    """A line as (text_a, text_b): the text before and after a tab."""
    text_a, tab, text_b = line.partition("\t")
    return text_a, text_b if tab else None


def split_question(line: str) -> tuple[str, str]:
    """A line as (question, text)."""
    question, text = split_pair(line)
    if text is None:
        raise ValueError("A line must be a question, a tab, and the text that has the answer.")
    return question, text


def split_choices(line: str) -> tuple[str, list[str]]:
    """A line as (text, choices), which tabs separate."""
    text, *choices = line.split("\t")
    return text, choices


def fill(filler: MaskFiller, line: str, top_k: int) -> dict[str, Any]:
    """The best tokens for each [MASK] of a line."""
    return {
        "masks": [
            [{"token": c.token, "probability": c.probability} for c in candidates]
            for candidates in filler.predict(line, top_k)
        ]
    }


def _standard_input() -> Iterator[str]:
    if isinstance(sys.stdin, io.TextIOWrapper):  # not so where a test or a notebook has replaced it
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    for line in sys.stdin:
        yield line.rstrip("\r\n")
