"""predict: answers of any model to raw text."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from bert_tf.data.files import is_stream
from bert_tf.data.globs import check_not_an_input
from bert_tf.data.lines import count_lines
from bert_tf.data.streams import STANDARD_INPUT
from bert_tf.data.tables import ending_of
from bert_tf.options import option
from bert_tf.prediction.masked_lm import MaskModel
from bert_tf.prediction.saved_models import SavedTextModel
from bert_tf.prediction.token_classification import EntityModel
from bert_tf.predictor import Predictor, TextModel, corpus_pseudo_perplexity
from bert_tf.programs.predict_input import (
    HOW_TO_TYPE,
    AnswerOptions,
    Input,
    check_answer_names,
    check_column_flags,
    read_inputs,
)
from bert_tf.programs.predict_output import OUTPUT_FORMATS, make_writer, open_output
from bert_tf.training.progress import Progress
from bert_tf.training.strategy import PRECISIONS, choose_precision

logger = logging.getLogger(__name__)

PREDICTION_TASKS = ("auto", "fill_mask", "pseudo_perplexity", "embeddings")
BATCHES_AT_ONCE = 32  # read together, to batch texts of similar length
_SECONDS_BETWEEN_REPORTS = 20.0


@dataclass(frozen=True, kw_only=True)
class PredictionOptions(AnswerOptions):
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
    output_file: str | None = option(
        "File for the answers. Default: standard output.", group="Data", default=None
    )
    output_format: str | None = option(
        "jsonl: one object per input. tsv: a table with a header. text: only the answer. Default: tsv "
        "for a file whose name ends in .tsv, else jsonl.",
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
    line_by_line: bool = option(
        "Answer every input immediately; always on at a terminal.",
        default=False,
    )
    precision: str | None = option(
        "Keras precision policy; not for an export, which has its own. Default: float32.",
        group="Machine",
        default=None,
        choices=PRECISIONS,
    )
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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.output_format is None and ending_of(self.output_file or "") == "csv":
            raise ValueError(
                f"output_file={self.output_file} ends in .csv, but answers are not written as CSV. Name "
                "it .tsv, which spreadsheets open too, or set `output_format`."
            )

    @property
    def answer_format(self) -> str:
        """Return `output_format`, else the format by the name of the file."""
        by_name = "tsv" if ending_of(self.output_file or "") == "tsv" else "jsonl"
        return self.output_format or by_name


def predict(options: PredictionOptions) -> None:
    """Answer every input, in order. Memory does not grow with their number.

    Invalid inputs get {"error": "file:line: reason"}. A file of another format or a missing column ends
    the run.

    Raises:
        ValueError: an input file or an option is wrong, or none of the inputs could be answered.
    """
    files = options.files
    if options.output_file is not None:
        check_not_an_input([options.output_file], set(files) - {STANDARD_INPUT})
    typed = options.is_typed
    at_once = typed or options.line_by_line or options.batch_size == 1
    chunk_size = 1 if at_once else options.batch_size * BATCHES_AT_ONCE
    totals = Totals()
    with open_output(options.output_file) as output:  # fails before the model is loaded
        model = choose_model(make_predictor(options), options)
        check_column_flags(options.layout, model.fields)
        if options.answer_format != "text":
            check_answer_names(options.layout, model.columns)
        inputs = read_inputs(files, options.layout, model.fields, model.optional_fields)
        write = make_writer(options.answer_format, model, output)
        if typed:
            print(HOW_TO_TYPE, file=sys.stderr)
        with _progress(files, typed) as update:
            for chunk in answered(inputs, model, chunk_size):
                if not totals.count and isinstance(model, EntityModel):
                    _warn_of_labelled_words([found for found, _ in chunk])
                for found, answer in chunk:
                    write(found.shown, answer, found.place)
                    totals.add(answer)
                output.flush()
                update(chunk[-1][0], totals.count)
    totals.report(model)
    if not typed:
        totals.check()


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
    """Return the model for `task`; raise ValueError for options that it does not use."""
    if options.task == "embeddings" or (options.task == "auto" and predictor.is_embedder):
        encoder = predictor.encoder(options.pooling, options.normalize, options.as_query)
        _check_unused(options, encoder, "masks", "top_k")
        return encoder
    if options.task == "pseudo_perplexity":
        model: TextModel = predictor.scorer
    else:
        model = predictor.mask_filler if options.task == "fill_mask" else predictor.text_model
    _check_unused(options, model, "embeddings", "pooling", "normalize", "as_query")
    if not isinstance(model, MaskModel):
        _check_unused(options, model, "masks", "top_k")
    elif options.top_k is not None:
        model.top_k = options.top_k
    return model


def _check_unused(options: PredictionOptions, model: TextModel, use: str, *names: str) -> None:
    """Raise ValueError if one of the options is given; `model` does not answer with `use`."""
    for name in names:
        value = getattr(options, name)
        if value != getattr(PredictionOptions, name):  # the default
            remedy = " or give task=embeddings" if use == "embeddings" else ""
            raise ValueError(
                f"{name} is {value}, but it is for {use}, and {options.model_dir} with "
                f"task={options.task} gives {model.columns[0]}. Omit it{remedy}."
            )


_LABELLED_WORD = re.compile(r"\S+[ \t](.*[ \t])?(O|[BI]-\S+)")


def _warn_of_labelled_words(inputs: Sequence[Input]) -> None:
    """Warn if the first lines look like words with labels, as files of run_ner, not like texts."""
    lines = [each.shown["text"] for each in inputs if each.values is None]
    lines = [line.strip() for line in lines if line.strip()]
    labelled = sum(_LABELLED_WORD.fullmatch(line) is not None for line in lines)
    if len(lines) > 1 and labelled >= 0.9 * len(lines):
        logger.warning(
            "%s: the lines look like words with labels, such as %r, but each is read as a text. Write "
            "a text per line, or let run_ner read the file: --do_predict --predict_file.",
            *(inputs[0].file, lines[0][:60]),
        )


def answered(
    inputs: Iterable[Input], model: TextModel, chunk_size: int
) -> Iterator[list[tuple[Input, dict[str, Any]]]]:
    """Yield chunks of (input, answer or {"error": reason}), in order."""
    inputs = iter(inputs)
    while chunk := list(islice(inputs, chunk_size)):
        prepared, errors = [], {}
        for index, found in enumerate(chunk):
            try:
                prepared.append(model.prepare(found.item(model)))
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
        if self.num_errors:
            logger.warning(
                '%d of %d inputs could not be answered; see "error" in the output.',
                self.num_errors,
                self.count,
            )
        if model.num_cut:
            remedy = "--max_seq_length or, for a classifier, --doc_stride may read more of them."
            if isinstance(model, SavedTextModel):
                remedy = "Export the model with a larger --max_seq_length to read more of them."
            logger.warning(
                "%d of %d texts are longer than the model's input and were truncated. %s",
                *(model.num_cut, self.count, remedy),
            )
        if self.num_tokens:
            whole = {"pseudo_log_likelihood": self.log_likelihood, "num_tokens": self.num_tokens}
            logger.info(
                "Pseudo-perplexity of all %d tokens: %.6g",
                self.num_tokens,
                corpus_pseudo_perplexity([whole]),
            )

    def check(self) -> None:
        """Warn if there was no input. Raise ValueError if none could be answered."""
        if not self.count:
            logger.warning(
                "There was no input. The first line of a TSV or CSV is its header; with --noheader it "
                "is an input too."
            )
        elif self.num_errors == self.count:
            raise ValueError("No input could be answered.")


@contextmanager
def _progress(files: Sequence[str], typed: bool) -> Iterator[Callable[[Input, int], None]]:
    """Yield a function of (last input, number done) that shows the progress on standard error.

    The total is the number of lines. It is unknown for standard input and for pipes, which can be read
    only once.
    """
    if files == [STANDARD_INPUT] or any(map(is_stream, files)):
        shown = time.monotonic()

        def report(last: Input, count: int) -> None:
            nonlocal shown
            if not typed and time.monotonic() - shown > _SECONDS_BETWEEN_REPORTS:
                shown = time.monotonic()
                print(f"predict {count:,} inputs", file=sys.stderr)

        yield report
        return
    counts = [count_lines([file]) for file in files]
    before = {file: sum(counts[:place]) for place, file in enumerate(files)}
    progress, done = Progress("predict", sum(counts), unit="inputs"), 0

    def update(last: Input, count: int) -> None:
        nonlocal done
        done = count
        # Counts each remaining line as an input.
        progress.total = count + sum(counts) - before[last.file] - last.line
        progress.update(done)

    yield update
    if done < progress.total:  # lines after the last row
        progress.total = done
        progress.update(done)
