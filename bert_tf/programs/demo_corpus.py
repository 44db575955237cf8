"""Corpus of real English on every machine with this package: docstrings of installed packages.

The quickstart learns a vocabulary and pre-trains on the docstrings of the standard library, NumPy,
Keras and TensorFlow. It then fine-tunes on a question about the same text: which library does this
sentence document?

    source files -> docstrings (ast.get_docstring) -> sentences -> documents
        -> write_corpus: one sentence per line, a blank line between documents
        -> write_classification_data: train.tsv and dev.tsv with the columns sentence, label

The packages are found by their import specification and parsed. None is imported.
"""

from __future__ import annotations

import ast
import importlib.util
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

SENTENCES_PER_DOCUMENT = 50  # longer files become several documents
HELD_OUT_EVERY = 8  # the last of eight source files of a library is held out
MIN_WORDS = 8  # of a sentence to classify
# Folders of tests, of other packages and of generated import lists.
SKIPPED_FOLDERS = {"__pycache__", "_api", "dist-packages", "site-packages", "test", "tests"}
# Words that name a library: the classification task would be too easy.
GIVEAWAYS = re.compile(r"python|numpy|keras|tensorflow|\b(?:np|tf|tensors?)\b", re.I)

# A sentence begins a line or follows a colon or another sentence. It consists of 4 to 60 words, names
# or numbers, with the punctuation of prose, so no line of code matches.
_WORD = r"[\"'(]*(?:[A-Za-z]\w*(?:['.-]\w+)*|\d+)[\"')]*[,;]?"
_SENTENCE = re.compile(
    r"(?:^[ ]*(?:- )?|(?<=[.!?:])\s+)((?:[A-Z]|(?<=: )[a-z])[a-z'-]*,?"
    rf"(?:\s+{_WORD}){{3,59}}(?<!e\.g)(?<!i\.e)[.!?])(?=\s|$)",
    re.M,
)
_CODE_BLOCK = re.compile(r"```.*?```", re.S)
_PARAGRAPH_END = re.compile(r"\n\s*\n")


@dataclass(frozen=True)
class Document:
    """Consecutive sentences of one source file.

    Attributes:
        library: name of the package, "numpy".
        source_path: path of the file inside its package, with "/".
        sentences: 2 or more, without those of earlier documents.
    """

    library: str
    source_path: str
    sentences: tuple[str, ...]


def sentences_of(docstring: str) -> list[str]:
    """Return the English sentences of a docstring, each on one line.

    >>> sentences_of("Sums up.\\n\\nArgs:\\n  axis: The axis to sum along, `int`.\\n\\n>>> f(3)\\n7")
    ['The axis to sum along, int.']
    """
    sentences: list[str] = []
    for paragraph in _PARAGRAPH_END.split(_CODE_BLOCK.sub("\n\n", docstring)):
        if ">>>" not in paragraph:
            found = _SENTENCE.findall(re.sub("[`*]", "", paragraph))
            sentences += (" ".join(text.split()) for text in found)
    return [text[0].upper() + text[1:] for text in sentences]


def default_folders() -> dict[str, Sequence[Path]]:
    """Return the folders of the standard library, NumPy, Keras and TensorFlow."""

    def package(name: str) -> Path:
        spec = importlib.util.find_spec(name)
        return Path(spec.submodule_search_locations[0]) if spec else Path(name)

    tensorflow = package("tensorflow")
    return {
        "python": (Path(sysconfig.get_paths()["stdlib"]),),
        "numpy": (package("numpy"),),
        "keras": (package("keras"), tensorflow / "python" / "keras"),  # an older copy
        "tensorflow": (tensorflow,),
    }


def collect_documents(folders: Mapping[str, Sequence[Path]] | None = None) -> Iterator[Document]:
    """Yield the sentences of the docstrings below `folders`, in the order of the paths.

    Each sentence is kept where it comes first. Files that cannot be parsed are skipped.

    Args:
        folders: name of a library -> its folders. Default: `default_folders()`.
    """
    seen: set[str] = set()
    for library, roots in (default_folders() if folders is None else folders).items():
        for root in roots:
            for path in _source_files(root):
                texts = [
                    text for docstring in _docstrings(path) for text in sentences_of(docstring)
                ]
                new = [text for text in dict.fromkeys(texts) if text.lower() not in seen]
                seen.update(text.lower() for text in new)
                for start in range(0, len(new), SENTENCES_PER_DOCUMENT):
                    sentences = tuple(new[start : start + SENTENCES_PER_DOCUMENT])
                    if len(sentences) >= 2:
                        yield Document(library, path.relative_to(root).as_posix(), sentences)


def _source_files(root: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(set(subfolders) - SKIPPED_FOLDERS)
        for name in sorted(names):
            if name.endswith(".py") and not name.startswith("test_"):
                yield Path(folder, name)


def _docstrings(path: Path) -> list[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the files of others
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # a template, or the syntax of another version
        return []
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, documented)]
    nodes.sort(key=lambda node: getattr(node, "lineno", 0))  # a module has no line
    return [text for text in map(ast.get_docstring, nodes) if text]


def split_documents(documents: Iterable[Document]) -> tuple[list[Document], list[Document]]:
    """Return the documents to train on and those held out, which come from other source files."""
    train: list[Document] = []
    held_out: list[Document] = []
    numbers: dict[str, dict[str, int]] = defaultdict(dict)
    for document in documents:
        files = numbers[document.library]
        number = files.setdefault(document.source_path, len(files) + 1)
        (train if number % HELD_OUT_EVERY else held_out).append(document)
    return train, held_out


def write_corpus(documents: Iterable[Document], path: str | os.PathLike) -> None:
    """Write the input of create_pretraining_data: a sentence per line, documents apart."""
    write_text(path, "\n".join("\n".join(document.sentences) + "\n" for document in documents))


def write_classification_data(
    documents: Iterable[Document], path: str | os.PathLike, num_per_library: int, seed: int = 12345
) -> None:
    """Write rows of the columns `sentence` and `label`, the same number for each library.

    Args:
        documents: of all libraries.
        path: of a .tsv file.
        num_per_library: most rows of a label. The library with the fewest sentences may limit it.
        seed: of the choice and the order of the rows.

    Raises:
        ValueError: a library has no sentence of `MIN_WORDS` words without `GIVEAWAYS`.
    """
    usable: dict[str, list[str]] = defaultdict(list)
    for document in documents:
        usable[document.library] += (
            sentence
            for sentence in document.sentences
            if len(sentence.split()) >= MIN_WORDS and not GIVEAWAYS.search(sentence)
        )
    counts = {library: len(sentences) for library, sentences in usable.items()}
    num_rows = min([num_per_library, *counts.values()])
    if not counts or num_rows < 1:
        raise ValueError(
            f"{os.fspath(path)} needs sentences of {MIN_WORDS} or more words from every library, but "
            f"their numbers are {counts}. The Python source files of the packages must be installed."
        )
    rng = random.Random(seed)
    rows = [(text, label) for label in usable for text in rng.sample(usable[label], num_rows)]
    rng.shuffle(rows)
    write_text(path, "sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
