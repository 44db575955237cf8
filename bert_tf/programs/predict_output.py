"""Output of predict: JSON lines, a table or lines of text."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from bert_tf.data.files import escaped, json_line, open_whole
from bert_tf.limits import listed
from bert_tf.predictor import TextModel
from bert_tf.quiet import until_reader_stops

OUTPUT_FORMATS = ("jsonl", "tsv", "text")


@contextmanager
def open_output(file: str | None) -> Iterator[TextIO]:
    if file is None:
        with until_reader_stops():
            yield sys.stdout
    else:
        with open_whole(file) as output:
            yield output


Answer = Mapping[str, Any]


def make_writer(
    output_format: str, model: TextModel, output: TextIO
) -> Callable[[Answer, Answer, str], object]:
    """Return a function that writes an answer.

    Its arguments are the repeated values of the input, the answer or {"error": reason}, and the place
    of the input, "file:line".
    """
    if output_format == "jsonl":
        return lambda shown, answer, place: output.write(json_line({**shown, **answer}))
    if output_format == "tsv":
        return _Table(output, model.columns)
    return lambda shown, answer, place: _write_line(output, model, answer)


def _write_line(output: TextIO, model: TextModel, answer: Answer) -> None:
    text = f"error: {answer['error']}" if "error" in answer else model.short(answer)
    output.write(" ".join(text.splitlines()) + "\n")


class _Table:
    """Tab-separated values with a header. A column in '"' may contain tabs and line ends, as in CSV.

    The columns are the repeated ones of the first input, those of the answer, and "error". A later input
    with another repeated one raises ValueError.
    """

    def __init__(self, output: TextIO, columns: Sequence[str]):
        self._writer = csv.writer(output, delimiter="\t", lineterminator="\n")
        # Before Python 3.13 the first one does not enclose a carriage return.
        self._enclosing = csv.writer(
            output, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC
        )
        self._columns = tuple(columns)
        self._shown: tuple[str, ...] | None = None

    def __call__(self, shown: Answer, answer: Answer, place: str) -> None:
        if self._shown is None:
            self._shown = tuple(shown)
            self._writer.writerow([*map(escaped, self._shown), *self._columns, "error"])
        for name in shown:
            if name not in self._shown:
                raise ValueError(
                    f"{place}: the output has no column {name!r}. Its columns are those of the first "
                    f"input, {listed(self._shown)}. Use "
                    "output_format=jsonl, or answer one file at a time."
                )
        values = [shown.get(name) for name in self._shown]
        values += [_at(answer, name) for name in (*self._columns, "error")]
        cells = [_cell(value) for value in values]
        has_return = any(isinstance(cell, str) and "\r" in cell for cell in cells)
        (self._enclosing if has_return else self._writer).writerow(cells)


def _at(answer: Answer, name: str) -> Any:
    """Return a value, or None. The name "a.b" is the key b in the dict a."""
    if name in answer:
        return answer[name]
    outer, dot, inner = name.partition(".")
    return answer[outer].get(inner) if dot and outer in answer else None


def _cell(value: Any) -> Any:
    if isinstance(value, list | dict):
        value = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str):
        return escaped(value)
    return "" if value is None else value
