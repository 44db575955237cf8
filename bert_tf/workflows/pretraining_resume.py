"""Whether a run of `create_pretraining_data` starts anew, goes on, or is refused.

The manifest beside the records says which groups of which flags are done.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace

import tensorflow as tf

from bert_tf.data.files import remove_file
from bert_tf.data.manifest import Manifest, is_whole, read_manifest
from bert_tf.workflows.pretraining_beam import remove_notes
from bert_tf.workflows.pretraining_group import GroupJob

logger = logging.getLogger(__name__)


def start_or_go_on(
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
                + "\nChoose another --output_file, or pass --overwrite to replace them."
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
            "another --output_file, or pass --overwrite to replace it."
        )
    if overwrite:
        _remove_set(path)
    remove_notes(path, range(len(jobs)))  # of an earlier set
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
