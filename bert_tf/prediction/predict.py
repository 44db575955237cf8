"""predict: answers of any model to raw text.

Input: lines of text, where tabs separate the fields (text_a, text_b; question, context; choices); or
named columns of TSV, CSV and JSON lines. Output: JSON lines, a table or lines of text.
"""

from __future__ import annotations

import csv
import json
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TextIO

from bert_tf.characters import is_blank
from bert_tf.checkpoints.hub import local_path
from bert_tf.cli import ignore_broken_pipe
from bert_tf.data.tables import TABLE_FORMATS, TableOptions, TableRow, guess_format, read_table
from bert_tf.files import (
    STANDARD_INPUT,
    atomic_write,
    check_not_an_input,
    count_lines,
    escape_surrogates,
    expand_files,
    format_location,
    is_stream,
    json_line,
    read_lines,
)
from bert_tf.limits import DataError, join_names
from bert_tf.modeling.inference import KEEP_KERNELS
from bert_tf.modeling.pooling import POOLINGS
from bert_tf.options import option
from bert_tf.prediction.masked_lm import MaskedLMPredictor, corpus_pseudo_perplexity
from bert_tf.prediction.predictor import Predictor
from bert_tf.prediction.text_model import TextModel
from bert_tf.tasks.run_folder import RunRecord
from bert_tf.training.progress import Progress
from bert_tf.training.strategy import PRECISIONS, choose_precision

logger = logging.getLogger(__name__)

OUTPUT_FORMATS = ("jsonl", "tsv", "csv", "text")
INPUT_FORMATS = ("text", *TABLE_FORMATS)

_TEXT_A = (
    *("text_a", "text", "sentence", "sentence1", "sent1", "anchor", "query", "question"),
    *("sentence_A", "words", "tokens", "0"),
)
_TEXT_B = (
    *("text_b", "sentence2", "positive", "answer", "sentence_B", "passage", "document", "1"),
)
# Field of a model -> the flag of its column, and names to look for without it; "0", "1" lack a header.
_COLUMNS = {
    "text_a": ("text_a_column", _TEXT_A),
    "text_b": ("text_b_column", _TEXT_B),
    "question": ("text_a_column", ("question", "text_a", "0")),
    "context": ("text_b_column", ("context", "text", "text_b", "1")),
    "choices": ("choices_column", ("choices",)),
}


PREDICTION_TASKS = ("auto", "fill_mask", "pseudo_perplexity", "embeddings")
HOW_TO_TYPE = "Type a text and Enter; end with Ctrl-D."
_BATCHES_AT_ONCE = 32  # read together, to batch texts of similar length


@dataclass(frozen=True, kw_only=True)
class PredictionOptions:
    """The flags of predict."""

    environment: ClassVar[dict[str, str]] = {KEEP_KERNELS: "1"}

    table: TableOptions
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

    @property
    def answer_format(self) -> str:
        """Return `output_format`, else the format by the name of the file."""
        ending = guess_format(self.output_file or "")
        return self.output_format or (ending if ending in ("tsv", "csv") else "jsonl")


def predict(options: PredictionOptions, predictor: Predictor | None = None) -> None:
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
    totals: Counter[str] = Counter()
    with open_output(options.output_file) as output:  # fails before the model is loaded
        model = choose_model(predictor or make_predictor(options), options)
        trained = RunRecord.load(local_path(options.model_dir)).flags
        inputs = read_inputs(files, options.table, model, options.input_format, trained)
        write = make_writer(options.answer_format, model, output)
        if is_typed:
            print(HOW_TO_TYPE, file=sys.stderr)
        is_counted = not any(file == STANDARD_INPUT or is_stream(file) for file in files)
        progress = Progress("predict", count_lines(files), "inputs") if is_counted else None
        while chunk := list(islice(inputs, chunk_size)):
            for row, answer in zip(chunk, answers(chunk, model), strict=True):
                write(row.values, answer)
                totals.update(inputs=1, errors="error" in answer)
                for name in ("num_tokens", "pseudo_log_likelihood"):
                    totals[name] += answer.get(name, 0)
            output.flush()
            if progress:
                progress.update(totals["inputs"])
        if progress and totals["inputs"] < progress.total:  # lines that are no inputs
            progress.total = totals["inputs"]
            progress.update(progress.total)
    log_totals(totals, model.num_truncated)
    if totals["inputs"] and totals["errors"] == totals["inputs"] and not is_typed:
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
    """Return the model for `task`."""
    if options.task == "embeddings" or (options.task == "auto" and predictor.is_embedder):
        return predictor.encoder(options.pooling, options.normalize, options.as_query)
    if options.task == "pseudo_perplexity":
        return predictor.scorer
    model = predictor.mask_filler if options.task == "fill_mask" else predictor.text_model
    if isinstance(model, MaskedLMPredictor):
        model.top_k = options.top_k
    return model


def answers(inputs: Sequence[Input], model: TextModel) -> Iterator[dict[str, Any]]:
    """Yield the answer or {"error": reason} of each input, in order."""
    prepared, errors = [], {}
    for index, row in enumerate(inputs):
        try:
            check_not_blank(row.item)
            prepared.append(model.prepare(row.item))
        except ValueError as error:
            errors[index] = {"error": f"{row.location}: {error}"}
    good = iter(model.answer(prepared))
    for index in range(len(inputs)):
        yield errors[index] if index in errors else next(good)


def check_not_blank(item: Any) -> None:
    """Raise ValueError if a text of an input is empty."""
    for part in item if isinstance(item, tuple) else [item]:
        for text in part if isinstance(part, list) else [part]:
            if text is not None and (not isinstance(text, str) or is_blank(text)):
                raise ValueError(f"{text!r:.60} is not a text, or empty. Write one.")


def log_totals(totals: Mapping[str, Any], num_truncated: int) -> None:
    if totals["errors"]:
        logger.warning(
            '%d of %d inputs could not be answered; see "error" in the output.',
            *(totals["errors"], totals["inputs"]),
        )
    if num_truncated:
        logger.warning(
            "%d of %d texts are longer than the model's input and were truncated.",
            *(num_truncated, totals["inputs"]),
        )
    if totals["num_tokens"]:
        logger.info(
            "Pseudo-perplexity of all %d tokens: %.6g",
            *(totals["num_tokens"], corpus_pseudo_perplexity([totals])),
        )


class Input(NamedTuple):
    """One input.

    Args:
        values: what the output repeats.
        location: "file:line".
        item: argument of `TextModel.prepare`.
    """

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
    """Yield the inputs of all files, in order and lazily.

    An empty text is an error, as in a table for training.

    Args:
        table: layout and columns of tables.
        format: one of INPUT_FORMATS. Default: by the name of each file, else "text".
        trained: flags of the training, whose columns are looked for first.

    Raises:
        ValueError: a file does not match its format or lacks a column; the message has file and line.
    """
    for file in files:
        kind = format or guess_format(file)
        if kind == "json":
            raise DataError(file, "give the format of a .json file: input_format=jsonl or text.")
        if kind in TABLE_FORMATS:
            columns: dict[str, list[str]] = {}
            for row in read_table(
                file, format=kind, header=table.header, separator=table.column_separator
            ):
                if not columns:
                    columns = find_columns(row, table, model, trained)
                    names = [*chain(*columns.values())]
                    logger.info("%s: the texts are in %s", file, join_names(names))
                item = model.parse_fields([_value(row, *column) for column in columns.items()])
                repeated = [name for name in ("id", *chain(*columns.values())) if name in row]
                yield Input({name: row[name] for name in repeated}, row.location, item)
        else:
            for number, line in enumerate(read_lines(file), start=1):
                yield Input({"text": line}, format_location(file, number), model.parse_line(line))


def find_columns(
    row: TableRow, table: TableOptions, model: TextModel, trained: Mapping[str, Any]
) -> dict[str, list[str]]:
    """Return the columns of each field: those of its flag, of the training, or with a usual name."""
    columns = {}
    for field in model.fields:
        flag, usual = _COLUMNS[field]
        named, is_optional = getattr(table, flag), field in model.optional_fields
        if named and field == "choices":
            columns[field] = named.split(",")
            continue
        known = [trained[flag]] if flag in trained else []
        known += [name for name in usual if not (is_optional and name.isdecimal())]
        column = row.find(flag, named, known)
        if column is None and not is_optional:
            raise DataError(
                row.location, f"the columns are {join_names(row)}. Name one with `{flag}`."
            )
        columns[field] = [column] if column else []
    return columns


def _value(row: TableRow, field: str, names: Sequence[str]) -> Any:
    values = [row.column(name, _COLUMNS[field][0]) for name in names]
    if field == "choices":
        values = values[0] if len(values) == 1 and isinstance(values[0], list) else values
        while values and isinstance(values[-1], str) and is_blank(values[-1]):
            values = values[:-1]
        return values
    return values[0] if values else None


Answer = Mapping[str, Any]


@contextmanager
def open_output(file: str | None) -> Iterator[TextIO]:
    with ignore_broken_pipe() if file is None else atomic_write(file) as output:
        yield output or sys.stdout


def make_writer(
    output_format: str, model: TextModel, output: TextIO
) -> Callable[[Answer, Answer], object]:
    """Return a function of the repeated values of an input, and its answer or {"error": reason}."""
    if output_format == "jsonl":
        return lambda values, answer: output.write(json_line({**values, **answer}))
    if output_format == "text":
        return lambda values, answer: output.write(_short(model, answer))
    is_tsv = output_format == "tsv"  # which has no quotes, as our tables read it
    form: Any = {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None} if is_tsv else {}
    writer: Any = csv.DictWriter(output, (), lineterminator="\n", **form)

    def write(values: Answer, answer: Answer) -> None:
        row = {**values, **{name: _at(answer, name) for name in (*model.columns, "error")}}
        if not writer.fieldnames:  # later inputs must have the same columns
            writer.fieldnames = list(row)
            writer.writeheader()
        writer.writerow({name: _cell(value, is_tsv) for name, value in row.items()})

    return write


def _short(model: TextModel, answer: Answer) -> str:
    text = f"error: {answer['error']}" if "error" in answer else model.short(answer)
    return escape_surrogates(" ".join(text.splitlines())) + "\n"


def _at(answer: Answer, name: str) -> Any:
    """Return a value, or None. The name "a.b" is the key b in the dict a."""
    outer, dot, inner = name.partition(".")
    return answer[outer].get(inner) if dot and outer in answer else answer.get(name)


def _cell(value: Any, is_tsv: bool) -> Any:
    if isinstance(value, list | dict):
        value = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str):
        return value
    # Before Python 3.13 the csv module does not enclose a carriage return.
    value = escape_surrogates(value).replace("\r\n", "\n").replace("\r", "\n")
    return re.sub("[\t\n]", " ", value) if is_tsv else value
