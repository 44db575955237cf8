"""prepare_corpus: WikiExtractor's output or plain text to one sentence per line.

An empty line follows each document. create_vocab and create_pretraining_data read this.
"""

from __future__ import annotations

import gzip
import itertools
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from bert_tf.data.files import remove_file, whole_file
from bert_tf.data.globs import check_not_an_input, check_not_read_again, expand_files
from bert_tf.data.lines import read_lines, with_line_feeds
from bert_tf.options import Options, option
from bert_tf.pretraining.sentences import SPLITTERS, make_splitter
from bert_tf.pretraining.settings import errors_option, naming_errors_flag
from bert_tf.pretraining.wikipedia import FORMATS, read_paragraphs
from bert_tf.training.progress import ByteProgress, duration

logger = logging.getLogger(__name__)

_BUFFER_CHARACTERS = 1 << 20
# Assumed compression of a .gz file before the first one is read.
_GZIP_RATIO = 3.0


@dataclass(frozen=True, kw_only=True)
class CorpusPreparationOptions(Options):
    """Options of `prepare_corpus`.

    Raises:
        ValueError: a value is out of its range.
    """

    input_file: str = option(
        "WikiExtractor's output or UTF-8 text, plain or gzip: a comma list of files, globs or folders.",
        group="Data",
    )
    output_file: str = option(
        "Text to write: one sentence per line. Compressed if it ends in .gz.", group="Data"
    )
    input_format: str = option(
        "wikiextractor (<doc>), json (WikiExtractor --json), plain (a paragraph per line, an empty line "
        "between documents), or auto: detected from the first line of each file.",
        group="Data",
        default="auto",
        choices=("auto", *FORMATS),
    )
    splitter: str = option(
        "Splitter into sentences: rules (built in), or sentencex (pip install -e '.[sentences]').",
        default="rules",
        choices=SPLITTERS,
    )
    language: str = option(
        "ISO code of the text's language, for --splitter=sentencex.", default="en"
    )
    keep_headings: bool = option(
        "Keep the headings of Wikipedia; BERT was trained without. Headings are guessed: short "
        "paragraphs with at most a full stop at the end.",
        default=False,
    )
    min_sentence_chars: int = option(
        "Leave out sentences with fewer letters and digits than this.", default=1, min=0
    )
    shard_bytes: int = option(
        "Begin another file (name-00000.txt, name-00001.txt, ...) at the first end of a document after "
        "this many bytes of text; 0 writes one file.",
        default=0,
        min=0,
    )
    errors: str = errors_option()
    overwrite: bool = option("Replace existing output.", default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.language != "en" and self.splitter == "rules":
            raise ValueError(
                f"language={self.language} has no effect with splitter=rules, which are the same for "
                "every language. Give splitter=sentencex, or omit it."
            )
        if self.keep_headings and self.input_format == "plain":
            raise ValueError(
                "keep_headings has no effect with input_format=plain, where no line counts as a "
                "heading. Omit it."
            )


@dataclass(frozen=True)
class CorpusSummary:
    """Output of `prepare_corpus`."""

    output_files: tuple[str, ...]
    num_documents: int  # with a sentence
    num_sentences: int
    num_words: int  # between spaces
    num_bytes: int  # of text, before compression
    num_paragraphs: int  # read, titles and headings included
    num_titles: int
    num_headings: int  # left out
    num_short_sentences: int  # left out
    seconds: float

    def __str__(self) -> str:
        first, *others = self.output_files
        files = f"{first} and {len(others)} more" if others else first
        megabytes = self.num_bytes / 1e6
        left_out = (self.num_titles + self.num_headings) / max(1, self.num_paragraphs)
        return (
            f"{self.num_documents:,} documents with {self.num_sentences:,} sentences, "
            f"{self.num_words:,} words between spaces, {megabytes:,.1f} MB to {files}, "
            f"in {duration(self.seconds)} ({megabytes / max(self.seconds, 1e-9):,.1f} MB/s). Left out: "
            f"{left_out:.1%} of {self.num_paragraphs:,} lines ({self.num_titles:,} titles, "
            f"{self.num_headings:,} headings) and {self.num_short_sentences:,} short sentences"
        )


def prepare_corpus(options: CorpusPreparationOptions) -> CorpusSummary:
    """Write the sentences of a corpus, one per line.

    One line and a megabyte of output are in memory.

    Raises:
        ImportError: the splitter is not installed.
        ValueError: the output exists or would be an input, a glob matches nothing, a text is not UTF-8
            or not in its format, or the corpus has no sentence.
    """
    started = time.monotonic()
    split = make_splitter(options.splitter, options.language)
    files = expand_files(options.input_file, folders=True)
    old_outputs = _check_output(options, files)

    dropped = {"title"} if options.keep_headings else {"title", "heading"}
    counts: Counter[str] = Counter()
    source = _Input(files, options.errors)
    with _Output(options.output_file, options.shard_bytes) as output:
        for file in files:
            for kind, text in read_paragraphs(source.lines(file), file, options.input_format):
                if kind == "end":
                    output.end_document()
                    continue
                counts["paragraph"] += 1
                if kind in dropped:
                    counts[kind] += 1
                    continue
                for sentence in split(text):
                    if _has_characters(sentence, options.min_sentence_chars):
                        words = sentence.split()
                        counts["word"] += len(words)
                        output.write_sentence(" ".join(words))
                    else:
                        counts["short"] += 1
        source.finish()
        if not output.num_sentences:
            raise ValueError(f"There is no sentence in {', '.join(files)}.")
    for file in set(old_outputs) - set(output.files):
        remove_file(file)  # shards of an earlier run that had more of them

    summary = CorpusSummary(
        output_files=tuple(output.files),
        num_documents=output.num_documents,
        num_sentences=output.num_sentences,
        num_words=counts["word"],
        num_bytes=output.num_bytes,
        num_paragraphs=counts["paragraph"],
        num_titles=counts["title"],
        num_headings=counts["heading"],
        num_short_sentences=counts["short"],
        seconds=time.monotonic() - started,
    )
    logger.info("Wrote %s.", summary)
    return summary


def _has_characters(sentence: str, minimum: int) -> bool:
    return sum(1 for _ in itertools.islice(filter(str.isalnum, sentence), minimum)) == minimum


# Output


class _Output:
    """One text file or several, which get their names together at the end.

    The context manager names them ".tmp" until the block ends. An exception removes them.
    """

    def __init__(self, path: str, shard_bytes: int) -> None:
        self.files: list[str] = []
        self.num_documents = self.num_sentences = self.num_bytes = 0
        self._path = path
        self._shard_bytes = shard_bytes
        self._shard_start = 0  # `num_bytes` at the beginning of the file
        self._is_open = False  # True if the document has a sentence
        self._lines: list[str] = []  # not yet written
        self._num_characters = 0  # in them
        self._names = ExitStack()  # renames the files
        self._stack = ExitStack()
        self._file: Any = None

    def __enter__(self) -> _Output:
        tf.io.gfile.makedirs(os.path.dirname(self._path) or ".")
        return self

    def __exit__(self, exception_type, exception, _) -> None:
        with self._names, self._stack:
            if exception is not None:
                raise exception
            self._flush()

    def write_sentence(self, sentence: str) -> None:
        if self._file is None:
            self._open()
        self._lines.append(sentence)
        self._num_characters += len(sentence)
        self._is_open = True
        self.num_sentences += 1
        if self._num_characters >= _BUFFER_CHARACTERS:
            self._flush()

    def end_document(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self.num_documents += 1
        self._lines.append("")
        if self._shard_bytes:
            self._flush()
            if self.num_bytes - self._shard_start >= self._shard_bytes:
                self._close()

    def _open(self) -> None:
        file = self._path
        if self._shard_bytes:
            file = _shard_name(file, len(self.files))
        self.files.append(file)
        self._shard_start = self.num_bytes
        # The lock of the first file is that of all, because a process may have few files open.
        name = self._names.enter_context(whole_file(file, lock=len(self.files) == 1))
        mode = "ab" if name == file else "wb"  # as in `files.open_whole`
        self._file = self._stack.enter_context(tf.io.gfile.GFile(name, mode))
        if file.endswith(".gz"):
            # Without name and time, so that the same text makes the same file.
            zipped = gzip.GzipFile("", "wb", compresslevel=6, fileobj=self._file, mtime=0)
            self._file = self._stack.enter_context(zipped)

    def _flush(self) -> None:
        if self._lines:
            data = ("\n".join(self._lines) + "\n").encode()
            self._file.write(data)
            self.num_bytes += len(data)
            self._lines.clear()
            self._num_characters = 0

    def _close(self) -> None:
        self._flush()
        self._stack.close()
        self._file = None


def _shard_name(path: str, number: int) -> str:
    """ "wiki.txt.gz" -> "wiki-00000.txt.gz"."""
    root, extension = _root_and_extension(path)
    return f"{root}-{number:05d}{extension}"


def _root_and_extension(path: str) -> tuple[str, str]:
    zipped = ".gz" if path.endswith(".gz") else ""
    root, extension = os.path.splitext(path.removesuffix(zipped))
    return root, extension + zipped


def _check_output(options: CorpusPreparationOptions, inputs: Sequence[str]) -> list[str]:
    """Return existing output, or raise if it must not be replaced."""
    existing = _existing_outputs(options)
    check_not_an_input(existing, inputs)
    first = options.output_file
    if options.shard_bytes:
        first = _shard_name(first, 0)
    check_not_read_again([first], options.input_file, "output_file")
    if existing and not options.overwrite:
        raise ValueError(
            f"{existing[0]} exists. Choose another output_file, or pass `overwrite` to replace it."
        )
    return existing


def _existing_outputs(options: CorpusPreparationOptions) -> list[str]:
    path = options.output_file
    if not options.shard_bytes and tf.io.gfile.isdir(path):
        raise ValueError(f"output_file={path} is a folder; name a file in it.")
    whole = [path] if tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path) else []
    shards = _existing_shards(path)
    existing, others = (shards, whole) if options.shard_bytes else (whole, shards)
    if others:
        logger.warning(
            "%s exists, perhaps from a run %s shard_bytes. This run leaves it as it is, and a glob "
            "of both reads text twice. In that case remove %s, or name another output_file.",
            others[0],
            "without" if options.shard_bytes else "with",
            "it" if len(others) == 1 else f"it and {len(others) - 1} more",
        )
    return existing


def _existing_shards(path: str) -> list[str]:
    folder = os.path.dirname(path)
    if not tf.io.gfile.isdir(folder or "."):
        return []
    root, extension = _root_and_extension(os.path.basename(path))
    shard = re.compile(rf"{re.escape(root)}-\d{{5,}}{re.escape(extension)}")
    names = sorted(filter(shard.fullmatch, tf.io.gfile.listdir(folder or ".")))
    return [os.path.join(folder, name) for name in names]


# Input


class _Input:
    """Lines of files, with progress in megabytes on the disk."""

    def __init__(self, files: Sequence[str], errors: str) -> None:
        self._errors = errors
        self._sizes = {file: tf.io.gfile.stat(file).length for file in files}
        self._total_size = sum(self._sizes[file] for file in files)
        self._progress = ByteProgress("read", self._total_size)
        self._shown = 0
        self._num_bytes_before = 0  # in the files that are done
        self._ratio = _GZIP_RATIO

    def lines(self, file: str) -> Iterator[str]:
        size = self._sizes[file]
        is_gzip = file.endswith(".gz")
        num_bytes = 0
        with naming_errors_flag():
            for line in with_line_feeds(read_lines(file, self._errors), file):
                yield line
                num_bytes += 1 + (len(line) if line.isascii() else len(line.encode()))
                # The position in a compressed file is estimated from the previous file.
                self._show(min(size, int(num_bytes / self._ratio) if is_gzip else num_bytes))
        if is_gzip and size:
            self._ratio = max(1.0, num_bytes / size)
        self._num_bytes_before += size

    def _show(self, position: int) -> None:
        done = self._num_bytes_before + position
        if self._shown + 1_000_000 <= done < self._total_size:
            self._shown = done
            self._progress.update(done)

    def finish(self) -> None:
        self._progress.update(self._total_size)
