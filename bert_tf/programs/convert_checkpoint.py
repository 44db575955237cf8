"""convert_checkpoint: a checkpoint of any kind as one of TensorFlow 1's kind, or for Hugging Face.

Ours are of the former kind: the same names, with the optimizer's moments beside the weights. What is
written has no moments.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import tensorflow as tf

from bert_tf.data.files import check_new_folder, new_folder
from bert_tf.interop import sidecar
from bert_tf.interop.checkpoint import PretrainedCheckpoint, shape_of
from bert_tf.interop.heads import find_head, select
from bert_tf.interop.huggingface import name_table
from bert_tf.interop.initial import folder_of, read_checkpoint
from bert_tf.model_folder import read_task
from bert_tf.options import Options, check_license, option
from bert_tf.pretrained import FORMATS, write_folder
from bert_tf.programs.verify import verify_conversion
from bert_tf.registry import TYPES, TaskType
from bert_tf.report.model_card import write_conversion_card
from bert_tf.tasks.base import Task
from bert_tf.tasks.of_checkpoint import default_labels, make_task

logger = logging.getLogger(__name__)

_MOST_PADDING = 128  # rows: tables are padded to a multiple of 8, 64 or 128


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(Options):
    """The flags of convert_checkpoint."""

    init_checkpoint: str = option(
        "What to convert: a TF1 checkpoint or a run of ours, a Hugging Face folder or hf://org/name, an "
        "object-based checkpoint of tf-models-official, or a SavedModel encoder of TF Hub."
    )
    output_dir: str = option("New folder.")
    output_format: str = option(
        "tf1: bert_model.ckpt with bert_config.json and vocab.txt, which we and the original read. "
        "huggingface: config.json, model.safetensors and the files of the tokenizer.",
        choices=FORMATS,
    )
    head: str | None = option(
        "The head to write, where the checkpoint does not say or has several; variables besides are "
        "left out then. Default: all that there is.",
        default=None,
        choices=tuple(TYPES),
    )
    labels: str | None = option(
        "Comma list of the classifier's labels, in the order of its outputs. Default: those that lie "
        "beside the checkpoint.",
        default=None,
    )
    bert_config_file: str | None = option(
        "Architecture. Default: the one beside the checkpoint.", default=None
    )
    vocab_file: str | None = option(
        "Vocabulary. Default: the one beside the checkpoint.", default=None
    )
    do_lower_case: bool | None = option(
        "Whether text is lower-cased. Default: what lies beside the checkpoint says so, else the "
        "vocabulary.",
        default=None,
    )
    max_seq_length: int | None = option(
        "Tokens of an example, for task.json. Default: as many as there are positions.",
        default=None,
    )
    is_pair: bool | None = option(
        "Whether the classifier takes pairs of sentences, for task.json. Default: unknown, so that it "
        "takes both.",
        default=None,
    )
    num_choices: int = option("Choices of a question, for task.json.", default=4)
    license: str | None = option(
        "Licence of the model, as Hugging Face's hub names it (apache-2.0, cc-by-4.0): for the model "
        "card, README.md. Default: what the README.md beside the checkpoint says, else other.",
        default=None,
    )
    verify: bool = option(
        "Read back what was written, and run the model on both sides (`transformers` or the "
        "SavedModel, where there is one); prints the largest difference.",
        default=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_license(self.license)


def convert(
    path: str | os.PathLike, folder: str | os.PathLike, format: str = "huggingface", **options
) -> None:
    """Write a checkpoint in another format.

    >>> import bert_tf
    >>> bert_tf.convert("uncased_L-12_H-768_A-12", "converted")  # doctest: +SKIP

    Args:
        path: any checkpoint that --init_checkpoint may name.
        folder: new folder.
        format: "huggingface" or "tf1".
        **options: the flags of convert_checkpoint, such as `head`, `labels`, `verify`.

    Raises:
        TypeError: there is no such option.
        ValueError: the folder is not empty, or the checkpoint is damaged or incomplete.
    """
    path, folder = os.fspath(path), os.fspath(folder)
    convert_checkpoint(
        ConvertOptions(init_checkpoint=path, output_dir=folder, output_format=format, **options)
    )


def convert_checkpoint(options: ConvertOptions) -> None:
    """Writes --output_dir, which appears whole or not at all.

    Raises:
        ValueError: what is to be converted is damaged or incomplete, or its parts do not fit each
            other; or, with --verify, the two sides differ.
    """
    check_new_folder(options.output_dir, "output_dir")
    source = read_checkpoint(options.init_checkpoint)
    checkpoint, head, task, left_out = _describe(source, options)
    vocab = _vocabulary(options.vocab_file, checkpoint)
    do_lower_case = sidecar.find_case(options.do_lower_case, checkpoint, vocab)
    if do_lower_case is None and vocab is not None:
        do_lower_case = True
        logger.warning("Nothing says whether text is lower-cased; --do_lower_case=true is assumed.")

    logger.info("%s: %s", source.source, ", ".join((head.name, *_sizes(checkpoint))))
    for note in source.notes:
        logger.warning("%s", note)
    if left_out:
        logger.warning("left out, as --head=%s says: %s", head.name, ", ".join(left_out))
    if options.output_format == "tf1":
        _warn_of_the_original(checkpoint)
    with new_folder(options.output_dir, "output_dir") as folder:
        write_folder(
            folder,
            checkpoint,
            checkpoint.config,
            head,
            task,
            vocab,
            do_lower_case,
            options.output_format,
        )
        write_conversion_card(
            folder,
            options,
            folder_of(source.source),
            head.name,
            task,
            sum(math.prod(shape_of(checkpoint.arrays, name)) for name in checkpoint.arrays),
            head.architecture if options.output_format == "huggingface" else None,
        )
    logger.info("Wrote %s", options.output_dir)
    for name in sorted(tf.io.gfile.listdir(options.output_dir)):
        logger.info("  %s", name)
    if options.verify:
        verify_conversion(checkpoint, head, options.output_dir)


def _describe(
    source: PretrainedCheckpoint, options: ConvertOptions
) -> tuple[PretrainedCheckpoint, TaskType, Task | None, tuple[str, ...]]:
    """The checkpoint with all that is known of it, its head, its task, and what is left out."""
    config = sidecar.find_config(options.bert_config_file, source)
    task = read_task(folder_of(source.source))
    stated = options.head or (task.name if task else None)
    head = find_head(source.arrays, stated, source.architecture, source.source)
    known = (row.ours for row in name_table(config.num_hidden_layers))
    arrays, left_out = select(source.arrays, head, known, options.head is not None)
    if task is not None and task.name != head.name:
        task = None
    checkpoint = replace(source, arrays=arrays, config=config, architecture=head.architecture)
    _check_rows(checkpoint)
    if head.has_labels:
        labels = _labels(checkpoint, task, options.labels)
        checkpoint = replace(checkpoint, labels=labels)
        if task is not None and _labels_of(task) not in ((), labels):
            task = type(task)(**{**task.arguments(), "labels": labels})
    if task is None:
        length = options.max_seq_length or config.max_position_embeddings
        config.check_sequence_length(length)
        task = make_task(
            head,
            config,
            checkpoint.labels or (),
            max_seq_length=length,
            is_pair=options.is_pair,
            num_choices=options.num_choices,
        )
        if task is None and head.name == "classification":
            logger.warning(
                "No task.json is written: we have no task that predicts several numbers."
            )
    return checkpoint, head, task, left_out


def _check_rows(checkpoint: PretrainedCheckpoint) -> None:
    """Refuses a configuration of other sizes than the embeddings have."""
    config = checkpoint.config
    for name, rows in (
        ("word_embeddings", "vocab_size"),
        ("position_embeddings", "max_position_embeddings"),
        ("token_type_embeddings", "type_vocab_size"),
    ):
        found = shape_of(checkpoint.arrays, f"bert/embeddings/{name}")
        if found != (getattr(config, rows), config.hidden_size):
            raise ValueError(
                f"bert/embeddings/{name} in {checkpoint.source} is {list(found)}, but the configuration "
                f"says [{getattr(config, rows)}, {config.hidden_size}] (`{rows}`, `hidden_size`). They "
                "belong to different models: name the right one with `bert_config_file`."
            )


def _vocabulary(vocab_file: str | None, checkpoint: PretrainedCheckpoint) -> Sequence[str] | None:
    """The WordPieces, after a look at whether they are as many as the word embeddings."""
    vocab = sidecar.find_vocabulary(vocab_file, checkpoint)
    size = checkpoint.config.vocab_size
    if vocab is None:
        logger.warning(
            "There is no vocabulary beside %s, so none is written; --vocab_file names one.",
            checkpoint.source,
        )
    elif len(vocab) > size:
        raise ValueError(
            f"The vocabulary {vocab_file or checkpoint.vocab_file or 'in tokenizer.json'} has "
            f"{len(vocab)} tokens, but there are word embeddings for {size} (`vocab_size`), so some "
            "tokens would have none. They belong to different models: give the `vocab_file` of this "
            "one."
        )
    elif len(vocab) < size - _MOST_PADDING:
        raise ValueError(
            f"The vocabulary {vocab_file or checkpoint.vocab_file or 'in tokenizer.json'} has "
            f"{len(vocab)} tokens, but there are word embeddings for {size} (`vocab_size`); a table is "
            f"padded by at most {_MOST_PADDING}. Give the `vocab_file` of this model. If the rest of "
            "the table is not used indeed, fill a copy of the vocabulary with lines [unused0], "
            "[unused1], ..."
        )
    elif len(vocab) < size:
        logger.warning(
            "The vocabulary has %d tokens and there are %d word embeddings: padding, or tokens that "
            "were added elsewhere.",
            len(vocab),
            size,
        )
    sidecar.compare_vocabularies(vocab_file, checkpoint)
    return list(vocab) if vocab is not None else None


def _labels(
    checkpoint: PretrainedCheckpoint, task: Task | None, stated: str | None
) -> tuple[str, ...]:
    """The names of the classifier's outputs: of the flag, else of task.json, else of config.json."""
    num_labels = shape_of(checkpoint.arrays, "output_weights")[0]
    if stated is not None:
        labels = tuple(label.strip() for label in stated.split(","))
    else:
        labels = _labels_of(task) if task is not None else checkpoint.labels
    labels = labels or default_labels(checkpoint.config, num_labels)
    if not labels:
        raise ValueError(
            f"The classifier in {checkpoint.source} has {num_labels} outputs, but nothing beside it "
            "names them. Give `labels` with as many names, in the order of the outputs; the original "
            "run_classifier.py has the order of its processor's get_labels()."
        )
    noted = _labels_of(task) if stated is None and task is not None else ()
    if noted and checkpoint.labels not in (None, noted):
        raise ValueError(
            f"Beside {checkpoint.source}, task.json says that the labels are {', '.join(noted)}, and "
            f"config.json that they are {', '.join(checkpoint.labels)}. Give the right ones with "
            "`labels`."
        )
    if len(labels) != num_labels or len(set(labels)) != len(labels):
        raise ValueError(
            f"The labels are {', '.join(labels)}, but the classifier in {checkpoint.source} has "
            f"{num_labels} outputs. Give as many labels, each once."
        )
    return labels


def _labels_of(task: Task) -> tuple[str, ...]:
    """Of a task that has any."""
    return getattr(task, "labels", ())


def _warn_of_the_original(checkpoint: PretrainedCheckpoint) -> None:
    """Says what google-research/bert cannot do with an architecture; we can."""
    config = checkpoint.config
    if config.hidden_act == "gelu_erf":
        logger.warning(
            "`hidden_act` is gelu_erf, the exact form. We compute it; the original TF1 code knows only "
            "the tanh form and stops at this name."
        )
    if config.layer_norm_eps != 1e-12:
        logger.warning(
            "`layer_norm_eps` is %g. We use it; the original TF1 code always uses 1e-12.",
            config.layer_norm_eps,
        )


def _sizes(checkpoint: PretrainedCheckpoint) -> tuple[str, ...]:
    config = checkpoint.config
    sizes = (
        f"{len(checkpoint.arrays)} variables",
        f"{config.num_hidden_layers} layers",
        f"hidden size {config.hidden_size}",
        f"{config.vocab_size} WordPieces",
    )
    labels = checkpoint.labels
    return (*sizes, f"labels {', '.join(labels)}") if labels else sizes
