"""`<output>.manifest.json`: description and progress of a set of pre-training records.

`create_pretraining_data` writes it next to its record files. It names them relative to itself, so that
the folder can be moved, and lists the groups that are done, so that a run that was killed resumes with
the others. Readers of the records compare them with it.
"""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from glob import escape
from typing import Any

import tensorflow as tf

from bert_tf.files import write_text
from bert_tf.limits import DataError, read_json

SUFFIX = ".manifest.json"
FORMAT = 1  # raised when the same flags make other records


@dataclass(frozen=True)
class Counts:
    documents: int = 0
    sentences: int = 0
    tokens: int = 0  # of the text
    unknown_tokens: int = 0  # those that are [UNK]
    instances: int = 0
    random_next: int = 0  # instances whose `next_sentence_labels` is 1
    instance_tokens: int = 0  # in all instances, with [CLS] and [SEP]
    predictions: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(operator.add, astuple(self), astuple(other)))

    def ratios(self, max_seq_length: int) -> dict[str, float]:
        """Return fractions and means that summarize the data."""
        instances = self.instances or 1
        return {
            "random_next_share": self.random_next / instances,
            "mean_length": self.instance_tokens / instances,
            "padding_share": 1.0 - self.instance_tokens / (instances * max_seq_length),
            "masked_share": self.predictions / (self.instance_tokens or 1),
            "unknown_token_share": self.unknown_tokens / (self.tokens or 1),
        }

    def describe(self, max_seq_length: int) -> str:
        ratios = self.ratios(max_seq_length)
        return (
            f"{self.instances:,} instances from {self.documents:,} documents, {self.sentences:,} "
            f"sentences, {self.tokens:,} tokens ({ratios['unknown_token_share']:.2%} unknown); "
            f"{ratios['mean_length']:.1f} tokens each, {ratios['padding_share']:.1%} padding, "
            f"{ratios['random_next_share']:.1%} with next_sentence_labels 1, "
            f"{ratios['masked_share']:.1%} predicted"
        )


@dataclass(frozen=True)
class Shard:
    """One file, named relative to the folder of the manifest."""

    file: str
    records: int
    bytes: int

    def is_whole(self, folder: str) -> bool:
        """Return True if the file exists and has the size that was written."""
        path = os.path.join(folder, self.file)
        return tf.io.gfile.exists(path) and tf.io.gfile.stat(path).length == self.bytes


@dataclass(frozen=True)
class DoneGroup:
    """A group of documents whose files are complete."""

    number: int
    seed: int
    input: list[dict[str, Any]]  # file, start and end (bytes of the uncompressed file)
    shards: list[Shard]
    counts: Counts

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> DoneGroup:
        """Return the group that `dataclasses.asdict` made these values of."""
        shards = [Shard(**shard) for shard in values["shards"]]
        return cls(**{**values, "shards": shards, "counts": Counts(**values["counts"])})


@dataclass(frozen=True)
class Manifest:
    """Description of a set of record files.

    Args:
        flags: the settings that decide the records.
        input: file, size and time of last change of each input.
        vocabulary: file, sha256 (`vocabulary_digest`), size.
        num_groups: number of groups of the finished set.
        groups: the groups that are done, by number.
    """

    flags: dict[str, Any]
    input: list[dict[str, Any]]
    vocabulary: dict[str, Any]
    num_groups: int
    groups: dict[int, DoneGroup] = field(default_factory=dict)
    format: int = FORMAT
    version: str = ""  # of bert_tf

    @classmethod
    def read(cls, path: str) -> Manifest:
        values = read_json(path)
        groups = {group["number"]: DoneGroup.from_json(group) for group in values["groups"]}
        return cls(groups=groups, **{name: values[name] for name in _PLAIN_FIELDS})

    @property
    def counts(self) -> Counts:
        return sum((group.counts for group in self.groups.values()), Counts())

    @property
    def shards(self) -> list[Shard]:
        return [shard for _, group in sorted(self.groups.items()) for shard in group.shards]

    def differences(self, other: Manifest) -> list[str]:
        """Return the names of the flags whose differences change the records of `other`."""
        mine, others = (
            {
                **manifest.flags,
                "vocab_file": manifest.vocabulary["sha256"],
                "input_file": manifest.input,
                "version of bert_tf": manifest.format,
            }
            for manifest in (self, other)
        )
        return sorted(n for n in mine.keys() | others.keys() if mine.get(n) != others.get(n))

    def write(self, path: str) -> None:
        values = {
            "complete": len(self.groups) == self.num_groups,
            "totals": {**asdict(self.counts), **self.counts.ratios(self.flags["max_seq_length"])},
            **{name: getattr(self, name) for name in _PLAIN_FIELDS},
            "groups": [asdict(group) for _, group in sorted(self.groups.items())],
        }
        write_text(path, json.dumps(values, indent=1) + "\n")


_PLAIN_FIELDS = ("format", "version", "flags", "input", "vocabulary", "num_groups")


def read_manifests(files: Sequence[str]) -> dict[str, Manifest]:
    """Return path -> manifest, for each manifest next to record files that lists one of them."""
    manifests = {}
    for folder in sorted({os.path.dirname(file) for file in files}):
        names = {os.path.basename(file) for file in files if os.path.dirname(file) == folder}
        for path in sorted(tf.io.gfile.glob(tf.io.gfile.join(escape(folder), "*" + SUFFIX))):
            manifest = Manifest.read(path)
            if not names.isdisjoint(shard.file for shard in manifest.shards):
                manifests[path] = manifest
    return manifests


def check_complete(manifests: Mapping[str, Manifest]) -> None:
    """Raise if a set is not finished, or a file of it is missing or truncated."""
    remedy = "Run its create_pretraining_data command once more; the command resumes."
    for path, manifest in manifests.items():
        done, total = len(manifest.groups), manifest.num_groups
        if done < total:
            raise DataError(path, f"only {done} of {total} groups are written. {remedy}")
        for shard in manifest.shards:
            if not shard.is_whole(os.path.dirname(path)):
                problem = f"{shard.file} is missing or does not have {shard.bytes} bytes. {remedy}"
                raise DataError(path, problem)
