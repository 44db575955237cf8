"""Plain English in docstrings and comments: openings, phrases, and the length of sentences."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = [
    path.relative_to(ROOT).as_posix()
    for folder in ("bert_tf", "run_scripts", "benchmarks", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
OPENING = re.compile(r"(What|Where|Whether|Which|How|Of|As|For|Who|Whoever|So)\b")
PHRASE = re.compile(
    r"(?i:\b(nobody|whoever|whence|go(es|ing)? on|beside|behind|is no|of ours|mend(s|ed|ing)?|so many"
    r"|in the place of|says? what|(stands?|lies?) (in|for|beside|above|below|there)|as many as)\b)"
    r"|\b(is|are) none\b"
)
TRUTH = re.compile(r"Returns? whether|: whether")
TYPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
MOST_WORDS = 30  # the rule is 20; lists of values may be longer


def docstrings(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, TYPES) and (text := ast.get_docstring(node)):
            yield text


def comments(source):
    found = tokenize.generate_tokens(io.StringIO(source).readline)
    return [token.string for token in found if token.type == tokenize.COMMENT]


def sentences(docstring):
    """Sentences outside doctests, code blocks and tables; a name in backticks is one word."""
    for paragraph in re.split(r"\n\s*\n", docstring):
        if paragraph.startswith((" ", ">>>")) or re.search(r"\S {2,}\S", paragraph):
            continue
        plain = re.sub(r"`[^`]*`", "name", paragraph)
        for entry in re.split(r"\n(?=    \S|\* |\d\. |[a-z_]+: )", plain):
            yield from re.split(r"(?<=[.!?:])\s+", " ".join(entry.split()))


@pytest.mark.parametrize("name", FILES)
def test_docstrings_and_comments_are_plain(name):
    source = (ROOT / name).read_text(encoding="utf-8")
    texts = list(docstrings(source))
    assert [text.split("\n")[0] for text in texts if OPENING.match(text)] == []
    assert [text for text in texts if TRUTH.search(text)] == []  # "True if"
    phrases = [PHRASE.search(text) for text in [*texts, *comments(source)]]
    assert [found[0] for found in phrases if found] == []
    longest = [one for text in texts for one in sentences(text) if len(one.split()) > MOST_WORDS]
    assert longest == []
