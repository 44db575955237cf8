"""Groups in turn, in processes, or as the elements of an Apache Beam pipeline: the same records.

    python run_scripts/create_pretraining_data.py ... --runner=DirectRunner \
        -- --direct_num_workers=4 --direct_running_mode=multi_processing

With Beam every worker reads its groups from the corpus and writes their files itself, so both must lie
where all workers see them.

The manifest beside the records says which groups of which flags are done; Beam's workers write a note
for each group beside it. A run that was stopped goes on with the others.
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

from bert_tf.data.files import remove_file, write_text
from bert_tf.data.parallel import Send, map_as_done
from bert_tf.pretraining.make_group import GroupJob, GroupResult, make_group
from bert_tf.pretraining.manifest import Manifest, group_from_json, is_whole, read_manifest
from bert_tf.pretraining.settings import RecordSettings

logger = logging.getLogger(__name__)

# Number of the group, share that is done, instances made.
Report = Callable[[int, float, int], None]

Runner = Callable[[Sequence[GroupJob], RecordSettings, Report], Iterable[GroupResult]]

_SECONDS_BETWEEN_REPORTS = 0.2


def run(
    jobs: Sequence[GroupJob], settings: RecordSettings, runner: Runner, report: Report
) -> Iterator[GroupResult]:
    """The result of each group, as it comes; those that an earlier run has notes of are not made.

    Args:
        jobs: the groups that the manifest lacks.
        settings: resolved.
        runner: `Workers` or `Beam`.
        report: of the progress.
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
    """Groups one by one in this process, or `num_workers` at a time in new ones.

    When the first fails, the others are stopped. The workers end with this process, however it ends.

    Raises:
        Exception: what a worker raised.
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
            remedy="What is complete stays: run the same command again, with fewer num_workers.",
        )


def _work(settings: RecordSettings, job: GroupJob, send: Send) -> GroupResult:
    report = _throttled(job.number, lambda *values: send(values))
    return make_group(job, settings, report)


def _throttled(number: int, report: Report) -> Callable[[float, int], None]:
    """Reports of one group, at most a few per second."""
    last = 0.0

    def on_progress(share: float, instances: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _SECONDS_BETWEEN_REPORTS:
            last = now
            report(number, share, instances)

    return on_progress


@dataclass(frozen=True)
class Beam:
    """Groups as elements of an Apache Beam pipeline; the results when it has ended.

    Args:
        runner: "DirectRunner" and so on.
        flags: Beam's own.

    Raises:
        ImportError: Beam is not installed.
        RuntimeError: a worker wrote where this process does not see it.
    """

    runner: str
    flags: Sequence[str]

    def __call__(
        self, jobs: Sequence[GroupJob], settings: RecordSettings, report: Report
    ) -> Iterator[GroupResult]:
        try:
            import apache_beam as beam
            from apache_beam.options.pipeline_options import PipelineOptions
        except ImportError as error:
            raise ImportError(
                "`runner` needs Apache Beam, an optional extra: pip install -e '.[beam]' in the "
                "checkout of bert_tf"
            ) from error
        options = PipelineOptions([*self.flags, f"--runner={self.runner}"])
        with beam.Pipeline(options=options) as pipeline:
            elements = pipeline | "groups" >> beam.Create(jobs) | beam.Reshuffle()
            _ = elements | "make" >> beam.Map(make_and_note, settings)
        for job in jobs:
            result = _read_note(job)
            if result is None:
                raise RuntimeError(
                    f"The pipeline has ended, but {_note_path(job)} is not there. Do all workers "
                    "write to the folder that this process sees?"
                )
            yield result


def make_and_note(job: GroupJob, settings: RecordSettings) -> int:
    """What a worker of Beam does with a group; its number."""
    result = make_group(job, settings)
    write_text(_note_path(job), json.dumps(asdict(result)) + "\n")
    return job.number


def remove_notes(jobs: Iterable[GroupJob]) -> None:
    """Removes what workers of Beam left of these groups."""
    for job in jobs:
        if tf.io.gfile.exists(path := _note_path(job)):
            tf.io.gfile.remove(path)


def _note_path(job: GroupJob) -> str:
    return f"{job.manifest_file}.group-{job.number:05d}"


def _read_note(job: GroupJob) -> GroupResult | None:
    """What became of a group, if its files are still there."""
    path = _note_path(job)
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path) as file:
        values = json.loads(file.read())
    done = group_from_json(values["done"])
    folder = os.path.dirname(path)
    if done.seed != job.seed or not all(is_whole(folder, shard) for shard in done.shards):
        return None
    return GroupResult(done, tuple(values["logged"]))


def start_or_resume(
    path: str, wanted: Manifest, jobs: Sequence[GroupJob], overwrite: bool
) -> Manifest:
    """The manifest to fill: the one that is there if it is of the same flags, else a new one.

    Raises:
        ValueError: there are records of other flags, or of unknown ones, and not `overwrite`.
    """
    folder = os.path.dirname(path)
    found = read_manifest(path) if not overwrite else None
    if found is not None:
        if differences := found.differences(wanted):
            raise ValueError(
                f"{path} is of records that were made differently:\n  "
                + "\n  ".join(differences)
                + "\nChoose another output_file, or pass `overwrite` to replace them."
            )
        whole = {
            number: group
            for number, group in found.groups.items()
            if all(is_whole(folder, shard) for shard in group.shards)
        }
        if len(whole) < len(jobs):
            logger.info("Going on: %d of %d groups are written.", len(whole), len(jobs))
        return replace(wanted, groups=whole)
    existing = [file for job in jobs for file in job.output_files if tf.io.gfile.exists(file)]
    if existing and not overwrite:
        raise ValueError(
            f"{existing[0]} exists, and no {os.path.basename(path)} says how it was made. Choose "
            "another output_file, or pass `overwrite` to replace it."
        )
    if overwrite:
        _remove_set(path)
    remove_notes(jobs)  # of an earlier set
    return wanted


def _remove_set(path: str) -> None:
    """Removes the files of an earlier run, which a glob would find among the new ones."""
    try:
        found = read_manifest(path)
    except ValueError:  # damaged, or of another version
        found = None
    for shard in found.shards if found else ():
        file = os.path.join(os.path.dirname(path), shard.file)
        if tf.io.gfile.exists(file):
            remove_file(file)
    if tf.io.gfile.exists(path):
        tf.io.gfile.remove(path)
