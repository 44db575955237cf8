"""Messages of errors: flags on the command line, parameters in Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

# A flag begins a word ("models--google--bert" is a folder) and does not end with a punctuation mark.
_FLAG = re.compile(r"(?<![\w-])--(\w+(?:=\S*[^\s,;:.)])?)")


@contextmanager
def naming_parameters() -> Iterator[None]:
    """Name parameters instead of flags in the errors of the block; also a decorator of a function.

    >>> with naming_parameters():
    ...     raise ValueError("--top_k is 0, but must be 1 or more. Use --top_k=5.")
    Traceback (most recent call last):
    ValueError: `top_k` is 0, but must be 1 or more. Use `top_k=5`.
    >>> with naming_parameters():
    ...     raise ValueError("models--org--bert has no vocabulary (--vocab_file=a/vocab.txt).")
    Traceback (most recent call last):
    ValueError: models--org--bert has no vocabulary (`vocab_file=a/vocab.txt`).
    """
    try:
        yield
    except (ValueError, TypeError) as error:
        if len(error.args) == 1 and isinstance(error.args[0], str):
            error.args = (_FLAG.sub(r"`\1`", error.args[0]),)
        raise
