"""Messages of errors: flags on the command line, parameters in Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

_FLAG = re.compile(r"--(\w+(?:=[^\s,;.)]+)?)")


@contextmanager
def naming_parameters() -> Iterator[None]:
    """Name parameters instead of flags in the errors of the block; also a decorator of a function.

    >>> with naming_parameters():
    ...     raise ValueError("--top_k is 0, but must be 1 or more. Use --top_k=5.")
    Traceback (most recent call last):
    ValueError: `top_k` is 0, but must be 1 or more. Use `top_k=5`.
    """
    try:
        yield
    except (ValueError, TypeError) as error:
        if len(error.args) == 1 and isinstance(error.args[0], str):
            error.args = (_FLAG.sub(r"`\1`", error.args[0]),)
        raise
