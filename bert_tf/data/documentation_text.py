"""From a documentation string to plain English sentences.

Documentation strings are English wrapped in markup: reStructuredText, Markdown, numpydoc and Google
sections, doctests, tables. `sentences_of` keeps the prose and drops the rest, in four steps, each a
function below: lines -> paragraphs -> paragraphs without markup -> sentences. The rules are simple
and lean towards dropping: a lost sentence costs nothing, a line of code in a corpus does.

    Args:                                             -> dropped, a label
      axis: Axis along which to sum. Must be an       -> "Axis along which to sum."
        integer, see `numpy.sum`.                        "Must be an integer, see numpy.sum."
    $ python sum.py                                   -> dropped, a command and what it prints
    7
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterator

MIN_WORDS, MAX_WORDS = 4, 60
MIN_SHARE_OF_LETTERS = 0.85  # of a sentence's characters other than spaces
MAX_SHARE_OF_CODE = 0.25  # of a sentence's words

Line = tuple[int, str]  # (columns of indentation, the rest)


def sentences_of(text: str) -> list[str]:
    """The English sentences of a documentation string, in order.

    Args:
        text: a docstring, or a text in reStructuredText or Markdown.

    Returns:
        Sentences of MIN_WORDS to MAX_WORDS words, each on one line without markup.

    >>> sentences_of("Sums up.\\n\\nArgs:\\n  axis: The axis to sum along, `int`.\\n\\n>>> f(3)\\n7")
    ['The axis to sum along, int.']
    """
    sentences: list[str] = []
    for paragraph in _paragraphs(_prose_lines(text)):
        candidates = _SENTENCE_END.split(_without_markup(paragraph))
        sentences += filter(None, map(_as_sentence, candidates))
    return sentences


# ---- 1. Lines: everything that is no prose becomes an empty line -------------------------------

_FENCED = re.compile(r"^[ \t]*(```|~~~).*?^[ \t]*\1[^\n]*$|```.*?```", re.M | re.S)
_INVISIBLE = re.compile(r"<!--.*?-->|\$\$.*?\$\$|<(pre|table|style|script)\b.*?</\1>", re.S)
_RULE = re.compile(r"([=\-~*^#\"+`'._])\1{2,}")
_TABLE_LINE = re.compile(r"[|+].*[|+]|[=\-+|: ]{5,}|.*\S(?: {3,}|\t)\S.*(?: {3,}|\t)\S.*")
_DIRECTIVE = re.compile(r"\.\.(?: +(?:([\w:-]+?)::(.*)|.*)|$)")
_PROSE_DIRECTIVES = ("note", "warning", "tip", "important", "caution", "hint")
_PROMPT = re.compile(r">>>|\.\.\. |[$%] |In \[")
_SKIPPED_SECTION = re.compile(
    r"(see also|references?|raises|authors?|copyright|licen[cs]e)\b", re.I
)


def _prose_lines(text: str) -> list[Line]:
    text = inspect.cleandoc(text.replace("\r\n", "\n"))
    text = _INVISIBLE.sub("\n\n", _FENCED.sub("\n\n", text))
    lines = [(len(line) - len(line.lstrip()), line.strip()) for line in text.split("\n")]
    lines.append((0, ""))
    prose: list[Line] = []
    block_indent: int | None = None  # deeper lines belong to a dropped block
    in_doctest = in_skipped_section = False
    for (indent, line), (_, next_line) in itertools.pairwise(lines):
        prose.append((0, ""))
        if not line:
            in_doctest = False
            continue
        if block_indent is not None and indent > block_indent:
            continue
        block_indent = None
        if _RULE.fullmatch(line):
            continue
        if _RULE.fullmatch(next_line) and len(line) <= len(next_line) + 3:  # an underlined heading
            in_skipped_section = bool(_SKIPPED_SECTION.match(line))
            continue
        if line.endswith(":") and len(line.split()) <= 3:  # "Args:", "Call arguments:"
            if _SKIPPED_SECTION.match(line) or line.endswith("::"):
                block_indent = indent
            continue
        directive = _DIRECTIVE.fullmatch(line)
        if directive:
            if directive[1] in _PROSE_DIRECTIVES:
                prose[-1] = (indent, directive[2].strip())
            else:
                block_indent = indent
            continue
        in_doctest = in_doctest or bool(_PROMPT.match(line))
        if in_doctest or in_skipped_section or line[0] in "@#" or _TABLE_LINE.fullmatch(line):
            continue
        prose[-1] = (indent, line)
        if line.endswith("::") and not next_line:  # what follows is set verbatim
            block_indent = indent
    return prose


# ---- 2. Paragraphs: one line of text per paragraph, list item or argument ----------------------

_BULLET, _NUMBER = re.compile(r"[-*+•]\s+"), re.compile(r"(?:\(?\d{1,2}[.)]|\(?[a-z]\))\s+")
# "axis: Sum along ...", "*args: ...", "x, y (float): ...", "ValueError: if ..."
_FIELD = re.compile(
    r"[`*]*[A-Za-z_][\w.]*[`*]*(?:, ?[`*]*\w+[`*]*){0,3}(?: ?\([^()]*\))?:(?:\s+|$)"
)
_REST_FIELD = re.compile(r":\w+[^:]*:\s+")  # ":param axis: Sum along ..."
_NUMPYDOC_FIELD = re.compile(r"[`*]*\w[^.]* : .*")  # "axis : int, optional"


def _paragraphs(lines: list[Line]) -> Iterator[str]:
    paragraph: list[str] = []
    start_indent = previous_indent = 0
    in_field = False
    for (indent, line), (next_indent, next_line) in zip(lines, [*lines[1:], (0, "")], strict=True):
        starts = not paragraph or indent < previous_indent or (in_field and indent <= start_indent)
        hangs = bool(next_line) and next_indent > indent
        field = _REST_FIELD.match(line) or (_FIELD.match(line) if starts else None)
        bullet = _BULLET.match(line) or (_NUMBER.match(line) if starts else None)
        # The term of a definition list ("x : array_like", "ndarray"), its text indented below.
        is_term = (
            starts
            and not field
            and not bullet
            and (bool(_NUMPYDOC_FIELD.fullmatch(line)) or (hangs and len(line) < 50))
        )
        if not line or field or bullet or is_term or (in_field and indent < start_indent):
            if paragraph:
                yield " ".join(paragraph)
            paragraph = []
        if not paragraph:
            start_indent, in_field = indent, bool(field or is_term)
        marker = field or bullet
        line = line[marker.end() :] if marker else line
        if line and not is_term:
            paragraph.append(line)
        previous_indent = indent
    if paragraph:
        yield " ".join(paragraph)


# ---- 3. Markup inside a paragraph --------------------------------------------------------------

_MARKUP = (
    (re.compile(r"!?\[([^\]]*)\]\([^)]*\)"), r"\1"),  # Markdown: [text](address)
    (re.compile(r"`([^`<]*?)\s*<[^`>]*>`_*"), r"\1"),  # reST: `text <address>`_
    (re.compile(r":[a-z:]+:`[~!]?([^`]*)`"), r"\1"),  # reST: :func:`name`
    (re.compile(r"\[(?:\d+|[A-Z][\w+]*)\]_"), ""),  # reST: a citation
    (re.compile(r"@\{\$?([^}]*)\}"), r"\1"),  # TensorFlow: @{tf.name}
    (re.compile(r"</?(?:a|b|br|code|div|em|h\d|i|img|li|ol|p|span|strong|su[bp]|ul)\b[^<>]*>"), ""),
    (re.compile(r"(?<![\w*`])(\*{1,3})(?=[^\s*])([^*`]+?)(?<=\S)\1(?![\w*])"), r"\2"),  # *stress*
    (re.compile(r"(?<![\w*])\*{1,2}(?=[a-z_]{2,})"), ""),  # *args, **kwargs
    (re.compile(r"``?([^`]*)``?_{0,2}"), r"\1"),  # code and reST references
    (re.compile(r"\|([A-Za-z][\w -]*)\|"), r"\1"),  # reST substitutions, Google's |names|
    (re.compile(r"\\(?=[^\w\s])"), ""),
    (re.compile(r"^(?:Note|Warning|NOTE|WARNING|NB|TODO\([^)]*\))\s?:\s*"), ""),
    (re.compile(r"\s+"), " "),
    (re.compile(r" (?=[.,;:!?)](?:\s|$))"), ""),
)


def _without_markup(paragraph: str) -> str:
    for pattern, replacement in _MARKUP:
        paragraph = pattern.sub(replacement, paragraph)
    return paragraph.strip()


# ---- 4. Sentences ------------------------------------------------------------------------------

# A full stop ends a sentence before a space and a capital, but not after an abbreviation.
_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bcf\.)(?<!\bvs\.)(?<!\betc\.)(?<!\bresp\.)(?<!\bal\.)"
    r"(?<!\bDr\.)(?<!\bMr\.)(?<!\bNo\.)(?<!\bFig\.)(?<!\b[A-Z]\.)"
    r"\s+(?=[\"'(\[]?[A-Z0-9])|(?<=[.!?][\"')])\s+(?=[\"'(\[]?[A-Z])"
)
_ADDRESS = re.compile(r"https?:|www\.|\w@\w|\w/\w+/\w|%[a-z(]|\{\w*\}")
_CODE_WORD = re.compile(
    r".*(?:[_=<>{}\[\]\\|^~*/#@$%]|\w[.(:]\w|\(\)|[a-z][A-Z]|\d[A-Za-z]|[A-Za-z]\d|[A-Z]{6})|\W+|\d+"
)
# A paragraph may begin with one of these in lower case: the description of an argument.
_LOWER_CASE_START = re.compile(
    r"(?:an?|the|if|whether|when|optional|list|number|name|returns|same|this|all|any|each|used|one|"
    r"default|size|shape|type|string|integer|dictionary|function|path|tuple|must|should)\s"
)
# English has one of these in nearly every sentence; lists of names have none.
_FUNCTION_WORD = re.compile(
    r"\b(?:an?|and|are|as|at|be|been|but|by|can|do|does|for|from|has|have|if|in|into|is|its?|may|must|"
    r"not?|of|on|only|or|should|so|than|that|the|then|there|these|this|to|used?|was|what|when|where|"
    r"whether|which|will|with|without|you)\b",
    re.I,
)


def _as_sentence(text: str) -> str | None:
    """`text` with a capital at its start, or None where it is no English sentence."""
    words = text.split()
    if not MIN_WORDS <= len(words) <= MAX_WORDS or not re.search(r"[.!?:][\"')]?$", text):
        return None
    if _LOWER_CASE_START.match(text):
        text = text[0].upper() + text[1:]
    if not re.match(r"[\"'(]?[A-Z]", text) or re.search(r"\b(?:e\.g|i\.e|etc)[.:]$|::$", text):
        return None
    if _ADDRESS.search(text) or text.count("(") != text.count(")") or text.count('"') % 2:
        return None
    if not _FUNCTION_WORD.search(text):
        return None
    visible = "".join(words)
    letters = sum(map(str.isalpha, visible))
    code = sum(bool(_CODE_WORD.match(word.rstrip(".,;:!?"))) for word in words)
    is_prose = letters >= MIN_SHARE_OF_LETTERS * len(visible) and code <= MAX_SHARE_OF_CODE * len(
        words
    )
    return text if is_prose else None
