"""predict: raw text in, the answers of any model out."""

from __future__ import annotations

import csv
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, ClassVar, TextIO

from bert_tf.data.files import expand_files, open_whole
from bert_tf.data.readers import SEPARATORS, STANDARD_INPUT, count_lines
from bert_tf.options import PRECISIONS, Options, option
from bert_tf.predictor import (
    EMBEDDING_POOLINGS,
    Predictor,
    TextModel,
    corpus_pseudo_perplexity,
)
from bert_tf.programs.predict_input import (
    INPUT_FORMATS,
    Input,
    InputLayout,
    read_inputs,
)
from bert_tf.training.progress import Progress

logger = logging.getLogger(__name__)

OUTPUT_FORMATS = ("jsonl", "tsv", "text")

PREDICTION_TASKS = ("auto", "fill_mask", "pseudo_perplexity", "embeddings")
_BATCHES_AT_ONCE = 32  # read together, so that texts of one length can be put together
_SECONDS_BETWEEN_REPORTS = 20.0


@dataclass(frozen=True, kw_only=True)
class PredictionOptions(Options):
    """The flags of predict."""

    only_answers: ClassVar[bool] = True

    model_dir: str = option(
        "A SavedModel of export_saved_model; the --output_dir of run_classifier, run_squad, run_ner, "
        "run_swag or run_pretraining; or any checkpoint, for embeddings, masked words and "
        "pseudo-perplexity."
    )
    task: str = option(
        "auto: what the model was trained for; a pre-trained one fills each [MASK].",
        default="auto",
        choices=PREDICTION_TASKS,
    )
    input_file: str | None = option(
        "Comma list of files or globs, plain or gzip; - is standard input, the default.",
        default=None,
    )
    input_format: str | None = option(
        "text: one input per line, tabs between the sentences of a pair, a question and its text, or a "
        "text and its choices. tsv, csv, jsonl: named columns. Default: by the file's name, else text.",
        default=None,
        choices=INPUT_FORMATS,
    )
    header: bool = option(
        "Whether the first line of a table names the columns. With --noheader columns are called by "
        "their numbers, from 0.",
        default=True,
    )
    quoted: bool | None = option(
        'Whether " may enclose a column. Default: in CSV, not in TSV.', default=None
    )
    column_separator: str | None = option(
        f"Between the columns of a table: a character, or {', '.join(SEPARATORS)}. Default: a comma in "
        "CSV, a tab in TSV.",
        default=None,
    )
    text_a_column: str | None = option(
        "Column of the (first) sentence or the question. Default: text_a, text, sentence, question.",
        default=None,
    )
    text_b_column: str | None = option(
        "Column of the second sentence, or of the text with the answer. Default: text_b, context.",
        default=None,
    )
    choices_column: str | None = option(
        "Column with a list of choices (JSON lines), or comma list of the columns that hold one each.",
        default=None,
    )
    output_file: str | None = option("Default: standard output.", default=None)
    output_format: str = option(
        "jsonl: one object per input. tsv: a table with a header. text: the bare answer.",
        default="jsonl",
        choices=OUTPUT_FORMATS,
    )
    batch_size: int = option(
        "Sequences that go through the model at once. With 1 every input is answered at once.",
        default=32,
        min=1,
    )
    line_by_line: bool = option(
        "Answer every input as soon as it is there, which is what happens at a terminal.",
        default=False,
    )
    precision: str = option(
        "Keras precision policy, not of a SavedModel.", default="float32", choices=PRECISIONS
    )
    max_seq_length: int | None = option(
        "Longest input in tokens. Default: the model's own.", default=None
    )
    doc_stride: int | None = option(
        "Read long texts in windows, one every so many tokens. Default: as the model was trained.",
        default=None,
    )
    top_k: int = option("How many tokens to name for a [MASK].", default=5, min=1)
    pooling: str = option(
        "Of embeddings. mean: of the last layer over the tokens. cls: the last layer's [CLS]. pooled: "
        "the tanh layer on it. concat_last_four: means of the last four layers, one after the other.",
        default="mean",
        choices=EMBEDDING_POOLINGS,
    )
    normalize: bool = option("Give embeddings the length 1.", default=True)
    null_score_diff_threshold: float = option(
        "SQuAD 2.0: no answer is given where its odds are above this.", default=0.0, infinite=True
    )
    n_best_size: int = option("Answers to a question that are compared.", default=20, min=1)
    max_answer_length: int = option("Longest answer in tokens.", default=30, min=1)

    @property
    def layout(self) -> InputLayout:
        names = [field.name for field in fields(InputLayout) if field.name != "format"]
        return InputLayout(self.input_format, **{name: getattr(self, name) for name in names})

    @property
    def files(self) -> list[str]:
        """The names of the input files; standard input is "-".

        Raises:
            ValueError: a name matches no file.
        """
        if self.input_file in (None, STANDARD_INPUT):
            return [STANDARD_INPUT]
        return expand_files(self.input_file)


def predict(options: PredictionOptions) -> None:
    """Answers every input, in order, in memory that does not grow with their number.

    An input that cannot be answered gets {"error": "file:line: why"}, so that one of a million does
    not cost the others. A file that is not as its format says ends the run.
    """
    files = options.files
    predictor = make_predictor(options)
    model = choose_model(predictor, options)
    typed = files == [STANDARD_INPUT] and sys.stdin.isatty()
    if typed:
        print("Type a text and Enter; end with Ctrl-D.", file=sys.stderr)
    at_once = typed or options.line_by_line or options.batch_size == 1
    chunk_size = 1 if at_once else options.batch_size * _BATCHES_AT_ONCE
    inputs = read_inputs(files, options.layout, model)
    totals = Totals()
    with _output(options.output_file) as output, _progress(files, typed) as update:
        write = make_writer(options.output_format, model, output)
        for chunk in answered(inputs, model, chunk_size):
            for found, answer in chunk:
                write(found.shown, answer)
                totals.add(answer)
            output.flush()
            update(chunk[-1][0], totals.count)
    totals.report(model)


def make_predictor(options: PredictionOptions) -> Predictor:
    """Loads the model, once."""
    names = (
        *("batch_size", "precision", "max_seq_length", "doc_stride"),
        *("null_score_diff_threshold", "n_best_size", "max_answer_length"),
    )
    return Predictor(options.model_dir, **{name: getattr(options, name) for name in names})


def choose_model(predictor: Predictor, options: PredictionOptions) -> TextModel:
    """The model for --task."""
    if options.task == "embeddings":
        return predictor.encoder(options.pooling, options.normalize)
    if options.task == "pseudo_perplexity":
        return predictor.scorer
    model = predictor.mask_filler if options.task == "fill_mask" else predictor.text_model
    if model is vars(predictor).get("mask_filler"):
        model.top_k = options.top_k
    return model


def answered(
    inputs: Iterable[Input], model: TextModel, chunk_size: int
) -> Iterator[list[tuple[Input, dict[str, Any]]]]:
    """Each input with its answer or {"error": why there is none}, in order, chunk by chunk."""
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
    """What is said at the end."""

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
                '%d of %d inputs could not be answered; "error" says why.',
                self.num_errors,
                self.count,
            )
        if model.num_cut:
            logger.warning(
                "%d of %d texts are longer than the model reads and were cut; --max_seq_length or, for "
                "a classifier, --doc_stride may read more of them.",
                model.num_cut,
                self.count,
            )
        if self.num_tokens:
            whole = {"pseudo_log_likelihood": self.log_likelihood, "num_tokens": self.num_tokens}
            logger.info(
                "Pseudo-perplexity of all %d tokens: %.6g",
                self.num_tokens,
                corpus_pseudo_perplexity([whole]),
            )


@contextmanager
def _output(file: str | None) -> Iterator[TextIO]:
    if file is None:
        try:
            yield sys.stdout
            sys.stdout.flush()
        except BrokenPipeError:  # who reads the answers, such as head, has enough of them
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    else:
        with open_whole(file) as output:
            yield output


@contextmanager
def _progress(files: Sequence[str], typed: bool) -> Iterator[Callable[[Input, int], None]]:
    """A function that shows on standard error how far it is: the last input, how many are done.

    Files are known by their lines; of standard input nobody knows the end.
    """
    if files == [STANDARD_INPUT]:
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
        # Each line that is left is taken for an input.
        progress.total = count + sum(counts) - before[last.file] - last.line
        progress.update(done)

    yield update
    if done < progress.total:  # lines after the last row
        progress.total = done
        progress.update(done)


Answer = Mapping[str, Any]


def make_writer(
    output_format: str, model: TextModel, output: TextIO
) -> Callable[[Answer, Answer], None]:
    """A function that writes one answer.

    It takes what is repeated of the input, and the answer or {"error": why there is none}.
    """
    if output_format == "jsonl":
        return lambda shown, answer: _write_json(output, {**shown, **answer})
    if output_format == "tsv":
        return _Table(output, model.columns)
    return lambda shown, answer: _write_line(output, model, answer)


def _write_json(output: TextIO, values: Answer) -> None:
    output.write(json.dumps(values, ensure_ascii=False) + "\n")


def _write_line(output: TextIO, model: TextModel, answer: Answer) -> None:
    text = f"error: {answer['error']}" if "error" in answer else model.short(answer)
    output.write(" ".join(text.split("\n")) + "\n")


class _Table:
    """Tab-separated values below a header; a column in '"' may hold tabs and line ends, as in CSV.

    Its columns are those of the first input that are repeated, those of the answer, and "error".
    """

    def __init__(self, output: TextIO, columns: Sequence[str]):
        self._writer = csv.writer(output, delimiter="\t", lineterminator="\n")
        self._columns = tuple(columns)
        self._shown: tuple[str, ...] | None = None

    def __call__(self, shown: Answer, answer: Answer) -> None:
        if self._shown is None:
            self._shown = tuple(shown)
            self._writer.writerow([*self._shown, *self._columns, "error"])
        values = [shown.get(name) for name in self._shown]
        values += [_at(answer, name) for name in (*self._columns, "error")]
        self._writer.writerow([_cell(value) for value in values])


def _at(answer: Answer, name: str) -> Any:
    """ "a.b" is the value b in the dict a; None where there is none."""
    if name in answer:
        return answer[name]
    outer, dot, inner = name.partition(".")
    return answer[outer].get(inner) if dot and outer in answer else None


def _cell(value: Any) -> Any:
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else value
