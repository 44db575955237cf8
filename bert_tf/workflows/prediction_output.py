"""What predict writes: JSON lines, a table, or the bare answers."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from bert_tf.predictor import TextModel

OUTPUT_FORMATS = ("jsonl", "tsv", "text")

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
