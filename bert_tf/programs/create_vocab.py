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

import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.files import check_writable
from bert_tf.data.globs import check_not_an_input, check_not_read_again, expand_files
from bert_tf.data.lines import read_lines
from bert_tf.model_files import model_files, write_files
from bert_tf.options import Options, option
from bert_tf.pretraining.corpus_sample import sample_lines
from bert_tf.pretraining.lost_letters import warn_of_lost_letters
from bert_tf.pretraining.settings import errors_option, naming_errors_flag
from bert_tf.pretraining.wordpieces import (
    MAX_WORDS,
    NUM_UNUSED_TOKENS,
    Coverage,
    count_characters,
    count_words,
    learn_wordpieces,
    measure_coverage,
)
from bert_tf.training.progress import ByteProgress, Progress, duration

logger = logging.getLogger(__name__)

_LONG_LINE = 1_000_000  # characters; longer lines are hardly text


@dataclass(frozen=True, kw_only=True)
class VocabularyOptions(Options):
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
    round_up_to: int = option(
        "Raise the vocabulary's size to a multiple of this, for example 64.", default=1, min=1
    )
    do_lower_case: bool = option(
        "Lower-case the text: True for uncased models, False for cased ones.",
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
    min_frequency: int = option("Pieces that occur less often are not learned.", default=2, min=1)
    model_size: str = option(
        "Size in bert_config.json: tiny, mini, small, medium, base or large.", default="base"
    )
    num_unused_tokens: int = option(
        "Rows kept free for tokens of one's own: [unused0] to [unused98] before [UNK], the others "
        "after [MASK].",
        default=NUM_UNUSED_TOKENS,
        min=99,
        hint=": [UNK] has the id 100 in every published model, and [PAD] is 0.",
    )
    max_words: int = option(
        "Most distinct words in memory, about 600 bytes each; beyond it the rarest are dropped.",
        default=MAX_WORDS,
        min=1,
    )
    errors: str = errors_option()
    overwrite: bool = option("Replace an existing vocabulary in the folder.", default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_unused_tokens >= self.vocab_size:
            raise ValueError(
                f"num_unused_tokens is {self.num_unused_tokens}, but must be below vocab_size, "
                f"{self.vocab_size}, which includes them."
            )
        try:
            BertConfig.from_name(self.model_size, vocab_size=self.vocab_size)
        except ValueError as error:
            raise ValueError(f"model_size: {error}") from error


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
    """Learn a WordPiece vocabulary and write it with the configuration of a model.

    Raises:
        ValueError: the folder has a vocabulary, belongs to the input or cannot be written to, or a glob
            matches nothing. A text is not UTF-8 (the message has file and byte offset). The corpus has
            no text, or does not yield a vocabulary of that size.
    """
    start = time.monotonic()
    vocab_file = os.path.join(options.output_dir, "vocab.txt")
    config_file = os.path.join(options.output_dir, "bert_config.json")
    case_file = os.path.join(options.output_dir, "tokenizer_config.json")
    for file in (vocab_file, config_file, case_file):
        if tf.io.gfile.exists(file) and not options.overwrite:
            raise ValueError(
                f"{file} exists, and models trained with it are useless without it. Choose "
                "another output_dir, or pass `overwrite` to replace it."
            )
    files = expand_files(options.input_file, folders=True)
    check_not_an_input((vocab_file, config_file, case_file), files, "output_dir")
    check_not_read_again((vocab_file, config_file, case_file), options.input_file, "output_dir")
    check_writable(options.output_dir)
    sample = sample_lines(files, options.errors)
    if options.do_lower_case:
        warn_of_lost_letters(sample)

    lines = _lines_with_warnings(files, options.errors)
    counts = count_words(lines, options.do_lower_case, max_words=options.max_words)
    if not counts:
        raise ValueError(f"There is no text in {', '.join(files)}.")
    vocab_size = -(-options.vocab_size // options.round_up_to) * options.round_up_to
    progress = _LearningProgress()
    try:
        tokens = learn_wordpieces(
            counts,
            vocab_size,
            character_coverage=options.character_coverage,
            min_frequency=options.min_frequency,
            num_unused_tokens=options.num_unused_tokens,
            on_progress=progress,
        )
    except ValueError as error:
        if options.round_up_to == 1:
            raise
        raise ValueError(
            f"{error} Any size is raised to a multiple of round_up_to={options.round_up_to}."
        ) from error
    progress.finish()

    config = BertConfig.from_name(options.model_size, vocab_size=len(tokens))
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


def _lines_with_warnings(files: Sequence[str], errors: str) -> Iterator[str]:
    """Yield the lines of the corpus, with warnings about empty files, long lines and bad bytes."""
    for file in files:
        if not tf.io.gfile.stat(file).length:
            logger.warning("%s is empty.", file)
    num_long = num_replaced = 0
    with naming_errors_flag():
        for line in corpus_lines(files, "count words", errors):
            if len(line) > _LONG_LINE:
                num_long += 1
                if num_long == 1:
                    logger.warning(
                        "A line of %s characters, which begins %r, is counted like any other. Is "
                        "this text?",
                        f"{len(line):,}",
                        line[:40],
                    )
            if errors == "replace" and "\ufffd" in line:
                num_replaced += 1
            yield line
    if num_long > 1:
        logger.warning("%s lines have more than %s characters.", f"{num_long:,}", f"{_LONG_LINE:,}")
    if num_replaced:
        logger.warning("In %s lines, bytes that are not UTF-8 were left out.", f"{num_replaced:,}")


class _LearningProgress:
    """Progress in pieces learned. The first call has the number wanted."""

    def __init__(self) -> None:
        self._progress: Progress | None = None

    def __call__(self, done: int, total: int) -> None:
        if self._progress is None:
            self._progress = Progress("learn", total, unit="pieces")
        self._progress.update(min(done, total - 1))

    def finish(self) -> None:
        if self._progress is not None:
            self._progress.update(self._progress.total)


def corpus_lines(files: Sequence[str], label: str, errors: str = "strict") -> Iterator[str]:
    """Yield the lines of all files, with progress in megabytes; `errors` as in `read_lines`."""
    total = sum(tf.io.gfile.stat(file).length for file in files)
    progress = ByteProgress(label, total)
    num_characters = 0
    for file in files:
        for line in read_lines(file, errors):
            yield line
            num_characters += len(line) + 1
            # An estimate: gzip files and other scripts have more or fewer bytes than characters.
            progress.update(min(num_characters, total - 1))
    progress.update(total)
