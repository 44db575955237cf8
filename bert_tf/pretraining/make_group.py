"""One group of documents to its record files: the unit of work of `create_pretraining_data`.

The records equal those that the reference's script makes of these documents alone with the group's seed.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from array import array
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import tensorflow as tf

from bert_tf.characters import CHINESE_BLOCKS, is_chinese_char
from bert_tf.data.records import RecordWriter
from bert_tf.packing import add_special_tokens
from bert_tf.pretraining.groups import Group, group_lines
from bert_tf.pretraining.instances import InstanceRows, pretraining_features
from bert_tf.pretraining.manifest import Counts, DoneGroup, Shard
from bert_tf.pretraining.masking import Masker, continuation_ids
from bert_tf.pretraining.python_random import RandomWords
from bert_tf.pretraining.sentence_pairs import Document, make_sequences
from bert_tf.pretraining.settings import PretrainingDataOptions
from bert_tf.tokenization import FullTokenizer, load_vocab

# Bit in the id of a token without "##" that continues a word of a segmented text. The record does not
# contain it.
_CONTINUES = 1 << 28

_NUM_LOGGED = 20  # instances that are logged in full, as in the reference

# Fraction of the work done, instances made so far.
OnProgress = Callable[[float, int], None]


@dataclass(frozen=True)
class GroupJob:
    """A group and its output files."""

    number: int
    seed: int
    ranges: Group
    output_files: tuple[str, ...]
    manifest_file: str


@dataclass(frozen=True)
class GroupResult:
    """A finished group."""

    done: DoneGroup
    logged: tuple[str, ...]  # the first instances, in words


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
    job: GroupJob, settings: PretrainingDataOptions, on_progress: OnProgress | None = None
) -> GroupResult:
    """Read a group and write its files.

    Raises:
        ValueError: the text is not UTF-8 (the message has file, line and byte offset), or the
            vocabulary lacks a special token.
    """
    work = _Work(settings.dupe_factor, on_progress)
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
        work.add(1)
        rows = InstanceRows(specs, _CONTINUES - 1, id_typecode(tokenizer, settings))
        stack.callback(rows.close)
        rng.shuffle(documents)
        _make_instances(documents, tokenizer, settings, rows, rng, work)
        documents.clear()
        num_logged = _NUM_LOGGED if job.number == 0 else 0
        written, logged = _write_instances(rows, writers, tokenizer, num_logged, rng, work)
    folder = os.path.dirname(job.manifest_file) or "."
    shards = [
        Shard(os.path.relpath(file, folder), writer.count, tf.io.gfile.stat(file).length)
        for file, writer in zip(job.output_files, writers, strict=True)
    ]
    ranges = [part._asdict() for part in job.ranges]
    return GroupResult(
        DoneGroup(job.number, job.seed, ranges, shards, counts + written), tuple(logged)
    )


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


def make_masker(tokenizer: FullTokenizer, settings: PretrainingDataOptions) -> Masker:
    continuations = continuation_ids(tokenizer.vocab)
    if settings.masks.segmented_text:
        continuations |= {index | _CONTINUES for index in tokenizer.vocab.values()}
    return Masker(tokenizer.vocab, settings.masks, continuations)


def _make_instances(
    documents: Sequence[Document],
    tokenizer: FullTokenizer,
    settings: PretrainingDataOptions,
    rows: InstanceRows,
    rng: RandomWords,
    work: _Work,
) -> None:
    """Fill `rows`. Mask each sequence before drawing the next one, as in the reference."""
    mask = make_masker(tokenizer, settings) if settings.masks.max_predictions_per_seq else None
    typecode = id_typecode(tokenizer, settings)
    cls, sep = (array(typecode, [tokenizer.vocab[token]]) for token in ("[CLS]", "[SEP]"))
    for _ in range(settings.dupe_factor):
        for index in range(len(documents)):
            for ids_a, ids_b, label in make_sequences(
                settings.objective,
                documents,
                index,
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
            work.add(2 / len(documents), len(rows))


def _write_instances(
    rows: InstanceRows,
    writers: Sequence[RecordWriter],
    tokenizer: FullTokenizer,
    num_logged: int,
    rng: RandomWords,
    work: _Work,
) -> tuple[Counts, list[str]]:
    """Deal the instances out to the files, one each in turn, and describe the first ones."""
    logged: list[str] = []
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
        if len(logged) < num_logged:
            columns = rows.columns(batch[: num_logged - len(logged)])
            for index in range(len(columns["input_ids"])):
                values = {name: column[index] for name, column in columns.items()}
                logged.append(_in_words(values, tokenizer))
        work.add(work.dupe_factor * len(batch) / len(rows), len(rows))
    return counts, logged


def _in_words(values: dict, tokenizer: FullTokenizer) -> str:
    """Format an instance like the reference's log."""
    token_ids = values["input_ids"][: values["input_mask"].sum()].tolist()
    lines = ["*** Example ***", f"tokens: {' '.join(tokenizer.convert_ids_to_tokens(token_ids))}"]
    for name, value in values.items():
        lines.append(f"{name}: {' '.join(map(str, value.ravel().tolist()))}")
    return "\n".join(lines)


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
    """Return a function of a text with spaces between Chinese words to its ids.

    All but the first character of a Chinese word are marked as continuing it.
    """

    def encode(text: str) -> list[int]:
        ids: list[int] = []
        for word in text.split():
            for stretch in filter(None, _CHINESE_RUN.split(word)):
                found = tokenizer.encode(stretch)
                if is_chinese_char(ord(stretch[0])):
                    found[1:] = [index | _CONTINUES for index in found[1:]]
                ids += found
        return ids

    return encode


class _Work:
    """Progress of a group: a unit for reading, then two to make and one to write each copy."""

    def __init__(self, dupe_factor: int, on_progress: OnProgress | None):
        self._report = on_progress or (lambda fraction, instances: None)
        self.dupe_factor = dupe_factor
        self._done = 0.0

    def add(self, units: float, instances: int = 0) -> None:
        self._done += units / (1 + 3 * self.dupe_factor)
        self._report(min(self._done, 1.0), instances)
