"""Output of predict: JSON lines, a table or lines of text."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from bert_tf.data.files import escaped, json_line, open_whole
from bert_tf.predictor import TextModel
from bert_tf.quiet import until_reader_stops

OUTPUT_FORMATS = ("jsonl", "tsv", "csv", "text")

Answer = Mapping[str, Any]


@contextmanager
def open_output(file: str | None) -> Iterator[TextIO]:
    if file is None:
        with until_reader_stops():
            yield sys.stdout
    else:
        with open_whole(file) as output:
            yield output


def make_writer(
    output_format: str, model: TextModel, output: TextIO
) -> Callable[[Answer, Answer], object]:
    """Return a function of the repeated values of an input, and its answer or {"error": reason}."""
    if output_format == "jsonl":
        return lambda shown, answer: output.write(json_line({**shown, **answer}))
    if output_format == "text":
        return lambda shown, answer: output.write(_short(model, answer))
    writer: csv.DictWriter | None = None

    def write(shown: Answer, answer: Answer) -> None:
        nonlocal writer
        names = (*model.columns, "error")
        if writer is None:  # later inputs must have the same columns
            delimiter = "," if output_format == "csv" else "\t"
            columns = dict.fromkeys((*shown, *names))
            writer = csv.DictWriter(output, columns, delimiter=delimiter, lineterminator="\n")
            writer.writeheader()
        row = {**shown, **{name: _at(answer, name) for name in names}}
        writer.writerow({name: _cell(value) for name, value in row.items()})

    return write


def _short(model: TextModel, answer: Answer) -> str:
    text = f"error: {answer['error']}" if "error" in answer else model.short(answer)
    return escaped(" ".join(text.splitlines())) + "\n"


def _at(answer: Answer, name: str) -> Any:
    """Return a value, or None. The name "a.b" is the key b in the dict a."""
    outer, dot, inner = name.partition(".")
    return answer[outer].get(inner) if dot and outer in answer else answer.get(name)


def _cell(value: Any) -> Any:
    if isinstance(value, list | dict):
        value = json.dumps(value, ensure_ascii=False)
    # Before Python 3.13 the csv module does not enclose a carriage return.
    return (
        escaped(value).replace("\r\n", "\n").replace("\r", "\n")
        if isinstance(value, str)
        else value
    )
