"""Reading a corpus, with progress; and what is done about bytes that are not UTF-8."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import tensorflow as tf

from bert_tf.data.lost_letters import find_lost_letters
from bert_tf.data.readers import read_lines
from bert_tf.training.progress import ByteProgress
from bert_tf.workflows.options import option

logger = logging.getLogger(__name__)

_SAMPLE_FILES, _SAMPLE_LINES, _SAMPLE_LENGTH = 20, 200, 1_000
_WORTH_SAYING = 0.01  # of all letters; a sample of English Wikipedia has less, of Korean 93 %


def errors_option() -> Any:
    """The flag `--errors` of everything that reads a corpus."""
    return option(
        "Bytes that are not UTF-8: strict stops and names them, replace puts U+FFFD there, which the "
        "tokenizer drops.",
        default="strict",
        choices=("strict", "replace"),
    )


@contextmanager
def naming_errors_flag() -> Iterator[None]:
    """Adds the remedy to the message about bytes that are not UTF-8."""
    try:
        yield
    except ValueError as error:
        if not isinstance(error.__cause__, UnicodeDecodeError):
            raise
        raise ValueError(f"{error} Or leave such bytes out: --errors=replace.") from error


def corpus_lines(files: Sequence[str], label: str, errors: str = "strict") -> Iterator[str]:
    """The lines of all files, with progress by megabytes read; `errors` as in `read_lines`."""
    total = sum(tf.io.gfile.stat(file).length for file in files)
    progress = ByteProgress(label, total)
    num_characters = 0
    for file in files:
        for line in read_lines(file, errors):
            yield line
            num_characters += len(line) + 1
            # Of gzip files and of other scripts than ours, characters are not quite bytes.
            progress.update(min(num_characters, total - 1))
    progress.update(total)


def warn_of_lost_letters(files: Sequence[str]) -> None:
    """Says so when an uncased vocabulary would change more of a corpus than its case.

    It looks at the beginnings of up to 20 files.
    """
    sample = files[:: -(-len(files) // _SAMPLE_FILES)]
    lines = (
        line[:_SAMPLE_LENGTH]
        for file in sample
        for line in islice(read_lines(file, "replace"), _SAMPLE_LINES)
    )
    lost = find_lost_letters(lines)
    if lost and lost.share >= _WORTH_SAYING:
        logger.warning(
            "--do_lower_case does more than lower-case this text: it strips accents (Unicode NFD), and "
            "%s. Words that differ only in this become one word, and answers come back in such "
            "letters. To keep them, learn the vocabulary with --do_lower_case=False; the folder "
            "of the vocabulary remembers it.",
            lost,
        )
