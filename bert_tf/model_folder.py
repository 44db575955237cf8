"""Trained models, loaded from their folders (model_files.py) or from any checkpoint.

`load_model` accepts:

    folder of a run (task.json)              the model of its task
    checkpoint with a fine-tuned head        the model of the task in Hugging Face's config.json
    checkpoint with a masked-LM head         BertForPreTraining
    any other checkpoint                     BertModel, for embeddings and attention
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import keras
import tensorflow as tf

from bert_tf.huggingface_config import PROBLEM_TYPES
from bert_tf.interop.checkpoint import PretrainedCheckpoint, shape_of
from bert_tf.interop.heads import find_head
from bert_tf.interop.hub import local_path
from bert_tf.interop.initial import initialize, untied_decoder
from bert_tf.interop.read import folder_of, holds_checkpoint, read_checkpoint
from bert_tf.interop.sentence_transformers import (
    SETTING_FILES,
    embedding_settings,
    is_of_sentence_transformers,
)
from bert_tf.interop.sidecar import MODULES_FILE, find_config, load_tokenizer
from bert_tf.model_files import TASK_FILE, UnknownTaskError, has_task_of_ours, read_task
from bert_tf.modeling.bert import BertModel
from bert_tf.modeling.models import BertForPreTraining
from bert_tf.registry import BY_ARCHITECTURE, TYPES
from bert_tf.tasks.base import MIN_SEQ_LENGTH, Task
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.embeddings import EmbeddingTask
from bert_tf.tasks.of_checkpoint import default_labels, make_task
from bert_tf.tasks.pretraining import PretrainingTask
from bert_tf.tasks.token_classification import NUM_SPECIAL_TOKENS, TokenClassificationTask
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.checkpoints import latest_checkpoint


@dataclass(frozen=True)
class TrainedModel:
    """A model with its weights, tokenizer and task.

    Args:
        task: None for a checkpoint without a known task.
        source: the model's name in messages.
        checkpoint: path of the weights; empty if unknown.
        unused_head: reason why the checkpoint's head is not part of the model; empty if all heads are.
    """

    model: keras.Model
    tokenizer: FullTokenizer
    task: Task | None
    max_seq_length: int
    source: str = "this model"
    checkpoint: str = ""
    unused_head: str = ""


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
    try:
        embeddings = embedding_settings(folder_of(checkpoint.source))
    except ValueError as error:
        raise UnknownTaskError(str(error)) from error
    longest = checkpoint.longest_input(checkpoint.config)
    # The mean of an encoder is what `SentenceEncoder` gives without a task.
    if embeddings is not None and not _is_usual(embeddings):
        if max_seq_length is None or checkpoint.max_seq_length:
            max_seq_length = longest
        return EmbeddingTask(max_seq_length, **embeddings)
    head = find_head(checkpoint.arrays, None, checkpoint.architecture, checkpoint.source)
    labels = checkpoint.labels
    if head.has_labels and labels is None:
        num_labels = shape_of(checkpoint.arrays, "output_weights")[0]
        labels = default_labels(checkpoint.config, num_labels)
        if labels is None:
            raise ValueError(
                f"{checkpoint.source} has a classifier, but no names for its {num_labels} outputs. "
                "Name them with convert_checkpoint --labels."
            )
    try:
        return make_task(
            head,
            checkpoint.config,
            labels or (),
            max_seq_length=max_seq_length or longest,
            is_pair=checkpoint.is_pair,
        )
    except ValueError as error:
        raise ValueError(f"{checkpoint.source}: {error}") from error


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
        ValueError: the file is damaged, or contradicts Hugging Face's `config.json` or the files of
            sentence-transformers next to it.
    """
    folder = folder_of(checkpoint.source)
    task = read_task(folder)
    if task is not None:
        found = [("config.json", *values) for values in _contradictions(task, checkpoint)]
        for file, name, noted, stated in [*found, *_other_embeddings(task, folder)]:
            raise ValueError(
                f"{os.path.join(folder, TASK_FILE)} and the {file} next to it contradict each "
                f"other: {name} is {noted} in the former and {stated} in the latter. Delete {TASK_FILE} "
                f"if {file} is newer, or correct the wrong one."
            )
    return task


def _contradictions(task: Task, checkpoint: PretrainedCheckpoint) -> Iterator[tuple[str, str, str]]:
    """Yield (what differs, its value in task.json, in Hugging Face's config.json)."""
    head = BY_ARCHITECTURE.get(checkpoint.architecture or "")
    # The architecture of an embedder is that of the encoder.
    expected = BY_ARCHITECTURE.get(TYPES[task.name].architecture, TYPES["encoder"])
    if head is not None and head != expected:
        yield "the architecture", expected.architecture, head.architecture
    noted, stated = getattr(task, "labels", ()), checkpoint.labels
    if noted and stated not in (None, noted):
        yield "the list of labels", ", ".join(noted), ", ".join(stated)
    if noted and stated is None and head is not None and "output_weights" in checkpoint.arrays:
        rows = shape_of(checkpoint.arrays, "output_weights")[0]
        if rows != len(noted):
            yield "the number of labels", str(len(noted)), str(rows)
    if isinstance(task, ClassificationTask) and checkpoint.config is not None:
        kind = checkpoint.config.extra.get("problem_type")
        if kind in PROBLEM_TYPES and kind != task.kind.huggingface:
            yield "`problem_type`", task.kind.huggingface, kind


def _other_embeddings(task: Task, folder: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield (file of sentence-transformers, setting, its value in task.json, in that file)."""
    if not isinstance(task, EmbeddingTask) or not os.path.isfile(
        os.path.join(folder, MODULES_FILE)
    ):
        return
    stated = embedding_settings(folder) or {}
    for name, file in SETTING_FILES.items():
        noted = getattr(task, name)
        if stated.get(name, noted) != noted:
            yield file, f"`{name}`", repr(noted), repr(stated[name])


def load_model_folder(
    folder: str,
    *,
    dtype: str | None = None,
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
) -> TrainedModel:
    """Load the --output_dir of a run.

    Args:
        folder: its path.
        dtype: precision policy, default float32.
        bert_config_file, vocab_file, do_lower_case: replace the files of the folder.

    Raises:
        ValueError: a file is missing or damaged; the message names it.
    """
    task = read_task(folder)
    if task is None:
        raise ValueError(
            f"{folder} has no {TASK_FILE}, so it is not the output_dir of a run. Name the output_dir of "
            "run_classifier or run_pretraining."
        )
    prefix = latest_checkpoint(folder)
    given: dict[str, Any] = {
        "dtype": dtype,
        "bert_config_file": bert_config_file,
        "vocab_file": vocab_file,
        "do_lower_case": do_lower_case,
    }
    try:
        return _load_run(folder, task, prefix or folder, **given)
    except (OSError, ValueError):
        if latest_checkpoint(folder) == prefix:
            raise
    return load_model_folder(folder, **given)  # a training has replaced the checkpoint meanwhile


def _load_run(
    folder: str,
    task: Task,
    path: str,
    *,
    dtype: str | None,
    bert_config_file: str | None,
    vocab_file: str | None,
    do_lower_case: bool | None,
) -> TrainedModel:
    checkpoint = read_checkpoint(path)
    noted_task(checkpoint)  # raises if config.json contradicts it
    if not bert_config_file and checkpoint.config is None:
        raise ValueError(f"{folder} has no bert_config.json. Copy the folder again.")
    if not vocab_file and checkpoint.vocab_file is None:
        raise ValueError(
            f"{folder} has no vocab.txt. Copy it into the folder, or write the folder with "
            "model.save_pretrained(folder, tokenizer)."
        )
    config = find_config(bert_config_file, checkpoint)
    tokenizer = load_tokenizer(vocab_file, do_lower_case, checkpoint, config)
    try:
        config.check_sequence_length(task.max_seq_length)
    except ValueError as error:
        raise ValueError(f"{os.path.join(folder, TASK_FILE)}: {error}") from error
    model = task.build_model(config, dtype=dtype)
    report = initialize(model, checkpoint)
    if report.missing:
        raise ValueError(
            f"{folder}: the checkpoint lacks {', '.join(report.missing[:3])}. Copy the folder again."
        )
    length, path = task.max_seq_length, checkpoint.source
    return TrainedModel(model, tokenizer, task, length, folder, checkpoint=path)


_MASKED_LM = "cls/predictions/transform/dense/kernel"


def load_model(
    path: str,
    *,
    dtype: str | None = None,
    max_seq_length: int | None = None,
    doc_stride: int | None = None,
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
) -> TrainedModel:
    """Return the model in a folder or checkpoint, with its tokenizer; `task` is None if unknown.

    Args:
        path: the --output_dir of a run, or any checkpoint for --init_checkpoint, also hf://org/name.
        dtype: precision policy, default float32.
        bert_config_file, vocab_file, do_lower_case: replace the files next to a checkpoint.
        max_seq_length, doc_stride: replace the values of the training.

    Raises:
        ValueError: the path contains no usable model, or the model has no such setting.
        FileNotFoundError: the checkpoint does not exist.
    """
    path = local_path(path)
    load = load_model_folder if has_task_of_ours(path) else _load_checkpoint
    trained = load(
        path,
        dtype=dtype,
        bert_config_file=bert_config_file,
        vocab_file=vocab_file,
        do_lower_case=do_lower_case,
    )
    trained = with_settings(trained, max_seq_length, doc_stride)
    trained.model.task = trained.task  # for save_pretrained
    return trained


def _load_checkpoint(
    path: str,
    *,
    dtype: str | None,
    bert_config_file: str | None,
    vocab_file: str | None,
    do_lower_case: bool | None,
) -> TrainedModel:
    inside = tf.io.gfile.glob(os.path.join(path, "*", "saved_model.pb"))  # in VERSION
    if not inside:  # in NAME/VERSION
        inside = tf.io.gfile.glob(os.path.join(path, "*", "*", "saved_model.pb"))
    if inside and not (holds_checkpoint(path) or is_of_sentence_transformers(path)):
        raise ValueError(
            f"{path} contains no checkpoint, but SavedModels in subfolders. Did you mean "
            f"{max(map(os.path.dirname, inside), key=_version)}?"
        )
    checkpoint = read_checkpoint(path)
    config = find_config(bert_config_file, checkpoint)
    tokenizer = load_tokenizer(vocab_file, do_lower_case, checkpoint, config)
    task, problem = _fine_tuned_task(replace(checkpoint, config=config))
    if task is not None:
        model = task.build_model(config, dtype=dtype)
    else:
        has_head = _MASKED_LM in checkpoint.arrays and not untied_decoder(checkpoint)
        model_class = BertForPreTraining if has_head else BertModel
        model = model_class(config, dtype=dtype)
    report = model.load_report = initialize(model, checkpoint)
    needed = ["cls/predictions/", "cls/embedding/", "cls/squad/", "output_"]
    if task is not None and task.uses_pooler:
        needed.append("bert/pooler/")
    missing = [name for name in report.missing if name.startswith(tuple(needed))]
    if missing:
        raise ValueError(
            f"{checkpoint.source} has an incomplete head: it lacks {', '.join(missing)}. Copy it again, "
            "or use a checkpoint with the whole head."
        )
    length = checkpoint.longest_input(config) if task is None else task.max_seq_length
    weights = checkpoint.source
    return TrainedModel(
        model, tokenizer, task, length, path, checkpoint=weights, unused_head=problem
    )


def _version(folder: str) -> tuple[int, str]:
    """Return a key by which the newest version of an export is the largest: numbers, then names."""
    name = os.path.basename(folder)
    return (int(name) if name.isdecimal() else -1, name)


def _fine_tuned_task(checkpoint: PretrainedCheckpoint) -> tuple[Task | None, str]:
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
    if task is None or isinstance(task, PretrainingTask):
        return None, untied_decoder(checkpoint)
    return task, ""


def with_settings(
    trained: TrainedModel, max_seq_length: int | None = None, doc_stride: int | None = None
) -> TrainedModel:
    """Return the same model with other lengths than in training; None keeps a length.

    Words are read in windows, whose stride is reduced if they become shorter.

    Raises:
        ValueError: the model does not support them.
    """
    if max_seq_length is not None:
        trained.model.config.check_sequence_length(max_seq_length, MIN_SEQ_LENGTH)
    given = {"max_seq_length": max_seq_length, "doc_stride": doc_stride}
    given = {name: value for name, value in given.items() if value is not None}
    task = trained.task
    if isinstance(task, TokenClassificationTask) and task.doc_stride and max_seq_length is not None:
        # As in the served graph; a given stride has precedence.
        given.setdefault("doc_stride", min(task.doc_stride, max_seq_length - NUM_SPECIAL_TOKENS))
    if doc_stride is not None and (task is None or "doc_stride" not in vars(task)):
        found = "a checkpoint without a task" if task is None else task.name
        raise ValueError(f"doc_stride is for models with windows of long texts, not for {found}.")
    if task is not None and given:
        task = type(task)(**{**task.arguments(), **given})
    length = trained.max_seq_length if max_seq_length is None else max_seq_length
    return replace(trained, task=task, max_seq_length=length)


def loaded(model: str | TrainedModel, name: str) -> TrainedModel:
    """Return a model for one type of task. Load it first if it is a folder or checkpoint.

    Args:
        name: key of `registry.TYPES`.

    Raises:
        ValueError: the model is for another task.
    """
    trained = load_model(model) if isinstance(model, str) else model
    found = "no task" if trained.task is None else trained.task.name
    if found != name:
        raise ValueError(
            f"{trained.source} contains a model for {found}, not for {name}. Name the output_dir of "
            f"{TYPES[name].program}."
        )
    return trained


def with_special_tokens(tokenizer: FullTokenizer) -> FullTokenizer:
    """Return the tokenizer, changed to keep a [MASK] in a text whole."""
    tokens = sorted(tokenizer.vocab, key=tokenizer.vocab.__getitem__)
    return FullTokenizer(tokens, tokenizer.do_lower_case, preserve_special_tokens=True)
