"""Vocabulary files: one token per line, whose number is its id.

Source: google-research/bert, tokenization.py. Unlike there, duplicate lines and bytes that are not
UTF-8 raise errors with the line number. A byte order mark is dropped.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable

from bert_tf.limits import DataError, read_whole


def load_vocab(vocab_file: str | os.PathLike, required: Collection[str] = ()) -> dict[str, int]:
    """Read a vocabulary with one token per line. The id is the line number, from 0.

    Lines end at "\\n" and are stripped as by `str.strip`, so "\\r\\n" works too. The published Chinese
    vocabulary has a line with U+2028 alone, which becomes the token "".

    Args:
        vocab_file: local path, or a remote one (`gs://...`), read through `tf.io.gfile`.
        required: tokens that the file must contain, such as `SPECIAL_TOKENS`.

    Returns:
        token -> id, in the order of the ids.

    Raises:
        ValueError: a token is duplicated, a required one is missing, or the file is not UTF-8.
    """
    name = os.fspath(vocab_file)
    data = read_whole(name)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = f"byte 0x{data[error.start]:02x} is not UTF-8: save the file as UTF-8."
        raise DataError(f"{name}:{line}", problem) from error
    lines = text.removeprefix("\ufeff").split("\n")
    if not lines[-1]:  # the empty part after the last "\n"
        lines.pop()
    vocab: dict[str, int] = {}
    for index, content in enumerate(lines):
        token = content.strip()
        first = vocab.setdefault(token, index)
        if first != index:
            problem = f"{token!r} duplicates line {first + 1}: replace it, such as by [unused0]."
            raise DataError(f"{name}:{index + 1}", problem)
    missing = [token for token in required if token not in vocab]
    if missing:
        raise DataError(name, f"{len(vocab)} tokens, but not {', '.join(missing)}.")
    return vocab


def vocabulary_digest(tokens: Iterable[str]) -> str:
    """Return the sha256 of tokens in the order of their ids, one per line.

    It does not depend on line ends, spaces, or a byte order mark in the file.
    """
    return hashlib.sha256("".join(f"{token}\n" for token in tokens).encode()).hexdigest()
