"""The beginning of a corpus, for checks before the long work."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from bert_tf.data.lines import read_lines, with_line_feeds
from bert_tf.pretraining.wikipedia import detect_format

_FILES, _LINES, _LENGTH = 20, 200, 1_000

_JSON_OBJECT = re.compile(r'\s*\{\s*"(?:[^"\\]|\\.)*"\s*:')  # its beginning


def sample_lines(files: Sequence[str]) -> list[str]:
    """Return the first lines of up to 20 files with one sentence per line.

    Raises:
        ValueError: a file is the output of WikiExtractor, with its tags or JSON, or begins with another
            JSON object, or its lines end with carriage returns only.
    """
    lines: list[str] = []
    for file in files[:: -(-len(files) // _FILES)]:
        whole_lines = with_line_feeds(read_lines(file, "replace"), file)
        found = [line[:_LENGTH] for line in islice(whole_lines, _LINES)]
        first = next(filter(str.strip, found), "")
        kind = detect_format(first)
        if kind == "wikiextractor" or (kind == "json" and '"text"' in first):
            raise ValueError(
                f"{file} is the output of WikiExtractor: it begins {first[:40]!r}, but a corpus has one "
                "sentence per line and an empty line between documents. Let prepare_corpus make such "
                f"a file first: input_file={file}, or the folder of all these files."
            )
        if _JSON_OBJECT.match(first):
            raise ValueError(
                f"{file} is JSON: it begins {first[:40]!r}, but a corpus has one sentence per line and "
                'an empty line between documents. Rename the key of the texts to "text" if it has '
                f"another name, and let prepare_corpus make such a file first: input_file={file}."
            )
        lines += found
    return lines
