"""Reader of multiple-choice data: a text and its possible continuations or answers.

SWAG        .csv: sent1, sent2, ending0, ending1, ..., label (from 0); sent2 begins each ending
your own    .csv: text_a, choice0, choice1, ..., label
            .jsonl: {"text_a": s, "choices": [t, ...], "label": 0}
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bert_tf.characters import is_blank
from bert_tf.data.tables import TableRow, read_table
from bert_tf.limits import DataError

_CHOICE = re.compile(r"(?:ending|choice)(\d+)")


@dataclass(frozen=True)
class Question:
    guid: str  # its name in the predictions
    text_a: str  # shared by all choices: the first sentence, or a question with its text
    choices: tuple[str, ...]  # the second text of each choice, two or more
    label: int | None  # index of the correct choice; None if unknown
    location: str  # "file:line", for messages


def read_questions(path: str) -> list[Question]:
    """Return the questions of a .csv or .jsonl file."""
    questions = [_parse(row) for row in read_table(path)]
    if not questions:
        raise DataError(path, "no question found.")
    return questions


def _parse(row: TableRow) -> Question:
    choices = row.get("choices")
    if choices is None:
        numbers = {int(match[1]): name for name in row if (match := _CHOICE.fullmatch(name))}
        choices = [row[name] for _, name in sorted(numbers.items())]
        while (
            choices and not str(choices[-1]).strip()
        ):  # of a question with fewer choices than others
            choices.pop()
    texts = [row.get("text_a", row.get("sent1")), *(choices if isinstance(choices, list) else ())]
    # Without an empty choice, the numbers of the later ones would change.
    if len(texts) < 3 or not all(isinstance(text, str) and not is_blank(text) for text in texts):
        problem = f"{texts!r:.60} must be text_a (or sent1) and 2 or more choices (or endings)."
        raise DataError(row.location, problem)
    text_a, *choices = map(str.strip, texts)
    if "sent2" in row:
        choices = [f"{str(row['sent2']).strip()} {choice}".strip() for choice in choices]
    labels: dict[str, int | None] = dict.fromkeys(("", "-1", "None"))  # -1: none, of `datasets`
    labels |= {str(index): index for index in range(len(choices))}
    label = str(row.get("label", "")).strip()
    if label not in labels:
        problem = f"the label is {label!r}, but must be from 0 to {len(choices) - 1}."
        raise DataError(row.location, problem)
    guid = str(row.get("id", f"row-{row.line}"))
    return Question(guid, text_a, tuple(choices), labels[label], row.location)
