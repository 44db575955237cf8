"""Records made in parallel: work in several processes, and what they do without TensorFlow.

Worker processes make records, and importing TensorFlow would take them seconds. So the makers of records
take plain values of examples, many at a time, and serialize them here. Tasks (tasks/) define examples
and records.

Shapes: S sequence, W words.
"""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import accumulate
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, TypeVar

import numpy as np

from bert_tf.data.windows import WordWindow, encode_words, word_windows
from bert_tf.packing import PackedSequence, Pair, pack, pack_all, pad, window_pairs
from bert_tf.tokenization import FullTokenizer

Part = TypeVar("Part")
Result = TypeVar("Result")

_AHEAD = 4  # parts per worker whose results are not taken yet


def map_in_order(
    function: Callable[[Part], Result], parts: Iterable[Part], num_workers: int
) -> Iterator[Result]:
    """Yield `function(part)` in input order, regardless of `num_workers`.

    Args:
        num_workers: processes; 1 is this one. They end when this process ends for any reason, when a
            part fails, and when no more results are taken. Python imports the main script in each of
            them, so it needs `if __name__ == "__main__":`.
    """
    if num_workers <= 1:
        yield from map(function, parts)
        return
    context = multiprocessing.get_context("spawn")  # TensorFlow does not survive a fork
    parent, child = context.Pipe()
    pool = ProcessPoolExecutor(num_workers, context, _start, (child, function))
    parts, waiting = iter(parts), deque[Future]()
    try:
        while True:
            for part in itertools.islice(parts, _AHEAD * num_workers - len(waiting)):
                waiting.append(pool.submit(_call, part))
            if not waiting:
                return
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise RuntimeError(
            "A worker process ended: use fewer num_workers if memory ran out. A script needs "
            '`if __name__ == "__main__":`.'
        ) from error
    finally:
        parent.close()  # ends the workers, also within a part
        pool.shutdown(cancel_futures=True)


_function: Callable[[Any], Any]  # of this worker, with its caches


def _start(parent: Connection, function: Callable[[Any], Any]) -> None:
    """Start a worker: leave Ctrl-C to the parent, and end when it closes the connection or ends."""
    global _function
    _function = function

    def exit_with_parent() -> None:
        parent.poll(None)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=exit_with_parent, daemon=True).start()


def _call(part: Any) -> Any:
    return _function(part)


_SEQUENCES_PER_WORKER = 100_000  # with fewer, starting a process takes longer than it saves


def workers_for(num_sequences: int) -> int:
    """Return the number of processes that make records: at most one per usable core."""
    if hasattr(os, "sched_getaffinity"):
        num_cores = len(os.sched_getaffinity(0))
    else:  # macOS and Windows
        num_cores = os.cpu_count() or 1
    return max(1, min(num_cores, num_sequences // _SEQUENCES_PER_WORKER))


# ------------------------------------------------------------------------------- serialization


def encode_columns(columns: Mapping[str, np.ndarray]) -> list[bytes]:
    """Return N serialized examples of arrays [N, ...]: floats, or whole numbers, 0 or more."""
    entries: list[list[bytes]] = []  # of each feature, the bytes of every example
    for name, values in columns.items():
        column = values.reshape(len(values), -1)
        is_float = column.dtype.kind == "f"
        if is_float:
            payloads = [row.tobytes() for row in column.astype("<f4")]
        else:
            payloads = _varint_payloads(column)
        headers = _Headers(name.encode(), is_float)
        entries.append([headers[len(payload)] + payload for payload in payloads])
    # Example: field 1 is Features, whose field 1 is the map from names to values.
    examples = map(b"".join, zip(*entries, strict=True))
    return [b"\x0a" + varint(len(example)) + example for example in examples]


class _Headers(dict):
    """Length of a payload -> bytes before it, in an entry of the map in Features."""

    def __init__(self, name: bytes, is_float: bool):
        super().__init__()
        self._key = b"\x0a" + varint(len(name)) + name
        self._kind = b"\x12" if is_float else b"\x1a"  # FloatList or Int64List

    def __missing__(self, size: int) -> bytes:
        head = b"\x0a" + varint(size)  # field 1 of the list, packed
        for tag in (self._kind, b"\x12"):  # the list in a Feature, the Feature in the entry
            head = tag + varint(len(head) + size) + head
        entry = self._key + head
        result = self[size] = b"\x0a" + varint(len(entry) + size) + entry
        return result


@functools.lru_cache(maxsize=1 << 16)
def varint(number: int) -> bytes:
    """Seven bits per byte, the lowest first; all bytes but the last have the upper bit set."""
    result = bytearray()
    while number > 0x7F:
        result.append(number & 0x7F | 0x80)
        number >>= 7
    result.append(number)
    return bytes(result)


def _varint_payloads(column: np.ndarray) -> list[bytes]:
    """Each row as varints, one after the other."""
    if not column.size:
        return []
    assert column.min() >= 0  # noqa: S101
    if column.max() < 0x80:
        return [row.tobytes() for row in column.astype(np.uint8)]
    # Seven bits into each byte of one word per number, of which the lowest bytes are written.
    size = -(-int(column.max()).bit_length() // 7)  # bytes of the largest number
    word = np.dtype("<u4") if size <= 4 else np.dtype("<u8")
    numbers: Any = column.astype(word)
    packed = numbers & 0x7F
    is_written = np.zeros((*numbers.shape, word.itemsize), bool)
    is_written[:, :, 0] = True
    for index in range(1, size):
        more = numbers >= 1 << 7 * index
        is_written[:, :, index] = more
        packed |= (numbers >> 7 * index & 0x7F) << 8 * index
        packed |= more.astype(word) << 8 * index - 1  # the byte before is not the last
    flat = np.compress(is_written.ravel(), packed.view(np.uint8).ravel()).tobytes()
    lengths = np.count_nonzero(is_written.reshape(len(column), -1), axis=1)
    ends = np.cumsum(lengths).tolist()
    return [flat[start:end] for start, end in zip([0, *ends], ends, strict=False)]


NUM_SPECIAL_TOKENS = 2  # [CLS] and [SEP], of a single sentence


@dataclass(frozen=True)
class RecordMaker:
    tokenizer: FullTokenizer
    max_seq_length: int  # S
    names: tuple[str, ...]  # features of a record, in order

    def _packing(self) -> dict[str, int]:
        """Return the arguments of `packing`'s functions."""
        cls_id, sep_id = self.tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
        return {"max_seq_length": self.max_seq_length, "cls_id": cls_id, "sep_id": sep_id}

    def _is_truncated(self, ids_a: Sequence[int], ids_b: Sequence[int]) -> bool:
        return len(ids_a) + len(ids_b) > self.max_seq_length - (3 if ids_b else 2)

    def _encode(self, columns: Mapping[str, np.ndarray]) -> list[bytes]:
        return encode_columns({name: columns[name] for name in self.names})


class SentenceRow(NamedTuple):
    number: int  # of the example in its set
    text_a: str
    text_b: str | None
    label: Any  # as records hold it


@dataclass(frozen=True)
class SentenceRecords(RecordMaker):
    doc_stride: int | None = None  # tokens between windows of long examples; None truncates them
    label_dtype: str = "int32"  # or "float32"

    def __call__(self, rows: Sequence[SentenceRow]) -> tuple[list[bytes], int]:
        """Return the records, and the number of truncated examples."""
        pairs: list[Pair] = []
        labels, numbers, num_truncated = [], [], 0
        for row in rows:
            windows, is_truncated = self._pairs(row.text_a, row.text_b)
            pairs += windows
            num_truncated += is_truncated
            labels += [row.label] * len(windows)
            numbers += [row.number] * len(windows)
        columns = pack_all(pairs, **self._packing())
        columns["label_ids"] = np.array(labels, self.label_dtype)
        columns["is_real_example"] = np.ones(len(pairs), np.int32)
        columns["example_numbers"] = np.array(numbers, np.int32)
        return self._encode(columns), num_truncated

    def count(self, text_a: str, text_b: str | None) -> int:
        """Return the number of records of an example."""
        return len(self._pairs(text_a, text_b)[0])

    def sequences(self, text_a: str, text_b: str | None) -> tuple[list[PackedSequence], bool]:
        """Return the inputs of an example (several for windows), and whether it was truncated."""
        pairs, is_truncated = self._pairs(text_a, text_b)
        packing = self._packing()
        return [pack(ids_a, ids_b, **packing) for ids_a, ids_b in pairs], is_truncated

    def _pairs(self, text_a: str, text_b: str | None) -> tuple[list[Pair], bool]:
        ids_a = self.tokenizer.encode(text_a)
        ids_b = () if text_b is None else self.tokenizer.encode(text_b)
        if self.doc_stride:
            return window_pairs(ids_a, ids_b, self.max_seq_length, self.doc_stride), False
        return [(ids_a, ids_b)], self._is_truncated(ids_a, ids_b)


class SequencesRow(NamedTuple):
    """Sequences that belong together, such as the choices of a question, and their label."""

    texts: Sequence[str]  # one for each sequence
    label: float
    text_a: str | None = None  # first sentence of each sequence
    numbers: Sequence[int] = (1,)  # of the texts, from 1; equal for equal texts


@dataclass(frozen=True)
class SequencesRecords(RecordMaker):
    """Records of K sequences, 0 where an example has fewer."""

    num_sequences: int = 2  # K, of the example with the most
    label_dtype: str = "float32"  # or "int32"

    def __call__(self, rows: Sequence[SequencesRow]) -> tuple[list[bytes], int]:
        """Return the records, and the number of truncated sequences."""
        encode = self.tokenizer.encode
        pairs: list[Pair] = []
        numbers = np.zeros((len(rows), self.num_sequences), np.int32)
        for index, row in enumerate(rows):
            numbers[index, : len(row.texts)] = row.numbers
            ids = map(encode, row.texts)
            if row.text_a is None:
                pairs += [(text_ids, ()) for text_ids in ids]
            else:
                ids_a = encode(row.text_a)
                pairs += [(ids_a, text_ids) for text_ids in ids]
        columns: dict[str, np.ndarray] = {}
        for name, sequences in pack_all(pairs, **self._packing()).items():
            columns[name] = np.zeros((*numbers.shape, self.max_seq_length), np.int32)
            columns[name][numbers > 0] = sequences
        columns["text_numbers"] = numbers
        columns["choice_mask"] = (numbers > 0).astype(np.int32)
        columns["label_ids"] = np.array([row.label for row in rows], self.label_dtype)
        columns["is_real_example"] = np.ones(len(rows), np.int32)
        return self._encode(columns), sum(self._is_truncated(*pair) for pair in pairs)


class LabelledWord(NamedTuple):
    """A word before it is packed."""

    ids: list[int]
    label_id: int
    starts_sentence: bool
    ends_sentence: bool


LabelledSentence = tuple[Sequence[str], Sequence[int]]  # words, and the label of each
# Cut into windows as a whole; may be a single sentence.
LabelledDocument = Sequence[LabelledSentence]


@dataclass(frozen=True)
class WordRecords(RecordMaker):
    doc_stride: int | None = None  # pieces between windows; None for half a window

    def __call__(self, documents: Sequence[LabelledDocument]) -> tuple[list[bytes], int]:
        """Return the records, and 0."""
        rows = [row for document in documents for row in self.rows(document)]
        columns = {name: np.array([row[name] for row in rows]) for name in self.names}
        return self._encode(columns), 0

    def count(self, document: LabelledDocument) -> int:
        return len(self._windows(self._words(document)))

    def rows(self, document: LabelledDocument) -> Iterator[dict[str, Any]]:
        """Yield the windows of a document, as values of the features."""
        words = self._words(document)
        room = self.max_seq_length - NUM_SPECIAL_TOKENS
        for window in self._windows(words):
            window_words = words[window.start : window.end]
            ids = [piece for word in window_words for piece in word.ids]
            first_pieces = accumulate((len(word.ids) for word in window_words[:-1]), initial=1)
            numbers = range(window.start, window.end)
            columns: dict[str, list[Any]] = {
                "word_positions": list(first_pieces),
                "label_ids": [word.label_id for word in window_words],
                "label_weights": [float(window.first <= n < window.last) for n in numbers],
                "sentence_starts": [int(word.starts_sentence) for word in window_words],
                "sentence_ends": [int(word.ends_sentence) for word in window_words],
            }
            padded = {name: pad(values, room) for name, values in columns.items()}
            yield {**pack(ids, None, **self._packing())._asdict(), **padded}

    def _words(self, document: LabelledDocument) -> list[LabelledWord]:
        max_pieces = self.max_seq_length - NUM_SPECIAL_TOKENS
        return [
            LabelledWord(ids, label_id, index == 0, index == len(words) - 1)
            for words, label_ids in document
            for index, (ids, label_id) in enumerate(
                zip(encode_words(self.tokenizer, words, max_pieces), label_ids, strict=True)
            )
        ]

    def _windows(self, words: Sequence[LabelledWord]) -> list[WordWindow]:
        lengths = [len(word.ids) for word in words]
        return word_windows(lengths, self.max_seq_length - NUM_SPECIAL_TOKENS, self.doc_stride)


class WindowRow(NamedTuple):
    """A question and a part of its passage, with the features of the record."""

    query_ids: Sequence[int]
    passage_ids: Sequence[int]
    unique_ids: int
    start_positions: int  # of the answer, in the input
    end_positions: int
    is_impossible: bool


@dataclass(frozen=True)
class WindowRecords(RecordMaker):
    def __call__(self, rows: Sequence[WindowRow]) -> tuple[list[bytes], int]:
        """Return the records, and 0."""
        columns = pack_all([(row.query_ids, row.passage_ids) for row in rows], **self._packing())
        for name in WindowRow._fields[2:]:
            columns[name] = np.array([getattr(row, name) for row in rows], np.int32)
        return self._encode(columns), 0
