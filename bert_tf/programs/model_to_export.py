"""The model that export_saved_model writes, with its weights."""

from __future__ import annotations

import os
import re
from dataclasses import fields, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, cast

from bert_tf.data.files import file_facts
from bert_tf.data.globs import files_of_checkpoint
from bert_tf.interop.initial import initialize
from bert_tf.interop.read import read_checkpoint
from bert_tf.interop.sidecar import find_config, load_tokenizer
from bert_tf.model_files import TASK_FILE
from bert_tf.model_folder import TrainedModel, load_model
from bert_tf.modeling.pooling import parse_layers
from bert_tf.registry import TYPES
from bert_tf.report.command_line import as_flags, changed_options, without_folders
from bert_tf.serving.encoder import ServedEncoder
from bert_tf.serving.masked_lm import ServedMaskFiller
from bert_tf.serving.question_answering import ServedAnswerer
from bert_tf.serving.served import Served
from bert_tf.tasks.answer_decoding import AnswerSettings
from bert_tf.tasks.base import MIN_SEQ_LENGTH
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.question_answering import QuestionAnsweringTask, check_threshold
from bert_tf.training.checkpoints import checkpoint_step

if TYPE_CHECKING:
    from bert_tf.programs.export_options import ExportOptions

# Settings of one type of model: name in registry.TYPES -> fields of ExportOptions.
SETTINGS_OF = {
    "question_answering": ("null_score_diff_threshold", "max_answer_length", "n_best_size"),
    "encoder": ("pooling", "normalize", "layers"),
    "masked_lm": ("top_k",),
}


def load_served(options: ExportOptions, dtype: str | None = None) -> Served:
    """Return the model to export, with its weights.

    Args:
        dtype: Keras precision policy; default: `options.dtype`.

    Raises:
        ValueError: the folder lacks the head, or a flag does not fit the model.
    """
    dtype = options.dtype if dtype is None else dtype
    if options.head in ("encoder", "masked_lm"):
        return _without_task(options.head, options, dtype)
    trained = load_model(
        options.model_dir,
        dtype=dtype,
        bert_config_file=options.bert_config_file,
        vocab_file=options.vocab_file,
        do_lower_case=options.do_lower_case,
    )
    task = trained.task
    if task is not None and TYPES[task.name].served:
        served = _with_task(trained, options)
        served.checkpoint = trained.checkpoint
        return served
    if task is not None and task.name != "pretraining":
        raise ValueError(
            f"{options.model_dir} contains a model for {task.name}, which has no `served` in "
            "registry.TYPES. Add it, or export only the encoder: head=encoder."
        )
    if trained.unused_head:
        raise ValueError(f"{trained.unused_head} Its encoder can be exported: head=encoder.")
    if options.head == "task":
        raise ValueError(
            f"{options.model_dir} contains no fine-tuned model: it has no {TASK_FILE} of "
            "run_classifier, run_squad, run_ner or run_swag, and no such head. Use head=encoder or "
            "head=masked_lm."
        )
    return _without_task("encoder", options, dtype)


def _check_settings(options: ExportOptions, head: str) -> None:
    """Raise if a setting is for another type of model than that of `head`."""
    for field in fields(options):
        owner = next((name for name, names in SETTINGS_OF.items() if field.name in names), head)
        value = getattr(options, field.name)
        if owner != head and value != field.default:
            raise ValueError(
                f"{field.name} is {value}, but it is for {owner}, and {options.model_dir} is exported "
                f"for {head}. Omit it."
            )
    if options.is_pair is not None and head != "classification":
        raise ValueError(
            f"is_pair is {options.is_pair}, but it is for classification, and {options.model_dir} is "
            f"exported for {head}. Omit it."
        )


def _with_task(trained: TrainedModel, options: ExportOptions) -> Served:
    task = trained.task
    _check_settings(options, task.name)
    for label in getattr(task, "labels", ()):
        if "\n" in label or "\r" in label:
            raise ValueError(
                f"{options.model_dir} has the label {label[:60]!r} with a line end, but labels.txt of "
                f"an export has one label a line. Rename it in the model's {TASK_FILE}, or in id2label "
                "of the config.json of Hugging Face."
            )
    if options.is_pair is not None:
        trained = _as_pairs(trained, options.is_pair)
        task = trained.task
    if isinstance(task, QuestionAnsweringTask):
        if options.max_seq_length is not None:
            raise ValueError(
                "max_seq_length is not for question-answering models: longer contexts are read in "
                f"windows of {task.max_seq_length} tokens, as in training. Omit it."
            )
        _check_answers(options, task)
        settings = AnswerSettings(
            options.n_best_size,
            options.max_answer_length,
            task.version_2_with_negative,
            options.null_score_diff_threshold,
        )
        return ServedAnswerer(trained, settings, options.with_text)
    length = options.max_seq_length or trained.max_seq_length
    trained.model.config.check_sequence_length(length, task.min_seq_length)
    return TYPES[task.name].load("served")(trained, length, options.with_text)


def _check_answers(options: ExportOptions, task: QuestionAnsweringTask) -> None:
    """Raise if a setting of answers changes nothing in the export."""
    check_threshold(task, options.null_score_diff_threshold, options.model_dir)
    if options.takes_text or options.eval_file is not None:
        return
    for name in SETTINGS_OF["question_answering"]:
        if getattr(options, name) != getattr(type(options), name):
            raise ValueError(
                f"{name} is {getattr(options, name)}, but an export that takes only ids gives logits. "
                "Omit it, and give it to the program that chooses the answers, such as predict."
            )


def _as_pairs(trained: TrainedModel, is_pair: bool) -> TrainedModel:
    """Set the input of a classifier that does not state it: pairs or single texts."""
    task = cast(ClassificationTask, trained.task)
    if task.is_pair not in (None, is_pair):
        raise ValueError(
            f"is_pair={is_pair} is for classifiers of Hugging Face, which do not state whether they "
            f"take pairs, but {trained.source} states it. Omit the flag."
        )
    task = ClassificationTask(**task.arguments() | {"is_pair": is_pair})
    return replace(trained, task=task)


def _without_task(head: str, options: ExportOptions, dtype: str) -> Served:
    _check_settings(options, head)
    checkpoint = read_checkpoint(options.model_dir)
    config = find_config(options.bert_config_file, checkpoint)
    tokenizer = load_tokenizer(options.vocab_file, options.do_lower_case, checkpoint, config)
    length = options.max_seq_length or checkpoint.longest_input(config)
    config.check_sequence_length(length, MIN_SEQ_LENGTH)
    model = TYPES[head].load("model")(config, dtype=dtype)
    report = model.load_report = initialize(model, checkpoint)
    if head == "encoder":
        layers = parse_layers(options.layers, config.num_hidden_layers) if options.layers else []
        settings = (options.pooling, options.normalize, layers, options.with_text)
        served: Served = ServedEncoder(model, tokenizer, length, *settings)
    else:
        missing = [name for name in report.missing if name.startswith("cls/predictions")]
        if missing:
            raise ValueError(
                f"{checkpoint.source} has no masked-LM head: it lacks {', '.join(missing[:3])}. Use "
                "head=encoder, or a pre-trained checkpoint with its heads."
            )
        served = ServedMaskFiller(model, tokenizer, length, options.top_k, options.with_text)
    served.checkpoint = checkpoint.source
    return served


def describe_source(options: ExportOptions, checkpoint: str) -> dict[str, Any]:
    """Return the facts that trace an export to its model, for export.json.

    Args:
        checkpoint: path of the weights.

    Returns:
        The name of the checkpoint; size and SHA-256 of its files; its step and the
        the time in UTC; and the flags.
    """
    name = os.path.basename(checkpoint)
    is_ours = re.fullmatch(r"model\.ckpt-\d+", name)
    return {
        "checkpoint": name,
        "files": {os.path.basename(f): file_facts(f) for f in files_of_checkpoint(checkpoint)},
        "step": checkpoint_step(checkpoint) if is_ours else None,
        "exported": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "flags": as_flags(changed_options(options), shown=without_folders),
    }
