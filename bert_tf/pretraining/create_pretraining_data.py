"""create_pretraining_data: plain text to TFRecords of masked, paired sequences.

For the same input, vocabulary, flags and seed the records equal those of the reference's script, in the
same order in the same files. A large corpus is cut into groups, and each gets the records that the
reference would make of these documents alone, with the group's seed. Groups are made one by one, in
processes, or by Beam, with the same result:

    python -m bert_tf create_pretraining_data ... --runner=DirectRunner \\
        -- --direct_num_workers=4 --direct_running_mode=multi_processing

Each worker of Beam reads the corpus and writes its files itself. The manifest next to the records lists
the groups that are done and their settings. A run that was stopped resumes with the others, with any
runner.

Source: google-research/bert, create_pretraining_data.py.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from itertools import chain, repeat

import tensorflow as tf

import bert_tf
from bert_tf.characters import CHINESE_BLOCKS, is_chinese_char
from bert_tf.checkpoints.tokenizer_files import (
    check_case,
    find_case,
    read_tokenizer_files,
)
from bert_tf.data.parallel import encode_columns, map_in_order
from bert_tf.data.records import RecordWriter, summarize_files
from bert_tf.files import (
    TEMPORARY_SUFFIX,
    check_not_an_input,
    expand_files,
    file_identity,
    hold_lock,
    write_text,
)
from bert_tf.limits import DataError
from bert_tf.options import OptionError, flag_values, option, require_packages
from bert_tf.packing import add_special_tokens
from bert_tf.pretraining.groups import Group, group_lines, group_size, plan_groups
from bert_tf.pretraining.instances import CONTINUES, InstanceRows, pretraining_features
from bert_tf.pretraining.manifest import SUFFIX, Counts, DoneGroup, Manifest, Shard
from bert_tf.pretraining.masking import (
    Masker,
    MaskingOptions,
    continuation_ids,
    count_predictions,
)
from bert_tf.pretraining.python_random import RandomWords
from bert_tf.pretraining.sentence_pairs import (
    MIN_PAIR_LENGTH,
    OBJECTIVES,
    Document,
    make_sequences,
)
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.progress import ByteProgress
from bert_tf.vocabulary import vocabulary_digest

logger = logging.getLogger(__name__)

MAX_GROUP_BYTES = 64_000_000  # of text; bounds the memory of a worker
_NUM_LOGGED = 20  # records that are logged in full, as in the reference
# Flags that do not decide the bytes, and the vocabulary, of which the manifest has the hash.
_UNRECORDED = {"vocab_file", "input_file", "num_workers", "runner", "runner_flags"}


@dataclass(frozen=True, kw_only=True)
class PretrainingDataOptions:
    """The flags of create_pretraining_data: the reference's with its defaults, and others."""

    masks: MaskingOptions
    vocab_file: str = option("The vocabulary of the model, one token per line.", group="Model")
    do_lower_case: bool | None = option(
        "Lower-case the text: True for uncased models, False for cased ones. Default: from "
        "tokenizer_config.json next to the vocabulary, else from its tokens, else True.",
        group="Model",
        default=None,
    )
    max_seq_length: int = option(
        "Tokens per sequence, with [CLS], [SEP] and padding.",
        group="Model",
        default=128,
        min=MIN_PAIR_LENGTH,
    )
    random_seed: int = option("Seed of all random draws.", group="Masking", default=12345)
    dupe_factor: int = option(
        "Number of times the corpus is used, each time with new masks.",
        group="Masking",
        default=10,
        min=1,
    )
    short_seq_prob: float = option(
        "Fraction of documents cut into shorter sequences.",
        group="Masking",
        default=0.1,
        min=0,
        max=1,
    )
    objective: str = option(
        "mlm_nsp: masked words and next sentence; mlm: masked words, single sequences; mlm_sop: "
        "masked words and the order of two neighbours.",
        group="Masking",
        default="mlm_nsp",
        choices=OBJECTIVES,
    )
    masking: str = option(
        "static: masked now, as in the reference; none: not masked, for masks made while training.",
        group="Masking",
        default="static",
        choices=("static", "none"),
    )
    input_file: str = option(
        "Plain UTF-8 text, one sentence per line, an empty line between documents: a comma list of "
        "files, globs or folders; .gz is read as well.",
        group="Data",
    )
    output_file: str = option(
        "TFRecord file or comma list of files, filled in turn. A corpus of several groups makes "
        "<file>-00000-of-00009 and so on of each. <first file>.manifest.json is written next to them.",
        group="Data",
    )
    num_workers: int = option(
        "Processes, each with a group at a time. Each needs room for its instances in the temporary "
        "folder, which the environment variable TMPDIR sets.",
        group="Machine",
        default=1,
        min=1,
    )
    runner: str | None = option(
        "Run as an Apache Beam pipeline: DirectRunner, FlinkRunner, SparkRunner, DataflowRunner. "
        "Flags of Beam follow after --, for example: -- --project=... --region=...",
        group="Machine",
        default=None,
    )
    runner_flags: tuple[str, ...] = option("Flags of Beam.", default=())

    def __post_init__(self) -> None:
        if self.runner:
            require_packages("runner", ["apache_beam"], "beam")
        elif self.runner_flags:
            raise ValueError(
                f"Unknown argument {self.runner_flags[0]!r}: flags of Beam need `runner`."
            )

    @property
    def max_predictions(self) -> int | None:
        """Predictions of a record; None for records without masks."""
        if self.masking == "none":
            return None
        prob = self.masks.masked_lm_prob
        return self.masks.max_predictions_per_seq or count_predictions(self.max_seq_length, prob)


@dataclass(frozen=True)
class PretrainingDataSummary:
    output_files: tuple[str, ...]
    manifest_file: str
    counts: Counts


@dataclass(frozen=True)
class GroupJob:
    number: int
    seed: int
    ranges: Group
    output_files: tuple[str, ...]
    manifest_file: str


def create_pretraining_data(options: PretrainingDataOptions) -> PretrainingDataSummary:
    """Read a corpus and write the TFRecords to pre-train on, or those that a stopped run lacks."""
    input_files = expand_files(options.input_file, folders=True)
    outputs = [file for part in options.output_file.split(",") if (file := part.strip())]
    if not outputs or len(set(outputs)) < len(outputs):
        raise OptionError("output_file", "name one file, or different ones.")
    files = read_tokenizer_files(options.vocab_file)
    do_lower_case = find_case(options.do_lower_case, None, files) is not False
    tokenizer = FullTokenizer(options.vocab_file, do_lower_case)
    vocab = tokenizer.vocab
    check_case(do_lower_case, files.cases, vocab)
    jobs = _plan_jobs(plan_groups(input_files, MAX_GROUP_BYTES), outputs, options.random_seed)
    output_files = tuple(file for job in jobs for file in job.output_files)
    check_not_an_input(output_files, input_files)
    flags = {name: v for name, v in flag_values(options).items() if name not in _UNRECORDED}
    flags["do_lower_case"] = do_lower_case
    flags["max_predictions_per_seq"] = options.max_predictions
    flags["output_file"] = ",".join(map(os.path.basename, outputs))
    planned = Manifest(
        flags=flags,
        input=[file_identity(file) for file in input_files],
        vocabulary={
            "file": options.vocab_file,
            "sha256": vocabulary_digest(vocab),
            "size": len(vocab),
        },
        num_groups=len(jobs),
        version=bert_tf.__version__,
    )
    path = jobs[0].manifest_file
    tf.io.gfile.makedirs(os.path.dirname(path) or ".")
    with hold_lock(
        f"{path}.lock", f"Another process makes {path}. Wait, or name another output_file."
    ):
        manifest = start_or_resume(planned, jobs)
        _make_missing(manifest, jobs, options, tokenizer)
    counts = manifest.counts
    if not counts.instances:
        for file in (path, *output_files):
            tf.io.gfile.remove(file)
        remedy = "write a sentence per line, an empty line between documents"
        raise DataError(summarize_files(input_files), f"no instance can be made: {remedy}.")
    if counts.documents == 1 and options.objective == "mlm_nsp":
        logger.warning(
            "The text is a single document, of which the 'random' next sentences are parts too: put an "
            "empty line between documents."
        )
    description = counts.describe(options.max_seq_length)
    logger.info("Wrote %s; in %s.", description, summarize_files(output_files))
    return PretrainingDataSummary(output_files, path, counts)


def _plan_jobs(groups: Sequence[Group], outputs: Sequence[str], random_seed: int) -> list[GroupJob]:
    jobs, count = [], len(groups)
    for number, group in enumerate(groups):
        ending = f"-{number:05d}-of-{count:05d}" if count > 1 else ""
        files = tuple(f"{file}{ending}" for file in outputs)
        seed = random_seed
        if count > 1:
            digest = hashlib.sha256(f"{random_seed}:{number}".encode()).digest()
            seed = int.from_bytes(digest[:4], "big")
        jobs.append(GroupJob(number, seed, group, files, outputs[0] + SUFFIX))
    return jobs


def start_or_resume(planned: Manifest, jobs: Sequence[GroupJob]) -> Manifest:
    """Return the manifest to fill, with the whole groups of an earlier run; raise for other records."""
    path = jobs[0].manifest_file
    earlier = Manifest.read(path) if tf.io.gfile.exists(path) else None
    differences = earlier.differences(planned) if earlier else []
    if earlier and (earlier.groups or not differences):  # else the earlier run made no records
        if differences:
            remedy = "choose another output_file, or remove them"
            raise DataError(path, f"records with other {', '.join(differences)}: {remedy}.")
        folder = os.path.dirname(path)
        whole = {
            number: group
            for number, group in earlier.groups.items()
            if all(shard.is_whole(folder) for shard in group.shards)
        }
        if len(whole) < len(jobs):
            logger.info("Resuming: %d of %d groups are written.", len(whole), len(jobs))
        for job in jobs:  # so that no reader takes the leftover files of a group for records
            for file in job.output_files:
                names = tf.io.gfile.glob(f"{file}.*{TEMPORARY_SUFFIX}")
                for leftover in [*names, *([] if job.number in whole else tf.io.gfile.glob(file))]:
                    tf.io.gfile.remove(leftover)
        return replace(planned, groups=whole)
    for file in (file for job in jobs for file in job.output_files):
        if tf.io.gfile.exists(file):
            remedy = "choose another output_file, or remove it"
            raise DataError(file, f"not described by {os.path.basename(path)}: {remedy}.")
    return planned


def _make_missing(
    manifest: Manifest,
    jobs: Sequence[GroupJob],
    options: PretrainingDataOptions,
    tokenizer: FullTokenizer,
) -> None:
    """Make the groups that `manifest` lacks, and add them."""
    path = jobs[0].manifest_file
    missing = [job for job in jobs if job.number not in manifest.groups]
    if not missing:
        logger.info("Nothing to do: all records of %s exist.", path)
        return
    make = functools.partial(make_group, options=options, tokenizer=tokenizer)
    if options.runner is not None:
        groups = run_beam(missing, make, options.runner, options.runner_flags)
    else:
        groups = map_in_order(make, missing, min(options.num_workers, len(missing)))
    total = sum(group_size(job.ranges) for job in missing)
    progress, done = ByteProgress("create", total), 0
    manifest.write(path)
    for job, group in zip(missing, groups, strict=True):
        manifest.groups[group.number] = group
        manifest.write(path)
        done += group_size(job.ranges)
        progress.update(done)
    _log_records(missing[0].output_files[0], tokenizer)


MakeGroup = Callable[[GroupJob], DoneGroup]


def run_beam(
    jobs: Sequence[GroupJob], make: MakeGroup, runner: str, flags: Sequence[str]
) -> Iterator[DoneGroup]:
    """Yield each group of an Apache Beam pipeline, after its end."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    pipeline_options = PipelineOptions([*flags, f"--runner={runner}"])
    with beam.Pipeline(options=pipeline_options) as pipeline:
        elements = pipeline | "groups" >> beam.Create(jobs) | beam.Reshuffle()
        _ = elements | "make" >> beam.Map(make_in_beam, make)
    for job in jobs:
        with tf.io.gfile.GFile(_result_path(job)) as file:
            values = json.load(file)
        tf.io.gfile.remove(_result_path(job))
        yield DoneGroup.from_json(values)


def make_in_beam(job: GroupJob, make: MakeGroup) -> int:
    """Make a group in a worker of Beam, and leave its result for the process that started it."""
    write_text(_result_path(job), json.dumps(asdict(make(job))) + "\n")
    return job.number


def _result_path(job: GroupJob) -> str:
    return f"{job.manifest_file}.group-{job.number:05d}"


def _log_records(file: str, tokenizer: FullTokenizer) -> None:
    """Log the first records of a file like the reference."""
    names = [spec.name for spec in pretraining_features(1, 1)]
    for record in tf.data.TFRecordDataset(file).take(_NUM_LOGGED).as_numpy_iterator():
        features = tf.train.Example.FromString(record).features.feature
        token_ids = features["input_ids"].int64_list.value
        length = sum(features["input_mask"].int64_list.value)
        tokens = tokenizer.convert_ids_to_tokens(token_ids[:length])
        lines = ["*** Example ***", f"tokens: {' '.join(tokens)}"]
        for name in (name for name in names if name in features):
            values = features[name].int64_list.value or features[name].float_list.value
            lines.append(f"{name}: {' '.join(map(str, values))}")
        logger.info("%s", "\n".join(lines))


# ------------------------------------------------------------------------ the records of a group


def make_group(
    job: GroupJob, options: PretrainingDataOptions, tokenizer: FullTokenizer
) -> DoneGroup:
    """Read a group and write its files."""
    specs = pretraining_features(options.max_seq_length, options.max_predictions, options.objective)
    with ExitStack() as stack:
        # Opened before the long work, so that a folder without write access fails at once.
        writers = [stack.enter_context(RecordWriter(file, specs)) for file in job.output_files]
        rng = RandomWords(job.seed)
        documents = read_documents(job.ranges, tokenizer, options.masks.segmented_text)
        counts = _count_text(documents, tokenizer)
        rng.shuffle(documents)
        rows = stack.enter_context(closing(InstanceRows(specs)))
        _make_instances(documents, tokenizer.vocab, options, rows, rng)
        documents.clear()
        counts += _write_instances(rows, writers, rng)
    folder = os.path.dirname(job.manifest_file) or "."
    shards = [
        Shard(os.path.relpath(file, folder), writer.count, tf.io.gfile.stat(file).length)
        for file, writer in zip(job.output_files, writers, strict=True)
    ]
    return DoneGroup(job.number, job.seed, [r._asdict() for r in job.ranges], shards, counts)


def read_documents(
    group: Group, tokenizer: FullTokenizer, segmented_text: bool = False
) -> list[Document]:
    """Return the documents of a group in order, without those that have no tokens."""
    encode = _segmented_encoder(tokenizer) if segmented_text else tokenizer.encode
    documents = [Document()]
    for line in group_lines(group):
        if line:
            documents[-1].append(encode(line))
        elif len(documents[-1]):
            documents.append(Document())
    if not len(documents[-1]):
        documents.pop()
    return documents


def _make_instances(
    documents: Sequence[Document],
    vocab: dict[str, int],
    options: PretrainingDataOptions,
    rows: InstanceRows,
    rng: RandomWords,
) -> None:
    """Fill `rows`. Mask each sequence before drawing the next one, as in the reference."""
    continuations = continuation_ids(vocab)
    if options.masks.segmented_text:
        continuations |= {index | CONTINUES for index in vocab.values()}
    mask = None
    if options.max_predictions is not None:
        mask = Masker(vocab, options.masks, options.max_predictions, continuations)
    cls, sep = (array("i", [vocab[token]]) for token in ("[CLS]", "[SEP]"))
    make = functools.partial(
        make_sequences,
        options.objective,
        documents,
        max_seq_length=options.max_seq_length,
        short_seq_prob=options.short_seq_prob,
        rng=rng,
    )
    for index in chain.from_iterable(repeat(range(len(documents)), options.dupe_factor)):
        for ids_a, ids_b, label in make(index):
            token_ids = add_special_tokens(ids_a, ids_b, cls=cls, sep=sep)
            end_a = len(ids_a) + 1
            if mask is None:
                rows.append(token_ids, end_a, label)
            else:
                masked, positions, masked_lm_ids = mask(token_ids, end_a, rng)
                rows.append(masked, end_a, label, positions, masked_lm_ids)


def _write_instances(
    rows: InstanceRows, writers: Sequence[RecordWriter], rng: RandomWords
) -> Counts:
    """Deal the instances out to the files, one to each in turn."""
    counts, number = Counts(), 0
    for batch in rows.shuffled(rng):
        for record in encode_columns(rows.columns(batch)):
            writers[number % len(writers)].write_serialized(record)
            number += 1
        lengths, _, predictions, labels = batch[:, :4].sum(axis=0, dtype=int).tolist()
        counts += Counts(
            instances=len(batch),
            random_next=labels,
            instance_tokens=lengths,
            predictions=predictions,
        )
    return counts


def _count_text(documents: Sequence[Document], tokenizer: FullTokenizer) -> Counts:
    unknown = tokenizer.vocab["[UNK]"]
    return Counts(
        documents=len(documents),
        sentences=sum(map(len, documents)),
        tokens=sum(document.num_tokens for document in documents),
        unknown_tokens=sum(
            document.count(unknown) + document.count(unknown | CONTINUES) for document in documents
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
                    stretch_ids[1:] = [index | CONTINUES for index in stretch_ids[1:]]
                ids += stretch_ids
        return ids

    return encode
