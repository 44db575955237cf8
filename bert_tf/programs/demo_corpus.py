"""A corpus of real English that every machine with this package has: documentation strings.

The quickstart learns its vocabulary and pre-trains on what the authors of the standard library,
NumPy, Keras and TensorFlow wrote to explain their code, and then fine-tunes on a question that has
an answer in the same text: which library does this sentence document?

    installed source files -> strings (ast) -> sentences (documentation_text) -> documents
        -> corpus: one sentence per line, a blank line between documents
        -> classification: train.tsv, dev.tsv with the columns sentence, label

Nothing is imported or executed: packages are found by their import specification and read as text.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import itertools
import os
import random
import re
import sysconfig
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bert_tf.data.files import write_text

# A document ends with the first documentation string that brings it to this many sentences.
MAX_SENTENCES_PER_DOCUMENT = 50
# Strings that are no docstrings are read from this length on: numpy's and Python's documentation of
# compiled functions and of the language is kept in such strings.
MIN_CHARACTERS_OF_OTHER_STRINGS = 200
# Folders of tests, of other people's packages and of generated import lists.
SKIPPED_FOLDERS = frozenset(
    {"__pycache__", "_api", "dist-packages", "idle_test", "site-packages", "test", "tests"}
)
# A sentence with one of these gives its library away by a word; the task would be grep's.
GIVEAWAYS = re.compile(r"python|numpy|keras|tensorflow|\b(?:np|tf|tensors?)\b", re.I)


@dataclass(frozen=True)
class Document:
    """Sentences that follow each other in one source file.

    Attributes:
        library: name under which the package was asked for, "numpy".
        source_path: path of the file inside its library's folder, with "/".
        sentences: 2 or more, in the order of the file, without those already seen elsewhere.
    """

    library: str
    source_path: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class CorpusSummary:
    """What was written: counts over both files, and the held-out file's own."""

    num_documents: int
    num_sentences: int
    num_bytes: int
    num_held_out_documents: int
    num_held_out_sentences: int


@dataclass(frozen=True)
class ClassificationSummary:
    """What was written: the labels, and the rows per label in each file."""

    labels: tuple[str, ...]
    num_train_per_library: int
    num_dev_per_library: int


# ---- Collecting --------------------------------------------------------------------------------


def default_packages() -> dict[str, tuple[str, ...]]:
    """The standard library, NumPy, Keras and TensorFlow, by the names of their documents."""
    keras = ["keras"]
    # TensorFlow still carries an older copy of Keras: the text is Keras's.
    older_keras = package_root("tensorflow") / "python" / "keras"
    if older_keras.is_dir():
        keras.append(str(older_keras))
    return {
        "python": (sysconfig.get_paths()["stdlib"],),
        "numpy": ("numpy",),
        "keras": tuple(keras),
        "tensorflow": ("tensorflow",),
    }


def package_root(name: str) -> Path:
    """The folder (or single file) of an installed package or of one of its subpackages.

    Args:
        name: "numpy", "numpy.linalg", or a path with a separator in it, which is returned.

    Raises:
        ValueError: there is neither such a package nor such a path.
    """
    if os.sep in name or name.startswith("."):
        root = Path(name)
    else:
        top, *parts = name.split(".")
        spec = importlib.util.find_spec(top)  # finds a top-level package without importing it
        locations = list(spec.submodule_search_locations or ()) if spec else []
        if locations:
            root = Path(locations[0], *parts)
        else:
            root = Path(spec.origin) if spec and spec.origin and not parts else Path(name)
    if not root.exists():
        raise ValueError(
            f"Documentation of {name!r} was asked for, but there is no such installed package and "
            f"no such path. Install it (pip install {name.split('.')[0]}) or leave it out."
        )
    return root


def collect_documents(
    packages: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[Document]:
    """Reads the documentation in the source files of installed packages.

    Files are read in the order of `packages` and then of their paths, so that two runs on one
    machine are equal. A sentence is kept where it comes first; differences of case, digits and
    punctuation do not count. Files that cannot be parsed are passed over.

    Args:
        packages: name of the library -> names of packages ("numpy", "numpy.linalg") or paths.
            Default: `default_packages()`. A folder that is named for one library is left out of
            another's that contains it.

    Yields:
        Documents of 2 or more sentences.

    Raises:
        ValueError: a package is not installed.
    """
    packages = default_packages() if packages is None else packages
    roots = {library: [package_root(n) for n in names] for library, names in packages.items()}
    claimed = {root for library_roots in roots.values() for root in library_roots}
    seen_strings: set[str] = set()
    seen_sentences: set[str] = set()
    for library, library_roots in roots.items():
        for root in library_roots:
            for path in _source_files(root, claimed - {root}):
                relative = path.relative_to(root if root.is_dir() else root.parent).as_posix()
                sentences: list[str] = []
                for text in _documentation_strings(path):
                    if text in seen_strings:
                        continue
                    seen_strings.add(text)
                    for sentence in sentences_of(text):
                        key = _NOT_LETTERS.sub(" ", sentence.lower())
                        if key not in seen_sentences:
                            seen_sentences.add(key)
                            sentences.append(sentence)
                    if len(sentences) >= MAX_SENTENCES_PER_DOCUMENT:
                        yield Document(library, relative, tuple(sentences))
                        sentences = []
                if len(sentences) >= 2:
                    yield Document(library, relative, tuple(sentences))


_NOT_LETTERS = re.compile(r"[\W\d_]+")


def _source_files(root: Path, claimed: set[Path]) -> Iterator[Path]:
    """Source and documentation files below `root`, sorted, without tests and `claimed` folders."""
    if root.is_file():
        yield root
        return
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(
            name
            for name in subfolders
            if name not in SKIPPED_FOLDERS and Path(folder, name) not in claimed
        )
        for name in sorted(names):
            is_test = name.endswith("_test.py") or name.startswith("test_")
            if name.endswith((".py", ".rst", ".md")) and not is_test:
                yield Path(folder, name)


def _documentation_strings(path: Path) -> list[str]:
    """The documentation strings of one file, in the order of its lines."""
    content = path.read_bytes()
    if path.suffix != ".py":
        return [content.decode("utf-8", errors="ignore")]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other people's invalid escapes are not the reader's
            tree = ast.parse(content)
    except (SyntaxError, ValueError):  # a template, or another version's syntax
        return []
    docstrings: set[int] = set()
    in_f_strings: set[int] = set()
    strings = []
    for node in ast.walk(tree):  # parents come before their children
        if isinstance(node, ast.Expr):
            docstrings.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            in_f_strings.update(id(value) for value in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_long = len(node.value) >= MIN_CHARACTERS_OF_OTHER_STRINGS
            if id(node) in docstrings or (is_long and id(node) not in in_f_strings):
                strings.append((node.lineno, node.col_offset, node.value))
    return [text for _, _, text in sorted(strings)]


# ---- Writing -----------------------------------------------------------------------------------


def split_documents(
    documents: Iterable[Document], held_out_every: int = 10
) -> tuple[list[Document], list[Document]]:
    """(documents to train on, documents held out), never two of one source file on both sides.

    In each library the last of every `held_out_every` source files is held out.
    """
    if held_out_every < 2:
        raise ValueError(
            f"`held_out_every` is {held_out_every}, but must be 2 or more: at 1 nothing would be "
            "left to train on."
        )
    train: list[Document] = []
    held_out: list[Document] = []
    file_numbers: dict[str, dict[str, int]] = defaultdict(dict)
    for document in documents:
        files = file_numbers[document.library]
        number = files.setdefault(document.source_path, len(files) + 1)
        (held_out if number % held_out_every == 0 else train).append(document)
    return train, held_out


def write_corpus(
    documents: Iterable[Document],
    train_file: str | os.PathLike,
    held_out_file: str | os.PathLike,
    held_out_every: int = 10,
) -> CorpusSummary:
    """Writes the input of create_pretraining_data: a sentence per line, a blank line per document.

    Args:
        documents: from `collect_documents`.
        train_file, held_out_file: paths; each appears complete or not at all.
        held_out_every: see `split_documents`.
    """
    train, held_out = split_documents(documents, held_out_every)
    num_bytes = 0
    for path, part in ((train_file, train), (held_out_file, held_out)):
        text = "\n".join("\n".join(document.sentences) + "\n" for document in part)
        write_text(path, text)
        num_bytes += len(text.encode("utf-8"))
    return CorpusSummary(
        num_documents=len(train) + len(held_out),
        num_sentences=sum(len(document.sentences) for document in [*train, *held_out]),
        num_bytes=num_bytes,
        num_held_out_documents=len(held_out),
        num_held_out_sentences=sum(len(document.sentences) for document in held_out),
    )


def write_classification_data(
    documents: Iterable[Document],
    train_file: str | os.PathLike,
    dev_file: str | os.PathLike,
    num_train_per_library: int = 3000,
    num_dev_per_library: int = 250,
    min_words: int = 8,
    giveaways: re.Pattern[str] = GIVEAWAYS,
    held_out_every: int = 10,
    seed: int = 12345,
) -> ClassificationSummary:
    """Writes the task "which library does this sentence document?" as train.tsv and dev.tsv.

    Both files have the columns `sentence` and `label` and the same number of rows per library: the
    number asked for, or what the library with the fewest usable sentences has. The dev sentences
    come from the source files that `write_corpus` holds out with the same `held_out_every`.

    Args:
        documents: from `collect_documents`.
        train_file, dev_file: paths; each appears complete or not at all.
        num_train_per_library, num_dev_per_library: most rows per label.
        min_words: shorter sentences say too little to be judged.
        giveaways: sentences in which it is found are left out.
        held_out_every: see `split_documents`.
        seed: of the choice of sentences and of their order.

    Raises:
        ValueError: a library has no usable sentence for one of the files.
    """
    parts = split_documents(documents, held_out_every)
    labels = list(dict.fromkeys(document.library for part in parts for document in part))
    rng = random.Random(seed)
    nums_rows = []
    for path, part, num_rows in zip(
        (train_file, dev_file), parts, (num_train_per_library, num_dev_per_library), strict=True
    ):
        usable: dict[str, list[str]] = {label: [] for label in labels}
        for document in part:
            usable[document.library] += (
                sentence
                for sentence in document.sentences
                if len(sentence.split()) >= min_words and not giveaways.search(sentence)
            )
        counts = {label: len(sentences) for label, sentences in usable.items()}
        num_rows = min([num_rows, *counts.values()])
        if not counts or num_rows < 1:
            raise ValueError(
                f"{os.fspath(path)}: every library needs a usable sentence here, but the numbers "
                f"are {counts}. Collect more files per library than `held_out_every` = "
                f"{held_out_every}, or lower `min_words` = {min_words}."
            )
        rows = [(s, label) for label in labels for s in rng.sample(usable[label], num_rows)]
        rng.shuffle(rows)
        write_text(path, "sentence\tlabel\n" + "".join(f"{s}\t{label}\n" for s, label in rows))
        nums_rows.append(num_rows)
    return ClassificationSummary(tuple(labels), *nums_rows)


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
