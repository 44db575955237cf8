"""WikiExtractor's output, or plain text -> the paragraphs of documents, one at a time.

    wikiextractor   <doc id="9" url="..." title="Tides">, the title once more, one paragraph per line
                    with &lt; for <, and </doc>
    json            what `WikiExtractor --json` writes: per line one object with "title" and "text"
    plain           one paragraph per line, an empty line between documents

At most one line is in memory (in JSON one line is a whole document).
"""

from __future__ import annotations

import html
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bert_tf.limits import parse_json
from bert_tf.pretraining.sentences import FINAL_MARKS

FORMATS = ("wikiextractor", "json", "plain")

# WikiExtractor does not escape the title, which may contain quotation marks.
_DOC = re.compile(r'<doc\b(?:.*?\btitle="(.*)")?.*>')

_SURROGATE = re.compile("[\ud800-\udfff]")

# Maximum length of a heading.
_MAX_HEADING_WORDS = 6
_MAX_HEADING_BYTES = 75  # of UTF-8, so that scripts with denser characters have fewer of them
_ENDS = "!?…" + FINAL_MARKS
_INNER_ENDS = re.compile(rf"[.{re.escape(_ENDS)}]")


class Paragraph(NamedTuple):
    """One event in reading a document: "title", "heading", "text", or "end" of the document."""

    kind: str
    text: str = ""


def read_paragraphs(lines: Iterable[str], file: str, format: str = "auto") -> Iterator[Paragraph]:
    """Yield the paragraphs of all documents of a file, without space around them and empty ones.

    Args:
        lines: lines of the file.
        file: name of the file, for messages.
        format: one of `FORMATS`, or "auto" to detect it from the first line that is not empty.

    Yields:
        The paragraphs of each document in their order, and then an "end". Only Wikipedia has titles
        and headings; all of plain text is "text". The end of a file ends a document.

    Raises:
        ValueError: the format is unknown, or the file has another one. The message has the line.

    >>> lines = ['<doc title="Tides">', "Tides", "", "History.", "Sun &amp; moon pull. Why?", "</doc>"]
    >>> [kind for kind, _ in read_paragraphs(lines, "wiki_00")]
    ['title', 'heading', 'text', 'end']
    """
    if format not in ("auto", *FORMATS):
        raise ValueError(
            f"`format` is {format!r}, but must be auto or one of {', '.join(FORMATS)}."
        )
    numbered: Iterator[tuple[int, str]] = enumerate(lines, 1)
    if format == "auto":
        numbered = itertools.dropwhile(lambda line: not line[1].strip(), numbered)
        first = next(numbered, None)
        if first is None:
            return
        format = detect_format(first[1])
        numbered = itertools.chain([first], numbered)
    if format == "plain":
        yield from _plain_paragraphs(numbered)
    elif format == "json":
        yield from _json_paragraphs(numbered, file)
    else:
        yield from _doc_paragraphs(numbered, file)


def is_heading(paragraph: str) -> bool:
    """Return True if a paragraph looks like a heading, a label or the rest of a formula.

    WikiExtractor writes "== Early life ==" as "Early life.", so this is a guess: at most six words,
    and a mark only at the end, a full stop.

    >>> [is_heading(text) for text in ("Early life.", "See also", "He was born. He died.", "Why?")]
    [True, True, False, False]
    """
    return (
        len(paragraph.split(None, _MAX_HEADING_WORDS)) <= _MAX_HEADING_WORDS
        and len(paragraph.encode()) <= _MAX_HEADING_BYTES
        and paragraph[-1] not in _ENDS
        and not paragraph.endswith("다.")  # Korean sentences have few words, and end like this
        and not _INNER_ENDS.search(paragraph, 0, len(paragraph) - 1)
    )


def detect_format(line: str) -> str:
    """Return the one of `FORMATS` that a file with this first line has."""
    if re.match(r"\s*<doc\b", line):
        return "wikiextractor"
    return "json" if line.lstrip().startswith("{") else "plain"


def _plain_paragraphs(numbered: Iterable[tuple[int, str]]) -> Iterator[Paragraph]:
    is_open = False
    for _, line in numbered:
        if text := line.strip():
            yield Paragraph("text", text)
            is_open = True
        elif is_open:
            yield Paragraph("end")
            is_open = False
    if is_open:
        yield Paragraph("end")


def _doc_paragraphs(numbered: Iterable[tuple[int, str]], file: str) -> Iterator[Paragraph]:
    opened = 0  # line of the open <doc>
    title: str | None = None  # until the first paragraph
    for number, line in numbered:
        line = line.strip()
        if not line:
            continue
        if line.startswith("<doc") and line.endswith(">") and (match := _DOC.fullmatch(line)):
            if opened:
                raise ValueError(
                    f"{file}:{number}: a <doc> within the <doc> of line {opened}, which no </doc> "
                    "closed. The file is damaged; extract it again."
                )
            opened, title = number, _unescaped(match[1] or "")
        elif line == "</doc>":
            if not opened:
                raise ValueError(f"{file}:{number}: a </doc> that no <doc> opened.")
            yield Paragraph("end")
            opened = 0
        elif not opened:
            raise ValueError(
                f"{file}:{number}: text outside of <doc> and </doc>, which begins {line[:60]!r}. If "
                "this is not WikiExtractor's format, give the right one (json or plain)."
            )
        elif text := _unescaped(line):
            yield _wikipedia_paragraph(text, title)
            title = None
    if opened:
        raise ValueError(
            f"{file}:{opened}: this <doc> is never closed by a </doc>. The file is cut off; extract it "
            "again."
        )


def _json_paragraphs(numbered: Iterable[tuple[int, str]], file: str) -> Iterator[Paragraph]:
    for number, line in numbered:
        if not line.strip():
            continue
        try:
            article = parse_json(line, unique_keys=True)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(
                f"{file}:{number}: invalid JSON ({error}). Each line must be one JSON object; the line "
                f"begins {line[:60]!r}. If this is plain text, give the format plain."
            ) from error
        text = article.get("text") if isinstance(article, dict) else None
        if not isinstance(text, str):
            raise ValueError(
                f'{file}:{number}: expected a JSON object with a "text", as WikiExtractor --json writes '
                f"it, but found {line[:60]!r}."
            )
        if _SURROGATE.search(text):
            raise ValueError(
                f"{file}:{number}: the text has half of a surrogate pair (\\ud800 to \\udfff), which "
                "is not a character and cannot be written as UTF-8. Remove it from the file."
            )
        title: str | None = _unescaped(str(article.get("title") or ""))
        for piece in text.split("\n"):
            if paragraph := _unescaped(piece):
                yield _wikipedia_paragraph(paragraph, title)
                title = None
        yield Paragraph("end")


def _wikipedia_paragraph(text: str, title: str | None) -> Paragraph:
    """Return the paragraph with its kind. Only the first paragraph has a `title`."""
    if text == title:
        return Paragraph("title", text)
    return Paragraph("heading" if is_heading(text) else "text", text)


def _unescaped(text: str) -> str:
    return html.unescape(text).strip()
