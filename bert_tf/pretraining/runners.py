"""Runners of groups: in turn, in processes, or in an Apache Beam pipeline, with the same records.

    python run_scripts/create_pretraining_data.py ... --runner=DirectRunner \
        -- --direct_num_workers=4 --direct_running_mode=multi_processing

Each worker of Beam reads its groups from the corpus and writes their files itself. All workers need
access to both.

The manifest next to the records lists the groups that are done and their settings. A run that was
stopped resumes with the other groups, with any runner.
"""

from __future__ import annotations

import functools
import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

import tensorflow as tf

from bert_tf.data.files import write_text
from bert_tf.data.parallel import map_in_order
from bert_tf.pretraining.groups import group_size
from bert_tf.pretraining.make_group import GroupJob, GroupResult, make_group
from bert_tf.pretraining.manifest import Manifest, group_from_json, is_whole, read_manifest
from bert_tf.pretraining.settings import RecordSettings
from bert_tf.training.progress import ByteProgress

logger = logging.getLogger(__name__)


def run_workers(
    jobs: Sequence[GroupJob], settings: RecordSettings, num_workers: int
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
    jobs: Sequence[GroupJob], settings: RecordSettings, runner: str, flags: Sequence[str]
) -> Iterator[GroupResult]:
    """Yield the result of each group of an Apache Beam pipeline, after its end.

    Raises:
        ImportError: Beam is not installed.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        raise ImportError("`runner` needs Apache Beam: pip install -e '.[beam]'") from error
    options = PipelineOptions([*flags, f"--runner={runner}"])
    with beam.Pipeline(options=options) as pipeline:
        elements = pipeline | "groups" >> beam.Create(jobs) | beam.Reshuffle()
        _ = elements | "make" >> beam.Map(make_and_note, settings)
    for job in jobs:
        with tf.io.gfile.GFile(_note_path(job)) as file:
            values = json.load(file)
        tf.io.gfile.remove(_note_path(job))
        yield GroupResult(group_from_json(values["done"]), tuple(values["logged"]))


def make_and_note(job: GroupJob, settings: RecordSettings) -> int:
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
            raise ValueError(
                f"{path} describes records with other settings ({'; '.join(differences)}): choose "
                "another output_file, or remove them."
            )
        folder = os.path.dirname(path)
        whole = {
            number: group
            for number, group in found.groups.items()
            if all(is_whole(folder, shard) for shard in group.shards)
        }
        if len(whole) < len(jobs):
            logger.info("Resuming: %d of %d groups are written.", len(whole), len(jobs))
        return replace(wanted, groups=whole)
    for file in (file for job in jobs for file in job.output_files):
        if tf.io.gfile.exists(file):
            raise ValueError(
                f"{file} exists, and no {os.path.basename(path)} describes it: choose another "
                "output_file, or remove it."
            )
    return wanted
