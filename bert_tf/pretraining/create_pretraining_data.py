"""create_pretraining_data: plain text to TFRecords of masked, paired sequences.

For the same input, vocabulary, flags and seed the records equal those of the reference's script, in the
same order in the same files. A large corpus is cut into groups, and each gets the records that the
reference would make of it. Groups are made one by one, in processes, or by Beam, with the same result:

    python -m bert_tf create_pretraining_data ... --runner=DirectRunner \\
        -- --direct_num_workers=4 --direct_running_mode=multi_processing

Each worker of Beam reads the corpus and writes its files itself. The manifest next to the records lists
the groups that are done and their settings. A run that was stopped resumes with the others, with any
runner.

Source: google-research/bert, create_pretraining_data.py.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import tensorflow as tf

import bert_tf
from bert_tf.checkpoints.tokenizer_files import (
    check_case,
    read_tokenizer_files,
)
from bert_tf.data.parallel import map_in_order
from bert_tf.data.records import summarize_files
from bert_tf.files import check_not_an_input, expand_files, file_identity, write_text
from bert_tf.limits import DataError
from bert_tf.options import OptionError
from bert_tf.pretraining.groups import (
    Group,
    GroupJob,
    group_seed,
    group_size,
    load_tokenizer,
    make_group,
    plan_groups,
)
from bert_tf.pretraining.instances import pretraining_features
from bert_tf.pretraining.manifest import SUFFIX, Counts, DoneGroup, Manifest
from bert_tf.pretraining.settings import (
    PretrainingDataOptions,
    recorded_settings,
    resolve_settings,
)
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.progress import ByteProgress, duration
from bert_tf.vocabulary import vocabulary_digest

logger = logging.getLogger(__name__)

MAX_GROUP_BYTES = 64_000_000  # of text; bounds the memory of a worker
_NUM_LOGGED = 20  # records that are logged in full, as in the reference


@dataclass(frozen=True)
class PretrainingDataSummary:
    """Input and output of a run of `create_pretraining_data`."""

    output_files: tuple[str, ...]
    manifest_file: str
    counts: Counts
    max_seq_length: int

    def __str__(self) -> str:
        counts, ratios = self.counts, self.counts.ratios(self.max_seq_length)
        return (
            f"{counts.instances:,} instances from {counts.documents:,} documents, "
            f"{counts.sentences:,} sentences, {counts.tokens:,} tokens "
            f"({ratios['unknown_token_share']:.2%} unknown); {ratios['mean_length']:.1f} tokens each, "
            f"{ratios['padding_share']:.1%} padding, {ratios['random_next_share']:.1%} with "
            f"next_sentence_labels 1, {ratios['masked_share']:.1%} predicted; in "
            f"{summarize_files(self.output_files)}"
        )


def create_pretraining_data(options: PretrainingDataOptions) -> PretrainingDataSummary:
    """Read a corpus and write the TFRecords to pre-train on.

    A run that was stopped resumes with the missing groups if it is started again with the same
    flags.

    Raises:
        ValueError: a glob matches nothing, text is not UTF-8, the corpus has no text or yields no
            instance, or the vocabulary lacks a special token or is of another case. An output file
            would be an input, or other records exist.
    """
    input_files = expand_files(options.input_file, folders=True)
    outputs = [file for part in options.output_file.split(",") if (file := part.strip())]
    if not outputs or len(set(outputs)) < len(outputs):
        raise OptionError("output_file", "name one file, or different ones.")
    settings = resolve_settings(options)
    load_tokenizer.cache_clear()  # the file may have changed since an earlier call
    tokenizer = load_tokenizer(settings.vocab_file, settings.do_lower_case)
    vocab = tokenizer.vocab
    cases = read_tokenizer_files(settings.vocab_file).cases
    check_case(tokenizer.do_lower_case, cases, vocab)
    jobs = _plan_jobs(plan_groups(input_files, MAX_GROUP_BYTES), outputs, options.random_seed)
    output_files = tuple(file for job in jobs for file in job.output_files)
    check_not_an_input(output_files, input_files)
    digest = vocabulary_digest(vocab)
    planned = Manifest(
        flags={
            **recorded_settings(settings),
            "output_file": ",".join(map(os.path.basename, outputs)),
        },
        input=[file_identity(file) for file in input_files],
        vocabulary={"file": options.vocab_file, "sha256": digest, "size": len(vocab)},
        num_groups=len(jobs),
        version=bert_tf.__version__,
    )
    manifest = start_or_resume(planned, jobs)
    _make_missing(manifest, jobs, settings)
    path = jobs[0].manifest_file
    if not manifest.counts.instances:
        for file in (path, *output_files):
            tf.io.gfile.remove(file)
        remedy = "write a sentence per line, an empty line between documents"
        raise DataError(summarize_files(input_files), f"no instance can be made: {remedy}.")
    if manifest.counts.documents == 1 and options.objective == "mlm_nsp":
        logger.warning(
            "The text is a single document, of which the 'random' next sentences are parts too: put an "
            "empty line between documents."
        )
    summary = PretrainingDataSummary(output_files, path, manifest.counts, options.max_seq_length)
    logger.info("Wrote %s.", summary)
    return summary


def _plan_jobs(groups: Sequence[Group], outputs: Sequence[str], random_seed: int) -> list[GroupJob]:
    jobs, count = [], len(groups)
    for number, group in enumerate(groups):
        ending = f"-{number:05d}-of-{count:05d}" if count > 1 else ""
        files = tuple(f"{file}{ending}" for file in outputs)
        seed = group_seed(random_seed, number, count)
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
            raise DataError(path, f"other settings ({'; '.join(differences)}): {remedy}.")
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
                if job.number not in whole and tf.io.gfile.exists(file):
                    tf.io.gfile.remove(file)
        return replace(planned, groups=whole)
    for file in (file for job in jobs for file in job.output_files):
        if tf.io.gfile.exists(file):
            remedy = "choose another output_file, or remove it"
            raise DataError(file, f"not described by {os.path.basename(path)}: {remedy}.")
    return planned


def _make_missing(
    manifest: Manifest, jobs: Sequence[GroupJob], settings: PretrainingDataOptions
) -> None:
    """Make the groups that `manifest` lacks, and add them."""
    path = jobs[0].manifest_file
    missing = [job for job in jobs if job.number not in manifest.groups]
    if not missing:
        logger.info("Nothing to do: all records of %s exist.", path)
        return
    start = time.monotonic()
    total = sum(group_size(job.ranges) for job in missing)
    if settings.runner is not None:
        groups = run_beam(missing, settings, settings.runner, settings.runner_flags)
    else:
        groups = run_workers(missing, settings, min(settings.num_workers, len(missing)))
    manifest.write(path)
    for group in groups:
        manifest.groups[group.number] = group
        manifest.write(path)
    seconds = time.monotonic() - start
    tokenizer = load_tokenizer(settings.vocab_file, settings.do_lower_case)
    _log_records(missing[0].output_files[0], tokenizer)
    logger.info(
        "Took %s, %.2f MB of text per second.", duration(seconds), total / 1e6 / max(seconds, 1e-9)
    )


def run_workers(
    jobs: Sequence[GroupJob], settings: PretrainingDataOptions, num_workers: int
) -> Iterator[DoneGroup]:
    """Yield each group: one at a time in this process, or several in new processes."""
    total, done = sum(group_size(job.ranges) for job in jobs), 0
    progress = ByteProgress("create", total)

    def make(job: GroupJob) -> DoneGroup:
        size = group_size(job.ranges)
        return make_group(
            job, settings, lambda part: progress.update(min(done + part * size, total - 1))
        )

    make_elsewhere = functools.partial(make_group, settings=settings)
    groups = map_in_order(make if num_workers == 1 else make_elsewhere, jobs, num_workers)
    for job, group in zip(jobs, groups, strict=True):
        done += group_size(job.ranges)
        progress.update(min(done, total - 1))
        yield group
    progress.update(total)


def run_beam(
    jobs: Sequence[GroupJob], settings: PretrainingDataOptions, runner: str, flags: Sequence[str]
) -> Iterator[DoneGroup]:
    """Yield each group of an Apache Beam pipeline, after its end."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    options = PipelineOptions([*flags, f"--runner={runner}"])
    with beam.Pipeline(options=options) as pipeline:
        elements = pipeline | "groups" >> beam.Create(jobs) | beam.Reshuffle()
        _ = elements | "make" >> beam.Map(make_in_beam, settings)
    for job in jobs:
        with tf.io.gfile.GFile(_result_path(job)) as file:
            values = json.load(file)
        tf.io.gfile.remove(_result_path(job))
        yield DoneGroup.from_json(values)


def make_in_beam(job: GroupJob, settings: PretrainingDataOptions) -> int:
    """Make a group in a worker of Beam, and leave its result for the process that started it."""
    write_text(_result_path(job), json.dumps(asdict(make_group(job, settings))) + "\n")
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
