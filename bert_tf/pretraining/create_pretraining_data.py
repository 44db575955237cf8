"""create_pretraining_data: plain text to TFRecords of masked, paired sequences.

For the same input, vocabulary, flags and seed the records equal those of the reference's script,
in the same order in the same files. A large corpus is cut into groups. The reference would make the
same records of each group alone. Groups are made one by one, in processes, or by Beam, with the same
result:

    python -m bert_tf create_pretraining_data ... --runner=DirectRunner \\
        -- --direct_num_workers=4 --direct_running_mode=multi_processing

Each worker of Beam reads its groups from the corpus and writes their files itself. All workers need
access to both. The manifest next to the records lists the groups that are done and their settings. A run
that was stopped resumes with the other groups, with any runner.

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
from bert_tf.checkpoints.sidecar import vocab_is_cased
from bert_tf.checkpoints.tokenizer_files import stated_cases
from bert_tf.data.parallel import map_in_order
from bert_tf.data.records import summarize_files
from bert_tf.files import check_not_an_input, expand_files, file_identity, write_text
from bert_tf.limits import DataError
from bert_tf.options import OptionError
from bert_tf.pretraining.groups import Group, group_size, plan_groups
from bert_tf.pretraining.make_group import (
    GroupJob,
    GroupResult,
    group_seed,
    load_tokenizer,
    make_group,
)
from bert_tf.pretraining.manifest import (
    Counts,
    Manifest,
    group_ending,
    group_from_json,
    is_whole,
    manifest_path,
    read_manifest,
)
from bert_tf.pretraining.settings import (
    PretrainingDataOptions,
    noted_settings,
    resolve_settings,
)
from bert_tf.tokenization import FullTokenizer, vocabulary_digest
from bert_tf.training.progress import ByteProgress, duration

logger = logging.getLogger(__name__)

MAX_GROUP_BYTES = 64_000_000  # of text; bounds the memory of a worker


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
            instance, or the vocabulary lacks a special token. An output file would be an input, or
            other records exist.
    """
    input_files = expand_files(options.input_file, folders=True)
    outputs = [file for part in options.output_file.split(",") if (file := part.strip())]
    if not outputs or len(set(outputs)) < len(outputs):
        raise OptionError("output_file", "name one file, or different ones.")
    settings = resolve_settings(options)
    load_tokenizer.cache_clear()  # the file may have changed since an earlier call
    tokenizer = load_tokenizer(settings.vocab_file, settings.do_lower_case)
    _check_case(tokenizer, settings)
    jobs = _plan_jobs(plan_groups(input_files, MAX_GROUP_BYTES), outputs, options.random_seed)
    check_not_an_input([file for job in jobs for file in job.output_files], input_files)
    wanted = Manifest(
        flags={**noted_settings(settings), "output_file": ",".join(map(os.path.basename, outputs))},
        input=[file_identity(file) for file in input_files],
        vocabulary={
            "file": options.vocab_file,
            "sha256": vocabulary_digest(tokenizer.vocab),
            "size": len(tokenizer.vocab),
        },
        num_groups=len(jobs),
        version=bert_tf.__version__,
    )
    manifest = start_or_resume(wanted, jobs)
    _make_missing(manifest, jobs, settings)
    if not manifest.counts.instances:
        for file in (jobs[0].manifest_file, *(file for job in jobs for file in job.output_files)):
            tf.io.gfile.remove(file)
        remedy = "write a sentence per line, an empty line between documents"
        raise DataError(summarize_files(input_files), f"no instance can be made: {remedy}.")
    num_single = sum(group.counts.documents == 1 for group in manifest.groups.values())
    if num_single and options.objective == "mlm_nsp":
        logger.warning(
            "%d of %d parts of the text are a single document, so that 'random' next sentences come "
            "from the same text: put an empty line between documents.",
            num_single,
            len(jobs),
        )
    summary = PretrainingDataSummary(
        tuple(file for job in jobs for file in job.output_files),
        jobs[0].manifest_file,
        manifest.counts,
        options.max_seq_length,
    )
    logger.info("Wrote %s.", summary)
    return summary


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
        results = run_beam(missing, settings, settings.runner, settings.runner_flags)
    else:
        results = run_workers(missing, settings, min(settings.num_workers, len(missing)))
    manifest.write(path)
    for result in results:
        for words in result.logged:
            logger.info("%s", words)
        manifest.groups[result.done.number] = result.done
        manifest.write(path)
    seconds = time.monotonic() - start
    logger.info(
        "Took %s, %.2f MB of text per second.", duration(seconds), total / 1e6 / max(seconds, 1e-9)
    )


def _plan_jobs(groups: Sequence[Group], outputs: Sequence[str], random_seed: int) -> list[GroupJob]:
    jobs, count = [], len(groups)
    for number, group in enumerate(groups):
        files = tuple(f"{file}{group_ending(number, count)}" for file in outputs)
        seed = group_seed(random_seed, number, count)
        jobs.append(GroupJob(number, seed, group, files, manifest_path(outputs[0])))
    return jobs


def _check_case(tokenizer: FullTokenizer, settings: PretrainingDataOptions) -> None:
    """Raise if a file next to the vocabulary sets the other case; warn if its tokens look like it."""
    stated = next(stated_cases(os.path.dirname(settings.vocab_file)), None)
    if stated is not None:
        if stated[0] != settings.do_lower_case:
            raise OptionError(
                "do_lower_case",
                f"is {settings.do_lower_case}, but {stated[1]} next to the vocabulary sets {stated[0]}, "
                "as it was learned. Omit the flag, or change the file if it is wrong.",
            )
        return
    cased = vocab_is_cased(tokenizer.vocab)
    if cased is not None and cased == settings.do_lower_case:
        logger.warning(
            "%s looks %s, but `do_lower_case` is %s. Use --do_lower_case=%s unless this is intended.",
            settings.vocab_file,
            "cased" if cased else "uncased",
            settings.do_lower_case,
            not cased,
        )


def run_workers(
    jobs: Sequence[GroupJob], settings: PretrainingDataOptions, num_workers: int
) -> Iterator[GroupResult]:
    """Yield the result of each group: one at a time in this process, or several in new processes.

    Raises:
        Exception: an exception of a worker, which stops the others.
        RuntimeError: a worker was killed, for example because memory ran out.
    """
    total = sum(group_size(job.ranges) for job in jobs)
    progress = ByteProgress("create", total)
    done = instances = 0

    def report(num_bytes: float, made: int) -> None:
        progress.update(min(num_bytes, total - 1), {"instances": made})

    def make(job: GroupJob) -> GroupResult:
        size = group_size(job.ranges)
        return make_group(
            job, settings, lambda fraction, made: report(done + fraction * size, instances + made)
        )

    make_there = functools.partial(make_group, settings=settings)
    results = map_in_order(make if num_workers == 1 else make_there, jobs, num_workers)
    for job, result in zip(jobs, results, strict=True):
        done += group_size(job.ranges)
        instances += result.done.counts.instances
        report(done, instances)
        yield result
    progress.update(total, {"instances": instances})


def run_beam(
    jobs: Sequence[GroupJob], settings: PretrainingDataOptions, runner: str, flags: Sequence[str]
) -> Iterator[GroupResult]:
    """Yield the result of each group of an Apache Beam pipeline, after its end."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    options = PipelineOptions([*flags, f"--runner={runner}"])
    with beam.Pipeline(options=options) as pipeline:
        elements = pipeline | "groups" >> beam.Create(jobs) | beam.Reshuffle()
        _ = elements | "make" >> beam.Map(make_and_note, settings)
    for job in jobs:
        with tf.io.gfile.GFile(_note_path(job)) as file:
            values = json.load(file)
        tf.io.gfile.remove(_note_path(job))
        yield GroupResult(group_from_json(values["done"]), tuple(values["logged"]))


def make_and_note(job: GroupJob, settings: PretrainingDataOptions) -> int:
    """Make a group in a worker of Beam, and leave its result for the process that started it."""
    result = make_group(job, settings)
    write_text(_note_path(job), json.dumps(asdict(result)) + "\n")
    return job.number


def _note_path(job: GroupJob) -> str:
    return f"{job.manifest_file}.group-{job.number:05d}"


def start_or_resume(wanted: Manifest, jobs: Sequence[GroupJob]) -> Manifest:
    """Return the manifest to fill, with the groups of an earlier run that are whole.

    Raises:
        ValueError: records with other or unknown settings exist.
    """
    path = jobs[0].manifest_file
    found = read_manifest(path)
    differences = found.differences(wanted) if found else []
    if found and (found.groups or not differences):  # else the earlier run made no records
        if differences:
            remedy = "choose another output_file, or remove them"
            raise DataError(path, f"other settings ({'; '.join(differences)}): {remedy}.")
        folder = os.path.dirname(path)
        whole = {
            number: group
            for number, group in found.groups.items()
            if all(is_whole(folder, shard) for shard in group.shards)
        }
        if len(whole) < len(jobs):
            logger.info("Resuming: %d of %d groups are written.", len(whole), len(jobs))
        for job in jobs:  # a reader does not take what is left of a group for records of no set
            for file in job.output_files:
                if job.number not in whole and tf.io.gfile.exists(file):
                    tf.io.gfile.remove(file)
        return replace(wanted, groups=whole)
    for file in (file for job in jobs for file in job.output_files):
        if tf.io.gfile.exists(file):
            remedy = "choose another output_file, or remove it"
            raise DataError(file, f"not described by {os.path.basename(path)}: {remedy}.")
    return wanted
