"""A corpus of any size as groups of documents, each of which fits into memory, and their records.

A corpus is text files with one sentence per line and an empty line between documents. The end of a
file does not end a document, as in the reference. A corpus of more than `max_group_bytes` is cut at ends
of documents into groups of about the same size, which depend only on the files and on that number.

    a.txt                    b.txt
    ├──────────────┬─────────┼────┬──────────────┤
      group 0        group 1        group 2

The records of a group equal those that the reference's script makes of these documents alone with the
group's seed.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO, NamedTuple

import tensorflow as tf

from bert_tf.characters import CHINESE_BLOCKS, is_chinese_char
from bert_tf.data.records import RecordWriter
from bert_tf.files import BLOCK, detect_compression, open_binary, read_lines
from bert_tf.limits import DataError
from bert_tf.packing import add_special_tokens
from bert_tf.pretraining.instances import InstanceRows, pretraining_features
from bert_tf.pretraining.manifest import Counts, DoneGroup, Shard
from bert_tf.pretraining.masking import Masker, continuation_ids
from bert_tf.pretraining.python_random import RandomWords
from bert_tf.pretraining.sentence_pairs import Document, make_sequences
from bert_tf.pretraining.settings import PretrainingDataOptions
from bert_tf.tokenization import FullTokenizer
from bert_tf.vocabulary import load_vocab

# ------------------------------------------------------------------------- the groups of a corpus


class TextRange(NamedTuple):
    """Consecutive lines of a file."""

    file: str
    start: int  # byte of the uncompressed file at which a line begins
    end: int


Group = tuple[TextRange, ...]


def plan_groups(files: Sequence[str], max_group_bytes: int) -> list[Group]:
    """Return the groups of a corpus of plain or gzip files: at least one.

    Their ranges together are the corpus, in order. A group exceeds `max_group_bytes` of uncompressed
    text only by the rest of its last document.

    Raises:
        ValueError: a file is WikiExtractor's output.
    """
    sizes = [_text_size(file) for file in files]
    total = sum(sizes)
    number = -(-total // max_group_bytes) or 1
    cuts = _find_cuts(files, sizes, [total * index // number for index in range(1, number)])
    bounds = sorted({0, *cuts, total})
    return [_ranges(files, sizes, start, end) for start, end in pairwise(bounds)] or [()]


def group_size(group: Group) -> int:
    """Return the bytes of uncompressed text."""
    return sum(part.end - part.start for part in group)


def group_lines(group: Group) -> Iterator[str]:
    """Yield the lines of a group, stripped as in the reference. An empty line ends a document."""
    for part in group:
        for line in read_lines(part.file, start=part.start, end=part.end):
            # The reference uses TensorFlow's line reader, which drops every carriage return.
            yield line.replace("\r", "").strip()


def _text_size(file: str) -> int:
    """Return the bytes of a file, uncompressed."""
    with open_binary(file) as stream:
        if stream.peek(5).startswith(b"<doc "):
            raise DataError(file, "WikiExtractor's output: use examples/prepare_corpus.py.")
        if not detect_compression(file):
            return tf.io.gfile.stat(file).length
        return sum(map(len, iter(lambda: stream.read(BLOCK), b"")))


def _find_cuts(files: Sequence[str], sizes: Sequence[int], targets: Sequence[int]) -> set[int]:
    """Return the ends of the first empty lines after each of `targets` (ascending), or of the corpus."""
    cuts: set[int] = set()
    remaining = deque(targets)
    before = 0  # bytes of the files before this one
    for file, size in zip(files, sizes, strict=True):
        if remaining and remaining[0] < before + size:
            with open_binary(file) as stream:
                while remaining and remaining[0] < before + size:
                    start, end = _next_empty_line(stream, remaining[0] - before)
                    if end is None:
                        break
                    cuts.add(before + end)
                    while remaining and remaining[0] < before + max(start, 1):
                        remaining.popleft()
        before += size
    return cuts | {before} if remaining else cuts


def _next_empty_line(stream: BinaryIO, target: int) -> tuple[int, int | None]:
    """Return start and end of the first empty line that begins after `target` and the position."""
    if 0 < target >= stream.tell():
        stream.seek(target)
        stream.readline()  # perhaps only the end of a line
    end = stream.tell()
    for line in stream:
        start, end = end, end + len(line)
        if not line.decode("utf-8", "replace").strip():
            return start, end
    return end, None


def _ranges(files: Sequence[str], sizes: Sequence[int], start: int, end: int) -> Group:
    """Return the part of the corpus from byte `start` to byte `end`."""
    ranges = []
    before = 0
    for file, size in zip(files, sizes, strict=True):
        first, last = max(0, start - before), min(size, end - before)
        if first < last:
            ranges.append(TextRange(file, first, last))
        before += size
    return tuple(ranges)


# ------------------------------------------------------------------------ the records of a group

# Bit in the id of a token without "##" that continues a word of a segmented text; not in the records.
_CONTINUES = 1 << 28

# Fraction of a group's time until its instances are made; writing takes the rest.
_TIME_TO_MAKE = 0.7

OnProgress = Callable[[float], None]  # of the fraction that is done


@dataclass(frozen=True)
class GroupJob:
    """A group and its output files."""

    number: int
    seed: int
    ranges: Group
    output_files: tuple[str, ...]
    manifest_file: str


def group_seed(random_seed: int, number: int, num_groups: int) -> int:
    """Return the seed of a group: that of the run for a single group, else a hash with the number."""
    if num_groups == 1:
        return random_seed
    digest = hashlib.sha256(f"{random_seed}:{number}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


@functools.lru_cache(maxsize=1)
def load_tokenizer(vocab_file: str, do_lower_case: bool) -> FullTokenizer:
    """Load the tokenizer once per process, so that groups share its cache of words."""
    vocab = load_vocab(vocab_file, required=("[UNK]", "[CLS]", "[SEP]", "[MASK]"))
    return FullTokenizer(list(vocab), do_lower_case)


def make_group(
    job: GroupJob,
    settings: PretrainingDataOptions,
    on_progress: OnProgress = lambda fraction: None,
) -> DoneGroup:
    """Read a group and write its files.

    Raises:
        ValueError: the text is not UTF-8 (the message has file, line and byte offset), or the
            vocabulary lacks a special token.
    """
    tokenizer = load_tokenizer(settings.vocab_file, settings.do_lower_case)
    specs = pretraining_features(
        settings.max_seq_length, settings.masks.max_predictions_per_seq, settings.objective
    )
    with ExitStack() as stack:
        # Opened before the long work, so that a folder without write access fails at once.
        writers = [stack.enter_context(RecordWriter(file, specs)) for file in job.output_files]
        rng = RandomWords(job.seed)
        documents = read_documents(job.ranges, tokenizer, settings)
        counts = _count_text(documents, tokenizer)
        rows = InstanceRows(specs, _CONTINUES - 1, id_typecode(tokenizer, settings))
        stack.callback(rows.close)
        rng.shuffle(documents)
        _make_instances(documents, tokenizer, settings, rows, rng, on_progress)
        documents.clear()
        counts += _write_instances(rows, writers, rng, on_progress)
    folder = os.path.dirname(job.manifest_file) or "."
    shards = [
        Shard(os.path.relpath(file, folder), writer.count, tf.io.gfile.stat(file).length)
        for file, writer in zip(job.output_files, writers, strict=True)
    ]
    return DoneGroup(job.number, job.seed, [r._asdict() for r in job.ranges], shards, counts)


def read_documents(
    group: Group, tokenizer: FullTokenizer, settings: PretrainingDataOptions
) -> list[Document]:
    """Return the documents of a group in order, without those that have no tokens."""
    encode = _segmented_encoder(tokenizer) if settings.masks.segmented_text else tokenizer.encode
    new_document = functools.partial(Document, typecode=id_typecode(tokenizer, settings))
    documents = [new_document()]
    for line in group_lines(group):
        if line:
            documents[-1].append(encode(line))
        elif len(documents[-1]):
            documents.append(new_document())
    if not len(documents[-1]):
        documents.pop()
    return documents


def id_typecode(tokenizer: FullTokenizer, settings: PretrainingDataOptions) -> str:
    """Return the typecode of arrays of token ids: two bytes if that is enough."""
    short = max(tokenizer.vocab.values()) < 1 << 16 and not settings.masks.segmented_text
    return "H" if short and settings.max_seq_length < 1 << 16 else "i"


def _make_instances(
    documents: Sequence[Document],
    tokenizer: FullTokenizer,
    settings: PretrainingDataOptions,
    rows: InstanceRows,
    rng: RandomWords,
    on_progress: OnProgress,
) -> None:
    """Fill `rows`. Mask each sequence before drawing the next one, as in the reference."""
    vocab, continuations = tokenizer.vocab, continuation_ids(tokenizer.vocab)
    if settings.masks.segmented_text:
        continuations |= {index | _CONTINUES for index in vocab.values()}
    is_masked = settings.masks.max_predictions_per_seq is not None
    mask = Masker(vocab, settings.masks, continuations) if is_masked else None
    typecode = id_typecode(tokenizer, settings)
    cls, sep = (array(typecode, [vocab[token]]) for token in ("[CLS]", "[SEP]"))
    for number in range(settings.dupe_factor * len(documents)):
        for ids_a, ids_b, label in make_sequences(
            settings.objective,
            documents,
            number % len(documents),
            max_seq_length=settings.max_seq_length,
            short_seq_prob=settings.short_seq_prob,
            rng=rng,
        ):
            token_ids = add_special_tokens(ids_a, ids_b, cls=cls, sep=sep)
            end_a = len(ids_a) + 1
            if mask is None:
                rows.append(token_ids, end_a, label)
            else:
                masked, positions, masked_lm_ids = mask(token_ids, end_a, rng)
                rows.append(masked, end_a, label, positions, masked_lm_ids)
        on_progress(_TIME_TO_MAKE * number / (settings.dupe_factor * len(documents)))


def _write_instances(
    rows: InstanceRows, writers: Sequence[RecordWriter], rng: RandomWords, on_progress: OnProgress
) -> Counts:
    """Deal the instances out to the files, one to each in turn."""
    counts, number = Counts(), 0
    for batch in rows.shuffled(rng):
        for record in rows.records(batch):
            writers[number % len(writers)].write_serialized(record)
            number += 1
        lengths, _, predictions, labels = batch[:, :4].sum(axis=0, dtype=int).tolist()
        counts += Counts(
            instances=len(batch),
            random_next=labels,
            instance_tokens=lengths,
            predictions=predictions,
        )
        on_progress(_TIME_TO_MAKE + (1 - _TIME_TO_MAKE) * number / len(rows))
    return counts


def _count_text(documents: Sequence[Document], tokenizer: FullTokenizer) -> Counts:
    unknown = tokenizer.vocab["[UNK]"]
    return Counts(
        documents=len(documents),
        sentences=sum(map(len, documents)),
        tokens=sum(document.num_tokens for document in documents),
        unknown_tokens=sum(
            document.count(unknown) + document.count(unknown | _CONTINUES) for document in documents
        ),
    )


_CHINESE_RUN = re.compile("([" + "".join(f"{chr(a)}-{chr(b)}" for a, b in CHINESE_BLOCKS) + "]+)")


def _segmented_encoder(tokenizer: FullTokenizer) -> Callable[[str], list[int]]:
    """Return a tokenizer that marks all characters of a Chinese word after its first."""

    def encode(text: str) -> list[int]:
        ids: list[int] = []
        for word in text.split():
            for stretch in filter(None, _CHINESE_RUN.split(word)):
                stretch_ids = tokenizer.encode(stretch)
                if is_chinese_char(ord(stretch[0])):
                    stretch_ids[1:] = [index | _CONTINUES for index in stretch_ids[1:]]
                ids += stretch_ids
        return ids

    return encode
