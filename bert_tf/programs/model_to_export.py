"""The model that export_saved_model writes, with its weights."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from bert_tf.data.files import file_facts, files_of_checkpoint
from bert_tf.interop.initial import initialize
from bert_tf.interop.read import read_checkpoint
from bert_tf.interop.sidecar import find_config, load_tokenizer
from bert_tf.model_files import TASK_FILE
from bert_tf.model_folder import TrainedModel, load_model
from bert_tf.modeling.pooling import parse_layers
from bert_tf.options import OptionError
from bert_tf.registry import TYPES
from bert_tf.report.command_line import as_flags, changed_options, without_folders
from bert_tf.serving.encoder import ServedEncoder
from bert_tf.serving.masked_lm import ServedMaskFiller
from bert_tf.serving.question_answering import ServedAnswerer
from bert_tf.serving.served import Served
from bert_tf.tasks.answer_decoding import AnswerSettings
from bert_tf.tasks.base import MIN_SEQ_LENGTH
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.question_answering import QuestionAnsweringTask
from bert_tf.training.checkpoints import checkpoint_step

if TYPE_CHECKING:
    from bert_tf.programs.export_options import ExportOptions


def load_served(options: ExportOptions, dtype: str, with_text: bool) -> Served:
    """Return the model to export, with its weights.

    Args:
        dtype: Keras precision policy.
        with_text: True if it takes text.

    Raises:
        ValueError: the folder lacks the head, or a flag does not fit the model.
    """
    if options.head in ("encoder", "masked_lm"):
        return _without_task(options.head, options, dtype, with_text)
    trained = load_model(
        options.model_dir,
        dtype=dtype,
        bert_config_file=options.bert_config_file,
        vocab_file=options.vocab_file,
        do_lower_case=options.do_lower_case,
    )
    task = trained.task
    if task is not None and TYPES[task.name].served:
        served = _with_task(trained, options, with_text)
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
    return _without_task("encoder", options, dtype, with_text)


def _with_task(trained: TrainedModel, options: ExportOptions, with_text: bool) -> Served:
    task = trained.task
    if options.is_pair is not None and isinstance(task, ClassificationTask):
        if task.is_pair not in (None, options.is_pair):
            raise OptionError("is_pair", f"{trained.source} states {task.is_pair}. Omit it.")
        task = ClassificationTask(**task.arguments() | {"is_pair": options.is_pair})
        trained = replace(trained, task=task)
    if isinstance(task, QuestionAnsweringTask):
        if options.max_seq_length not in (None, task.max_seq_length):
            raise OptionError(
                "max_seq_length", f"windows have {task.max_seq_length} tokens, as in training."
            )
        settings = AnswerSettings(
            options.n_best_size,
            options.max_answer_length,
            task.version_2_with_negative,
            options.null_score_diff_threshold,
        )
        return ServedAnswerer(trained, settings, with_text)
    length = options.max_seq_length or trained.max_seq_length
    trained.model.config.check_sequence_length(length, task.min_seq_length)
    return TYPES[task.name].load("served")(trained, length, with_text)


def _without_task(head: str, options: ExportOptions, dtype: str, with_text: bool) -> Served:
    checkpoint = read_checkpoint(options.model_dir)
    config = find_config(options.bert_config_file, checkpoint)
    tokenizer = load_tokenizer(options.vocab_file, options.do_lower_case, checkpoint, config)
    length = options.max_seq_length or checkpoint.longest_input(config)
    config.check_sequence_length(length, MIN_SEQ_LENGTH)
    model = TYPES[head].load("model")(config, dtype=dtype)
    report = model.load_report = initialize(model, checkpoint)
    if head == "encoder":
        layers = parse_layers(options.layers, config.num_hidden_layers) if options.layers else []
        settings = (options.pooling, options.normalize, layers, with_text)
        served: Served = ServedEncoder(model, tokenizer, length, *settings)
    else:
        missing = [name for name in report.missing if name.startswith("cls/predictions")]
        if missing:
            raise ValueError(
                f"{checkpoint.source} has no masked-LM head: it lacks {', '.join(missing[:3])}. Use "
                "head=encoder, or a pre-trained checkpoint with its heads."
            )
        served = ServedMaskFiller(model, tokenizer, length, options.top_k, with_text)
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
