"""`from_pretrained`, `save_pretrained`, and the writer of folders in both formats."""

from __future__ import annotations

import inspect
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bert_tf.checkpoints.checkpoint import PretrainedCheckpoint, as_float32, shape_of
from bert_tf.checkpoints.heads import BY_ARCHITECTURE, HEADS, Head, head_of_model
from bert_tf.checkpoints.huggingface import POOLER_FILE, config_values, huggingface_tensors
from bert_tf.checkpoints.initial import check_path_of_encoder, initialize
from bert_tf.checkpoints.model_files import model_files, write_files
from bert_tf.checkpoints.read import read_checkpoint
from bert_tf.checkpoints.sentence_transformers import (
    CROSS_ENCODER_KEY,
    RAW_SCORES,
    write_modules,
)
from bert_tf.checkpoints.sidecar import check_vocabulary, find_config
from bert_tf.checkpoints.tensor_files import write_safetensors
from bert_tf.checkpoints.tf1 import write_tf1
from bert_tf.checkpoints.tokenizer_files import tokenizer_values
from bert_tf.config import BertConfig
from bert_tf.data.label_schemes import SCHEMES, WORDS, allowed_transitions
from bert_tf.embeddings.task import EmbeddingTask
from bert_tf.files import atomic_folder
from bert_tf.limits import join_names
from bert_tf.modeling import models
from bert_tf.modeling.models import BertForSentenceEmbedding
from bert_tf.tasks.base import Task
from bert_tf.tasks.classification import ClassificationTask, find_problem_type
from bert_tf.tasks.load import load_task
from bert_tf.tasks.of_checkpoint import (
    label_order,
    reordered,
    without_classifier,
)
from bert_tf.tasks.token_classification import TokenClassificationTask
from bert_tf.tokenization import FullTokenizer

logger = logging.getLogger(__name__)

FORMATS = ("tf1", "huggingface")
_WITH_TASK = {name for name in HEADS if name not in ("encoder", "masked_lm", "next_sentence")}
_OF_EMBEDDINGS = ("pooling", "projection_size")  # in the model; the rest is in its task
# A task with another value is not that of the model.
_OF_THE_HEAD = ("labels", "problem_type", "crf", "feature_layers")


def from_pretrained(cls: type, path: str | os.PathLike, **kwargs) -> Any:
    """Return a model of class `cls` with the weights of a checkpoint; see `ConfiguredModel`."""
    checkpoint = read_checkpoint(path)
    config = find_config(None, checkpoint)
    head = _head_of(cls)
    known, _ = load_task(checkpoint) if head and head.name in _WITH_TASK else (None, "")
    if head is not None and head.has_labels and _takes_labels(cls, kwargs, known):
        checkpoint, config, kwargs = _with_labels(checkpoint, config, head, known, kwargs)
    elif issubclass(cls, BertForSentenceEmbedding) and isinstance(known, EmbeddingTask):
        kwargs = {name: getattr(known, name) for name in _OF_EMBEDDINGS} | kwargs
    if known is None and issubclass(cls, BertForSentenceEmbedding):  # the mean of an encoder
        if "pooling" not in kwargs:
            checkpoint.check_embeddings()
        known = EmbeddingTask(checkpoint.longest_input(config))
    model = cls(config, **kwargs)
    model.task = known if head and known and known.name == head.name else None
    report = model.load_report = initialize(model, checkpoint)
    if report.new_head:
        has_part = any(not name.startswith("bert/") for name in report.loaded)
        logger.warning(
            "%s: %s of %s is new, with random values until it is trained. %s",
            checkpoint.source,
            "a part of the head" if has_part else "the head",
            cls.__name__,
            report.new_head,
        )
    return model


def _takes_labels(cls: type, kwargs: Mapping[str, Any], known: Task | None) -> bool:
    """Return True unless a subclass sets the number of labels itself.

    One that passes on any arguments gets the labels of the folder, if it has some.
    """
    names = {"labels", "num_labels"}
    accepted = inspect.signature(getattr(cls, "__init__")).parameters  # noqa: B009  (mypy)
    takes_any = any(each.kind is each.VAR_KEYWORD for each in accepted.values())
    takes_any = takes_any and bool(getattr(known, "labels", ()))
    return bool(names & kwargs.keys()) or takes_any or names <= accepted.keys()


def _with_labels(
    checkpoint: PretrainedCheckpoint,
    config: BertConfig,
    head: Head,
    known: Task | None,
    kwargs: dict[str, Any],
) -> tuple[PretrainedCheckpoint, BertConfig, dict[str, Any]]:
    """Return the checkpoint, its config, and the arguments of a matching classifier."""
    if "labels" in kwargs:
        kwargs = {**kwargs, "labels": models.normalize_labels(kwargs["labels"])}
    theirs: Sequence[str] = ()
    if known is not None and known.name == head.name:
        # Folders of older versions may have numbers.
        theirs = tuple(str(label) for label in getattr(known, "labels", ()))
        if isinstance(known, ClassificationTask):
            problem_type = known.kind.huggingface
            config = replace(config, extra={**config.extra, "problem_type": problem_type})
            theirs = theirs or ("LABEL_0",)  # a number
    labels, num_labels = kwargs.get("labels"), kwargs.get("num_labels")
    scheme = getattr(known, "crf", None) if theirs else None
    if labels is None and num_labels in (None, len(theirs)) and theirs:
        if scheme is not None:
            kwargs = {"allowed_transitions": allowed_transitions(theirs, scheme), **kwargs}
        return checkpoint, config, {**kwargs, "labels": theirs}
    if labels is None and num_labels is None and "output_weights" in checkpoint.arrays:
        rows = shape_of(checkpoint.arrays, "output_weights")[0]
        return checkpoint, config, {**kwargs, "num_labels": rows}
    order = label_order(theirs, labels) if theirs and labels is not None else None
    if order is not None:
        arrays = reordered(checkpoint.arrays, order)
        if scheme is not None:
            allowed = allowed_transitions([theirs[index] for index in order], scheme)
            kwargs = {"allowed_transitions": allowed, **kwargs}
    elif theirs:  # a classifier for other labels
        arrays = without_classifier(checkpoint.arrays)
        checkpoint = replace(checkpoint, unused_head=_difference(theirs, labels, num_labels))
        is_number = (num_labels or len(labels or ())) == 1
        dropped = {CROSS_ENCODER_KEY}
        if is_number != (config.extra.get("problem_type") == "regression"):
            dropped.add("problem_type")
        extra = {name: v for name, v in config.extra.items() if name not in dropped}
        config = replace(config, extra=extra)
    else:
        return checkpoint, config, kwargs
    return replace(checkpoint, arrays=arrays), config, kwargs


def _difference(theirs: Sequence[str], labels: Sequence[str] | None, num_labels: int | None) -> str:
    """Return the reason why a classifier for the labels `theirs` is not used."""
    wanted = num_labels or len(labels or ())
    if wanted != len(theirs):
        return f"The checkpoint's head has {len(theirs)} labels, the model's {wanted}."
    named = f"The labels of the checkpoint's head are {join_names(theirs)}"
    return f"{named}, the model's are {join_names(labels or ())}."


def save_pretrained(
    model: Any,
    folder: str | os.PathLike,
    tokenizer: FullTokenizer | None = None,
    format: str = "huggingface",
) -> None:
    """Write a model as a new folder; see `ConfiguredModel`."""
    cls = type(model)
    head = _head_of(cls)
    if tokenizer is None:
        logger.warning("%s gets no vocabulary: give `tokenizer`, or load() fails", folder)
    else:
        check_vocabulary(tokenizer.vocab, model.config, "of `tokenizer`")
    arrays = {variable.path: as_float32(variable.numpy()) for variable in model.weights}
    check_path_of_encoder(arrays)
    others = [name for name in arrays if not _is_storable(name, head)]
    if head is None or others:
        raise TypeError(
            f"These formats have no place for {join_names(others, 3)} of {cls.__name__}: use Keras' "
            "model.save()."
        )
    if cls.__name__ not in BY_ARCHITECTURE and head.architecture:
        base = next(base for base in cls.__mro__ if base.__name__ == head.architecture)
        if getattr(cls, "call", None) is not getattr(base, "call", None):
            logger.warning(
                "%s is written as %s, and bert_tf.load makes a model of that class, without the `call` "
                "of %s.",
                *(cls.__name__, base.__name__, cls.__name__),
            )
    checkpoint = PretrainedCheckpoint("the model", arrays, model.config)
    if head.has_labels:
        labels = model.labels or tuple(f"LABEL_{index}" for index in range(model.num_labels))
        checkpoint = replace(checkpoint, labels=labels)
    task = _task_of(model, head, checkpoint)
    vocab = None if tokenizer is None else list(tokenizer.vocab)
    do_lower_case = None if tokenizer is None else tokenizer.do_lower_case
    with atomic_folder(os.fspath(folder), "`folder`") as temporary:
        write_folder(temporary, checkpoint, model.config, head, task, vocab, do_lower_case, format)


def _head_of(cls: type) -> Head | None:
    """Return the type of a class of models, or None for one that folders cannot hold."""
    if issubclass(cls, BertForSentenceEmbedding):
        return HEADS["embeddings"]
    return head_of_model(cls)


def _is_storable(name: str, head: Head | None) -> bool:
    """Return True for a variable of the encoder or the head, without LoRAs of Keras."""
    is_known = name.startswith(("bert/", "crf/")) or (head is not None and head.owns(name))
    return is_known and "/lora_kernel_" not in name


def _task_of(model: Any, head: Head, checkpoint: PretrainedCheckpoint) -> Task | None:
    """Return the task for task.json: that of the model's checkpoint if it fits, else a new one."""
    length = model.config.max_position_embeddings
    labels = checkpoint.labels or ()
    task, _ = load_task(replace(checkpoint, architecture=head.architecture or "BertModel"))
    if isinstance(model, BertForSentenceEmbedding):
        task = EmbeddingTask(length, **{name: getattr(model, name) for name in _OF_EMBEDDINGS})
    elif (crf := getattr(model, "crf", None)) is not None:
        scheme = _scheme_of(model.labels or (), crf.allowed.tolist())
        task = TokenClassificationTask(labels, length, crf=scheme)
    if task is None or type(task) is not type(model.task):
        return task
    made, known = task.arguments(), model.task.arguments()
    if any(made.get(name) != known.get(name) for name in _OF_THE_HEAD):
        return task
    arguments = known | {name: made[name] for name in _OF_EMBEDDINGS if name in made}
    if isinstance(task, EmbeddingTask):
        arguments["matryoshka_dims"] = [n for n in known["matryoshka_dims"] if n < model.width]
    model.config.check_sequence_length(arguments["max_seq_length"])
    return type(task)(**arguments)


def _scheme_of(labels: Sequence[str], allowed: list[list[bool]]) -> str:
    """Return the scheme of a CRF, which `task.json` names."""
    for scheme in (*SCHEMES, WORDS):
        if allowed_transitions(labels, scheme) == allowed:
            return scheme
    raise ValueError(
        "`allowed_transitions` must be those of the `labels` in one of the schemes "
        f"{', '.join((*SCHEMES, WORDS))}."
    )


def write_folder(
    folder: str,
    checkpoint: PretrainedCheckpoint,
    config: BertConfig,
    head: Head,
    task: Task | None,
    vocab: Sequence[str] | None,
    do_lower_case: bool | None,
    format: str,
) -> None:
    """Write a checkpoint and the files next to it into an empty folder.

    Args:
        checkpoint: with labels if the head has any.
        head: type of its head.
        task: for task.json, or None.
        vocab: WordPieces in the order of their ids, or None.
        do_lower_case: of the tokenizer; None without a vocabulary.
        format: "tf1" or "huggingface".

    Raises:
        ValueError: the format is unknown, or Hugging Face's BERT cannot express the model.
    """
    if format not in FORMATS:
        raise ValueError(f"`format` is {format!r}, but must be one of {', '.join(FORMATS)}.")
    if format == "tf1":
        write_tf1(os.path.join(folder, "bert_model.ckpt"), checkpoint.arrays)
        write_files(folder, model_files(config, task, vocab, do_lower_case))
        return
    arrays = checkpoint.arrays
    if isinstance(task, EmbeddingTask):
        write_modules(folder, task.arguments(), config, arrays)
        arrays = {name: arrays[name] for name in arrays if not head.owns(name)}
        head = HEADS["encoder"]
    problem_type = None
    if head.name == "classification":
        stated = find_problem_type(config, checkpoint.labels or ())
        problem_type = (task.kind if isinstance(task, ClassificationTask) else stated).huggingface
    values = config_values(config, head, checkpoint.labels, vocab, problem_type)
    if isinstance(task, ClassificationTask) and task.kind.name == "regression" and task.is_pair:
        values.setdefault(CROSS_ENCODER_KEY, RAW_SCORES)
    files = {"config.json": values}
    tensors, beside = huggingface_tensors(arrays, config, head)
    write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
    if beside:
        write_safetensors(os.path.join(folder, POOLER_FILE), beside)
    if vocab is not None and do_lower_case is not None:
        length = config.max_position_embeddings
        if isinstance(task, ClassificationTask | EmbeddingTask):  # they truncate longer inputs
            length = task.max_seq_length
        files |= tokenizer_values(vocab, do_lower_case, length)
    texts = {name: json.dumps(v, indent=2, ensure_ascii=False) + "\n" for name, v in files.items()}
    write_files(folder, texts | model_files(task=task, vocab=vocab))
