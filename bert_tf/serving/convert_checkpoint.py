"""convert_checkpoint: from any checkpoint format to that of TensorFlow 1 or Hugging Face.

Checkpoints of bert_tf have the TensorFlow 1 format with the optimizer's moments, which are dropped.
"""

from __future__ import annotations

import logging
import math
import os
from dataclasses import dataclass, replace

from bert_tf.checkpoints.checkpoint import PretrainedCheckpoint, find_config, shape_of
from bert_tf.checkpoints.heads import HEADS, Head, default_labels, find_head, select, split_labels
from bert_tf.checkpoints.huggingface import name_table
from bert_tf.checkpoints.read import read_checkpoint
from bert_tf.checkpoints.tokenizer_files import find_tokenizer
from bert_tf.checkpoints.write import FORMATS, write_folder
from bert_tf.config import BertConfig
from bert_tf.files import atomic_folder, check_new_folder
from bert_tf.limits import join_names
from bert_tf.options import (
    ModelOptions,
    OptionError,
    changes,
    make_options,
    option,
)
from bert_tf.report.model_card import model_facts, write_conversion_card
from bert_tf.tasks.base import Task
from bert_tf.tasks.load import load_task
from bert_tf.tasks.token_classification import TokenClassificationTask
from bert_tf.tokenization import FullTokenizer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    model: ModelOptions = changes(
        max_seq_length={
            "help": "Tokens of an example, for task.json. Default: that stated next to the weights, "
            "else the number of positions."
        }
    )
    init_checkpoint: str = option(
        "Source: a TF1 checkpoint or a bert_tf run, a Hugging Face folder or hf://org/name, an "
        "object-based checkpoint of tf-models-official, or a SavedModel encoder of TF Hub.",
        group="Model",
    )
    output_dir: str = option("New folder.", group="Model")
    output_format: str = option(
        "tf1: bert_model.ckpt with bert_config.json and vocab.txt, for bert_tf and the original. "
        "huggingface: config.json, model.safetensors and the files of the tokenizer.",
        group="Data",
        default="huggingface",
        choices=FORMATS,
    )
    head: str | None = option(
        "Head to write, if the checkpoint does not state it or has several. Other variables are then "
        "dropped. Default: write all variables.",
        group="Model",
        default=None,
        choices=tuple(HEADS),
    )
    labels: str | None = option(
        "Comma list of the classifier's labels, in the order of its outputs. Default: those next to the "
        "checkpoint.",
        default=None,
    )
    is_pair: bool | None = option(
        "The classifier takes pairs of sentences, for task.json. Default: true for a CrossEncoder, else "
        "unknown, so it takes both.",
        default=None,
    )
    num_choices: int | None = option(
        "Choices of a question, for task.json. Default: 4.", default=None, min=2
    )


def convert(
    path: str | os.PathLike, folder: str | os.PathLike, format: str = "huggingface", **options
) -> None:
    """Write a checkpoint in another format.

    >>> import bert_tf
    >>> bert_tf.convert("uncased_L-12_H-768_A-12", "converted")  # doctest: +SKIP

    Args:
        path: any checkpoint that --init_checkpoint accepts.
        folder: new folder.
        format: "huggingface" or "tf1".
        **options: flags of convert_checkpoint, such as `head` and `labels`.

    Raises:
        ValueError: the folder is not empty, or the checkpoint is corrupt or incomplete.
    """
    path, folder = os.fspath(path), os.fspath(folder)
    convert_checkpoint(
        make_options(
            ConvertOptions, init_checkpoint=path, output_dir=folder, output_format=format, **options
        )
    )


def convert_checkpoint(options: ConvertOptions) -> None:
    """Write --output_dir, which appears when complete."""
    check_new_folder(options.output_dir, "output_dir")
    source = read_checkpoint(options.init_checkpoint)
    config = find_config(options.model.bert_config_file, source)
    checkpoint, head, task, dropped = _select(source, config, options)
    vocab, do_lower_case = None, options.model.do_lower_case
    if options.model.vocab_file is None and checkpoint.tokenizer.vocab is None:
        logger.warning("There is no vocabulary next to %s: give --vocab_file.", checkpoint.source)
    else:
        files, do_lower_case = find_tokenizer(
            options.model.vocab_file, do_lower_case, checkpoint, config
        )
        vocab = files.vocab or ()
        tokenize = FullTokenizer(vocab, do_lower_case).tokenize
        for error in source.tokenizer.unsupported(do_lower_case, tokenize):
            logger.warning("%s. The new folder loses this setting.", error)

    logger.info("%s: %s, %d variables", source.source, head.name, len(checkpoint.arrays))
    for note in source.notes:
        logger.warning("%s", note)
    if dropped:
        logger.warning("dropped, because of --head=%s: %s", head.name, ", ".join(dropped))
    with atomic_folder(options.output_dir, "output_dir") as folder:
        write_folder(
            folder,
            checkpoint,
            config,
            head,
            None if task is None else task.values(),
            vocab,
            do_lower_case,
            options.output_format,
        )
        arguments = {} if task is None else task.arguments()
        size = sum(math.prod(shape_of(checkpoint.arrays, name)) for name in checkpoint.arrays)
        model = model_facts(options.init_checkpoint, head.name, arguments, size)
        architecture = head.architecture if options.output_format == "huggingface" else None
        write_conversion_card(folder, model, source.folder, architecture)
    logger.info("Wrote %s", options.output_dir)


def _select(
    source: PretrainedCheckpoint, config: BertConfig, options: ConvertOptions
) -> tuple[PretrainedCheckpoint, Head, Task | None, tuple[str, ...]]:
    """Return the checkpoint to write, its head, its task, and the names of dropped variables."""
    length = options.model.max_seq_length or source.longest_input(config)
    config.check_sequence_length(length)
    # The flag settles which of two lists of labels is right.
    source = source if options.labels is None else replace(source, labels=None)
    task, keeps_pooling = None, options.head in (None, "embeddings")
    if source.task is None and keeps_pooling:
        source.check_embeddings()
    if source.task is not None or (source.embeddings is not None and keeps_pooling):
        task, _ = load_task(replace(source, config=config), length)
    head_name = options.head or (task.name if task else None)
    head = find_head(source.arrays, head_name, source.architecture, source.source)
    known = [row.reference for row in name_table(config.num_hidden_layers)]
    known += [name for name in source.arrays if head.optional and head.owns(name)]
    arrays, dropped = select(source.arrays, head, known, options.head is not None)
    if task is not None and task.name != head.name:
        task = None
    if isinstance(task, TokenClassificationTask) and dropped:  # the CRF
        task = TokenClassificationTask(**task.arguments() | {"crf": None})
    checkpoint = replace(source, arrays=arrays, config=config, architecture=head.architecture)
    if head.has_labels:
        labels = _labels(checkpoint, config, task, options.labels)
        checkpoint = replace(checkpoint, labels=labels)
    if task is None:
        task, problem = load_task(replace(checkpoint, task=None, embeddings=None), length)
        if problem:
            logger.warning("No task.json is written. %s", problem)
    if task is not None:
        arguments = task.arguments()
        stated: dict = {"max_seq_length": options.model.max_seq_length}
        stated |= {n: getattr(options, n) for n in ("is_pair", "num_choices") if n in arguments}
        if arguments.get("labels"):
            stated["labels"] = checkpoint.labels
        task = type(task)(**arguments | {n: v for n, v in stated.items() if v is not None})
    return checkpoint, head, task, dropped


def _labels(
    checkpoint: PretrainedCheckpoint, config: BertConfig, task: Task | None, stated: str | None
) -> tuple[str, ...]:
    """Return the classifier's labels from the flag, else task.json, else config.json."""
    num_labels = shape_of(checkpoint.arrays, "output_weights")[0]
    if stated is not None:
        labels = split_labels(stated)
    else:
        labels = (checkpoint.labels or ()) if task is None else getattr(task, "labels", ())
    labels = labels or default_labels(config, num_labels) or ()
    if len(labels) != num_labels or len(set(labels)) != len(labels):
        raise OptionError(
            "labels",
            f"{checkpoint.source} has {num_labels} outputs: give as many names, in their order, unlike "
            f"{join_names(labels) or 'none'}.",
        )
    return labels
