"""The files of extract_features.

    jsonl      {"linex_index": i, "features": [{"token": t, "layers": [{"index": -1, "values": [...]},
               ...]}, ...]} per example, values to six decimals ("linex_index" is how the reference
               spells it)
    npz        all examples one after the other:
               vectors        float32 [T, L, H]; example n has vectors[row_splits[n]:row_splits[n + 1]]
               tokens         strings [T]
               row_splits     int64 [N + 1]
               example_index  int64 [N], lines of the input from 0
               layers         int64 [L], as --layers names them
    tfrecord   a tf.train.Example per example:
               vectors        floats, T * L * H, the last axis fastest
               shape          T, L, H
               tokens         T byte strings
               example_index  1 integer

Shapes: N examples of a file, T tokens (of one or of all), L layers, H hidden.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.data.features import FeatureSpec
from bert_tf.data.files import open_whole, remove_file, whole_file, write_text
from bert_tf.data.records import RecordWriter
from bert_tf.interop.checkpoint import read_json

EXTRACTION_FORMATS = ("jsonl", "npz", "tfrecord")
EXAMPLES_IN_MEMORY = 1000  # of an npz file


@dataclass(frozen=True)
class Features:
    """What is written of one example.

    Args:
        index: of its line, from 0.
        tokens: T of them.
        vectors: float32 [L, T, H].
    """

    index: int
    tokens: Sequence[str]
    vectors: np.ndarray


@dataclass(frozen=True)
class Shards:
    """The files of a run, and which of them are whole.

    Args:
        output_file: the name of the file, or what the names of several begin with.
        output_format: one of EXTRACTION_FORMATS.
        total: number of examples.
        examples_per_shard: of one file; None: as many as there are, or as an npz should hold.
    """

    output_file: str
    output_format: str
    total: int
    examples_per_shard: int | None

    @property
    def size(self) -> int:
        usual = EXAMPLES_IN_MEMORY if self.output_format == "npz" else self.total
        return self.examples_per_shard or usual

    @property
    def paths(self) -> list[str]:
        count = -(-self.total // self.size)
        if count == 1:
            return [self.output_file]
        stem, suffix = os.path.splitext(self.output_file)
        return [f"{stem}-{index:05d}-of-{count:05d}{suffix}" for index in range(count)]

    @property
    def description_file(self) -> str:
        """JSON beside several files: what they hold, and what they were made from."""
        return os.path.splitext(self.output_file)[0] + ".json"

    def resume(self, settings: Mapping[str, Any], files: Sequence[str]) -> int:
        """How many examples are written already; of another run's files none, and those go.

        Args:
            settings: what the vectors depend on.
            files: of the input.
        """
        if len(self.paths) == 1:
            return 0
        described = {
            **settings,
            "output_format": self.output_format,
            "examples_per_shard": self.size,
            "num_examples": self.total,
            "files": [os.path.basename(path) for path in self.paths],
            "input_files": [_identity(file) for file in files],
        }
        known = tf.io.gfile.exists(self.description_file)
        if not known or read_json(self.description_file) != described:
            for path in filter(tf.io.gfile.exists, self.paths):
                remove_file(path)
            write_text(self.description_file, json.dumps(described, indent=2) + "\n")
        return min(self.total, self.size * (len(self.paths) - len(list(self.missing()))))

    def missing(self) -> Iterator[tuple[str, int]]:
        """(path, number of examples) of the files from the first on that is not there."""
        exists = [len(self.paths) > 1 and tf.io.gfile.exists(path) for path in self.paths]
        first = exists.index(False) if False in exists else len(exists)
        for index, path in list(enumerate(self.paths))[first:]:
            yield path, min(self.size, self.total - index * self.size)


def _identity(file: str) -> dict[str, Any]:
    """What tells one state of a file from another."""
    found = tf.io.gfile.stat(file)
    return {"name": file, "bytes": found.length, "modified_ns": found.mtime_nsec}


@contextmanager
def open_features(
    path: str, output_format: str, layers: Sequence[int]
) -> Iterator[Callable[[Features], object]]:
    """A function that writes one example; the file gets its name when the block ends well."""
    if output_format == "jsonl":
        with open_whole(path) as file:
            yield lambda found: file.write(json.dumps(feature_line(found, layers)) + "\n")
    elif output_format == "tfrecord":
        with RecordWriter(path, [FeatureSpec("example_index", role="id")]) as writer:
            yield lambda found: writer.write_serialized(_record(found))
    else:
        examples: list[Features] = []
        yield examples.append
        _write_npz(path, examples, layers)


def feature_line(found: Features, layers: Sequence[int]) -> dict[str, Any]:
    """One JSON line, with the reference's keys in the reference's order."""
    return {
        "linex_index": found.index,
        "features": [
            {
                "token": token,
                "layers": [
                    {
                        "index": layer,
                        "values": [
                            round(float(value), 6) for value in found.vectors[row, position]
                        ],
                    }
                    for row, layer in enumerate(layers)
                ],
            }
            for position, token in enumerate(found.tokens)
        ],
    }


def _record(found: Features) -> bytes:
    vectors = found.vectors.transpose(1, 0, 2)  # [T, L, H]
    tokens = [token.encode("utf-8") for token in found.tokens]
    feature = {
        "vectors": tf.train.Feature(float_list=tf.train.FloatList(value=vectors.reshape(-1))),
        "shape": tf.train.Feature(int64_list=tf.train.Int64List(value=vectors.shape)),
        "tokens": tf.train.Feature(bytes_list=tf.train.BytesList(value=tokens)),
        "example_index": tf.train.Feature(int64_list=tf.train.Int64List(value=[found.index])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def _write_npz(path: str, examples: Sequence[Features], layers: Sequence[int]) -> None:
    arrays: dict[str, Any] = {
        "vectors": np.concatenate([found.vectors.transpose(1, 0, 2) for found in examples]),
        "tokens": np.array([token for found in examples for token in found.tokens]),
        "row_splits": np.cumsum([0, *(len(found.tokens) for found in examples)], dtype=np.int64),
        "example_index": np.array([found.index for found in examples], np.int64),
        "layers": np.array(layers, np.int64),
    }
    with tempfile.TemporaryDirectory() as folder, whole_file(path) as name:
        local = os.path.join(folder, "features.npz")
        np.savez(local, **arrays)  # wants a local file
        tf.io.gfile.copy(local, name, overwrite=True)
