"""`from_pretrained` and `save_pretrained` of the models."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bert_tf.checkpoints.checkpoint import PretrainedCheckpoint, as_float32, find_config, shape_of
from bert_tf.checkpoints.heads import Head, align_labels, head_of_model, label_order, task_values
from bert_tf.checkpoints.initial import check_path_of_encoder, initialize
from bert_tf.checkpoints.read import read_checkpoint
from bert_tf.checkpoints.sentence_transformers import CROSS_ENCODER_KEY
from bert_tf.checkpoints.tokenizer_files import check_vocabulary
from bert_tf.checkpoints.write import write_folder
from bert_tf.config import HUGGINGFACE_PROBLEM_TYPES, BertConfig
from bert_tf.files import atomic_folder
from bert_tf.limits import join_names
from bert_tf.tokenization import FullTokenizer

logger = logging.getLogger(__name__)

_WITHOUT_TASK = ("encoder", "masked_lm", "next_sentence")
_OF_EMBEDDINGS = ("pooling", "projection_size")  # in the model; the rest is in its task
# A task with another value is not that of the model; with what is meant by an absent value.
_OF_THE_HEAD: dict[str, Any] = {
    "task": None,
    "labels": [],
    "problem_type": "single_label",
    "crf": None,
    "feature_layers": None,
}


def from_pretrained(cls: type, path: str | os.PathLike, **kwargs) -> Any:
    """Return a model of class `cls` with the weights of a checkpoint; see `ConfiguredModel`."""
    checkpoint = read_checkpoint(path)
    config = find_config(None, checkpoint)
    head, task = head_of_model(cls), None
    if head is not None and head.name not in _WITHOUT_TASK:
        task, _ = task_values(checkpoint)
        if task is None and head.name == "embeddings":  # the mean of an encoder
            if "pooling" not in kwargs:
                checkpoint.check_embeddings()
            task = {"task": head.name, "max_seq_length": checkpoint.longest_input(config)}
        if task is not None and task["task"] != head.name:
            task = None
        if head.name == "embeddings" and task is not None:
            kwargs = {name: task[name] for name in _OF_EMBEDDINGS if name in task} | kwargs
        elif head.has_labels:
            checkpoint, config, kwargs = _with_labels(checkpoint, config, task or {}, kwargs)
    model = cls(config, **kwargs)
    model.task = task
    report = model.load_report = initialize(model, checkpoint)
    if report.new_head:
        logger.warning(
            "%s: the head of %s is new or partly new, with random values until it is trained. %s",
            *(checkpoint.source, cls.__name__, report.new_head),
        )
    return model


def _with_labels(
    checkpoint: PretrainedCheckpoint,
    config: BertConfig,
    task: Mapping[str, Any],
    kwargs: dict[str, Any],
) -> tuple[PretrainedCheckpoint, BertConfig, dict[str, Any]]:
    """Return the checkpoint, its config, and the arguments of a matching classifier."""
    stated = tuple(map(str, task.get("labels", ())))  # numbers in folders of older versions
    labels, num_labels = kwargs.get("labels"), kwargs.get("num_labels")
    if labels is None and stated and num_labels in (None, len(stated)):
        labels = stated
        kwargs = {**kwargs, "labels": labels}
    elif labels is None and num_labels is None and "output_weights" in checkpoint.arrays:
        num_labels = shape_of(checkpoint.arrays, "output_weights")[0]
        kwargs = {**kwargs, "num_labels": num_labels}
    labels = tuple(map(str, labels or ()))
    checkpoint = align_labels(checkpoint, stated, labels, will_train=True)
    count, extra = num_labels or len(labels), dict(config.extra)
    if checkpoint.unused_head or count != max(1, len(stated)):
        extra.pop(CROSS_ENCODER_KEY, None)
    if task.get("task") == "classification":
        problem_type = HUGGINGFACE_PROBLEM_TYPES[task.get("problem_type", "single_label")]
        extra["problem_type"] = problem_type
        if (count == 1) != (problem_type == "regression"):
            del extra["problem_type"]
    if task.get("crf") and labels and not checkpoint.unused_head:
        labels = [stated[row] for row in label_order(stated, labels) or ()]
        kwargs = {"crf": task["crf"], **kwargs, "labels": labels}
    return checkpoint, replace(config, extra=extra), kwargs


def save_pretrained(
    model: Any,
    folder: str | os.PathLike,
    tokenizer: FullTokenizer | None = None,
    format: str = "huggingface",
) -> None:
    """Write a model as a new folder; see `ConfiguredModel`."""
    cls = type(model)
    head = head_of_model(cls)
    if tokenizer is None:
        logger.warning("%s gets no vocabulary: give `tokenizer`, or load() fails", folder)
    else:
        check_vocabulary(len(tokenizer.vocab), model.config.vocab_size, "of `tokenizer`")
    arrays = {variable.path: as_float32(variable.numpy()) for variable in model.weights}
    check_path_of_encoder(arrays)
    unknown = [name for name in arrays if head is None or not _is_storable(name, head)]
    if head is None or unknown:
        raise TypeError(
            f"These formats have no place for {join_names(unknown, 3)} of {cls.__name__}: use Keras' "
            "model.save()."
        )
    base: Any = next((base for base in cls.__mro__ if base.__name__ == head.architecture), cls)
    if model.call.__func__ is not base.call:
        text = "%s is written as %s, of which bert_tf.load makes a model, without its `call`."
        logger.warning(text, cls.__name__, base.__name__)
    checkpoint = PretrainedCheckpoint("the model", arrays, model.config)
    if head.has_labels:
        labels = model.labels or tuple(f"LABEL_{index}" for index in range(model.num_labels))
        checkpoint = replace(checkpoint, labels=labels)
    task = _make_task_values(model, head, checkpoint)
    vocab = None if tokenizer is None else list(tokenizer.vocab)
    do_lower_case = None if tokenizer is None else tokenizer.do_lower_case
    with atomic_folder(os.fspath(folder), "`folder`") as temporary:
        write_folder(temporary, checkpoint, model.config, head, task, vocab, do_lower_case, format)


def _is_storable(name: str, head: Head) -> bool:
    """Return True for a variable of the encoder or the head, without LoRAs of Keras."""
    return (name.startswith(("bert/", "crf/")) or head.owns(name)) and "/lora_kernel_" not in name


def _make_task_values(
    model: Any, head: Head, checkpoint: PretrainedCheckpoint
) -> dict[str, Any] | None:
    """Return the content of task.json: that of the model's checkpoint if it fits, else a new one."""
    length, known = model.config.max_position_embeddings, model.task
    task, _ = task_values(replace(checkpoint, architecture=head.architecture))
    of_model = {}
    if head.name == "embeddings":
        of_model = {name: getattr(model, name) for name in _OF_EMBEDDINGS}
        task = {"task": head.name, "max_seq_length": length, **of_model}
    elif (crf := getattr(model, "crf", None)) is not None:
        labels = list(model.labels)
        task = {"task": head.name, "labels": labels, "max_seq_length": length, "crf": crf.scheme}
    if task is None or known is None:
        return task
    fits = all(
        task.get(name, value) == known.get(name, value) for name, value in _OF_THE_HEAD.items()
    )
    return {**known, **of_model} if fits else task
