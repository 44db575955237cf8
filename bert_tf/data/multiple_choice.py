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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import tensorflow as tf

from bert_tf.characters import is_blank
from bert_tf.data.tables import guess_format, read_csv, read_table
from bert_tf.files import expand_files, read_lines
from bert_tf.limits import DataError, join_names

_LABEL_COLUMNS = ("label", "answer", "answerkey")


@dataclass(frozen=True)
class Question:
    """One example."""

    guid: str  # its name in the predictions
    text_a: str  # shared by all choices: the first sentence, the question, or the article
    choices: tuple[str, ...]  # the second text of each choice, one or more
    label: int | None  # index of the correct choice; None if unknown
    location: str  # "file:line", for messages


def read_questions(path: str) -> list[Question]:
    """Return the questions of a file, or of a folder in RACE's layout.

    Args:
        path: ends in .csv or .jsonl, or is a folder.

    Raises:
        ValueError: the format is unknown, the file is empty, or a row is invalid; the message has its
            place.
    """
    if tf.io.gfile.isdir(path):
        rows = _race_folder(path)
    elif guess_format(path) == "csv":
        rows = _csv_rows(path)
    elif guess_format(path) == "jsonl":
        rows = (row for values in read_table(path) for row in _json_rows(values, values.location))
    else:
        rows = iter(())
    questions = [_question(row) for row in rows]
    if not questions:
        raise DataError(path, "no question found in .csv (SWAG, ARC), .jsonl or RACE's folder.")
    return questions


@dataclass(frozen=True)
class _Row:
    """An unchecked question."""

    guid: str
    text_a: Any
    choices: Sequence[Any]
    keys: Sequence[str]  # names of the choices in the file
    key: Any  # None if the file has no answers
    location: str


def _question(row: _Row) -> Question:
    texts = [row.text_a, *row.choices]
    while isinstance(texts[-1], str) and is_blank(texts[-1]) and len(texts) > 1:
        texts.pop()  # rows of a table have equal numbers of columns
    # Without an empty choice, the numbers of the later ones would change.
    if len(texts) < 3 or not all(isinstance(text, str) and not is_blank(text) for text in texts):
        raise DataError(
            row.location,
            f"{[row.text_a, *row.choices]!r:.60} must be a question and 2 or more choices.",
        )
    text_a, *texts = map(str.strip, texts)
    keys, label = list(row.keys[: len(texts)]), None
    key = None if row.key is None else str(row.key).strip()
    if key not in (None, "", "-1"):  # -1 is "no label" of `datasets`
        # Some of ARC's keys are "1" instead of "A".
        if key not in keys and key.isdecimal() and keys[0] == "A":
            key = dict(enumerate(string.ascii_uppercase, 1)).get(int(key), key)
        if key not in keys:
            raise DataError(
                row.location, f"the answer is {row.key!r}, but must be one of {', '.join(keys)}."
            )
        label = keys.index(key)
    return Question(row.guid, text_a, tuple(texts), label, row.location)


# ---------------------------------------------------------------------------------------------- CSV


def _csv_rows(path: str) -> Iterator[_Row]:
    rows = read_csv(path)
    first = next(rows, None)
    if first is None:
        return
    names = [name.strip().lower() for name in first]
    text_a = next((n for n in ("sent1", "text_a", "question") if n in names), "")
    label = next((n for n in _LABEL_COLUMNS if n in names), None)
    numbers = {}  # of the choices, from their names
    for name in names:
        kind = name.rstrip(string.digits)
        if kind in ("ending", "choice"):
            numbers[name] = int(name.removeprefix(kind) or 0)
    has_header = bool(text_a) and len(numbers) > 1
    read = [n for n in names if n in numbers or n in (text_a, label)]
    if has_header and len(set(read)) < len(read):
        raise DataError(first.location, f"two columns have one name in {join_names(first)}.")
    if not has_header and ("sent1" in names or names[-1] in _LABEL_COLUMNS or len(first) < 4):
        raise DataError(
            first.location,
            f"no sent1 (or text_a, question), ending0 (or choice0), ... in {join_names(first)}.",
        )
    for row in rows if has_header else chain([first], rows):
        if len(row) != len(first):
            raise DataError(
                row.location, f"found {len(row)} columns, but the first row has {len(first)}."
            )
        guid = f"row-{row.line}"
        if not has_header:
            question, *choices, key = row
            yield _Row(guid, question, choices, string.ascii_uppercase, key, row.location)
            continue
        values = dict(zip(names, row, strict=True))
        beginning = f"{values['sent2'].strip()} " if "sent2" in values else ""
        endings = [values[name] for name in sorted(numbers, key=numbers.__getitem__)]
        choices = ["" if is_blank(ending) else beginning + ending.strip() for ending in endings]
        yield _Row(
            guid, values[text_a], choices, _numbers(choices), label and values[label], row.location
        )


# --------------------------------------------------------------------------------------------- JSON


def _json_rows(values: Mapping[str, Any], location: str) -> Iterator[_Row]:
    """Yield the question of an object, or the questions of an article."""
    guid = str(values.get("id", values.get("ind", location)))
    if "article" in values:
        yield from _race_rows(values, guid, location)
        return
    key = next((values[n] for n in ("answerKey", "label", "answer") if n in values), None)
    if "endings" in values:  # HellaSwag
        beginning = values.get("ctx_b", "")
        endings = [f"{beginning} {e}".strip() for e in _list(values, "endings", location)]
        text_a: Any = values.get("ctx_a", "")
        choices: Sequence[Any] = endings
        keys: Sequence[str] = _numbers(endings)
    else:
        text_a = values.get("question", values.get("text_a"))
        given = values.get("choices")
        if isinstance(text_a, Mapping):  # ARC, CommonsenseQA
            text_a, given = text_a.get("stem"), text_a.get("choices", given)
        choices, keys = _choices(given, location)
    yield _Row(guid, text_a, choices, keys, key, location)


def _choices(choices: Any, location: str) -> tuple[Sequence[Any], Sequence[str]]:
    """Return texts and keys of [text, ...], [{"text", "label"}, ...] or {"text": [], "label": []}."""
    if isinstance(choices, Mapping):
        texts, labels = _list(choices, "text", location), _list(choices, "label", location)
        return texts, [str(label) for label in labels]
    choices = _list({"choices": choices}, "choices", location)
    if choices and all(isinstance(choice, Mapping) for choice in choices):
        return [c.get("text") for c in choices], [str(c.get("label")) for c in choices]
    return choices, _numbers(choices)


def _numbers(choices: Sequence[Any]) -> list[str]:
    return [str(index) for index in range(len(choices))]


def _race_rows(values: Mapping[str, Any], guid: str, location: str) -> Iterator[_Row]:
    questions, options = (_list(values, name, location) for name in ("questions", "options"))
    answers = _list(values, "answers", location) if "answers" in values else [None] * len(questions)
    if not len(questions) == len(options) == len(answers):
        raise DataError(location, "the numbers of questions, options and answers must be equal.")
    for index, (question, choices, key) in enumerate(zip(questions, options, answers, strict=True)):
        texts = [_filled(question, choice) for choice in choices]
        keys = string.ascii_uppercase
        yield _Row(f"{guid}-{index}", values["article"], texts, keys, key, f"{location} #{index}")


def _list(values: Mapping[str, Any], name: str, location: str) -> list[Any]:
    """Return the list under a name, or an empty one."""
    found = values.get(name, [])
    if not isinstance(found, list):
        raise DataError(location, f'"{name}" is {found!r:.60}, but must be a list.')
    return found


def _filled(question: Any, choice: Any) -> Any:
    """Put the choice into the blank of a question, or after the question; None if one is no text.

    >>> _filled("The dog is _ .", "old"), _filled("Who barked?", "the dog")
    ('The dog is old .', 'Who barked? the dog')
    """
    if not (isinstance(question, str) and isinstance(choice, str)):
        return None
    return question.replace("_", choice, 1) if "_" in question else f"{question} {choice}"


def _race_folder(folder: str) -> Iterator[_Row]:
    for file in expand_files(folder, folders=True):
        if file.endswith(".txt"):
            try:
                values = json.loads("\n".join(read_lines(file)))
            except json.JSONDecodeError as error:
                raise DataError(f"{file}:{error.lineno}", f"invalid JSON ({error.msg}).") from error
            yield from _json_rows(values, location=file)
