"""`<output>.manifest.json`: description and progress of a set of record files.

`create_pretraining_data` writes it next to its record files. It names them relative to itself, so that
the folder can be moved. It lists the groups that are done, so that a run that was killed resumes with
the others. Readers of the files compare them with it. `RecordSet` is what the records and their
manifests tell about a set: masked or not, and the question about pairs.
"""

from __future__ import annotations

import json
import operator
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from glob import escape
from itertools import pairwise
from typing import Any

import tensorflow as tf

from bert_tf.data.records import check_records, feature_sizes
from bert_tf.files import expand_files, write_text
from bert_tf.limits import DataError
from bert_tf.options import OptionError
from bert_tf.pretraining.instances import pretraining_features
from bert_tf.tokenization import vocabulary_digest

SUFFIX = ".manifest.json"
FORMAT = 1  # raised when the same flags make other records


@dataclass(frozen=True)
class Counts:
    """Numbers of things read and written."""

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


@dataclass(frozen=True)
class Shard:
    """One file, named relative to the folder of the manifest."""

    file: str
    records: int
    bytes: int


@dataclass(frozen=True)
class DoneGroup:
    """A group of documents whose files are complete."""

    number: int
    seed: int
    input: list[dict[str, Any]]  # file, start and end (bytes of the uncompressed file)
    shards: list[Shard]
    counts: Counts


@dataclass
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

    @property
    def is_complete(self) -> bool:
        return len(self.groups) == self.num_groups

    @property
    def counts(self) -> Counts:
        return sum((group.counts for group in self.groups.values()), Counts())

    @property
    def shards(self) -> list[Shard]:
        return [shard for _, group in sorted(self.groups.items()) for shard in group.shards]

    def differences(self, other: Manifest) -> list[str]:
        """Return a phrase for each difference that changes the records of `other`."""
        found = [
            f"{name}: {self.flags.get(name)} there, {other.flags.get(name)} now"
            for name in sorted(self.flags.keys() | other.flags.keys())
            if self.flags.get(name) != other.flags.get(name)
        ]
        if self.format != other.format:
            found.append("another version of bert_tf")
        if self.vocabulary["sha256"] != other.vocabulary["sha256"]:
            found.append("another vocab_file")
        if self.input != other.input:
            found.append("other names, sizes or times of the input files")
        return found

    def write(self, path: str) -> None:
        """Write the file, whole or not at all."""
        values = {
            "complete": self.is_complete,
            "totals": {**asdict(self.counts), **self.counts.ratios(self.flags["max_seq_length"])},
            **{name: getattr(self, name) for name in _PLAIN_FIELDS},
            "groups": [asdict(group) for _, group in sorted(self.groups.items())],
        }
        write_text(path, json.dumps(values, indent=1) + "\n")


_PLAIN_FIELDS = ("format", "version", "flags", "input", "vocabulary", "num_groups")


def manifest_path(output_file: str) -> str:
    """Return the path of the manifest of a set from its (first) --output_file."""
    return output_file + SUFFIX


def group_ending(number: int, num_groups: int) -> str:
    """Return the ending that a group's file adds to `output_file`."""
    return f"-{number:05d}-of-{num_groups:05d}" if num_groups > 1 else ""


def expand_record_files(pattern_list: str) -> list[str]:
    """Return the files of `expand_files` without manifests, which `train.tf_record*` matches too.

    Raises:
        ValueError: a glob matches nothing, or there are only manifests.
    """
    files = [file for file in expand_files(pattern_list) if not file.endswith(SUFFIX)]
    if not files:
        raise ValueError(f"{pattern_list!r} matches no records, only manifests (*{SUFFIX}).")
    return files


def read_manifest(path: str) -> Manifest | None:
    """Return the manifest, or None if the file does not exist."""
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path) as file:
        values = json.load(file)
    groups = [group_from_json(group) for group in values["groups"]]
    plain = {name: values[name] for name in _PLAIN_FIELDS}
    return Manifest(groups={group.number: group for group in groups}, **plain)


def group_from_json(values: Mapping[str, Any]) -> DoneGroup:
    """Return the group that `dataclasses.asdict` made these values of."""
    shards = [Shard(**shard) for shard in values["shards"]]
    return DoneGroup(**{**values, "shards": shards, "counts": Counts(**values["counts"])})


def is_whole(folder: str, shard: Shard) -> bool:
    """Return True if a file exists and has the size that was written."""
    path = os.path.join(folder, shard.file)
    return tf.io.gfile.exists(path) and tf.io.gfile.stat(path).length == shard.bytes


def check_record_sets(files: Sequence[str], limits: Mapping[str, tuple[str, int]]) -> None:
    """Raise if record files disagree with their manifests. Files without a manifest pass.

    Args:
        files: record files of one or more sets, or a part of a set.
        limits: expected values: name of a flag in the manifest or "vocab_size" -> the origin of the
            value in this run, the value.

    Raises:
        ValueError: a set is not finished, a file is missing or has another size, or the settings
            differ. The message names the file and the remedy.
    """
    for path, manifest, names in _sets_of(files):
        if problem := _problem_of(path, manifest, names, limits):
            raise DataError(path, problem)


def manifests_of(files: Sequence[str]) -> dict[str, Manifest]:
    """Return the manifests of the sets to which `files` belong by their names, by path."""
    return {path: manifest for path, manifest, _ in _sets_of(files)}


def _sets_of(files: Sequence[str]) -> Iterator[tuple[str, Manifest, set[str]]]:
    """Yield each manifest's path, the manifest, and the names of its set among `files`.

    A name is of a set if the manifest lists it, or could list it with other numbers of groups.
    """
    for folder in sorted({os.path.dirname(file) for file in files}):
        here = {os.path.basename(file) for file in files if os.path.dirname(file) == folder}
        # The `output_file` of each set, of any number of groups, that can have the file.
        possible = {name: {name, re.sub(r"-\d{5,}-of-\d{5,}\Z", "", name)} for name in here}
        paths = sorted(tf.io.gfile.glob(tf.io.gfile.join(escape(folder), "*" + SUFFIX)))
        owners = [os.path.basename(path).removesuffix(SUFFIX) for path in paths]
        for path, owner in zip(paths, owners, strict=True):
            manifest = read_manifest(path)
            if manifest is None:
                continue
            outputs = {owner}
            for group in manifest.groups.values():
                ending = group_ending(group.number, manifest.num_groups)
                outputs |= {
                    os.path.normpath(shard.file).removesuffix(ending) for shard in group.shards
                }
            names = {name for name in here if possible[name] & outputs}
            if names := names - (set(owners) - {owner}):  # those have manifests of their own
                yield path, manifest, names


def _problem_of(
    path: str, manifest: Manifest, names: set[str], limits: Mapping[str, tuple[str, int]]
) -> str:
    """Return why a set cannot be used, and the remedy; "" if it can."""
    remedy = "Run its create_pretraining_data command once more; the command resumes."
    if not manifest.is_complete:
        return f"only {len(manifest.groups)} of {manifest.num_groups} groups are written. {remedy}"
    listed = {os.path.normpath(shard.file) for shard in manifest.shards}
    if others := sorted(names - listed):
        return f"{', '.join(others)} of an earlier run would be read as well. Remove them."
    for shard in manifest.shards:
        if not is_whole(os.path.dirname(path), shard):
            return f"{shard.file} is missing or does not have {shard.bytes} bytes. {remedy}"
    for name, (origin, expected) in limits.items():
        found = manifest.vocabulary["size"] if name == "vocab_size" else manifest.flags[name]
        if found != expected and not (name == "vocab_size" and found < expected):
            return f"the records were made with `{name}` = {found}, but {origin} is {expected}."
    return ""


@dataclass(frozen=True)
class RecordSet:
    """Record files with the same features.

    Attributes:
        files: the TFRecord files.
        has_pairs: True if they have `next_sentence_labels`.
        manifests: path -> manifest, for manifests that name one of the files.
        max_predictions_per_seq: predictions of a record; 0 for records without masks, which are masked
            while training.
    """

    files: tuple[str, ...]
    has_pairs: bool
    manifests: Mapping[str, Manifest]
    max_predictions_per_seq: int = 0

    @property
    def is_masked(self) -> bool:
        return self.max_predictions_per_seq > 0

    @property
    def objectives(self) -> tuple[str, ...]:
        """Possible objectives, the likeliest first.

        `mlm` is always possible, because it ignores the labels of pairs. Without a manifest the
        labels may be about the next sentence, as in the reference, or about order.
        """
        if not self.has_pairs:
            return ("mlm",)
        for manifest in self.manifests.values():
            return (manifest.flags["objective"], "mlm")
        return ("mlm_nsp", "mlm_sop", "mlm")


def read_record_set(files: Sequence[str], max_seq_length: int) -> RecordSet:
    """Read the first record of each file and the manifests.

    Raises:
        ValueError: a file has no pre-training records of this length, or two files differ in their
            features or objectives.
    """
    check_records(files, pretraining_features(max_seq_length, None, "mlm"))
    kinds = {file: sizes for file in files if (sizes := feature_sizes(file))}
    manifests = manifests_of(files)
    objectives = {path: manifest.flags["objective"] for path, manifest in manifests.items()}
    for values, what in ((kinds, "features"), (objectives, "objectives")):
        for first, other in pairwise(values):
            if values[first] != values[other]:
                raise DataError(other, f"has other {what} than {first}.")
    sizes = next(iter(kinds.values()))
    return RecordSet(
        tuple(files), "next_sentence_labels" in sizes, manifests, sizes.get("masked_lm_ids", 0)
    )


def choose_objective(
    wanted: str | None, record_sets: Sequence[RecordSet], trained: str | None = None
) -> str:
    """Return the objective: the flag's, else `trained`, else that of the first set.

    Args:
        wanted: value of the flag.
        trained: objective of a model that is only evaluated; used if all records allow it.

    Raises:
        ValueError: some records do not allow it.
    """
    if trained and all(trained in record_set.objectives for record_set in record_sets):
        wanted = wanted or trained
    objective = wanted or record_sets[0].objectives[0]
    for record_set in record_sets:
        if objective not in record_set.objectives:
            possible = " or ".join(record_set.objectives)
            raise OptionError("objective", f"{record_set.files[0]} is for {possible}.")
    return objective


def check_vocabulary_of_records(
    record_set: RecordSet, tokens: Sequence[str], vocab_file: str | None
) -> None:
    """Raise if the vocabulary is not that of the records. Records without a manifest pass.

    Args:
        tokens: the vocabulary in the order of the ids.
        vocab_file: its file, if it has one.

    Raises:
        ValueError: the sha256 in the manifest is that of another vocabulary.
    """
    digest = vocabulary_digest(tokens)
    for path, manifest in record_set.manifests.items():
        if manifest.vocabulary["sha256"] != digest:
            remedy = f"not the vocabulary in {path}: give {manifest.vocabulary['file']}."
            raise DataError(vocab_file or "vocabulary of the checkpoint", remedy)


def find_case_of_records(record_sets: Iterable[RecordSet], stated: bool | None) -> bool | None:
    """Return `do_lower_case` of the manifests, else `stated`.

    Args:
        stated: the value of the flag, or in files next to the checkpoint or the vocabulary.

    Raises:
        ValueError: two of them differ.
    """
    case = stated
    for record_set in record_sets:
        for path, manifest in record_set.manifests.items():
            found = manifest.flags["do_lower_case"]
            if case not in (None, found):
                others = "the flag, other records, or a file next to checkpoint or vocabulary"
                raise OptionError("do_lower_case", f"{found} in {path}, but {case} by {others}.")
            case = found
    return case
