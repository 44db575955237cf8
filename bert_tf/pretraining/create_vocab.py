"""create_vocab: a corpus -> `vocab.txt` and the `bert_config.json` of a model for it.

    lines -> count_words -> {"the": 318213, "anarchism": 104, ...} -> learn_wordpieces -> tokens

The reference has no such tool. This one repeatedly merges the most frequent pair of neighbouring pieces
(byte-pair encoding, Sennrich et al. 2016, on characters). It learns a quarter more pieces than needed
and keeps those that `WordpieceTokenizer` uses most. Merging also makes intermediate pieces such as
"##ationa", which the longest match never uses. The result depends on the counts alone.

`tokenizer_config.json` next to the vocabulary stores the case for later programs.
"""

from __future__ import annotations

import heapq
import logging
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from sys import intern
from typing import NamedTuple

import tensorflow as tf

from bert_tf.characters import is_chinese_char, is_punctuation
from bert_tf.checkpoints.write import model_files, write_files
from bert_tf.config import BertConfig
from bert_tf.files import expand_files, read_lines
from bert_tf.limits import DataError
from bert_tf.options import OptionError, option
from bert_tf.tokenization import MAX_INPUT_CHARS_PER_WORD, BasicTokenizer, WordpieceTokenizer
from bert_tf.training.progress import ByteProgress, duration

logger = logging.getLogger(__name__)

_NUM_UNUSED_TOKENS = 101  # as in the published cased model; the uncased one has 994
_UNUSED_BEFORE_UNK = 99  # in all published models, so that [UNK] is 100

MIN_FREQUENCY = 2  # pairs that occur less often are not merged
_CANDIDATES = 1.25  # pieces learned per piece of the vocabulary

Pair = tuple[str, str]  # neighbouring pieces


@dataclass(frozen=True, kw_only=True)
class VocabularyOptions:
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


class Coverage(NamedTuple):
    """Coverage of a text by a vocabulary, counted by occurrence."""

    num_words: int
    unknown_share: float  # of the words, in [0, 1]: those that become [UNK]
    pieces_per_word: float  # >= 1; [UNK] is one piece


def create_vocab(options: VocabularyOptions) -> Coverage:
    """Learn a WordPiece vocabulary and write it with the configuration of a model of size base."""
    start = time.monotonic()
    names = ("vocab.txt", "bert_config.json", "tokenizer_config.json")
    vocab_file, config_file, _ = outputs = [os.path.join(options.output_dir, n) for n in names]
    for file in outputs:
        if tf.io.gfile.exists(file):
            problem = "models trained with it are useless without it: choose another output_dir."
            raise DataError(file, problem)
    files = expand_files(options.input_file, folders=True)
    tf.io.gfile.makedirs(options.output_dir)  # an error before the work
    counts = count_words(_corpus_lines(files), options.do_lower_case)
    logger.info("Learning %d tokens from %d different words.", options.vocab_size, len(counts))
    tokens = learn_wordpieces(
        counts, options.vocab_size, character_coverage=options.character_coverage
    )
    config = BertConfig.from_name("base", vocab_size=len(tokens))
    # First the case, which every vocabulary needs.
    write_files(options.output_dir, model_files(do_lower_case=options.do_lower_case))
    write_files(options.output_dir, model_files(config, vocab=tokens))
    coverage = measure_coverage(tokens, counts)
    logger.info(
        "Wrote %s tokens to %s and the matching %s in %s. The corpus has %s words (%s different ones): "
        "%.3f pieces per word and %.3f%% unknown words.",
        *(f"{len(tokens):,}", vocab_file, config_file, duration(time.monotonic() - start)),
        *(f"{coverage.num_words:,}", f"{len(counts):,}"),
        *(coverage.pieces_per_word, 100 * coverage.unknown_share),
    )
    return coverage


def _corpus_lines(files: Sequence[str]) -> Iterator[str]:
    """Yield the lines of all files, with progress in megabytes."""
    total = sum(tf.io.gfile.stat(file).length for file in files)
    progress, num_characters = ByteProgress("count words", total), 0
    for line in chain.from_iterable(map(read_lines, files)):
        yield line
        num_characters += len(line) + 1
        # An estimate: gzip files and other scripts have more or fewer bytes than characters.
        progress.update(min(num_characters, total - 1))
    progress.update(total)


def first_tokens() -> list[str]:
    """Return the tokens before the characters, with the ids of the published models."""
    unused = [f"[unused{number}]" for number in range(_NUM_UNUSED_TOKENS)]
    before, after = unused[:_UNUSED_BEFORE_UNK], unused[_UNUSED_BEFORE_UNK:]
    return ["[PAD]", *before, "[UNK]", "[CLS]", "[SEP]", "[MASK]", *after]


def count_words(
    lines: Iterable[str],
    do_lower_case: bool = True,
    *,
    max_words: int = 1_000_000,
    max_chunks: int = 500_000,
) -> Counter[str]:
    """Count each word of `lines`, split like `BasicTokenizer`.

    To bound the memory, the rarest words are dropped above `max_words` distinct ones, until half of it
    is left. Counts of rare words are then a little too low.

    Args:
        max_words: about 100 bytes each, and 500 to learn.

    Returns:
        word -> count. Words are truncated one character above the tokenizer's limit.
    """
    tokenizer = BasicTokenizer(do_lower_case=do_lower_case)
    words: Counter[str] = Counter()
    # The tokenizer splits at spaces first, so each stretch between spaces is split only once.
    chunks: Counter[str] = Counter()

    def split_chunks() -> None:
        for chunk, count in chunks.items():
            for word in tokenizer.tokenize(chunk):
                words[word[: MAX_INPUT_CHARS_PER_WORD + 1]] += count
        chunks.clear()
        if len(words) > max_words:
            min_count = 1
            while len(words) > max_words // 2:
                min_count += 1
                for word in [word for word, count in words.items() if count < min_count]:
                    del words[word]
            logger.info("Forgot the words that were seen less than %d times.", min_count)

    for line in lines:
        # `str.split` splits at a few control characters that the tokenizer deletes.
        chunks.update(line.split() if line.isprintable() else tokenizer.tokenize(line))
        if len(chunks) > max_chunks:
            split_chunks()
    split_chunks()
    return words


def learn_wordpieces(
    counts: Mapping[str, int],
    vocab_size: int,
    *,
    character_coverage: float = 0.99995,
) -> list[str]:
    """Learn a whole vocabulary, a token per id.

    Args:
        counts: word -> count, from `count_words`.
        character_coverage: fraction in (0, 1] of all characters that the vocabulary contains. The
            rarest are left out, and words with them become [UNK].

    Returns:
        `first_tokens`; the characters; those that can continue a word, as "##a"; the longer pieces, the
        most used first.
    """
    counts = {
        word: count for word, count in counts.items() if len(word) <= MAX_INPUT_CHARS_PER_WORD
    }
    characters = _frequent_characters(counts, character_coverage)
    # Punctuation and ideographs are words of their own.
    continuations = [
        f"##{c}" for c in characters if not (is_punctuation(c) or is_chinese_char(ord(c)))
    ]
    fixed = [*first_tokens(), *characters, *continuations]
    num_pieces = vocab_size - len(fixed)
    known = set(characters)
    counts = {word: counts[word] for word in sorted(counts) if known.issuperset(word)}
    if num_pieces < 0:
        remedy = f"use {len(fixed)} or more, or a lower character_coverage"
        raise OptionError("vocab_size", f"{len(characters)} characters need more: {remedy}.")
    candidates = merge_pairs(counts, int(num_pieces * _CANDIDATES), MIN_FREQUENCY)
    if len(candidates) < num_pieces:
        size = len(fixed) + len(candidates)
        raise OptionError("vocab_size", f"more than the corpus yields: use {size} or less.")
    tokens = [*fixed, *candidates]
    tokenizer = WordpieceTokenizer({token: index for index, token in enumerate(tokens)})
    use: Counter[str] = Counter()
    for word, count in counts.items():
        for piece in tokenizer.tokenize(word):
            use[piece] += count
    candidates.sort(key=lambda piece: -use[piece])  # stable: earlier merges first among equals
    return fixed + candidates[:num_pieces]


def measure_coverage(tokens: Iterable[str], counts: Mapping[str, int]) -> Coverage:
    """Measure the splits that `WordpieceTokenizer` with these tokens makes of a text."""
    tokenizer = WordpieceTokenizer({token: index for index, token in enumerate(tokens)})
    num_words = num_unknown = num_pieces = 0
    for word, count in counts.items():
        pieces = tokenizer.tokenize(word)
        num_words += count
        num_pieces += count * len(pieces)
        if pieces == [tokenizer.unk_token]:
            num_unknown += count
    total = max(1, num_words)
    return Coverage(num_words, num_unknown / total, num_pieces / total)


def merge_pairs(counts: Mapping[str, int], num_pieces: int, min_frequency: int = 1) -> list[str]:
    """Merge the most frequent pair of neighbours again and again; return at most `num_pieces` new ones.

    The alphabet breaks ties. A piece of two pairs ("ab" + "##c", "a" + "##bc") counts once. Pairs below
    `min_frequency` are not merged.
    """
    words = [[intern("##" * (i > 0) + char) for i, char in enumerate(word)] for word in counts]
    known = set(chain.from_iterable(words))
    corpus = _Corpus(words, list(counts.values()))
    # Entries may be out of date. Frequencies that fell are corrected at the top of the heap. Those that
    # grew are pushed again.
    heap = [(-frequency, pair) for pair, frequency in corpus.frequency.items()]
    heapq.heapify(heap)
    pieces: list[str] = []
    while heap and len(pieces) < num_pieces:
        frequency, pair = heap[0]
        current = corpus.frequency.get(pair, 0)
        if current < min_frequency:
            heapq.heappop(heap)
        elif current != -frequency:
            heapq.heapreplace(heap, (-current, pair))
        else:
            heapq.heappop(heap)
            piece = intern(pair[0] + pair[1].removeprefix("##"))
            if piece not in known:
                known.add(piece)
                pieces.append(piece)
            for grown in corpus.merge(pair, piece):
                heapq.heappush(heap, (-corpus.frequency[grown], grown))
    return pieces


class _Corpus:
    """Words as pieces, with the frequencies of neighbours."""

    def __init__(self, words: list[list[str]], weights: Sequence[int]):
        self._words, self._weights = words, weights
        self.frequency: defaultdict[Pair, int] = defaultdict(int)
        # Pair -> indices of words that had it at some point; some have lost it since.
        self._words_with: defaultdict[Pair, list[int]] = defaultdict(list)
        for index, word in enumerate(words):
            for pair in pairwise(word):
                self.frequency[pair] += weights[index]
                self._words_with[pair].append(index)

    def merge(self, pair: Pair, merged: str) -> set[Pair]:
        """Replace a pair by one piece in all words. Return the pairs whose frequency grew."""
        grown: set[Pair] = set()
        for index in self._words_with.pop(pair):
            old, weight = self._words[index], self._weights[index]
            new = self._words[index] = _merge_in_word(old, pair, merged)
            if len(new) == len(old):
                continue
            for before in pairwise(old):
                self.frequency[before] -= weight
            for after in pairwise(new):
                self.frequency[after] += weight
                if merged in after:
                    self._words_with[after].append(index)
                    grown.add(after)
        del self.frequency[pair]
        return grown


def _merge_in_word(word: list[str], pair: Pair, merged: str) -> list[str]:
    pieces: list[str] = []
    index, (left, right) = 0, pair
    while index < len(word):
        is_pair = word[index] == left and index + 1 < len(word) and word[index + 1] == right
        pieces.append(merged if is_pair else word[index])
        index += 1 + is_pair
    return pieces


def _frequent_characters(counts: Mapping[str, int], coverage: float) -> list[str]:
    """Return the fewest characters that make up `coverage` of the text, sorted."""
    frequency: Counter[str] = Counter()
    for word, count in counts.items():
        for char in word:
            frequency[char] += count
    missing = coverage * frequency.total()
    characters = []
    for char in sorted(frequency, key=lambda char: (-frequency[char], char)):
        if missing <= 0:
            break
        characters.append(char)
        missing -= frequency[char]
    return sorted(characters)
