"""The beginning of a corpus, for checks before the long work."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from itertools import groupby, islice

from bert_tf.data.files import is_stream
from bert_tf.data.lines import read_lines, with_line_feeds
from bert_tf.pretraining.settings import RecordSettings, naming_errors_flag
from bert_tf.pretraining.wikipedia import detect_format

logger = logging.getLogger(__name__)

_FILES, _LINES, _LENGTH = 20, 200, 1_000
_WORD_LENGTH = 20  # characters; few words have more

_JSON_OBJECT = re.compile(r'\s*\{\s*"(?:[^"\\]|\\.)*"\s*:')  # its beginning
_CHINESE = re.compile("[\u3400-\u9fff\uf900-\ufaff]")  # the most frequent characters


def sample_lines(
    files: Sequence[str], errors: str = "strict", settings: RecordSettings | None = None
) -> list[str]:
    """Return the first lines of up to 20 files with one sentence per line.

    Args:
        errors: as in `read_lines`.
        settings: of records. Warns if most lines are too long for them, or most documents too short.

    Raises:
        ValueError: a line is not UTF-8. A file is a pipe, which can be read only once. It is the output
            of WikiExtractor, with its tags or JSON, or begins with another JSON object, or its lines
            end with carriage returns only.
    """
    lines: list[str] = []
    words: list[int] = []  # of each line
    for file in filter(is_stream, files):
        raise ValueError(
            f"{file} is a pipe or a device, but a corpus is read more than once. Write the text to a "
            "file first."
        )
    for file in files[:: -(-len(files) // _FILES)]:
        with naming_errors_flag():
            first_lines = list(islice(with_line_feeds(read_lines(file, errors), file), _LINES))
        found: list[str] = []
        whole_object = False
        for line in first_lines:
            if not any(found):
                whole_object = line.rstrip().endswith("}")  # and not the first line of a program
            found.append(line[:_LENGTH])
            if settings:
                words.append(_count_words(line, settings.max_seq_length))
        first = next(filter(str.strip, found), "")
        kind = detect_format(first)
        if kind == "wikiextractor" or (kind == "json" and '"text"' in first):
            raise ValueError(
                f"{file} is the output of WikiExtractor: it begins {first[:40]!r}, but a corpus has one "
                "sentence per line and an empty line between documents. Let prepare_corpus make such "
                f"a file first: input_file={file}, or the folder of all these files."
            )
        if whole_object and _JSON_OBJECT.match(first):
            raise ValueError(
                f"{file} is JSON: it begins {first[:40]!r}, but a corpus has one sentence per line and "
                'an empty line between documents. Rename the key of the texts to "text" if it has '
                f"another name, and let prepare_corpus make such a file first: input_file={file}."
            )
        lines += found
    if settings:
        _warn_of_lines(words, settings, files[0])
    return lines


def _count_words(line: str, most: int) -> int:
    """Return about the number of words and Chinese characters, each of which is a token or more.

    Args:
        most: beyond this number only whether there are more.
    """
    start = line[: _WORD_LENGTH * most]
    return len(start.split()) + len(_CHINESE.findall(start, 0, 2 * most))


def _warn_of_lines(words: Sequence[int], settings: RecordSettings, file: str) -> None:
    """Warn if lines do not seem to be sentences.

    Args:
        words: of each line of the sample.
        file: for the remedy.
    """
    filled = [number for number in words if number]
    long = sum(number > settings.max_seq_length for number in filled)
    if 2 * long > len(filled):
        logger.warning(
            "%.0f%% of the first lines have more words than --max_seq_length=%d. Each line is read as "
            "one sentence, and what exceeds this is left out of the records. Let "
            "prepare_corpus write one sentence per line first: --input_file=%s.",
            100 * long / len(filled),
            settings.max_seq_length,
            file,
        )
    documents = [len(list(group)) for has_words, group in groupby(words, bool) if has_words]
    single = documents.count(1)
    if settings.objective == "mlm_nsp" and len(documents) > 1 and 2 * single > len(documents):
        logger.warning(
            "%.0f%% of the first documents have one line, so that their next sentences are always "
            "random (next_sentence_labels 1), and next-sentence prediction learns nothing from them. If "
            "a line has several sentences, let prepare_corpus write one sentence per line first: "
            "--input_file=%s. For texts of one sentence use --objective=mlm.",
            100 * single / len(documents),
            file,
        )
