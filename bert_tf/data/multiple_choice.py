"""Readers of multiple-choice data: a text and its possible continuations or answers.

    SWAG       .csv with a header: sent1, sent2, ending0, ending1, ..., label (from 0)
    ARC        .csv without a header: question, choices, key ("A".. or "1"..); the last choices may be
               empty
               .jsonl: {"question": {"stem": s, "choices": [{"text": t, "label": "A"}, ...]},
                        "answerKey": "A"}
    RACE       a folder of its .txt files, one JSON object each: article, questions, options, answers
    your own   .jsonl: {"text_a": s, "choices": [t, ...], "label": 0}; HellaSwag's ctx_a, ctx_b, endings

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
            location.
    """
    questions: Iterator[Question] = iter(())
    if tf.io.gfile.isdir(path):
        questions = _read_race(path)
    elif guess_format(path) == "csv":
        questions = _read_csv(path)
    elif guess_format(path) == "jsonl":
        questions = chain.from_iterable(_parse(row, row.location) for row in read_table(path))
    result = list(questions)
    if not result:
        raise DataError(path, "no question found in .csv (SWAG, ARC), .jsonl or RACE's folder.")
    return result


def _make_question(
    guid: str, text_a: Any, choices: Sequence[Any], keys: Sequence[str], key: Any, location: str
) -> Question:
    """Return a checked question.

    Args:
        keys: names of the choices in the file.
        key: that of the correct one; None if the file has no answers.
    """
    texts = [text_a, *choices]
    while isinstance(texts[-1], str) and is_blank(texts[-1]) and len(texts) > 1:
        texts.pop()  # rows of a table have equal numbers of columns
    # Without an empty choice, the numbers of the later ones would change.
    if len(texts) < 3 or not all(isinstance(text, str) and not is_blank(text) for text in texts):
        problem = f"{[text_a, *choices]!r:.60} must be a question and 2 or more choices."
        raise DataError(location, problem)
    text_a, *texts = map(str.strip, texts)
    keys, label = list(keys[: len(texts)]), None
    key = None if key is None else str(key).strip()
    if key not in (None, "", "-1"):  # -1 is "no label" of `datasets`
        # Some of ARC's keys are "1" instead of "A".
        if key not in keys and key.isdecimal() and keys[0] == "A":
            key = dict(enumerate(string.ascii_uppercase, 1)).get(int(key), key)
        if key not in keys:
            raise DataError(
                location, f"the answer is {key!r}, but must be one of {', '.join(keys)}."
            )
        label = keys.index(key)
    return Question(guid, text_a, tuple(texts), label, location)


# ---------------------------------------------------------------------------------------------- CSV


def _read_csv(path: str) -> Iterator[Question]:
    rows = read_csv(path)
    first = next(rows, None)
    if first is None:
        return
    names = [name.strip().lower() for name in first]
    text_a = next((name for name in ("sent1", "text_a", "question") if name in names), "")
    label = next((name for name in _LABEL_COLUMNS if name in names), None)
    numbers = {}  # of the choices, from their names
    for name in names:
        stem = name.rstrip(string.digits)
        if stem in ("ending", "choice"):
            numbers[name] = int(name.removeprefix(stem) or 0)
    has_header = bool(text_a) and len(numbers) > 1
    used = [name for name in names if name in numbers or name in (text_a, label)]
    if has_header and len(set(used)) < len(used):
        raise DataError(first.location, f"two columns have one name in {join_names(first)}.")
    if not has_header and ("sent1" in names or names[-1] in _LABEL_COLUMNS or len(first) < 4):
        problem = (
            f"no sent1 (or text_a, question), ending0 (or choice0), ... in {join_names(first)}."
        )
        raise DataError(first.location, problem)
    for row in rows if has_header else chain([first], rows):
        if len(row) != len(first):
            problem = f"found {len(row)} columns, but the first row has {len(first)}."
            raise DataError(row.location, problem)
        guid, keys = f"row-{row.line}", string.ascii_uppercase
        if has_header:
            values = dict(zip(names, row, strict=True))
            prefix = f"{values['sent2'].strip()} " if "sent2" in values else ""
            endings = [values[name] for name in sorted(numbers, key=numbers.__getitem__)]
            choices = ["" if is_blank(ending) else prefix + ending.strip() for ending in endings]
            key = label and values[label]
            yield _make_question(
                guid, values[text_a], choices, _count_from_0(choices), key, row.location
            )
        else:
            question, *choices, key = row
            yield _make_question(guid, question, choices, keys, key, row.location)


# --------------------------------------------------------------------------------------------- JSON


def _parse(values: Mapping[str, Any], location: str) -> Iterator[Question]:
    """Yield the question of an object, or the questions of an article."""
    guid = str(values.get("id", values.get("ind", location)))
    if "article" in values:
        yield from _parse_race(values, guid, location)
        return
    key = next((values[name] for name in ("answerKey", "label", "answer") if name in values), None)
    text_a: Any
    if "endings" in values:  # HellaSwag
        prefix = values.get("ctx_b", "")
        text_a = values.get("ctx_a", "")
        choices: Any = [f"{prefix} {end}".strip() for end in _list(values, "endings", location)]
    else:
        text_a = values.get("question", values.get("text_a"))
        choices = values.get("choices")
        if isinstance(text_a, Mapping):  # ARC, CommonsenseQA
            text_a, choices = text_a.get("stem"), text_a.get("choices", choices)
    texts, keys = _parse_choices(choices, location)
    yield _make_question(guid, text_a, texts, keys, key, location)


def _parse_choices(choices: Any, location: str) -> tuple[Sequence[Any], Sequence[str]]:
    """Return texts and keys of [text, ...], [{"text", "label"}, ...] or {"text": [], "label": []}."""
    if isinstance(choices, Mapping):
        texts, labels = (_list(choices, name, location) for name in ("text", "label"))
        return texts, [str(label) for label in labels]
    choices = _list({"choices": choices}, "choices", location)
    if choices and all(isinstance(choice, Mapping) for choice in choices):
        return [c.get("text") for c in choices], [str(c.get("label")) for c in choices]
    return choices, _count_from_0(choices)


def _count_from_0(choices: Sequence[Any]) -> list[str]:
    return [str(index) for index in range(len(choices))]


def _list(values: Mapping[str, Any], name: str, location: str) -> list[Any]:
    """Return the list under a name, or an empty one."""
    value = values.get(name, [])
    if not isinstance(value, list):
        raise DataError(location, f'"{name}" is {value!r:.60}, but must be a list.')
    return value


def _parse_race(values: Mapping[str, Any], guid: str, location: str) -> Iterator[Question]:
    questions, options = (_list(values, name, location) for name in ("questions", "options"))
    keys = _list(values, "answers", location) if "answers" in values else [None] * len(questions)
    if not len(questions) == len(options) == len(keys):
        raise DataError(location, "the numbers of questions, options and answers must be equal.")
    for index, (question, choices, key) in enumerate(zip(questions, options, keys, strict=True)):
        yield _make_question(
            f"{guid}-{index}",
            values["article"],
            [_fill_blank(question, choice) for choice in choices],
            string.ascii_uppercase,
            key,
            f"{location} #{index}",
        )


def _fill_blank(question: Any, choice: Any) -> Any:
    """Put the choice into the blank of a question, or after the question; None if one is no text.

    >>> _fill_blank("The dog is _ .", "old"), _fill_blank("Who barked?", "the dog")
    ('The dog is old .', 'Who barked? the dog')
    """
    if not (isinstance(question, str) and isinstance(choice, str)):
        return None
    return question.replace("_", choice, 1) if "_" in question else f"{question} {choice}"


def _read_race(folder: str) -> Iterator[Question]:
    for file in expand_files(folder, folders=True):
        if file.endswith(".txt"):
            try:
                values = json.loads("\n".join(read_lines(file)))
            except json.JSONDecodeError as error:
                raise DataError(f"{file}:{error.lineno}", f"invalid JSON ({error.msg}).") from error
            yield from _parse(values, file)
