"""Models for predictions: the folder of a run, or any checkpoint there is.

folder of a run of ours (task.json)      the model of its task
checkpoint with a fine-tuned head        the model of the task that Hugging Face's config.json states
checkpoint with a masked-LM head         BertForPreTraining
any other checkpoint                     BertModel, for embeddings and attention
"""

from __future__ import annotations

import os
from dataclasses import replace

import tensorflow as tf

from bert_tf.interop.beside import find_config, load_tokenizer
from bert_tf.interop.checkpoint import PretrainedCheckpoint, read_json
from bert_tf.interop.hub import SCHEME
from bert_tf.interop.initial import initialize, read_checkpoint
from bert_tf.model_folder import TASK_FILE, TASKS, TrainedModel, load_model_folder, task_of
from bert_tf.modeling.bert import BertModel
from bert_tf.modeling.models import BertForPreTraining
from bert_tf.tasks.base import Task
from bert_tf.tasks.pretraining import PretrainingTask
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.checkpoints import latest_checkpoint

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
    """The model in a folder or checkpoint, with its tokenizer; `task` is None where it has none.

    Args:
        path: the --output_dir of a run, or whatever --init_checkpoint may name.
        dtype: precision policy, default float32.
        bert_config_file, vocab_file, do_lower_case: of a checkpoint, instead of what is next to it.
        max_seq_length, doc_stride: in place of those that the model was trained with.

    Raises:
        ValueError: nothing that can be used lies there, or it has no such setting.
        FileNotFoundError: there is no such checkpoint.
    """
    if not path.startswith(SCHEME) and _has_task_of_ours(path):
        trained = load_model_folder(path, dtype=dtype)
    else:
        trained = _load_checkpoint(path, dtype, bert_config_file, vocab_file, do_lower_case)
    return with_settings(trained, max_seq_length, doc_stride)


def _has_task_of_ours(folder: str) -> bool:
    """Return whether task.json is there, unless it names a task of somebody's own."""
    path = os.path.join(folder, TASK_FILE)
    return tf.io.gfile.exists(path) and read_json(path).get("task", "") in ("", *TASKS)


def _load_checkpoint(
    path: str,
    dtype: str | None,
    bert_config_file: str | None,
    vocab_file: str | None,
    do_lower_case: bool | None,
) -> TrainedModel:
    inside = tf.io.gfile.glob(os.path.join(path, "*", "saved_model.pb"))
    if inside and latest_checkpoint(path) is None:
        raise ValueError(
            f"{path} holds no checkpoint, but SavedModels in folders of its own. Did you mean "
            f"{os.path.dirname(max(inside))}?"
        )
    checkpoint = read_checkpoint(path)
    config = find_config(bert_config_file, checkpoint)
    tokenizer = load_tokenizer(vocab_file, do_lower_case, checkpoint, config)
    task, problem = _fine_tuned_task(replace(checkpoint, config=config))
    if task is not None:
        model = task.build_model(config, dtype=dtype)
    else:
        kind = BertForPreTraining if _MASKED_LM in checkpoint.arrays else BertModel
        model = kind(config, dtype=dtype)
    report = initialize(model, checkpoint)
    missing = [name for name in report.missing if name.startswith(("cls/predictions/", "output_"))]
    if missing:
        raise ValueError(
            f"{checkpoint.source} has only a part of its head: it lacks {', '.join(missing)}. It is "
            "incomplete; copy it again, or use one that has the whole head."
        )
    length = config.max_position_embeddings if task is None else task.max_seq_length
    return TrainedModel(model, tokenizer, task, length, path, unused_head=problem)


def _fine_tuned_task(checkpoint: PretrainedCheckpoint) -> tuple[Task | None, str]:
    """Return the task of a fine-tuned head; or None, and why a head cannot be used."""
    try:
        task = task_of(checkpoint)
    except ValueError as error:
        return None, str(error)
    if isinstance(task, PretrainingTask):
        return None, ""
    if task is None and "output_weights" in checkpoint.arrays:
        return None, f"{checkpoint.source} has a head with several numbers as its outputs."
    return task, ""


def with_settings(
    trained: TrainedModel, max_seq_length: int | None = None, doc_stride: int | None = None
) -> TrainedModel:
    """The same model with other lengths than it was trained with; None leaves them as they are.

    Raises:
        ValueError: the model cannot have them.
    """
    limit = trained.model.config.max_position_embeddings
    if max_seq_length is not None and not 3 <= max_seq_length <= limit:
        raise ValueError(
            f"--max_seq_length is {max_seq_length}, but must be from 3 to {limit}, the model's "
            "`max_position_embeddings`."
        )
    given = {"max_seq_length": max_seq_length, "doc_stride": doc_stride}
    given = {name: value for name, value in given.items() if value is not None}
    task = trained.task
    if doc_stride is not None and (task is None or "doc_stride" not in vars(task)):
        kind = "a checkpoint without a task" if task is None else task.name
        raise ValueError(f"--doc_stride is for models that cut long texts, not for {kind}.")
    if task is not None and given:
        task = type(task)(**{**task.arguments(), **given})
    length = trained.max_seq_length if max_seq_length is None else max_seq_length
    return replace(trained, task=task, max_seq_length=length)


def loaded(model: str | TrainedModel, kind: type[Task], program: str) -> TrainedModel:
    """A model for one kind of task; a folder or checkpoint is loaded first.

    Args:
        program: whose --output_dir has such models, for the message.

    Raises:
        ValueError: it is for another task.
    """
    trained = load_model(model) if isinstance(model, str) else model
    if not isinstance(trained.task, kind):
        found = "no task" if trained.task is None else trained.task.name
        raise ValueError(
            f"{trained.source} holds a model for {found}. Name the --output_dir of {program}."
        )
    return trained


def with_special_tokens(tokenizer: FullTokenizer) -> FullTokenizer:
    """The tokenizer that leaves a [MASK] in a text whole."""
    tokens = sorted(tokenizer.vocab, key=tokenizer.vocab.__getitem__)
    return FullTokenizer(tokens, tokenizer.do_lower_case, preserve_special_tokens=True)
