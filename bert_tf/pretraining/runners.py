"""Runners of groups: in turn, in processes, or in an Apache Beam pipeline, with the same records.

    python run_scripts/create_pretraining_data.py ... --runner=DirectRunner \
        -- --direct_num_workers=4 --direct_running_mode=multi_processing

Each worker of Beam reads its groups from the corpus and writes their files itself. All workers need
access to both.

The manifest next to the records lists the groups that are done and their settings. Workers of Beam write
a note for each group next to it. A run that was stopped resumes with the other groups, with any runner.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import tensorflow as tf

from bert_tf.beam import make_pipeline
from bert_tf.data.files import (
    TEMPORARY_SUFFIX,
    is_stream,
    remove_file,
    remove_tree,
    whole_file,
    write_text,
)
from bert_tf.data.parallel import Send, map_as_done
from bert_tf.limits import parse_json, read_whole
from bert_tf.pretraining.make_group import GroupJob, GroupResult, make_group
from bert_tf.pretraining.manifest import (
    SUFFIX,
    Manifest,
    group_ending,
    group_from_json,
    is_whole,
    manifest_path,
    possible_outputs,
    read_manifest,
)
from bert_tf.pretraining.settings import RecordSettings

logger = logging.getLogger(__name__)

# Number of the group, fraction that is done, instances made.
Report = Callable[[int, float, int], None]

Runner = Callable[[Sequence[GroupJob], RecordSettings, Report], Iterable[GroupResult]]

_SECONDS_BETWEEN_REPORTS = 0.2


def run(
    jobs: Sequence[GroupJob], settings: RecordSettings, runner: Runner, report: Report
) -> Iterator[GroupResult]:
    """Yield the result of each group as soon as it is done.

    Groups with notes of an earlier run are not made again.

    Args:
        jobs: the groups that the manifest lacks.
        settings: the settings, resolved.
        runner: `Workers` or `Beam`.
        report: called with the progress of each group.
    """
    noted = {job.number: result for job in jobs if (result := _read_note(job)) is not None}
    missing = [job for job in jobs if job.number not in noted]
    made = runner(missing, settings, report) if missing else ()
    for result in itertools.chain(noted.values(), made):
        report(result.done.number, 1.0, result.done.counts.instances)
        yield result
        remove_notes(job for job in jobs if job.number == result.done.number)


@dataclass(frozen=True)
class Workers:
    """Runner on this machine: one group at a time in this process, or several in new processes.

    The first error stops all workers. Workers end when this process ends for any reason.

    Raises:
        Exception: an exception of a worker.
        RuntimeError: a worker was killed, for example because memory ran out.
    """

    num_workers: int

    def __call__(
        self, jobs: Sequence[GroupJob], settings: RecordSettings, report: Report
    ) -> Iterator[GroupResult]:
        return map_as_done(
            functools.partial(_work, settings),
            jobs,
            min(self.num_workers, len(jobs)),
            on_message=lambda values: report(*values),
            remedy="Complete groups are kept: run the same command again, with fewer num_workers.",
        )


def _work(settings: RecordSettings, job: GroupJob, send: Send) -> GroupResult:
    report = _throttled(job.number, lambda *values: send(values))
    return make_group(job, settings, report)


def _throttled(number: int, report: Report) -> Callable[[float, int], None]:
    """Return a function that reports on one group a few times per second."""
    last = 0.0

    def on_progress(fraction: float, instances: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _SECONDS_BETWEEN_REPORTS:
            last = now
            report(number, fraction, instances)

    return on_progress


@dataclass(frozen=True)
class Beam:
    """Runner in an Apache Beam pipeline, with all results at its end.

    Args:
        runner: "DirectRunner" and so on.
        flags: flags of Beam.

    Raises:
        ImportError, ValueError: as in `make_pipeline`.
        RuntimeError: a worker wrote to a folder that this process does not see.
    """

    runner: str
    flags: Sequence[str]

    def __call__(
        self, jobs: Sequence[GroupJob], settings: RecordSettings, report: Report
    ) -> Iterator[GroupResult]:
        with make_pipeline(self.runner, self.flags) as pipeline:
            import apache_beam as beam

            elements = pipeline | "groups" >> beam.Create(jobs) | beam.Reshuffle()
            _ = elements | "make" >> beam.Map(make_and_note, settings)
        for job in jobs:
            result = _read_note(job)
            if result is None:
                raise RuntimeError(
                    f"The pipeline has ended, but {_note_path(job)} is missing. Do all workers "
                    "write to the folder that this process sees?"
                )
            yield result


def make_and_note(job: GroupJob, settings: RecordSettings) -> int:
    """Make a group and its note in a worker of Beam; return its number."""
    result = make_group(job, settings)
    write_text(_note_path(job), json.dumps(asdict(result)) + "\n")
    return job.number


def remove_notes(jobs: Iterable[GroupJob]) -> None:
    """Remove the notes of these groups."""
    for job in jobs:
        if tf.io.gfile.exists(path := _note_path(job)):
            tf.io.gfile.remove(path)


def _note_path(job: GroupJob) -> str:
    return f"{job.manifest_file}.group-{job.number:05d}"


def _read_note(job: GroupJob) -> GroupResult | None:
    """Return the noted result of a group, or None if a file is missing or damaged."""
    path = _note_path(job)
    if not tf.io.gfile.exists(path):
        return None
    try:
        values = parse_json(read_whole(path).decode("utf-8"))
        done, logged = group_from_json(values["done"]), tuple(values["logged"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        logger.warning("%s is damaged (%r); its group is made again", path, error)
        return None
    folder = os.path.dirname(path)
    if done.seed != job.seed or not all(is_whole(folder, shard) for shard in done.shards):
        return None
    return GroupResult(done, logged)


def start_or_resume(
    wanted: Manifest, jobs: Sequence[GroupJob], overwrite: bool
) -> tuple[Manifest, list[GroupJob]]:
    """Return the manifest to fill, the existing one if it has the same flags, and the jobs that fill it.

    With `overwrite` these jobs write into temporary folders. The old records and their manifest stay
    until `replace_records`. Such a run resumes with or without `overwrite`.

    Raises:
        ValueError: records with other or unknown flags exist, or with other numbers of groups, and
            `overwrite` is False.
    """
    path, new_jobs = jobs[0].manifest_file, _replacing(jobs)
    found = _with_same_settings(new_jobs[0].manifest_file, wanted)
    if found is not None:
        return _resumed(found, wanted, new_jobs), new_jobs
    if overwrite:
        remove_records(new_jobs)  # of a run with other settings
        return wanted, new_jobs
    found = read_manifest(path)
    stale = _stale_files(jobs)
    differences = [] if found is None else found.differences(wanted)
    if found is not None and not found.groups and differences:
        found = None  # an earlier run ended before its first records
    if found is not None:
        if differences:
            raise ValueError(
                f"{path} describes records with other settings:\n  "
                + "\n  ".join(differences)
                + "\nChoose another output_file, or pass `overwrite` to replace them."
            )
        _refuse_stale(stale, "Remove such files; the command then resumes.")
        return _resumed(found, wanted, jobs), list(jobs)
    existing = [file for job in jobs for file in job.output_files if tf.io.gfile.exists(file)]
    if existing:
        raise ValueError(
            f"{existing[0]} exists without a {os.path.basename(path)} that describes it. Choose "
            "another output_file, or pass `overwrite` to replace it."
        )
    _refuse_stale(
        stale,
        "Remove such files, choose another output_file, or pass `overwrite` to replace all records "
        "of this name.",
    )
    remove_notes(jobs)  # of an earlier set
    return wanted, list(jobs)


_REPLACEMENT = f".overwrite{TEMPORARY_SUFFIX}"  # ending of a folder next to the files to replace


def _replacing(jobs: Sequence[GroupJob]) -> list[GroupJob]:
    """Return the jobs with files in temporary folders next to those that they replace."""
    name = os.path.basename(jobs[0].manifest_file).removesuffix(SUFFIX) + _REPLACEMENT

    def place(file: str) -> str:
        if is_stream(file):
            return file
        target = os.path.realpath(file) if os.path.islink(file) else file
        return os.path.join(os.path.dirname(target), name, os.path.basename(target))

    return [
        replace(
            job,
            output_files=tuple(map(place, job.output_files)),
            manifest_file=place(job.manifest_file),
        )
        for job in jobs
    ]


def _with_same_settings(path: str, wanted: Manifest) -> Manifest | None:
    """Return the manifest of an overwriting run with these settings that has not ended, or None."""
    try:
        found = read_manifest(path)
    except ValueError:  # damaged, or of another version
        return None
    return found if found and not found.differences(wanted) else None


def _resumed(found: Manifest, wanted: Manifest, jobs: Sequence[GroupJob]) -> Manifest:
    """Return the manifest to fill, with the groups of an earlier run whose files are whole."""
    folder = os.path.dirname(jobs[0].manifest_file)
    whole = {
        number: group
        for number, group in found.groups.items()
        if all(is_whole(folder, shard) for shard in group.shards)
    }
    if len(whole) < len(jobs):
        logger.info("Resuming: %d of %d groups are written.", len(whole), len(jobs))
    return replace(wanted, groups=whole)


def _refuse_stale(stale: Sequence[str], remedy: str) -> None:
    if stale:
        raise ValueError(
            f"{stale[0]} is of an earlier run with another number of groups ({len(stale)} such files). "
            f"A glob of the records would read it as well. {remedy}"
        )


def replace_records(
    jobs: Sequence[GroupJob], new_jobs: Sequence[GroupJob], manifest: Manifest
) -> None:
    """Replace the old records by the new ones, which are complete.

    Args:
        jobs: the groups with the names of the old records.
        new_jobs: the same groups with the names of the new ones, of `start_or_resume`.
        manifest: of the new ones.
    """
    path, groups = jobs[0].manifest_file, {}
    replace(manifest, groups={}).write(path)  # the set is unfinished until all files are moved
    for file in _stale_files(jobs):
        remove_file(file)
    remove_notes(jobs)  # of an earlier set
    for job, new_job in zip(jobs, new_jobs, strict=True):
        shards = []
        group = manifest.groups[job.number]
        files = zip(job.output_files, new_job.output_files, group.shards, strict=True)
        for file, new_file, shard in files:
            if file != new_file:
                with whole_file(file) as temporary:  # follows links
                    tf.io.gfile.rename(new_file, temporary, overwrite=True)
            shards.append(replace(shard, file=job.relative_to_manifest(file)))
        groups[job.number] = replace(group, shards=shards)
    remove_records(new_jobs)
    replace(manifest, groups=groups).write(path)


def remove_records(jobs: Sequence[GroupJob]) -> None:
    """Remove the files of these jobs, and the temporary folders of runs with `overwrite`."""
    files = {jobs[0].manifest_file, *(file for job in jobs for file in job.output_files)}
    for file in files:
        if tf.io.gfile.exists(file):
            remove_file(file)
    for folder in {os.path.dirname(file) for file in files}:
        if folder.endswith(_REPLACEMENT) and tf.io.gfile.isdir(folder):
            remove_tree(folder)


def _stale_files(jobs: Sequence[GroupJob]) -> list[str]:
    """Return files of earlier runs with other groups, which a glob would find among the new ones."""
    own = {os.path.basename(file) for job in jobs for file in job.output_files}
    ending = group_ending(jobs[0].number, len(jobs))
    found = []
    for output in (file.removesuffix(ending) for file in jobs[0].output_files):
        folder, name = os.path.split(output)
        names = (
            set(tf.io.gfile.listdir(folder or ".")) if tf.io.gfile.isdir(folder or ".") else set()
        )
        others = names - {os.path.basename(jobs[0].manifest_file)}  # manifests of other sets
        found += [
            os.path.join(folder, each)
            for each in names - own
            if name in possible_outputs(each) and manifest_path(each) not in others
        ]
    return sorted(file for file in found if not tf.io.gfile.isdir(file))
