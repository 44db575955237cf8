"""predict: answers of any model to raw text."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from bert_tf.data.files import check_not_an_input, expand_files, is_stream
from bert_tf.data.lines import STANDARD_INPUT, count_lines
from bert_tf.data.tables import ending_of
from bert_tf.interop.hub import local_path
from bert_tf.options import option
from bert_tf.prediction.masked_lm import MaskFiller
from bert_tf.predictor import EMBEDDING_POOLINGS, Predictor, TextModel, corpus_pseudo_perplexity
from bert_tf.programs.predict_input import INPUT_FORMATS, Input, InputColumnsOptions, read_inputs
from bert_tf.programs.predict_output import OUTPUT_FORMATS, make_writer, open_output
from bert_tf.training.progress import Progress
from bert_tf.training.strategy import PRECISIONS, choose_precision
from bert_tf.training.unfinished import FLAGS, read_note

logger = logging.getLogger(__name__)

PREDICTION_TASKS = ("auto", "fill_mask", "pseudo_perplexity", "embeddings")
HOW_TO_TYPE = "Type a text and Enter; end with Ctrl-D."
_BATCHES_AT_ONCE = 32  # read together, to batch texts of similar length


@dataclass(frozen=True, kw_only=True)
class PredictionOptions(InputColumnsOptions):
    """The flags of predict."""

    only_answers: ClassVar[bool] = True

    model_dir: str = option(
        "An export of export_saved_model; the --output_dir of run_classifier, run_squad, run_ner, "
        "run_swag or run_pretraining; or any checkpoint, for embeddings, masked words and "
        "pseudo-perplexity.",
        group="Model",
    )
    task: str = option(
        "auto: the task that the model was trained for; a pre-trained model fills each [MASK].",
        default="auto",
        choices=PREDICTION_TASKS,
    )
    input_file: str | None = option(
        "Comma list of files or globs, plain or gzip; - is standard input, the default.",
        group="Data",
        default=None,
    )
    input_format: str | None = option(
        "text: one input per line, tabs between the sentences of a pair, a question and its text, or a "
        "text and its choices. tsv, csv, jsonl: named columns. Default: by the file name, else text.",
        group="Data",
        default=None,
        choices=INPUT_FORMATS,
    )
    output_file: str | None = option(
        "File for the answers. Default: standard output.", group="Data", default=None
    )
    output_format: str | None = option(
        "jsonl: one object per input. tsv, csv: a table with a header. text: only the answer. Default: "
        "by the name of the file, else jsonl.",
        group="Data",
        default=None,
        choices=OUTPUT_FORMATS,
    )
    batch_size: int = option(
        "Sequences per batch of the model. With 1 every input is answered immediately.",
        group="Machine",
        default=32,
        min=1,
    )
    precision: str | None = option(
        "Keras precision policy; not for an export, which has its own. Default: float32.",
        group="Machine",
        default=None,
        choices=PRECISIONS,
    )
    max_seq_length: int | None = option(
        "Longest input in tokens. Default: that of the model.", group="Model", default=None
    )
    pooling: str | None = option(
        "Pooling of embeddings. mean: mean of the last layer over the tokens. max: largest value of "
        "each number over the tokens. cls: [CLS] of the last layer. pooled: the tanh layer on it. "
        "concat_last_four: means of the last four layers, concatenated. Default: that of a model of "
        "run_embeddings, else mean.",
        group="Model",
        default=None,
        choices=EMBEDDING_POOLINGS,
    )
    normalize: bool | None = option(
        "Scale embeddings to length 1. Default: as a model of run_embeddings was trained, else true.",
        default=None,
    )
    as_query: bool = option(
        "Put the prefix of queries before each text, for a model of run_embeddings with prefixes. "
        "Default: the prefix of documents.",
        default=False,
    )
    null_score_diff_threshold: float = option(
        "SQuAD 2.0: the answer is empty if the odds of no answer exceed this.",
        default=0.0,
        infinite=True,
    )
    n_best_size: int = option("Candidate answers to compare per question.", default=20, min=1)
    max_answer_length: int = option("Longest answer in tokens.", group="Model", default=30, min=1)
    doc_stride: int | None = option(
        "Read long texts in windows, which start this many tokens apart. Default: that of the model.",
        group="Model",
        default=None,
        min=1,
    )
    top_k: int | None = option(
        "Tokens to return per [MASK], from an export at most those that it has. Default: 5, or all that "
        "an export has.",
        default=None,
        min=1,
    )

    @property
    def answer_format(self) -> str:
        """Return `output_format`, else the format by the name of the file."""
        ending = ending_of(self.output_file or "")
        return self.output_format or (ending if ending in ("tsv", "csv") else "jsonl")


def predict(options: PredictionOptions) -> None:
    """Answer every input, in order. Memory does not grow with their number.

    Invalid inputs get {"error": "file:line: reason"}. A file of another format or a missing column ends
    the run.

    Raises:
        ValueError: an input file or an option is wrong, or none of the inputs could be answered.
    """
    files = [STANDARD_INPUT]
    if options.input_file not in (None, STANDARD_INPUT):
        files = expand_files(options.input_file or "")
    is_typed = files == [STANDARD_INPUT] and sys.stdin.isatty()
    if options.output_file is not None:
        check_not_an_input([options.output_file], set(files) - {STANDARD_INPUT})
    at_once = is_typed or options.batch_size == 1
    chunk_size = 1 if at_once else options.batch_size * _BATCHES_AT_ONCE
    totals = Totals()
    with open_output(options.output_file) as output:  # fails before the model is loaded
        model = choose_model(make_predictor(options), options)
        trained = read_note(local_path(options.model_dir)).get(FLAGS, {})
        inputs = read_inputs(files, options, model, options.input_format, trained)
        write = make_writer(options.answer_format, model, output)
        if is_typed:
            print(HOW_TO_TYPE, file=sys.stderr)
        is_counted = not any(file == STANDARD_INPUT or is_stream(file) for file in files)
        progress = Progress("predict", count_lines(files), "inputs") if is_counted else None
        for chunk in answered(inputs, model, chunk_size):
            for found, answer in chunk:
                write(found.shown, answer)
                totals.add(answer)
            output.flush()
            if progress:
                progress.update(totals.count)
        if progress and totals.count < progress.total:  # lines that are no inputs
            progress.total = totals.count
            progress.update(totals.count)
    totals.report(model)
    if totals.count and totals.num_errors == totals.count and not is_typed:
        raise ValueError("No input could be answered.")


def make_predictor(options: PredictionOptions) -> Predictor:
    names = (
        *("batch_size", "precision", "max_seq_length", "doc_stride"),
        *("null_score_diff_threshold", "n_best_size", "max_answer_length"),
    )
    values = {name: getattr(options, name) for name in names}
    if options.precision == "auto":
        values["precision"] = choose_precision().precision
    return Predictor(options.model_dir, **values)


def choose_model(predictor: Predictor, options: PredictionOptions) -> TextModel:
    """Return the model for `task`."""
    if options.task == "embeddings" or (options.task == "auto" and predictor.is_embedder):
        return predictor.encoder(options.pooling, options.normalize, options.as_query)
    if options.task == "pseudo_perplexity":
        return predictor.scorer
    model = predictor.mask_filler if options.task == "fill_mask" else predictor.text_model
    if isinstance(model, MaskFiller) and options.top_k is not None:
        model.top_k = options.top_k
    return model


def answered(
    inputs: Iterable[Input], model: TextModel, chunk_size: int
) -> Iterator[Sequence[tuple[Input, dict[str, Any]]]]:
    """Yield chunks of (input, answer or {"error": reason}), in order."""
    inputs = iter(inputs)
    while chunk := list(islice(inputs, chunk_size)):
        prepared, errors = [], {}
        for index, found in enumerate(chunk):
            try:
                if found.error is not None:
                    raise ValueError(found.error)
                prepared.append(model.prepare(found.item))
            except ValueError as error:
                errors[index] = {"error": f"{found.place}: {error}"}
        answers = iter(model.answer(prepared))
        yield [
            (found, errors[index] if index in errors else next(answers))
            for index, found in enumerate(chunk)
        ]


class Totals:
    """Totals of a run, logged at the end."""

    def __init__(self) -> None:
        self.count = self.num_errors = self.num_tokens = 0
        self.log_likelihood = 0.0

    def add(self, answer: dict[str, Any]) -> None:
        self.count += 1
        self.num_errors += "error" in answer
        self.num_tokens += answer.get("num_tokens", 0)
        self.log_likelihood += answer.get("pseudo_log_likelihood", 0.0)

    def report(self, model: TextModel) -> None:
        if not self.count:
            logger.warning(
                "There was no input. With --noheader the first line of a table is one too."
            )
        if self.num_errors:
            logger.warning(
                '%d of %d inputs could not be answered; see "error" in the output.',
                *(self.num_errors, self.count),
            )
        if model.num_cut:
            logger.warning(
                "%d of %d texts are longer than the model's input and were truncated.",
                *(model.num_cut, self.count),
            )
        if self.num_tokens:
            whole = {"pseudo_log_likelihood": self.log_likelihood, "num_tokens": self.num_tokens}
            logger.info(
                "Pseudo-perplexity of all %d tokens: %.6g",
                *(self.num_tokens, corpus_pseudo_perplexity([whole])),
            )
