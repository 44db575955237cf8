"""Vocabularies: one WordPiece a line, whose number from 0 is its id."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable

from bert_tf.characters import lower_and_strip_accents
from bert_tf.limits import DataError, read_whole

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def load_vocab(vocab_file: str | os.PathLike, required: Collection[str] = ()) -> dict[str, int]:
    """Read a vocabulary with one token per line. The id is the line number, from 0.

    Lines end at "\\n" and are stripped as by `str.strip`, so "\\r\\n" works too. The published Chinese
    vocabulary has a line with U+2028 alone, which becomes the token "".

    Returns:
        token -> id, in the order of the ids.
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
    """Return the sha256 of tokens in the order of their ids, whatever the line ends of the file."""
    return hashlib.sha256("".join(f"{token}\n" for token in tokens).encode()).hexdigest()


def vocab_is_cased(vocab: Iterable[str]) -> bool | None:
    """Return True if a vocabulary was learned from text with upper-case letters and accents.

    Returns:
        True if at least 1 in 100 tokens with letters has an upper-case letter. False if lower-casing
        and stripping accents changes no token. Otherwise None, and also if fewer than 100 tokens have
        a letter that exists in two cases. [...] and <...> are not counted.
    """
    tokens = [t for t in vocab if not (len(t) > 2 and t[0] + t[-1] in ("[]", "<>"))]
    num_letters = sum(token.lower() != token.upper() for token in tokens)
    num_upper = sum(token.lower() != token for token in tokens)
    if num_letters < 100:
        return None
    if num_upper * 100 >= num_letters:
        return True
    return False if all(lower_and_strip_accents(token) == token for token in tokens) else None
