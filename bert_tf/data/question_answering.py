"""SQuAD's JSON, 1.1 and 2.0: questions with their passages.

    {"data": [{"paragraphs": [{
        "context": "Denver beat Carolina.",
        "qas": [{"id": "q1", "question": "Who won?", "is_impossible": false,
                 "answers": [{"text": "Denver", "answer_start": 0}]}]}]}]}

`is_impossible` exists only in 2.0, where `answers` may be empty. Test sets may have no `answers`. The
answer "" at -1 is none.

Flat rows, as `datasets` writes them, are one object a line, or a list of objects, or that under "data".
Without an answer text a row has no answer:

    {"id": "q1", "context": "Denver beat Carolina.", "question": "Who won?",
     "answers": {"text": ["Denver"], "answer_start": [0]}}

Source: google-research/bert, run_squad.py, `read_squad_examples`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple

from bert_tf.characters import is_blank
from bert_tf.data.windows import Passage, SquadAnswer
from bert_tf.files import open_binary
from bert_tf.limits import DataError

NO_ANSWER = SquadAnswer("", -1)  # in files that give every question an answer


@dataclass(frozen=True)
class SquadExample:
    qas_id: str  # its name in the prediction files
    question_text: str
    passage: Passage  # shared by its questions
    answers: tuple[SquadAnswer, ...] | None = None  # empty without an answer, None if unknown
    is_impossible: bool = False  # whether the file marks it as having no answer
    location: str = ""  # position in the file, for messages


class TrainingExample(NamedTuple):
    """A question and the answer to learn, None if it has no answer."""

    example: SquadExample
    answer: SquadAnswer | None


@dataclass
class Findings:
    """Malformed questions: problem -> their names, in order."""

    questions: dict[str, list[str]] = field(default_factory=dict)

    def add(self, problem: str, qas_id: str) -> None:
        self.questions.setdefault(problem, []).append(qas_id)

    def describe(self, max_names: int | None = 5) -> list[str]:
        """Return a line per problem: the number of questions, and the first names."""
        lines = []
        for problem, names in self.questions.items():
            more = ", ..." if len(names[:max_names]) < len(names) else ""
            lines.append(f"{len(names)} questions {problem}: {', '.join(names[:max_names])}{more}")
        return lines


def read_squad(path: str | os.PathLike) -> list[SquadExample]:
    """Return the questions of a file, plain or gzip, local or remote."""
    file = os.fspath(path)
    examples: list[SquadExample] = []
    passages: dict[str, Passage] = {}
    for entry, location in _list_items(_read_json(file), "data", file):
        nested = _nest_row(entry)
        for paragraph, at in _list_items(nested, "paragraphs", location):
            passage = Passage(_get_value(paragraph, "context", str, at))
            if nested is not entry:  # rows repeat their passage
                passage = passages.setdefault(passage.text, passage)
            examples += [
                _parse_example(qa, passage, where)
                for qa, where in _list_items(paragraph, "qas", at)
            ]
    if not examples:
        raise DataError(file, "no question found.")
    locations: dict[str, str] = {}
    for example in examples:  # or predictions.json would lose one
        if example.qas_id in locations:
            raise DataError(example.location, f"{locations[example.qas_id]} has the same id.")
        locations[example.qas_id] = example.location
    return examples


def _read_json(file: str) -> Any:
    """Return the content of a file; that of JSON lines and of lists under "data"."""
    with open_binary(file) as stream:
        data = stream.read()
    try:
        text = data.decode("utf-8-sig").strip()
        values, end = json.JSONDecoder().raw_decode(text)
        if end < len(text):
            values = [json.loads(line) for line in text.split("\n") if line.strip()]
    except (ValueError, RecursionError) as error:
        raise DataError(file, f"not JSON in UTF-8: {error}.") from error
    if isinstance(values, dict) and "context" in values:  # one line
        values = [values]
    return {"data": values} if isinstance(values, list) else values


def _nest_row(entry: Any) -> Any:
    """Return a flat row in SQuAD's format; other entries are unchanged."""
    if not isinstance(entry, dict) or "context" not in entry:
        return entry
    qa, answers = dict(entry), entry.get("answers")
    if isinstance(answers, dict):
        pairs = zip_longest(answers.get("text", ()), answers.get("answer_start", ()))
        qa["answers"] = [{"text": text, "answer_start": start} for text, start in pairs]
    if qa.get("answers") == []:
        qa.setdefault("is_impossible", True)
    return {"paragraphs": [{"context": entry["context"], "qas": [qa]}]}


def _parse_example(qa: Any, passage: Passage, location: str) -> SquadExample:
    qas_id = str(_get_value(qa, "id", str | int, location))
    location = f"{location} (id {qas_id})"
    answers, is_impossible = None, False
    if "answers" in qa:
        listed = [
            SquadAnswer(_get_value(a, "text", str, at), _get_value(a, "answer_start", int, at))
            for a, at in _list_items(qa, "answers", location)
        ]
        answers = tuple(answer for answer in listed if answer != NO_ANSWER)
        is_impossible = bool(listed) and not answers
    if "is_impossible" in qa:
        is_impossible = _get_value(qa, "is_impossible", bool, location)
    question = _get_value(qa, "question", str, location)
    return SquadExample(qas_id, question, passage, answers, is_impossible, location)


def _list_items(values: Any, key: str, location: str) -> list[tuple[Any, str]]:
    """Return (value, location) of each item of a list."""
    separator = ": " if key == "data" else "."
    items = _get_value(values, key, list, location)
    return [(item, f"{location}{separator}{key}[{index}]") for index, item in enumerate(items)]


_JSON_NAMES = {
    str: "a string",
    int: "a whole number",
    str | int: "a string or a whole number",
    bool: "true or false",
    list: "a list",
}


def _get_value(values: Any, key: str, kind: Any, location: str) -> Any:
    value = values.get(key) if isinstance(values, dict) else None
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise DataError(location, f'"{key}" is {value!r:.60}, but must be {_JSON_NAMES[kind]}.')
    return value


def examples_to_train(
    examples: Sequence[SquadExample], version_2_with_negative: bool, findings: Findings
) -> list[TrainingExample]:
    """Return the questions that can be learned, each with its answer located in the passage.

    As in the reference, the words at `answer_start` only need to contain the answer.
    """
    chosen = []
    for example in examples:
        is_usable = version_2_with_negative if example.is_impossible else example.answers
        if not is_usable:
            remedy = '"answers", or "is_impossible": true with version_2_with_negative'
            raise DataError(example.location, f"a question to train on needs {remedy}.")
        answer = None if example.is_impossible else _find_answer(example, findings)
        if answer is None and not example.is_impossible:
            continue
        if not example.passage.words:
            findings.add("are left out, because their passage is empty", example.qas_id)
            continue
        if is_blank(example.question_text):
            findings.add("have an empty text", example.qas_id)
        chosen.append(TrainingExample(example, answer))
    return chosen


def _find_answer(example: SquadExample, findings: Findings) -> SquadAnswer | None:
    """Return the first answer at its place in the passage; None and a finding if not found."""
    answers = example.answers or ()
    answer, text = answers[0], example.passage.text
    if len(answers) > 1:
        findings.add("have several answers, of which the first is learned", example.qas_id)
    if not answer.text.strip():
        findings.add("are left out, because their answer is empty", example.qas_id)
        return None
    if answer.start >= 0 and text.startswith(answer.text, answer.start):
        return answer
    if not _words_contain(example.passage, answer):
        findings.add("are left out, because their answer is not at answer_start", example.qas_id)
        return None
    findings.add("have an answer that does not begin at answer_start", example.qas_id)
    return answer


def _words_contain(passage: Passage, answer: SquadAnswer) -> bool:
    if not 0 <= answer.start <= len(passage.text) - len(answer.text):
        return False
    first, last = passage.find_words(answer)
    return " ".join(answer.text.split()) in " ".join(passage.words[first : last + 1])
