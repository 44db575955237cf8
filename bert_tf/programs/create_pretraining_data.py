"""create_pretraining_data: plain text to TFRecords of masked, paired sequences.

For the same input, vocabulary, flags and seed the records equal those of the reference's script,
in the same order in the same files. A corpus above --max_group_bytes is cut into groups. The reference
would make the same records of each group alone. Groups are made one by one, in processes, or by Beam,
with the same result.

Source: google-research/bert, create_pretraining_data.py.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass

import tensorflow as tf

import bert_tf
from bert_tf.data.files import TEMPORARY_SUFFIX, file_identity, run_lock
from bert_tf.data.globs import check_not_an_input, check_not_read_again, expand_files, is_same_file
from bert_tf.data.record_checks import first_names
from bert_tf.interop.sidecar import vocab_is_cased
from bert_tf.interop.tokenizer_files import stated_cases
from bert_tf.pretraining.corpus_sample import sample_lines
from bert_tf.pretraining.groups import Group, group_size, plan_groups
from bert_tf.pretraining.lost_letters import warn_of_lost_letters
from bert_tf.pretraining.make_group import GroupJob, group_seed, load_tokenizer
from bert_tf.pretraining.manifest import (
    Counts,
    Manifest,
    group_ending,
    manifest_path,
    possible_outputs,
)
from bert_tf.pretraining.runners import (
    Beam,
    Report,
    Runner,
    Workers,
    remove_records,
    replace_records,
    run,
    start_or_resume,
)
from bert_tf.pretraining.settings import RecordSettings
from bert_tf.pretraining.unknown_words import warn_of_unknown_words
from bert_tf.programs.pretraining_data_options import PretrainingDataOptions
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.progress import ByteProgress, duration
from bert_tf.vocabulary import vocabulary_digest

logger = logging.getLogger(__name__)


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
            f"{first_names(self.output_files)}"
        )


def create_pretraining_data(options: PretrainingDataOptions) -> PretrainingDataSummary:
    """Read a corpus and write the TFRecords to pre-train on.

    A run that was stopped resumes with the missing groups if it is started again with the same
    flags. With `phases` the summary is that of the last length.

    Raises:
        ValueError: a glob matches nothing, text is not UTF-8, the corpus has no text or yields no
            instance, or the vocabulary lacks a special token. An output file is named twice or would be
            an input, or other records exist. Another process is making records of the same name.
    """
    plans = [_plan(each) for each in options.phase_options()]
    with ExitStack() as locks:
        for plan in plans:
            locks.enter_context(_only_run(plan.path))
        # Records that may not be replaced are found before any are made.
        started = [start_or_resume(plan.wanted, plan.jobs, options.overwrite) for plan in plans]
        for plan, (manifest, jobs) in zip(plans, started, strict=True):
            _make(plan, manifest, jobs)
        for plan, (manifest, jobs) in zip(plans, started, strict=True):
            if jobs != plan.jobs:
                replace_records(plan.jobs, jobs, manifest)
            summary = plan.summary(manifest.counts)
            logger.info("Wrote %s.", summary)
    return summary


@dataclass(frozen=True)
class _Plan:
    """The records of one length, and what they are made of.

    Attributes:
        wanted: their manifest, without groups.
    """

    options: PretrainingDataOptions
    settings: RecordSettings
    input_files: Sequence[str]
    jobs: list[GroupJob]
    wanted: Manifest

    @property
    def path(self) -> str:
        """The manifest's file."""
        return self.jobs[0].manifest_file

    def summary(self, counts: Counts) -> PretrainingDataSummary:
        """Return the summary of the finished records."""
        files = tuple(file for job in self.jobs for file in job.output_files)
        return PretrainingDataSummary(files, self.path, counts, self.options.max_seq_length)


def _plan(options: PretrainingDataOptions) -> _Plan:
    """Check the files and the vocabulary, and plan the records of one length."""
    input_files = expand_files(options.input_file, folders=True)
    outputs = _output_files(options.output_file, input_files)
    groups_of_outputs = (f"{file}{group_ending(0, 2)}" for file in outputs)
    path = manifest_path(outputs[0])
    check_not_read_again([*outputs, *groups_of_outputs, path], options.input_file, "output_file")
    settings = options.resolved()
    load_tokenizer.cache_clear()  # the file may have changed since an earlier call
    tokenizer = load_tokenizer(settings.vocab_file, settings.do_lower_case)
    _check_case(tokenizer, settings)
    sample = sample_lines(input_files, settings.errors, settings)
    if settings.do_lower_case:
        warn_of_lost_letters(sample)
    warn_of_unknown_words(sample, tokenizer)
    if options.masking == "static" and options.max_predictions_per_seq is None:
        logger.info(
            "max_predictions_per_seq = %d: max_seq_length %d x masked_lm_prob %g, rounded up",
            settings.max_predictions_per_seq,
            options.max_seq_length,
            options.masked_lm_prob,
        )
    groups = plan_groups(input_files, options.max_group_bytes)
    wanted = Manifest(
        flags={**settings.noted(), "output_file": _names(outputs)},
        input=[_file_state(file) for file in input_files],
        vocabulary={
            "file": options.vocab_file,
            "sha256": vocabulary_digest(tokenizer.vocab),
            "size": len(tokenizer.vocab),
        },
        num_groups=len(groups),
        version=bert_tf.__version__,
    )
    jobs = _plan_jobs(groups, outputs, path, options)
    return _Plan(options, settings, input_files, jobs, wanted)


def _make(plan: _Plan, manifest: Manifest, jobs: Sequence[GroupJob]) -> None:
    """Make the groups that `manifest` lacks, add them to it, and check the whole."""
    start = time.monotonic()
    missing = _make_missing(manifest, jobs, plan.options, plan.settings)
    if not manifest.counts.instances:
        remove_records(jobs)
    _check_text(manifest.counts, plan.input_files, plan.options.objective)
    _warn_of_single_documents(manifest, plan.options)
    if missing:
        seconds = time.monotonic() - start
        size = sum(group_size(job.ranges) for job in missing) / 1e6
        logger.info("Took %s, %.2f MB of text per second.", duration(seconds), size / seconds)


def _only_run(manifest_file: str) -> AbstractContextManager[None]:
    """Hold a lock on the records of a manifest; not in a folder where nothing can be written."""
    folder = os.path.dirname(manifest_file) or "."
    tf.io.gfile.makedirs(folder)
    if not os.access(folder, os.W_OK):
        return nullcontext()
    return run_lock(
        f"{manifest_file}.lock{TEMPORARY_SUFFIX}",
        f"process {{process}} is making the records of {manifest_file}, and two runs would overwrite "
        "each other's files. Wait for it or end it, or choose another output_file.",
    )


def _make_missing(
    manifest: Manifest,
    jobs: Sequence[GroupJob],
    options: PretrainingDataOptions,
    settings: RecordSettings,
) -> list[GroupJob]:
    """Make the groups that `manifest` lacks, and add them. Return their jobs."""
    path = jobs[0].manifest_file
    missing = [job for job in jobs if job.number not in manifest.groups]
    if missing:
        if options.num_workers > len(missing):
            logger.warning(
                "%d group(s) of text for --num_workers=%d: the other workers have nothing to do. "
                "A lower --max_group_bytes (now %d) makes smaller groups, and other records.",
                len(missing),
                options.num_workers,
                options.max_group_bytes,
            )
        runner: Runner = Workers(options.num_workers)
        if options.runner is not None:
            runner = Beam(options.runner, options.runner_flags)
        manifest.write(path)
        is_warned = False
        for result in run(missing, settings, runner, _make_report(missing)):
            for words in result.logged:
                logger.info("%s", words)
            manifest.groups[result.done.number] = result.done
            manifest.write(path)
            if not is_warned:
                is_warned = _warn_of_single_documents(manifest, options)
    else:
        logger.info("Nothing to do: all records of %s exist.", path)
    return missing


def _make_report(jobs: Sequence[GroupJob]) -> Report:
    """Return a report that shows the progress of all groups as bytes of text."""
    sizes = {job.number: group_size(job.ranges) for job in jobs}
    total = sum(sizes.values())
    progress = ByteProgress("create", total)
    fractions, instances = dict.fromkeys(sizes, 0.0), dict.fromkeys(sizes, 0)

    def report(number: int, fraction: float, made: int) -> None:
        if fractions[number] >= 1.0:  # a worker's last message may come after its result
            return
        fractions[number] = fraction
        instances[number] = made
        all_done = all(fraction >= 1.0 for fraction in fractions.values())
        done = sum(sizes[n] * fraction for n, fraction in fractions.items())
        progress.update(
            total if all_done else min(done, total - 1),
            {"instances": sum(instances.values())},
        )

    return report


def _plan_jobs(
    groups: Sequence[Group], outputs: Sequence[str], path: str, options: PretrainingDataOptions
) -> list[GroupJob]:
    jobs = []
    for number, group in enumerate(groups):
        ending = group_ending(number, len(groups))
        seed = group_seed(options.random_seed, number, len(groups))
        files = tuple(f"{file}{ending}" for file in outputs)
        num_logged = options.num_logged_instances if number == 0 else 0
        jobs.append(GroupJob(number, seed, group, files, path, num_logged))
    return jobs


def _names(files: Sequence[str]) -> str:
    return ",".join(os.path.basename(file) for file in files)


def _file_state(file: str) -> dict:
    found = file_identity(file)
    return {"file": file, "bytes": found["bytes"], "mtime_nsec": found["modified_ns"]}


def _warn_of_single_documents(manifest: Manifest, options: PretrainingDataOptions) -> bool:
    """Warn if groups have no other document for random next sentences. Return True if some do."""
    groups = manifest.groups.values()
    number = sum(group.counts.documents == 1 for group in groups)
    if not number or manifest.num_groups == 1 or options.objective != "mlm_nsp":
        return False
    logger.warning(
        "Groups with a single document: %d of the %d that are done. All their 'random' next sentences "
        "come from the same text, and next-sentence prediction learns nothing from them. "
        "Raise --max_group_bytes (now %d), or put an empty line between documents.",
        number,
        len(groups),
        options.max_group_bytes,
    )
    return True


def _check_text(counts: Counts, input_files: Sequence[str], objective: str) -> None:
    if not counts.instances:
        files = ", ".join(input_files)
        if counts.documents:  # of one token each, with mlm_sop
            raise ValueError(
                f"No instance can be made of the {counts.documents:,} documents in {files}: a document "
                f"needs two or more tokens, but they have {counts.tokens:,} in all. Expected: one "
                "sentence per line, an empty line between documents."
            )
        raise ValueError(
            f"There is no text in {files}. Expected: one sentence per line, an empty line between "
            "documents."
        )
    if counts.documents == 1 and objective == "mlm_nsp":
        logger.warning(
            "The corpus is one document, so that 'random' next sentences come from the same text "
            "and next-sentence prediction learns nothing. Put an empty line between documents."
        )


def _output_files(comma_list: str, input_files: Sequence[str]) -> list[str]:
    files = [file for part in comma_list.split(",") if (file := part.strip())]
    if not files:
        raise ValueError(f"`output_file` is {comma_list!r}, but must name at least one file.")
    check_not_an_input(files, input_files)
    for number, file in enumerate(files):
        if any(is_same_file(file, other) for other in files[:number]):
            raise ValueError(f"{file!r} is named twice in `output_file` = {comma_list!r}.")
        for other in input_files:
            if _is_group_of(file, other):
                raise ValueError(f"{other!r} is an input file, which the output would overwrite.")
    return files


def _is_group_of(output: str, file: str) -> bool:
    """Return True if `file` has a name that groups of `output` have, in its folder."""
    folders = (os.path.dirname(path) or "." for path in (output, file))
    is_named_so = os.path.basename(output) in possible_outputs(os.path.basename(file))
    return is_named_so and is_same_file(*folders)


def _check_case(tokenizer: FullTokenizer, settings: RecordSettings) -> None:
    """Raise if a file next to the vocabulary sets the other case; warn if its tokens look like it."""
    stated = next(stated_cases(os.path.dirname(settings.vocab_file)), None)
    if stated is not None:
        if stated[0] != settings.do_lower_case:
            raise ValueError(
                f"`do_lower_case` is {settings.do_lower_case}, but {stated[1]} next to the vocabulary "
                f"sets {stated[0]}, as it was learned. Omit the flag, or change the file if it is wrong."
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
