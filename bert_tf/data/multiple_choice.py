"""Readers of multiple-choice data: a text and its possible continuations or answers.

    SWAG       .csv with a header: sent1, sent2, ending0, ending1, ..., label (from 0)
    ARC        .csv without a header: question, choices, key ("A".. or "1"..); the last choices may be
               empty
               .jsonl: {"question": {"stem": s, "choices": [{"text": t, "label": "A"}, ...]},
                        "answerKey": "A"}
    RACE       a folder of its .txt files, one JSON object each: article, questions, options, answers
    others     .jsonl: {"text_a": s, "choices": [t, ...], "label": 0}; HellaSwag's ctx_a, ctx_b, endings

Every `Question` has a first text that all choices share, and a second text for each choice.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from bert_tf.characters import is_blank
from bert_tf.data.globs import expand_files
from bert_tf.data.lines import read_text
from bert_tf.data.tables import Row, TableRow, ending_of, read_csv, read_table, without_empty_rows
from bert_tf.limits import parse_json

_LABEL_COLUMNS = ("label", "answer", "answerkey")
_TEXTS_OF_QUESTIONS = ("context", "passage", "paragraph", "premise", "story", "article")


@dataclass(frozen=True)
class Question:
    """One example."""

    guid: str  # its name in the predictions
    text_a: str  # shared by all choices: the first sentence, the question, or the article
    choices: tuple[str, ...]  # the second text of each choice, one or more
    label: int | None  # index of the correct choice; None if unknown
    origin: str  # "file:line", for messages


class BadQuestion(ValueError):
    """An invalid row, for example with too few choices or an answer that is not among them."""


def read_questions(path: str, bad: list[str] | None = None) -> list[Question]:
    """Return the questions of a file, or of a folder in RACE's layout.

    Args:
        path: ends in .csv or .jsonl, or is a folder.
        bad: list that gets the messages of invalid rows, which are left out. None raises.

    Raises:
        ValueError: the format is unknown, the file is empty, or (without `bad`) rows are invalid. The
            message has their number and the first ones.
    """
    if tf.io.gfile.isdir(path):
        rows = _race_folder(path)
    elif ending_of(path) == "csv":
        rows = _csv_rows(path)
    elif ending_of(path) == "jsonl":
        rows = (row for values in read_table(path) for row in _json_rows(values))
    else:
        raise ValueError(
            f"{path}: unknown format. The name must end in .csv (SWAG, ARC) or .jsonl, or be a folder "
            "of RACE."
        )
    questions, problems = [], []
    for row in rows:
        try:
            questions.append(_question(row))
        except BadQuestion as problem:
            problems.append(str(problem))
    if bad is not None:
        bad.extend(problems)
    elif problems:
        raise ValueError(
            f"{len(problems)} of {len(problems) + len(questions)} rows are invalid: "
            f"{'; '.join(problems[:3])}. Fix them, or leave them out with skip_bad_rows."
        )
    if not questions:
        raise ValueError(f"{path} contains no question.")
    return questions


@dataclass(frozen=True)
class _Row:
    """An unchecked question."""

    guid: str
    text_a: Any
    choices: Sequence[Any]
    keys: Sequence[str]  # names of the choices in the file
    key: Any  # None if the file has no answers
    origin: str


def _question(row: _Row) -> Question:
    if row.text_a is None:
        raise BadQuestion(f"{row.origin}: the first text is missing. Name it text_a or question")
    for text in (row.text_a, *row.choices):
        if not isinstance(text, str):
            raise BadQuestion(f"{row.origin}: {text!r} is not a string")
    if is_blank(row.text_a):
        raise BadQuestion(f"{row.origin}: the question is empty")
    if len(row.choices) > len(row.keys):
        raise BadQuestion(
            f"{row.origin}: found {len(row.choices)} choices, but at most {len(row.keys)} have a letter"
        )
    real = list(zip(row.keys, (text.strip() for text in row.choices), strict=True))
    while real and is_blank(real[-1][1]):
        real.pop()  # rows of a table have equal numbers of columns
    for index, (_, text) in enumerate(real):
        if is_blank(text):  # without it, the numbers of the later choices would change
            raise BadQuestion(
                f"{row.origin}: choice {index}, counted from 0, is empty, but only the last choices "
                "may be. Write a text"
            )
    if len(real) < 2:
        raise BadQuestion(f"{row.origin}: found {len(real)} choices, but 2 or more are needed")
    label = None
    if row.key is not None:
        keys = [key for key, _ in real]
        # Some of ARC's keys are "1" instead of "A".
        wanted = str(row.key).strip()
        if wanted not in keys and wanted.isdecimal() and keys[0] == "A":
            wanted = dict(enumerate(string.ascii_uppercase, 1)).get(int(wanted), wanted)
        if wanted not in keys:
            counted = ", counted from 0" if keys[0] == "0" else ""
            raise BadQuestion(
                f"{row.origin}: the answer is {row.key!r}, but must be one of {', '.join(keys)}{counted}"
            )
        label = keys.index(wanted)
    texts = tuple(text for _, text in real)
    return Question(row.guid, row.text_a.strip(), texts, label, row.origin)


# ---------------------------------------------------------------------------------------------- CSV


def _csv_rows(path: str) -> Iterator[_Row]:
    rows = without_empty_rows(read_csv(path))
    first = next(rows, None)
    if first is None:
        raise ValueError(f"{path} is empty.")
    names = [name.strip().lower() for name in first]
    columns = _header_columns(names)
    if columns is None and ("sent1" in names or names[-1] in _LABEL_COLUMNS):
        raise ValueError(
            f"{first.place}: the header is {','.join(first)[:120]!r}, but must name sent1 (or text_a, "
            "question), optionally sent2, ending0, ending1, ... (or choice0, ...) and label."
        )
    if columns is None and len(first) < 4:
        raise ValueError(
            f"{first.place}: found {len(first)} columns, but 4 or more are needed without a header: "
            "question, choices and answer key, separated by commas. "
            f"The row is {','.join(first)[:80]!r}."
        )
    if columns is None:
        yield _headless_row(first)
    else:
        _check_text_of_question(names[columns.text_a], names, first.place)
    for row in rows:
        if len(row) != len(first):
            raise ValueError(
                f"{row.place}: found {len(row)} columns, but the first row has {len(first)}. "
                f"The row begins {','.join(row)[:80]!r}."
            )
        yield _headless_row(row) if columns is None else _swag_row(row, columns)


@dataclass(frozen=True)
class _HeaderColumns:
    """Indexes of columns, without `label` in a test set."""

    text_a: int
    beginning: int | None  # of every choice: SWAG's sent2
    choices: Sequence[int]
    label: int | None


def _header_columns(names: Sequence[str]) -> _HeaderColumns | None:
    """Return the columns, or None if no text or fewer than two choices have a known name."""
    numbers = {}  # of the choices, from their names
    for index, name in enumerate(names):
        kind = name.rstrip(string.digits)
        if kind in ("ending", "choice"):
            numbers[index] = int(name.removeprefix(kind) or 0)
    text_a = next((names.index(n) for n in ("sent1", "text_a", "question") if n in names), None)
    label = next((names.index(n) for n in _LABEL_COLUMNS if n in names), None)
    choices = sorted(numbers, key=numbers.__getitem__)
    if text_a is None or len(choices) < 2:
        return None
    beginning = names.index("sent2") if "sent2" in names else None
    return _HeaderColumns(text_a, beginning, choices, label)


def _check_text_of_question(text_a: str, names: Iterable[str], place: str) -> None:
    """Raise if the first text is a question, and a column with the text it is about is not read."""
    other = next((name for name in names if name in _TEXTS_OF_QUESTIONS), None)
    if text_a == "question" and other is not None:
        raise ValueError(
            f"{place}: the first text is in {text_a!r}, and {other!r} is not read. Write both into "
            f"text_a, or remove {other!r}."
        )


def _swag_row(row: Row, columns: _HeaderColumns) -> _Row:
    beginning = "" if columns.beginning is None else row[columns.beginning].strip() + " "
    endings = [row[index] for index in columns.choices]
    return _Row(
        guid=f"row-{row.line}",
        text_a=row[columns.text_a],
        choices=["" if is_blank(ending) else beginning + ending.strip() for ending in endings],
        keys=[str(index) for index in range(len(endings))],
        key=None if columns.label is None else row[columns.label],
        origin=row.place,
    )


def _headless_row(row: Row) -> _Row:
    question, *choices, key = row
    keys = string.ascii_uppercase[: len(choices)]
    return _Row(f"row-{row.line}", question, choices, keys, key or None, row.place)


# --------------------------------------------------------------------------------------------- JSON


def _json_rows(values: TableRow | Mapping[str, Any], origin: str = "") -> Iterator[_Row]:
    """Yield the question of an object, or the questions of an article."""
    origin = origin or str(getattr(values, "place", ""))
    guid = str(values.get("id", values.get("ind", origin)))
    if "article" in values:
        yield from _race_rows(values, guid, origin)
        return
    key = next((values[n] for n in ("answerKey", "label", "answer") if n in values), None)
    key = None if key == "" else key
    if "endings" in values:  # HellaSwag
        beginning = values.get("ctx_b", "")
        endings = [f"{beginning} {e}".strip() for e in _list(values, "endings", origin)]
        text_a: Any = values.get("ctx_a", "")
        choices: Sequence[Any] = endings
        keys: Sequence[str] = _numbers(endings)
    else:
        name = "question" if "question" in values else "text_a"
        _check_text_of_question(name, values, origin)
        text_a = values.get(name)
        given = values.get("choices")
        if isinstance(text_a, Mapping):  # ARC, CommonsenseQA
            text_a, given = text_a.get("stem"), text_a.get("choices", given)
        choices, keys = _choices(given, origin)
    yield _Row(guid, text_a, choices, keys, key, origin)


def _choices(choices: Any, origin: str) -> tuple[Sequence[Any], Sequence[str]]:
    """Return texts and keys of [text, ...], [{"text", "label"}, ...] or {"text": [], "label": []}."""
    if isinstance(choices, Mapping):
        texts, labels = _list(choices, "text", origin), _list(choices, "label", origin)
        _check_equal_numbers(origin, {"texts": texts, "labels": labels})
        return texts, [str(label) for label in labels]
    if not isinstance(choices, Sequence) or isinstance(choices, str):
        raise ValueError(
            f'{origin}: "choices" is {choices!r}, but must be a list of strings, or of objects with '
            '"text" and "label".'
        )
    if choices and all(isinstance(choice, Mapping) for choice in choices):
        return [c.get("text") for c in choices], [str(c.get("label")) for c in choices]
    return choices, _numbers(choices)


def _numbers(choices: Sequence[Any]) -> list[str]:
    return [str(index) for index in range(len(choices))]


def _race_rows(values: Mapping[str, Any], guid: str, origin: str) -> Iterator[_Row]:
    questions, options = (_list(values, name, origin) for name in ("questions", "options"))
    answers = _list(values, "answers", origin) if "answers" in values else [None] * len(questions)
    _check_equal_numbers(
        origin, {"questions": questions, "lists of options": options, "answers": answers}
    )
    for index, (question, choices, key) in enumerate(zip(questions, options, answers, strict=True)):
        if not isinstance(choices, list):
            raise ValueError(f"{origin}: the options are {choices!r}, but must be a list.")
        texts = [_filled(question, choice) for choice in choices]
        keys = string.ascii_uppercase[: len(texts)]
        yield _Row(f"{guid}-{index}", values["article"], texts, keys, key, f"{origin} #{index}")


def _list(values: Mapping[str, Any], name: str, origin: str) -> list[Any]:
    """Return the list under a name, or an empty one. Raise if it is not a list."""
    found = values.get(name, [])
    if not isinstance(found, list):
        raise ValueError(f'{origin}: "{name}" is {found!r}, but must be a list.')
    return found


def _check_equal_numbers(origin: str, lists: Mapping[str, Sequence[Any]]) -> None:
    if len({len(items) for items in lists.values()}) > 1:
        counts = ", ".join(f"{len(items)} {name}" for name, items in lists.items())
        raise ValueError(f"{origin}: found {counts}, but their numbers must be equal.")


def _filled(question: Any, choice: Any) -> Any:
    """Put the choice into the blank of a question, or after the question.

    >>> _filled("The dog is _ .", "old"), _filled("Who barked?", "the dog")
    ('The dog is old .', 'Who barked? the dog')
    """
    if not (isinstance(question, str) and isinstance(choice, str)):
        return None  # rejected later as not a string
    return question.replace("_", choice, 1) if "_" in question else f"{question} {choice}"


def _race_folder(folder: str) -> Iterator[_Row]:
    files = [file for file in expand_files(folder, folders=True) if file.endswith(".txt")]
    if not files:
        raise ValueError(
            f"{folder} has no .txt file. RACE has them in train/high and train/middle."
        )
    for file in files:
        try:
            values = parse_json(read_text(file))
        except json.JSONDecodeError as error:
            raise ValueError(f"{file}:{error.lineno}: invalid JSON ({error.msg}).") from error
        if not isinstance(values, dict) or "article" not in values:
            raise ValueError(f'{file}: must contain a JSON object with "article", as in RACE.')
        yield from _json_rows(values, origin=file)
