"""predict: answers of any model to raw text.

Input: lines of text, where tabs separate the fields (text_a, text_b; question, context; choices); or
named columns of TSV, CSV and JSON lines. Output: JSON lines, a CSV table or lines of text.
"""

from __future__ import annotations

import csv
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TextIO

from bert_tf.checkpoints.hub import local_path
from bert_tf.cli import ignore_broken_pipe
from bert_tf.data.tables import TABLE_FORMATS, TableOptions, TableRow, guess_format, read_table
from bert_tf.files import (
    STANDARD_INPUT,
    atomic_write,
    check_not_an_input,
    count_lines,
    expand_files,
    format_location,
    is_stream,
    json_line,
    read_lines,
)
from bert_tf.limits import DataError
from bert_tf.modeling.heads import POOLINGS
from bert_tf.modeling.inference import KEEP_KERNELS
from bert_tf.options import option
from bert_tf.prediction.masked_lm import MaskedLMPredictor
from bert_tf.prediction.predictor import Predictor
from bert_tf.prediction.text_model import TextModel
from bert_tf.tasks.run_folder import RunRecord
from bert_tf.training.progress import Progress
from bert_tf.training.strategy import PRECISIONS, choose_precision

logger = logging.getLogger(__name__)

OUTPUT_FORMATS = ("jsonl", "csv", "text")
INPUT_FORMATS = ("text", *TABLE_FORMATS)
_COLUMN_FLAGS = {  # field of a model -> the flag of its column
    "text_a": "text_a_column",
    "text_b": "text_b_column",
    "question": "text_a_column",
    "context": "text_b_column",
    "choices": "choices_column",
}
PREDICTION_TASKS = ("auto", "fill_mask", "embeddings")
_BATCHES_AT_ONCE = 32  # read together, to batch texts of similar length


@dataclass(frozen=True, kw_only=True)
class PredictionOptions:
    environment: ClassVar[dict[str, str]] = {KEEP_KERNELS: "1"}

    table: TableOptions
    model_dir: str = option(
        "An export of export_saved_model; the --output_dir of run_classifier, run_squad, run_ner, "
        "run_swag or run_pretraining; or any checkpoint, for embeddings and masked words.",
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
        "jsonl: one object per input. csv: a table with a header. text: only the answer. Default: csv "
        "for a file of that name, else jsonl.",
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
        choices=tuple(POOLINGS),
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


def predict(options: PredictionOptions, predictor: Predictor | None = None) -> None:
    """Answer every input, in order. Memory does not grow with their number.

    Invalid inputs get {"error": "file:line: reason"}. A file of another format or a missing column ends
    the run.
    """
    files = [STANDARD_INPUT]
    if options.input_file not in (None, STANDARD_INPUT):
        files = expand_files(options.input_file or "")
    if options.output_file is not None:
        check_not_an_input([options.output_file], set(files) - {STANDARD_INPUT})
    at_once = options.batch_size == 1 or (files == [STANDARD_INPUT] and sys.stdin.isatty())
    chunk_size = 1 if at_once else options.batch_size * _BATCHES_AT_ONCE
    num_inputs = num_errors = 0
    with open_output(options.output_file) as output:  # fails before the model is loaded
        model = choose_model(predictor or make_predictor(options), options)
        trained = RunRecord.load(local_path(options.model_dir)).flags
        inputs = read_inputs(files, options.table, model, options.input_format, trained)
        by_name = "csv" if guess_format(options.output_file or "") == "csv" else "jsonl"
        write = make_writer(options.output_format or by_name, model, output)
        is_counted = not any(file == STANDARD_INPUT or is_stream(file) for file in files)
        progress = Progress("predict", count_lines(files), "inputs") if is_counted else None
        while chunk := list(islice(inputs, chunk_size)):
            for row, answer in zip(chunk, answers(chunk, model), strict=True):
                write(row.values, answer)
                num_errors += "error" in answer
            num_inputs += len(chunk)
            output.flush()
            if progress:
                progress.update(num_inputs)
        if progress and num_inputs < progress.total:  # headers and blank lines
            progress.update(progress.total)
    if num_errors:
        text = '%d of %d inputs could not be answered; see "error" in the output.'
        logger.warning(text, num_errors, num_inputs)
    if model.num_truncated:
        text = "%d of %d texts are longer than the model's input and were truncated."
        logger.warning(text, model.num_truncated, num_inputs)
    if num_inputs and num_errors == num_inputs:
        raise ValueError("No input could be answered.")


def make_predictor(options: PredictionOptions) -> Predictor:
    return Predictor(
        options.model_dir,
        batch_size=options.batch_size,
        precision=choose_precision() if options.precision == "auto" else options.precision,
        max_seq_length=options.max_seq_length,
        doc_stride=options.doc_stride,
        null_score_diff_threshold=options.null_score_diff_threshold,
        n_best_size=options.n_best_size,
        max_answer_length=options.max_answer_length,
    )


def choose_model(predictor: Predictor, options: PredictionOptions) -> TextModel:
    if options.task == "embeddings" or (options.task == "auto" and predictor.is_embedder):
        return predictor.encoder(options.pooling, options.normalize, options.as_query)
    model = predictor.mask_filler if options.task == "fill_mask" else predictor.text_model
    if isinstance(model, MaskedLMPredictor):
        model.top_k = options.top_k
    return model


def answers(inputs: Sequence[Input], model: TextModel) -> Iterator[dict[str, Any]]:
    """Yield the answer or {"error": reason} of each input, in order."""
    prepared, errors = [], {}
    for index, row in enumerate(inputs):
        try:
            prepared.append(model.prepare(row.item))
        except ValueError as error:
            errors[index] = {"error": f"{row.location}: {error}"}
    good = iter(model.answer(prepared))
    for index in range(len(inputs)):
        yield errors[index] if index in errors else next(good)


class Input(NamedTuple):
    """What the output repeats, "file:line", and the argument of `TextModel.prepare`."""

    values: Mapping[str, Any]
    location: str
    item: Any


def read_inputs(
    files: Sequence[str],
    table: TableOptions,
    model: TextModel,
    format: str | None = None,
    trained: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[Input]:
    """Yield the inputs of all files, in order and lazily."""
    for file in files:
        kind = format or guess_format(file)
        if kind == "json":
            raise DataError(file, "give the format of a .json file: input_format=jsonl or text.")
        if kind in TABLE_FORMATS:
            columns: dict[str, list[str]] = {}
            for row in read_table(file, format=kind, separator=table.column_separator):
                columns = columns or find_columns(row, table, model, trained)
                values = [_value(row, field, names) for field, names in columns.items()]
                repeated = ["id", *(name for names in columns.values() for name in names)]
                shown = {name: row[name] for name in repeated if name in row}
                yield Input(shown, row.location, model.parse_fields(values))
        else:
            for number, line in enumerate(read_lines(file), start=1):
                yield Input({"text": line}, format_location(file, number), model.parse_line(line))


def find_columns(
    row: TableRow, table: TableOptions, model: TextModel, trained: Mapping[str, Any]
) -> dict[str, list[str]]:
    """Return the columns of each field: those of its flag, of the training, or the field's own name."""
    columns: dict[str, list[str]] = {}
    for field in model.fields:
        flag = _COLUMN_FLAGS[field]
        name = getattr(table, flag)
        if name is None:
            name = trained[flag] if trained.get(flag) in row else field
            if field in model.optional_fields and name not in row:
                columns[field] = []
                continue
        columns[field] = name.split(",") if field == "choices" else [name]
    return columns


def _value(row: TableRow, field: str, names: Sequence[str]) -> Any:
    values = [row.column(name, _COLUMN_FLAGS[field]) for name in names]
    if field != "choices":
        return values[0] if values else None
    if len(values) == 1 and isinstance(values[0], list):
        return values[0]
    while values and not values[-1]:  # questions may have fewer choices
        values.pop()
    return values


@contextmanager
def open_output(file: str | None) -> Iterator[TextIO]:
    with ignore_broken_pipe() if file is None else atomic_write(file) as output:
        yield output or sys.stdout


Answer = Mapping[str, Any]


def make_writer(
    output_format: str, model: TextModel, output: TextIO
) -> Callable[[Answer, Answer], object]:
    """Return a function of the repeated values of an input, and its answer or {"error": reason}."""
    if output_format == "jsonl":
        return lambda values, answer: output.write(json_line({**values, **answer}))
    if output_format == "text":
        return lambda _, answer: output.write(_short(model, answer) + "\n")
    writer: Any = csv.DictWriter(output, (), lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)

    def write(values: Answer, answer: Answer) -> None:
        row = {**values, **{name: _at(answer, name) for name in (*model.columns, "error")}}
        if not writer.fieldnames:  # later inputs must have the same columns
            writer.fieldnames = list(row)
            writer.writeheader()
        for name, value in row.items():
            if isinstance(value, list | dict):
                row[name] = json.dumps(value, ensure_ascii=False)
            elif isinstance(
                value, str
            ):  # with halves of surrogate pairs, which UTF-8 cannot contain
                row[name] = value.encode("utf-8", "backslashreplace").decode("utf-8")
        writer.writerow(row)

    return write


def _short(model: TextModel, answer: Answer) -> str:
    text = f"error: {answer['error']}" if "error" in answer else model.short(answer)
    return " ".join(text.splitlines())


def _at(answer: Answer, name: str) -> Any:
    """Return a value, or None. The name "a.b" is the key b in the dict a."""
    outer, dot, inner = name.partition(".")
    return answer[outer].get(inner) if dot and outer in answer else answer.get(name)
