"""Groups as the elements of an Apache Beam pipeline: the same records on any number of machines.

    python run_scripts/create_pretraining_data.py ... --runner=DirectRunner \
        -- --direct_num_workers=4 --direct_running_mode=multi_processing

Every worker reads its groups from the corpus and writes their files itself, so both must lie where all
workers see them. What a group became is noted beside the manifest, from where the first process takes
it; a pipeline that was stopped goes on with the groups that have no note.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import tensorflow as tf

from bert_tf.data.files import write_text
from bert_tf.data.manifest import group_from_json, is_whole
from bert_tf.workflows.pretraining_group import GroupJob, GroupResult, RecordSettings, make_group


def run_with_beam(
    jobs: Sequence[GroupJob],
    settings: RecordSettings,
    manifest_file: str,
    runner: str,
    flags: Sequence[str],
) -> Iterator[GroupResult]:
    """Makes the groups in a pipeline; the results when it has ended.

    Args:
        manifest_file: beside which notes are left.
        runner: "DirectRunner" and so on.
        flags: Beam's own.

    Raises:
        ImportError: Beam is not installed.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        raise ImportError(
            "--runner needs Apache Beam, an optional extra: pip install -e '.[beam]' in the "
            "checkout of bert_tf"
        ) from error
    waiting = [job for job in jobs if _read_note(manifest_file, job) is None]
    if waiting:
        options = PipelineOptions([*flags, f"--runner={runner}"])
        with beam.Pipeline(options=options) as pipeline:
            elements = pipeline | "groups" >> beam.Create(waiting) | beam.Reshuffle()
            _ = elements | "make" >> beam.Map(make_and_note, settings, manifest_file)
    for job in jobs:
        result = _read_note(manifest_file, job)
        if result is None:
            raise RuntimeError(
                f"The pipeline has ended, but {_note_path(manifest_file, job.number)} is not there. Do "
                "all workers write to the folder that this process sees?"
            )
        yield result
        remove_notes(manifest_file, [job.number])


def make_and_note(job: GroupJob, settings: RecordSettings, manifest_file: str) -> int:
    """What a worker does with a group; its number."""
    result = make_group(job, settings)
    write_text(_note_path(manifest_file, job.number), json.dumps(asdict(result)) + "\n")
    return job.number


def remove_notes(manifest_file: str, numbers: Sequence[int]) -> None:
    """Removes what `run_with_beam` left of these groups."""
    for number in numbers:
        path = _note_path(manifest_file, number)
        if tf.io.gfile.exists(path):
            tf.io.gfile.remove(path)


def _note_path(manifest_file: str, number: int) -> str:
    return f"{manifest_file}.group-{number:05d}"


def _read_note(manifest_file: str, job: GroupJob) -> GroupResult | None:
    """What became of a group, if its files are still there."""
    path = _note_path(manifest_file, job.number)
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path) as file:
        values = json.loads(file.read())
    done = group_from_json(values["done"])
    if done.seed != job.seed or not all(is_whole(job.folder, shard) for shard in done.shards):
        return None
    return GroupResult(done, tuple(values["logged"]))
