"""create_vocab: a corpus -> `vocab.txt` and the `bert_config.json` of a model for it.

`tokenizer_config.json` next to them stores the case for later programs.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import tensorflow as tf

from bert_tf.checkpoints.write import model_files, write_files
from bert_tf.config import BertConfig
from bert_tf.files import check_not_an_input, expand_files, read_lines
from bert_tf.limits import DataError
from bert_tf.options import option
from bert_tf.pretraining.wordpieces import (
    Coverage,
    count_characters,
    count_words,
    learn_wordpieces,
    measure_coverage,
)
from bert_tf.training.progress import ByteProgress, Progress, duration

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class VocabularyOptions:
    """Options of `create_vocab`.

    Raises:
        ValueError: a value is out of its range.
    """

    input_file: str = option(
        "Plain UTF-8 text, or gzip of it: a comma list of files, globs or folders. A file "
        "named twice counts twice.",
        group="Data",
    )
    output_dir: str = option(
        "Folder for vocab.txt, bert_config.json and tokenizer_config.json; made if missing.",
        group="Model",
    )
    vocab_size: int = option(
        "Tokens in the vocabulary, special ones included.", group="Model", default=30522, min=1
    )
    do_lower_case: bool = option(
        "Lower-case the text and strip accents: True for uncased models, False for cased ones and for "
        "scripts such as Korean, whose letters would be taken apart.",
        group="Model",
        default=True,
    )
    character_coverage: float = option(
        "Fraction of the characters that the vocabulary contains (0-1). Words with one of the others, "
        "the rarest, become [UNK].",
        default=0.99995,
        above=0,
        max=1,
    )


@dataclass(frozen=True)
class VocabularySummary:
    """Output of `create_vocab`."""

    vocab_file: str
    config_file: str
    vocab_size: int
    num_distinct_words: int
    coverage: Coverage  # of the corpus
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.vocab_size:,} tokens to {self.vocab_file} and the matching {self.config_file} "
            f"in {duration(self.seconds)}. The corpus has {self.coverage.num_words:,} words "
            f"({self.num_distinct_words:,} different ones): {self.coverage}"
        )


def create_vocab(options: VocabularyOptions) -> VocabularySummary:
    """Learn a WordPiece vocabulary and write it with the configuration of a model of size base.

    Raises:
        ValueError: the folder has a vocabulary, or a glob matches nothing. A text is not UTF-8 (the
            message has file, line and byte offset). The corpus has no text, or does not yield a
            vocabulary of that size.
    """
    start = time.monotonic()
    vocab_file, config_file, case_file = (
        os.path.join(options.output_dir, name)
        for name in ("vocab.txt", "bert_config.json", "tokenizer_config.json")
    )
    for file in (vocab_file, config_file, case_file):
        if tf.io.gfile.exists(file):
            raise DataError(
                file, "models trained with it are useless without it: choose another output_dir."
            )
    files = expand_files(options.input_file, folders=True)
    check_not_an_input((vocab_file, config_file, case_file), files, "output_dir")
    tf.io.gfile.makedirs(options.output_dir)  # an error before the work

    counts = count_words(_corpus_lines(files), options.do_lower_case)
    progress = Progress("learn", options.vocab_size, unit="pieces")
    tokens = learn_wordpieces(
        counts,
        options.vocab_size,
        character_coverage=options.character_coverage,
        on_progress=lambda done: progress.update(min(done, options.vocab_size - 1)),
    )
    progress.update(options.vocab_size)

    config = BertConfig.from_name("base", vocab_size=len(tokens))
    # First the case, which every vocabulary needs.
    write_files(options.output_dir, model_files(do_lower_case=options.do_lower_case))
    write_files(options.output_dir, model_files(config, vocab=tokens))
    summary = VocabularySummary(
        vocab_file=vocab_file,
        config_file=config_file,
        vocab_size=len(tokens),
        num_distinct_words=len(counts),
        coverage=measure_coverage(tokens, counts),
        seconds=time.monotonic() - start,
    )
    _log_left_out(count_characters(counts), tokens, options.character_coverage)
    logger.info("Wrote %s.", summary)
    return summary


def _log_left_out(characters: Counter[str], tokens: Sequence[str], coverage: float) -> None:
    left_out = characters.keys() - set(tokens)
    if left_out:
        logger.info(
            "%s of the %s characters are left out by --character_coverage=%g. They are %.3f%% of the "
            "text, and words with them become [UNK]. --character_coverage=1 keeps all.",
            f"{len(left_out):,}",
            f"{len(characters):,}",
            coverage,
            100 * sum(characters[each] for each in left_out) / characters.total(),
        )


def _corpus_lines(files: Sequence[str]) -> Iterator[str]:
    """Yield the lines of all files, with progress in megabytes."""
    total = sum(tf.io.gfile.stat(file).length for file in files)
    progress = ByteProgress("count words", total)
    num_characters = 0
    for line in chain.from_iterable(map(read_lines, files)):
        yield line
        num_characters += len(line) + 1
        # An estimate: gzip files and other scripts have more or fewer bytes than characters.
        progress.update(min(num_characters, total - 1))
    progress.update(total)
