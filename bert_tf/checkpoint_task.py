"""The task of a checkpoint, from `task.json` or from the files and the head of other projects."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from bert_tf.interop.checkpoint import PretrainedCheckpoint, shape_of
from bert_tf.interop.heads import find_head
from bert_tf.interop.initial import untied_decoder
from bert_tf.interop.read import folder_of
from bert_tf.interop.sentence_transformers import embedding_settings
from bert_tf.limits import DataError, listed
from bert_tf.model_files import TASK_FILE, read_task
from bert_tf.registry import BY_ARCHITECTURE, TYPES, UnknownTaskError
from bert_tf.tasks.base import Task
from bert_tf.tasks.of_checkpoint import default_labels, make_task


def task_of(checkpoint: PretrainedCheckpoint, max_seq_length: int | None = None) -> Task | None:
    """Return the task of a checkpoint, from `task.json` or else from its head.

    The head comes from Hugging Face's `architectures`, or is the only one that matches the variables.
    Return None for an encoder alone, and for a head without a task.

    Args:
        max_seq_length: S of a task without `task.json`. Default: `checkpoint.longest_input`. The
            length that an embedder's folder states comes before it.

    Raises:
        ValueError: `task.json` is damaged or contradicts config.json, or the variables fit several
            heads.
    """
    task = noted_task(checkpoint)
    if task is not None or checkpoint.config is None:
        return task
    embeddings = embedding_settings(folder_of(checkpoint.source))
    longest = checkpoint.longest_input(checkpoint.config)
    # The mean of an encoder is what `SentenceEncoder` gives without a task.
    if embeddings is not None and not _is_usual(embeddings):
        if max_seq_length is None or checkpoint.max_seq_length:
            max_seq_length = longest
        return TYPES["embeddings"].load("task")(max_seq_length, **embeddings)
    head = find_head(checkpoint.arrays, None, checkpoint.architecture, checkpoint.source)
    labels = checkpoint.labels
    if head.has_labels and labels is None:
        num_labels = shape_of(checkpoint.arrays, "output_weights")[0]
        labels = default_labels(checkpoint.config, num_labels)
        if labels is None:
            raise ValueError(
                f"{checkpoint.source} has no names for the {num_labels} outputs of its classifier: name "
                "them with convert_checkpoint --labels."
            )
    return make_task(
        head,
        checkpoint.config,
        labels or (),
        max_seq_length=max_seq_length or longest,
        is_pair=checkpoint.is_pair,
    )


def _is_usual(embeddings: Mapping[str, Any]) -> bool:
    others = ("projection_size", "query_prefix", "document_prefix")
    is_unit_mean = embeddings["normalize"] and embeddings["pooling"] == "mean"
    return is_unit_mean and not any(embeddings.get(name) for name in others)


def known_task(checkpoint: PretrainedCheckpoint, max_seq_length: int | None = None) -> Task | None:
    """Return the task in `task.json` or from Hugging Face's `architectures`, or None.

    Return None also for a custom task, whose class is unknown here.

    Raises:
        ValueError: `task.json` is damaged or contradicts config.json, or the variables fit several
            heads.
    """
    try:
        if checkpoint.architecture in BY_ARCHITECTURE:
            return task_of(checkpoint, max_seq_length)
        return noted_task(checkpoint)
    except UnknownTaskError:
        return None


def noted_task(checkpoint: PretrainedCheckpoint) -> Task | None:
    """Return the task in the `task.json` next to a checkpoint, or None without that file.

    Raises:
        UnknownTaskError: the task is unknown.
        ValueError: the file is damaged, or has another head or labels than Hugging Face's
            `config.json` next to it, which other programs may have written anew.
    """
    folder = folder_of(checkpoint.source)
    task = read_task(folder)
    if task is None:
        return None
    path = os.path.join(folder, TASK_FILE)
    head = BY_ARCHITECTURE.get(checkpoint.architecture or "")
    # The architecture of an embedder is that of the encoder.
    expected = BY_ARCHITECTURE.get(TYPES[task.name].architecture, TYPES["encoder"])
    labels = getattr(task, "labels", ())
    for ours, theirs in (
        ((expected.architecture,), head and (head.architecture,)),
        (labels, labels and checkpoint.labels),
    ):
        if theirs and theirs != ours:
            problem = f"{listed(ours, 5)}, but the config.json next to it {listed(theirs, 5)}"
            raise DataError(path, f"{problem}: delete the wrong one.")
    return task


def fine_tuned_task(checkpoint: PretrainedCheckpoint) -> tuple[Task | None, str]:
    """Return the task of a fine-tuned head, or None and why the head is unusable."""
    try:
        task = task_of(checkpoint)
    except UnknownTaskError as error:
        return None, str(error)
    except ValueError as error:
        return None, f"{error} Convert it with its task by convert_checkpoint."
    if task is None and "output_weights" in checkpoint.arrays:
        several = "has a regression head with several outputs, which no task here has."
        return None, f"{checkpoint.source} {several}"
    if task is None or task.name == "pretraining":
        return None, untied_decoder(checkpoint)
    return task, ""
